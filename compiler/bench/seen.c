/* bench/seen: see bench/seen.h. */
#include "bench/seen.h"

#include <math.h>

enum { MOST_PAIRS = 1 << 20 }; /* that the reference goes through in half a second */

typedef struct tally {
  const spec *spec;
  long double *scores, *out;
  int64_t seen, pairs;
} tally;

static void count_query(void *context, const reference_query *query, int64_t batch, int64_t head) {
  tally *t = context;
  (void)batch, (void)head;
  reference_attention(t->spec, query, t->scores, t->out);
  for (int64_t key = 0; key < query->keys; key++) t->seen += t->scores[key] > -INFINITY;
  t->pairs += query->keys;
}

double bench_seen_share(const attention_trial *t) {
  arena *a = arena_create();
  const int64_t *q = t->q->shape, keys = t->k->shape[2];
  int64_t step = q[0] * q[1] * q[2] * keys / MOST_PAIRS + 1;
  tally of = {.spec = t->spec,
              .scores = arena_array(a, long double, keys + 1),
              .out = arena_array(a, long double, t->spec->pairwise->value_dim)};
  attention_trial_queries(a, t, step, count_query, &of);
  arena_destroy(a);
  return (double)of.seen / (double)of.pairs;
}
