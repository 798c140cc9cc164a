/* gpu/widen_tables: the columns of a polynomial bias as numbers to be read in loops, for GPU kernels.
 *
 * Sums of factor times monomial stand one after the other: sum i is summands [starts[i], starts[i + 1]).
 * Gains are those of column 0, of column 1, ...; past the last column there is one without key and gains, which padding
 * has, and, without lanes, one of what is constant along a row of scores and has no column.
 */
#pragma once

#include "mlir/ir.h"
#include "plan/widen.h"

/* A list of sums; starts, monomials, factors: names of its tables. */
typedef struct widen_sums {
  const char *starts, *monomials, *factors;
  int count, n_summands;
  int32_t *start;    /* [count + 1] */
  int32_t *monomial; /* [n_summands] */
  double *factor;    /* [n_summands] */
} widen_sums;

typedef struct widen_tables {
  int n_monomials, n_constant; /* of columns' sums, and after them those that only what is constant has */
  monomial *monomial;
  int n_gains;      /* of columns */
  widen_sums gains; /* [n_gains], and after them those of what is constant */
  widen_sums keys;  /* [n_columns + 1]; without lanes none */
  int32_t *gain_weight;  /* [gains.count] */
  int n_starts;
  int32_t *column_start; /* [n_starts]: gains of a column */
  int n_columns, n_lanes;
  int32_t *lane_column, *lane_low_key, *lane_low_query; /* [n_lanes] */
} widen_tables;

/* What goes back from columns to weights and to coordinates. */
typedef struct widen_slopes {
  widen_sums gains, keys;  /* [axes][n_gains], [axes][n_columns]: what they grow by where a coordinate does */
  int32_t *gain_column;    /* [n_gains] */
  int32_t *weight_start, *weight_gain; /* [n_weights + 1], [n_gains]: gains of a weight */
  int32_t *passing_start[2], *passing_lane[2]; /* of q, of k: [n_columns + 1], [n_lanes]: lanes of a row that a column's
                                                  gradient comes in by */
  int n_weights, n_columns, n_gains, n_lanes;
} widen_slopes;

/* l: NULL: of columns in float32 that are no lanes of a row: the queries' gains alone. */
widen_tables widen_tables_make(arena *a, const plan_widen *p, const widen_layout *l);
/* As constant arrays of the module: gain_starts, ..., gain_weights, column_starts, and of a layout key_starts, ...,
 * lane_columns, lane_low_keys, lane_low_queries. */
void widen_tables_emit(ir *b, arena *a, const widen_tables *t, const char *prefix);

/* Adds the monomials of slopes to the tables', of a layout. */
widen_slopes widen_slopes_make(arena *a, widen_tables *t, const plan_widen *p, const widen_layout *l);
/* slope_starts, key_slope_starts, ..., gain_columns, weight_starts, weight_gains, and of q and k query_lane_starts, ...
 */
void widen_slopes_emit(ir *b, arena *a, const widen_slopes *s, const char *prefix);

const char *widen_table_name(arena *a, const char *prefix, const char *table);
