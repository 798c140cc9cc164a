/* denormals_test: no kernel makes or takes a denormal where its inputs have none.
 *
 * A multiply-add with a denormal operand takes some processors 150 cycles: weights of attention just above 2^-149 of
 * the largest once made it three times as slow there. The processor itself keeps count of it: the flags "denormal
 * operand" and "underflow" of MXCSR stay set once raised, so they are cleared before a call and read after it. And as
 * there is nothing to flush, the caller's flush-to-zero changes no bit.
 */
#include "described.h"
#include "scoped.h"
#include "test.h"
#include "verify/trial_attention.h"

#include <math.h>
#include <string.h>
#include <xmmintrin.h>

enum { DENORMAL_OPERAND = 2, UNDERFLOW = 16, FLAGS = 63, FLUSH = 0x8040 };

typedef struct description {
  const char *line;
  double spacing; /* of positions: whole numbers times this */
  int64_t tokens;
} description;

/* Points of a cube, the first of them 0: displacements and phases of 0 are what turns small numbers into smaller. */
static const DLTensor *places(arena *a, const spec *s, const description *d) {
  if (s->grid[0]) return NULL;
  double *values = arena_array(a, double, d->tokens * s->n_axes);
  int64_t side = (int64_t)ceil(pow((double)d->tokens, 1.0 / s->n_axes) - 1e-9);
  for (int64_t n = 0; n < d->tokens; n++) {
    int64_t rest = n;
    for (int axis = s->n_axes - 1; axis >= 0; axis--, rest /= side)
      values[n * s->n_axes + axis] = d->spacing * (double)(axis ? rest % side : rest);
  }
  return tensor_contiguous(a, NUMBER_F32, 2, (int64_t[]){d->tokens, s->n_axes}, values);
}

typedef int call(void *context);

/* The call's flags; its state beside them is round to nearest, with `flush` on top. */
static unsigned flags_of(call *run, void *context, unsigned flush) {
  unsigned before = _mm_getcsr();
  _mm_setcsr((before & ~(unsigned)(FLAGS | FLUSH)) | flush);
  int error = run(context);
  unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  assert_int_equal(error, 0);
  return after & FLAGS;
}

static void expect_none(const description *d, const char *target, unsigned flags) {
  if (flags & (DENORMAL_OPERAND | UNDERFLOW))
    fail_msg("%s, %s:%s%s", d->line, target, flags & DENORMAL_OPERAND ? " a denormal operand" : "",
             flags & UNDERFLOW ? " an underflow" : "");
}

/* ---- attention ---- */

typedef struct attending {
  const pegen_kernel *kernel;
  const attention_trial *trial;
  DLTensor *out;
} attending;

static int attend(void *context) {
  attending *a = context;
  return attention_trial_call(a->kernel, a->trial, a->out, 1);
}

static const description ATTENTION[] = {
    {"attention", 1, 100},
    {"alibi", 1, 500},
    {"alibi axes=2 heads=12", 0.7, 500},
    {"alibi axes=2 heads=4 grid=4,64", 1, 256},
    {"lookhere", 2.5, 500},
    {"relative_bias_table", 1, 200},
    {"lingeope grid=5,20", 1, 100},
    {"lingeope", 1, 64},
    {"pape role=pairwise heads=2", 1, 400},
    {"pape_ri role=pairwise heads=2", 1, 400},
    {"polynomial role=pairwise", 0.3, 200},
};

TEST(attention_has_none) {
  for (size_t i = 0; i < sizeof ATTENTION / sizeof *ATTENTION; i++) {
    const description *d = &ATTENTION[i];
    SCOPED arena *a = arena_create();
    spec *s = described(a, "%s", d->line);
    uint64_t random = 5;
    const char **targets;
    int heads = s->heads > 1 ? s->heads : 2, n_targets = trial_targets(a, NULL, &targets);
    for (int target = 0; target < n_targets; target++) {
      SCOPED_KERNEL *loaded = held(trial_load(a, s, targets[target], PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16, 2));
      for (number_type type = NUMBER_F32; type <= NUMBER_BF16; type++) {
        attention_trial t = {.spec = s, .operands = trial_random_operands(a, s, NUMBER_F32, &random)};
        attention_sizes sizes = {1, heads, heads, d->tokens, d->tokens};
        attention_trial_fill(a, &t, &sizes, type, ROWS_BHND, &random);
        t.positions = places(a, s, d);
        attending with = {run_kernel(loaded), &t, attention_trial_out(a, &t, ROWS_BHND)};
        expect_none(d, targets[target], flags_of(attend, &with, 0));
        attending flushed = {with.kernel, &t, attention_trial_out(a, &t, ROWS_BHND)};
        flags_of(attend, &flushed, FLUSH);
        assert_true(tensor_identical(with.out, flushed.out));
      }
    }
  }
}

/* The flags are seen through a call: with denormal values they are raised. */
TEST(flags_are_seen) {
  SCOPED arena *a = arena_create();
  spec *s = described(a, "%s", ATTENTION[0].line);
  uint64_t random = 5;
  const char **targets;
  assert_true(trial_targets(a, NULL, &targets) > 0);
  SCOPED_KERNEL *loaded = held(trial_load(a, s, targets[0], PEGEN_DTYPE_F32, 2));
  attention_trial t = {.spec = s};
  attention_trial_fill(a, &t, &(attention_sizes){1, 1, 1, 8, 8}, NUMBER_F32, ROWS_BHND, &random);
  *(float *)tensor_at(t.v, 0, 0, 3, 5) = 0x1p-130f;
  attending with = {run_kernel(loaded), &t, attention_trial_out(a, &t, ROWS_BHND)};
  assert_true(flags_of(attend, &with, 0) & DENORMAL_OPERAND);
}

/* ---- encode ---- */

typedef struct encoding {
  const pegen_kernel *kernel;
  const DLTensor *positions;
  const trial_operands *operands;
  DLTensor *q, *k, *q_out, *k_out;
} encoding;

static int encode(void *context) {
  encoding *e = context;
  return trial_call(e->kernel, e->positions, e->operands, e->q, e->q_out, e->k, e->k_out, 1);
}

static const description ENCODE[] = {
    {"rope", 1, 50},
    {"rope_axial", 1, 50},
    {"rope_mixed heads=3", 1, 50},
    {"geope1d", 1, 50},
    {"geope2d", 1, 50},
    {"geope3d", 1, 50},
    {"spherical", 1, 50},
    {"quatro heads=3", 1, 50},
    {"care heads=3", 1, 50},
    {"comrope_ap heads=2", 1, 50},
    {"liere heads=2 block=4", 0.1, 50},
    {"string_cayley heads=2", 1, 50},
};

/* Flags say nothing on x86-64-v2: there cvtsd2ss leaves the upper lanes of a register as they were, and LLVM computes
 * with all lanes where the lowest counts. A caller may have had anything in them, halves of addresses above all, which
 * differ from run to run. The later targets have the same arithmetic, by instructions that set all lanes. */
static bool flags_count(const char *target) { return strcmp(target, "x86-64-v2") != 0; }

TEST(encode_has_none) {
  for (size_t i = 0; i < sizeof ENCODE / sizeof *ENCODE; i++) {
    const description *d = &ENCODE[i];
    SCOPED arena *a = arena_create();
    spec *s = described(a, "%s", d->line);
    uint64_t random = 5;
    const char **targets;
    int heads = s->heads > 1 ? s->heads : 2, n_targets = trial_targets(a, NULL, &targets);
    trial_operands operands = trial_random_operands(a, s, NUMBER_F32, &random);
    encoding e = {.positions = places(a, s, d), .operands = &operands};
    e.q = tensor_rows(a, NUMBER_F32, ROWS_BNHD, 1, heads, d->tokens, s->head_dim);
    e.k = tensor_rows(a, NUMBER_F32, ROWS_BNHD, 1, heads, d->tokens, s->head_dim);
    e.q_out = tensor_copy(a, e.q);
    e.k_out = tensor_copy(a, e.k);
    tensor_randomize(e.q, &random);
    tensor_randomize(e.k, &random);
    for (int target = 0; target < n_targets; target++) {
      SCOPED_KERNEL *loaded = held(trial_load(a, s, targets[target], PEGEN_DTYPE_F32, 2));
      e.kernel = run_kernel(loaded);
      unsigned flags = flags_of(encode, &e, 0);
      if (flags_count(targets[target])) expect_none(d, targets[target], flags);
    }
  }
}

int main(void) { return run_listed(); }
