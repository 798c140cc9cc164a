/* plan/widen: how a polynomial bias becomes columns of q and k, and how a kernel computes them.
 *
 * In: weights and shapes (algebra/polynomial.h). With positions counted from the origin, delta = s_j - s_i, every
 * shape is multiplied out in the key's coordinates s_j,
 *
 *     bias = sum over columns c of  key_c(s_j) * query_c(i),
 *     query_c(i) = sum over weights w of weight_w(i) * gain_{w,c}(s_i),
 *
 * with key_c a polynomial of constant coefficients and gain a polynomial in the query's own coordinates.
 * What is constant along a softmax row (the column of key 1) is dropped unless exact scores are asked for or there are
 * tokens that pass through, whose scores have no bias and must not be shifted against the others, or a function of
 * scores follows; and
 * monomials whose query sides are multiples of one another share a column. PaPE (section 4.1)
 * widens by 3m + 2 columns for the same scores.
 *
 * Attention with the bias in it (role "pairwise", plan/attention.h) has the same columns in float32, from an origin of
 * each tile of queries, and no layout: no row is widened. There keys have numbers of their inputs as coordinates, too.
 *
 * A kernel computes gains and keys once a token, weights once a query token and head: with terms in the
 * lanes, from prepared products of operands and the query halves of the polynomial. Everything of a
 * query is float32; positions less the origin and their powers are float64.
 */
#pragma once

#include "algebra/polynomial.h"
#include "base/number.h"
#include "plan/plan.h"

enum { WIDEN_ALIGNMENT = 8 }; /* E is a multiple of WIDEN_ALIGNMENT */

/* Columns split into two in 16 bits are right to 2^-this of the largest score. Above degree 3 larger terms cancel. */
static inline int widen_split_bits(const spec *s) { return s->polynomial->degree > 3 ? 11 : 13; }

typedef struct widen_column {
  int n_key; /* key = sum of key_factor * s^key, in all coordinates of a key */
  monomial *key;
  double *key_factor;
} widen_column;

/* One summand of gain_{weight,column}: factor * s^power. */
typedef struct widen_gain {
  int weight, column;
  monomial power;
  double factor;
} widen_gain;

/* A channel of the widened row, from head_dim on: a column or, in 16 bits, a part of one. */
typedef struct widen_lane {
  int column;          /* -1: padding, zeros */
  bool low_query;      /* what rounding took from the query's value, not the rounded value itself */
  bool low_key;
} widen_lane;

typedef struct widen_layout {
  int out_dim; /* E */
  int n_lanes; /* E - head_dim */
  widen_lane *lane;
  double *scale; /* [n_columns] powers of two: k holds key * scale, q query / scale. Other than 1 in float16 alone */
  bool is_split;
} widen_layout;

typedef struct plan_widen plan_widen;
struct plan_widen {
  const spec *spec;
  const polynomial *p;
  int n_columns;
  widen_column *column;
  int n_gains;
  widen_gain *gain; /* sorted by weight, then column */
  int n_constant;
  widen_gain *constant; /* the query side of the dropped column of key 1, sorted by weight; empty where it is kept */
  widen_layout layout[NUMBER_CHANNEL_TYPES]; /* by number_type; of rows that are widened */

  plan *values;        /* what is prepared once per call and head */
  int n_queries;
  const expr **query;  /* the polynomial's, in float32 */
  /* weight w = sum over terms and products of query[product_query] * fixed */
  int *first_product;  /* [n_weights + 1] into the products */
  int *product_query;  /* -1: 1 */
  const expr **fixed;  /* float32 */
};

/* Coordinates that a key's columns are made of: those of its position, and numbers of its inputs. */
static inline int plan_widen_coordinates(const plan_widen *p) { return p->spec->n_axes + p->p->n_keys; }

/* NULL after a diag_error. */
plan_widen *plan_widen_build(arena *a, const spec *s);

/* Whether the column of key 1 is there: scores then are the description's own, not up to a constant for each query. */
bool plan_widen_keeps_constant(const spec *s);

/* What is summed over terms to a query's weights, [weights]. */
const expr **plan_widen_weights(arena *a, const plan_widen *p);

/* Whether a weight goes into some of `count` lanes from `first` on. */
bool plan_widen_has_gain(const plan_widen *p, const widen_layout *l, int weight, int first, int count);

/* Meaning of a lane for headers: "h w, low part of the query's". */
const char *plan_widen_lane_text(arena *a, const plan_widen *p, const widen_layout *l, int lane);

void plan_widen_print(FILE *out, const plan_widen *p);
