/* verify/reference_attention: attention as it is written, one query at a time, in long double.
 *
 * A plain softmax over all keys: no tiles, no running maximum. A pair's bias is evaluated by the
 * interpreter, a pair's rotation exponentiated by verify/reference.c.
 */
#pragma once

#include "spec/spec.h"

/* One query, and the keys of its head. */
typedef struct reference_query {
  const double *q;         /* [head_dim] */
  const double *position;  /* [axes] */
  int64_t token;           /* index of the query */
  int64_t index;           /* the same in the sequence of keys, which says whether it is a prefix token */
  const double *k, *v;     /* [keys][head_dim], [keys][value_dim] */
  const double *positions; /* [keys][axes] */
  int64_t keys;
  int64_t visible;         /* keys [0, visible) are seen */
  int head;                /* row of per-head leaves */
  double scale;            /* 0: the description's, see spec_scale */
  const double *const *operands;
  const double *const *inputs; /* [inputs] the query's rows; of keys those of all, from key 0 on */
  const double *origin; /* [axes] from which a polynomial is multiplied out, of widened rows; NULL: from nearby */
} reference_query;

/* Whether one of the two is a prefix token: the pair has no bias and no rotation. */
bool reference_pair_is_plain(const spec *s, const reference_query *query, int64_t key);
/* Where the pair is, for a score: delta [SPEC_MAX_PLACES], of which `product` is scale q . k. */
void reference_score_places(const spec *s, const reference_query *query, int64_t key, long double product,
                            double *delta);
/* Rows of inputs of a pair [n_inputs]: the query's, and the key's. */
void reference_pair_inputs(const spec *s, const reference_query *query, int64_t key, const double **rows);
/* scale q . k, turned, with a polynomial's bias: what a score is a function of. */
long double reference_pair_product(const spec *s, const reference_query *query, int64_t key);

/* The description's sink of the query's head, -infinity where there is none; log of the sum of exp of all scores. */
long double reference_sink(const spec *s, const reference_query *query);
long double reference_log_sum(const spec *s, const reference_query *query, const long double *scores);
/* scores [keys], -infinity where a key is not seen; out [value_dim], zeros where none is. */
void reference_attention(const spec *s, const reference_query *query, long double *scores, long double *out);
