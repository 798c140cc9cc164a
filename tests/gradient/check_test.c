/* That check sees what is wrong with gradients: an entry whose results are spoilt behind its back fails, each of what
 * it writes in its turn, and the entry as it is passes. */
#include "described.h"
#include "scoped.h"
#include "test.h"
#include "verify/check_kind.h"

#include <stdio.h>
#include <unistd.h>

/* Rows of all calls; of those that ask for more than rows; of those that fill a table of gradients. */
enum {
  SPOIL_NOTHING,
  SPOIL_Q,
  SPOIL_K,
  SPOIL_Q_BESIDE_SUMS,
  SPOIL_K_BESIDE_SUMS,
  SPOIL_Q_BY_TABLE,
  SPOIL_K_BY_TABLE,
  SPOIL_OPERAND,
  SPOIL_POSITION,
  SPOIL_COUNT
};

static pegen_entry *entry, *finish;
static int spoilt, found; /* what is spoilt, and whether there was such a gradient */

/* One number of a tensor, a little: by a part in 2^12 of what is usual there. */
static void spoil(const DLTensor *t) {
  if (!t) return;
  found = 1;
  if (t->dtype.bits == 64) *(double *)t->data += 1;
  else *(float *)t->data += 0x1p-12f;
}

static void spoil_sums(const pegen_grad_args *grad) {
  if (spoilt == SPOIL_OPERAND && grad->operands) spoil(grad->operands[0]);
}

static void spoil_rows(const pegen_args *args) {
  const pegen_grad_args *grad = args->grad;
  bool sums = grad->operands || grad->inputs || grad->positions;
  if (spoilt == SPOIL_Q || (spoilt == SPOIL_Q_BESIDE_SUMS && sums) || (spoilt == SPOIL_Q_BY_TABLE && args->table))
    spoil(grad->q);
  if (spoilt == SPOIL_K || (spoilt == SPOIL_K_BESIDE_SUMS && sums) || (spoilt == SPOIL_K_BY_TABLE && args->table))
    spoil(grad->k);
}

static int spoiling(const pegen_args *args, int part, int parts) {
  int error = entry(args, part, parts);
  if (error || part != 0) return error; /* the last one that is called */
  spoil_rows(args);
  if (spoilt == SPOIL_POSITION) spoil(args->grad->positions);
  return 0;
}

static int spoiling_finish(const pegen_args *args, int part, int parts) {
  int error = finish(args, part, parts);
  if (!error && part == 0) spoil_sums(args->grad);
  return error;
}

static bool passes(arena *a, const spec *s, const pegen_kernel *kernel) {
  pegen_kernel other = *kernel;
  entry = kernel->encode_backward, finish = kernel->encode_backward_finish;
  other.encode_backward = spoiling;
  other.encode_backward_finish = spoiling_finish;
  checker c = {.memory = a, .spec = s, .kernel = &other, .random = 1, .target = "host"};
  fflush(stdout);
  int out = dup(1);
  assert_non_null(freopen("/dev/null", "w", stdout));
  if (s->polynomial) c.sample = check_widen.choose(&c), check_widen.run(&c);
  else check_encode_backward(&c);
  fflush(stdout);
  dup2(out, 1);
  close(out);
  return !c.n_failed;
}

TEST(what_is_spoilt_fails) {
  static const char *const specs[] = {"rope_mixed", "geope3d", "sincos", "pape_ri"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    SCOPED arena *a = arena_create();
    spec *s = described(a, "%s", specs[i]);
    SCOPED_KERNEL *loaded = held(trial_load_gradients(a, s, NULL, PEGEN_DTYPE_F32, 1));
    for (spoilt = 0; spoilt < SPOIL_COUNT; spoilt++) {
      found = 0;
      bool pass = passes(a, s, run_kernel(loaded));
      if (pass != !found) print_error("%s, spoilt %d: %s\n", specs[i], spoilt, pass ? "passes" : "fails");
      assert_true(pass == !found);
      if (spoilt >= SPOIL_Q && spoilt <= SPOIL_K_BESIDE_SUMS) assert_true(found);
      if (spoilt == SPOIL_Q_BY_TABLE || spoilt == SPOIL_K_BY_TABLE)
        assert_int_equal(found, run_kernel(loaded)->prepare_backward != NULL);
    }
  }
}

int main(void) { return run_listed(); }
