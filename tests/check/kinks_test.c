/* Operands that `check` draws lie on both sides of every kind of kink. */
#include "described.h"
#include "scoped.h"
#include "test.h"
#include "verify/kinks.h"

#include <math.h>

/* The kink of kinks.lua is 0 where `edge` and w have one sign and |w| is less than |edge|. */
typedef struct kink {
  const char *kind;
  double edge;
} kink;

static bool is_beyond(const kink *k, double w) { return k->edge > 0 ? w > k->edge : w < k->edge; }

static void crosses(void **state) {
  const kink *k = *state;
  enum { MOST = 64 };
  double w[MOST];
  double *const operands[] = {w};
  SCOPED arena *a = arena_create();
  const spec *s = described(a, "./kinks kind=%s", k->kind);
  assert_true(s->n_operands == 1 && s->n_blocks <= MOST);
  int beyond = 0;
  uint64_t random = 3;
  for (int i = 0; i < s->n_blocks; i++) w[i] = random_uniform(&random, -1, 1);
  kinks_cross(s, NUMBER_F32, &random, operands);
  for (int i = 0; i < s->n_blocks; i++) beyond += is_beyond(k, w[i]);
  assert_true(beyond > 0);
}

int main(void) {
  static kink all[] = {{"max", 5}, {"min", -5}, {"floor", 63}, {"where", 3}, {"abs", 5}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) list_row(all[i].kind, crosses, &all[i]);
  return run_listed();
}
