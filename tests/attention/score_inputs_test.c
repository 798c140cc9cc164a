/* score_inputs_test [sm_80]: scores that read inputs of queries and of keys, against the reference: of heads of their
 * own, of those of k, of one head or one batch for all, in any strides; gradients, in any number of parts and added to
 * what is there; rows of keys that nobody sees; sequences of different lengths; and what is refused. */
#include "fixture.h"
#include "gradients.h"
#include "scoped.h"
#include "test.h"
#include "windows.h"

#include <math.h>
#include <string.h>

enum { BATCHES = 2, HEADS = 4, K_HEADS = 2, TOKENS = 37, FEW = 3, KEYS = 53 };

static const char *wanted; /* a GPU, whose threads run here; NULL: processors */

static fixture open_kind(const char *kind, int skipped, uint64_t seed) {
  return fixture_open(wanted, seed, "./score_inputs kind=%s skip_tokens=%s", kind, skipped ? "2" : "0");
}

/* Inputs of all heads or of fewer, of all batches or of one; with gaps between rows. */
static void fill_inputs(fixture *f, attention_trial *t, int round) {
  const spec *s = f->spec;
  const int64_t heads[] = {HEADS, 1, K_HEADS};
  for (int i = 0; i < s->n_inputs; i++) {
    bool of_keys = s->input[i].of_keys, of_pairs = spec_input_is_of_pairs(s, i);
    int64_t size = spec_input_is_pair(&s->input[i]) ? KEYS : spec_input_numbers(&s->input[i]),
            batches = (round + i) % 4 || !of_pairs ? BATCHES : 1,
            own = of_pairs ? heads[(round + i) % (of_keys ? 3 : 2)] : HEADS, tokens = of_keys ? KEYS : t->q->shape[2];
    DLTensor *rows = tensor_rows(f->memory, NUMBER_F32, ROWS_GAPS, batches, own, tokens, size);
    double *values = arena_array(f->memory, double, batches * own * tokens * size);
    tensor_randomize(rows, &f->random);
    for (int64_t row = 0; row < batches * own * tokens; row++)
      for (int64_t c = 0; c < size; c++)
        values[row * size + c] = *(float *)tensor_at(rows, row / tokens / own, row / tokens % own, row % tokens, c);
    if (!s->input[i].size) rows->ndim = 3;
    t->inputs.values[i] = values;
    t->inputs.tensors[i] = rows;
  }
}

static attention_trial trial_of(fixture *f, int round) {
  attention_trial t = {.spec = f->spec, .causal = round % 2};
  attention_sizes sizes = {BATCHES, HEADS, K_HEADS, round < 6 ? TOKENS : FEW, KEYS};
  attention_trial_fill(f->memory, &t, &sizes, NUMBER_F32, (row_order)(round % ROW_ORDER_COUNT), &f->random);
  fill_inputs(f, &t, round);
  t.positions = fixture_positions(f, NUMBER_F32, 0, sizes.tokens);
  t.k_positions = fixture_positions(f, NUMBER_F32, 0, KEYS);
  t.operands = trial_random_operands(f->memory, f->spec, NUMBER_F32, &f->random);
  return t;
}

/* ---- against the reference ---- */

static void add_again(fixture *f, const pegen_kernel *kernel, const attention_gradients *g) {
  attention_gradients twice = attention_gradients_room(f->memory, g);
  assert_int_equal(attention_gradients_call(kernel, &twice, 3), 0);
  twice.flags = PEGEN_GRAD_ACCUMULATE;
  twice.q = twice.k = twice.v = NULL;
  assert_int_equal(attention_gradients_call(kernel, &twice, 2), 0);
  for (int i = 0; i < f->spec->n_inputs; i++) {
    DLTensor once = *g->inputs[i], sum = *twice.inputs[i];
    once.ndim = sum.ndim = 4;
    /* What several heads or batches give to one number of a pair is added to what is there one by one. */
    bool is_one_by_one = spec_input_is_pair(&f->spec->input[i]) && once.shape[0] * once.shape[1] < BATCHES * HEADS;
    for (int64_t row = 0; row < once.shape[0] * once.shape[1] * once.shape[2]; row++) {
      int64_t b = row / once.shape[2] / once.shape[1], h = row / once.shape[2] % once.shape[1], n = row % once.shape[2];
      for (int64_t c = 0; c < once.shape[3]; c++) {
        float twice_is = *(float *)tensor_at(&sum, b, h, n, c), is = *(float *)tensor_at(&once, b, h, n, c);
        assert_true(fabsf(twice_is - 2 * is) <= (is_one_by_one ? 0x1p-20f : 0));
      }
    }
  }
}

static void one_call(fixture *f, const pegen_kernel *kernel, int round) {
  attention_trial t = trial_of(f, round);
  attention_gradients g;
  trial_error worst = {0};
  assert_int_equal(attention_gradients_fill(f->memory, &g, &t, kernel, round % 3 == 0, 1, ROWS_GAPS, &f->random), 0);
  attention_trial_compare(f->memory, kernel, &t, g.out, 1, &worst);
  if (worst.spoilt || !(worst.error <= 0x1p-18L)) fail_msg("out: %s", trial_error_text(f->memory, &worst));
  if (round % 2 && f->spec->pairwise->rotates) attention_gradients_of_positions(f->memory, &g, NUMBER_F64);
  assert_int_equal(attention_gradients_call(kernel, &g, 1), 0);
  gradients_compare(f->memory, &g, 1);
  gradients_assert_parts(f->memory, kernel, &g, 4);
  add_again(f, kernel, &g);
}

TEST(against_the_reference) {
  if (wanted) skip();
  static const char *const kinds[] = {"forgetting", "padding", "documents", "tempered", "mixed",   "turned",
                                      "stays",      "padded",  "leaning",   "pairs",    "factors", "factored"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    SCOPED fixture f = open_kind(kinds[i], i % 2, 3 + i);
    SCOPED_KERNEL *loaded =
        held(trial_load_gradients(f.memory, f.spec, f.targets[(int)i % f.n_targets], PEGEN_DTYPE_F32, 1));
    for (int round = 0; round < 4; round++) one_call(&f, run_kernel(loaded), round);
    for (int round = 6; round < 12 && !f.spec->pairwise->rotates; round += 1 + (f.spec->polynomial != NULL)) /* few */
      one_call(&f, run_kernel(loaded), round);
  }
}

/* As a GPU's threads: keys' inputs of one head, of k's and of q's. */
TEST(of_threads) {
  if (!wanted) skip();
  static const struct {
    const char *kind;
    int round;
  } cases[] = {{"padding", 1}, {"mixed", 2},   {"pairs", 3},  {"pairs", 2},
               {"factors", 1}, {"factors", 2}, {"factors", 3}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    SCOPED fixture f = open_kind(cases[i].kind, i % 2, 3 + i);
    SCOPED_KERNEL *loaded = held(trial_load_gradients(f.memory, f.spec, wanted, PEGEN_DTYPE_F32, 1));
    one_call(&f, run_kernel(loaded), cases[i].round);
  }
}

/* Asserts that a call of other inputs, in so many parts each way, gives the bits of g: outputs and gradients. */
static void same_bits(fixture *f, const pegen_kernel *kernel, const attention_gradients *g, attention_gradients *other,
                      int parts, int backward_parts) {
  other->forward.lse = attention_trial_lse(f->memory, &other->forward);
  other->out = attention_trial_out(f->memory, &other->forward, ROWS_GAPS);
  assert_int_equal(attention_trial_call(kernel, &other->forward, other->out, parts), 0);
  assert_true(tensor_identical(g->out, other->out));
  assert_int_equal(attention_gradients_call(kernel, other, backward_parts), 0);
  assert_true(attention_gradients_same(g, other));
}

/* ---- keys that nobody sees ---- */

static float *element(const attention_trial *t, int input, int64_t b, int64_t h, int64_t n, int64_t c) {
  DLTensor rows = *t->inputs.tensors[input];
  if (b >= rows.shape[0] || h >= rows.shape[1]) return NULL;
  rows.ndim = 4;
  return tensor_at(&rows, b, h, n, c);
}

/* own() 1, and key_rows(3) 5 of every third key, which so is hidden: what else they are given is `value`. */
static void hide(attention_trial *t, float value) {
  for (int64_t b = 0; b < BATCHES; b++)
    for (int64_t h = 0; h < HEADS; h++) {
      for (int64_t n = 0; n < TOKENS; n++)
        if (element(t, 0, b, h, n, 0)) *element(t, 0, b, h, n, 0) = 1;
      for (int64_t n = 0; n < KEYS; n += 3) {
        if (element(t, 1, b, h, n, 0)) *element(t, 1, b, h, n, 0) = value;
        if (element(t, 3, b, h, n, 3)) *element(t, 3, b, h, n, 3) = 5;
        if (element(t, 3, b, h, n, 1)) *element(t, 3, b, h, n, 1) = value;
      }
    }
}

TEST(unseen) {
  SCOPED fixture f = open_kind("mixed", 0, 41);
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = trial_load_gradients(f.memory, f.spec, f.targets[target], PEGEN_DTYPE_F32, 1);
    attention_trial t = trial_of(&f, 1);
    attention_gradients g;
    hide(&t, 0);
    assert_int_equal(attention_gradients_fill(f.memory, &g, &t, run_kernel(loaded), true, 1, ROWS_GAPS, &f.random), 0);
    assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 2), 0);
    static const float faults[] = {NAN, INFINITY, -3e38f};
    for (int i = 0; i < (wanted ? 1 : 3); i++) {
      attention_gradients other = attention_gradients_room(f.memory, &g);
      hide(&t, faults[i]);
      same_bits(&f, run_kernel(loaded), &g, &other, 3, 5);
    }
  }
}

/* Beside a polynomial: every third key is padding, and what else is known of it no number. */
static void pad(attention_trial *t, float value) {
  float *places = (float *)t->k_positions->data;
  for (int64_t n = 0; n < KEYS; n += 3) {
    places[n] = value;
    for (int64_t b = 0; b < BATCHES; b++)
      for (int64_t h = 0; h < HEADS; h++) {
        if (element(t, 1, b, h, n, 0)) *element(t, 1, b, h, n, 0) = 1;
        for (int64_t c = 0; c < t->spec->head_dim && h < K_HEADS; c++)
          *(float *)tensor_at(t->k, b, h, n, c) = *(float *)tensor_at(t->v, b, h, n, c) = value;
      }
  }
}

/* Asserts that gradients of keys and values are 0 for every third key, which is padding. */
static void keep_seen(const attention_gradients *g) {
  for (int64_t row = 0; row < BATCHES * K_HEADS * KEYS; row++)
    for (int64_t c = 0; c < g->forward.spec->head_dim && row % KEYS % 3 == 0; c++) {
      int64_t b = row / KEYS / K_HEADS, h = row / KEYS % K_HEADS, n = row % KEYS;
      assert_true(*(float *)tensor_at(g->k, b, h, n, c) == 0 && *(float *)tensor_at(g->v, b, h, n, c) == 0);
    }
}

TEST(padded) {
  if (wanted) skip();
  SCOPED fixture f = open_kind("padded", 0, 53);
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = trial_load_gradients(f.memory, f.spec, f.targets[target], PEGEN_DTYPE_F32, 1);
    const pegen_kernel *kernel = run_kernel(loaded);
    assert_int_equal(kernel->pair_inputs, 3);
    assert_int_equal(kernel->key_inputs, 2);
    attention_trial t = trial_of(&f, 1);
    attention_gradients g;
    pad(&t, 0);
    assert_int_equal(attention_gradients_fill(f.memory, &g, &t, kernel, true, 1, ROWS_GAPS, &f.random), 0);
    assert_int_equal(attention_gradients_call(kernel, &g, 2), 0);
    keep_seen(&g);
    static const float faults[] = {NAN, INFINITY, -3e38f};
    for (int i = 0; i < 3; i++) {
      attention_gradients other = attention_gradients_room(f.memory, &g);
      pad(&t, faults[i]);
      same_bits(&f, kernel, &g, &other, 3, 5);
    }
  }
}

/* Inputs of the polynomial are of the rows' number type or float32, those of the score float32 whatever these are. */
TEST(types) {
  if (wanted) skip();
  SCOPED fixture f = open_kind("padded", 0, 59);
  SCOPED_KERNEL *loaded = trial_load_gradients(f.memory, f.spec, f.targets[0], PEGEN_DTYPE_BF16, 1);
  attention_trial t = {.spec = f.spec};
  attention_sizes sizes = {BATCHES, HEADS, K_HEADS, TOKENS, KEYS};
  attention_trial_fill(f.memory, &t, &sizes, NUMBER_BF16, ROWS_BHND, &f.random);
  t.positions = fixture_positions(&f, NUMBER_F32, 0, TOKENS);
  t.k_positions = fixture_positions(&f, NUMBER_F32, 0, KEYS);
  t.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
  DLTensor *out = attention_trial_out(f.memory, &t, ROWS_BHND);
  assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out, 1), 0);
  for (int i = 0; i < 3; i++) {
    DLTensor other = *t.inputs.tensors[i];
    const DLTensor *was = t.inputs.tensors[i];
    assert_int_equal(other.dtype.bits, i == 2 ? 16 : 32);
    other.dtype = i == 2 ? (DLDataType){kDLFloat, 16, 1} : (DLDataType){kDLBfloat, 16, 1};
    t.inputs.tensors[i] = &other;
    assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out, 1), PEGEN_ERROR_INPUT_DTYPE);
    t.inputs.tensors[i] = was;
  }
}

/* Replaces numbers of pairs by what they are rounded to. Returns the same tensors with these of 16 bits. */
static const DLTensor **narrowed(fixture *f, attention_trial *t, number_type type) {
  const DLTensor **all = arena_array(f->memory, const DLTensor *, f->spec->n_inputs);
  for (int i = 0; i < f->spec->n_inputs; i++) {
    const DLTensor *wide = all[i] = t->inputs.tensors[i];
    if (!spec_input_is_pair(&f->spec->input[i])) continue;
    DLTensor *narrow = tensor_rows(f->memory, type, ROWS_GAPS, wide->shape[0], wide->shape[1], wide->shape[2], KEYS);
    for (int64_t row = 0; row < wide->shape[0] * wide->shape[1] * wide->shape[2]; row++)
      for (int64_t c = 0; c < KEYS; c++) {
        int64_t n = row % wide->shape[2], h = row / wide->shape[2] % wide->shape[1],
                b = row / wide->shape[2] / wide->shape[1];
        float *number = tensor_at(wide, b, h, n, c);
        number_store(type, tensor_at(narrow, b, h, n, c), *number);
        *number = (float)number_load(type, tensor_at(narrow, b, h, n, c));
      }
    all[i] = narrow;
  }
  return all;
}

/* Numbers of pairs of 16 bits give the bits of the float32 that they are, gradients, too. */
TEST(narrow_pairs) {
  SCOPED fixture f = open_kind("pairs", 0, 61);
  for (int i = 0; i < 2 * f.n_targets; i++) {
    int type = i % 2 ? NUMBER_F16 : NUMBER_BF16;
    SCOPED_KERNEL *loaded = held(trial_load_gradients(f.memory, f.spec, f.targets[i / 2], PEGEN_DTYPE_F32, 1));
    const pegen_kernel *kernel = run_kernel(loaded);
    for (int round = 2; round <= 6; round += 4) { /* of tiles, and of few queries; all keys are seen */
      attention_trial t = trial_of(&f, round);
      const DLTensor **narrow = narrowed(&f, &t, (number_type)type);
      attention_gradients g;
      assert_int_equal(attention_gradients_fill(f.memory, &g, &t, kernel, true, 1, ROWS_GAPS, &f.random), 0);
      assert_int_equal(attention_gradients_call(kernel, &g, 2), 0);
      attention_gradients other = attention_gradients_room(f.memory, &g);
      other.forward.inputs.tensors = narrow;
      same_bits(&f, kernel, &g, &other, 1, 3);
      for (int input = 0; input < f.spec->n_inputs; input++)
        if (spec_input_is_pair(&f.spec->input[input])) other.inputs[input]->dtype = narrow[input]->dtype;
      assert_int_equal(attention_gradients_call(kernel, &other, 1), PEGEN_ERROR_GRADIENT_DTYPE);
    }
  }
}

/* ---- programs that the description becomes elsewhere ---- */

TEST(refused) {
  if (wanted) skip();
  SCOPED fixture f = open_kind("mixed", 0, 43);
  SCOPED_KERNEL *loaded = trial_load_gradients(f.memory, f.spec, f.targets[0], PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16, 1);
  const pegen_kernel *kernel = run_kernel(loaded);
  assert_int_equal(kernel->pair_inputs, 15);
  assert_int_equal(kernel->key_inputs, 10);
  attention_trial t = trial_of(&f, 1);
  DLTensor *out = attention_trial_out(f.memory, &t, ROWS_BHND);
  pegen_args sound = attention_trial_args(kernel, &t, out);
  for (int i = 0; i < 4; i++)
    for (int what = 0; what < 6; what++) {
      DLTensor input = *t.inputs.tensors[i];
      const DLTensor *inputs[4];
      int64_t shape[4];
      memcpy(inputs, t.inputs.tensors, sizeof inputs);
      memcpy(shape, input.shape, sizeof(int64_t) * (size_t)input.ndim);
      inputs[i] = &input;
      input.shape = shape;
      pegen_args args = sound;
      args.inputs = inputs;
      assert_int_equal(kernel->attention(&args, 0, 1), 0);
      int wanted = PEGEN_ERROR_INPUT_SHAPE;
      if (what == 0) shape[0] = 3;
      if (what == 1) shape[1] = 3;
      if (what == 2) shape[2] = i == 1 || i == 3 ? TOKENS : KEYS;
      if (what == 3) input.ndim -= 1;
      if (what == 4) input.dtype = (DLDataType){kDLBfloat, 16, 1}, wanted = PEGEN_ERROR_INPUT_DTYPE;
      if (what == 5) inputs[i] = NULL, wanted = PEGEN_ERROR_MISSING_INPUT;
      assert_int_equal(kernel->attention(&args, 0, 1), wanted);
    }
}

/* ---- sequences ---- */

enum { SEQUENCES = 4 };
static int32_t q_bounds[SEQUENCES + 1] = {0, 5, 5, 22, TOKENS}, k_bounds[SEQUENCES + 1] = {0, 20, 27, 27, KEYS};
static int64_t bounds_shape[] = {SEQUENCES + 1};

static DLTensor *part_of(arena *a, const DLTensor *of, int dim, bool is_of_keys, int s) {
  const int32_t *at = is_of_keys ? k_bounds : q_bounds;
  if (!of) return NULL;
  if (!of->strides) set_strides(a, (DLTensor *)(uintptr_t)of);
  return window(a, of, dim, at[s], at[s + 1]);
}

static DLTensor *batch_of(arena *a, const DLTensor *of) {
  DLTensor *t = arena_new(a, DLTensor);
  *t = *of;
  t->shape = arena_array(a, int64_t, of->ndim);
  memcpy(t->shape, of->shape, (size_t)of->ndim * sizeof(int64_t));
  t->shape[0] = 1;
  return t;
}

/* The call's first batch: all sequences of it as rows that follow each other, or sequence s alone. */
static attention_gradients batch_one(fixture *f, const attention_gradients *g) {
  attention_gradients one = *g;
  DLTensor **rows[] = {&one.forward.q, &one.forward.k, &one.forward.v, &one.forward.lse, &one.out, &one.g_out,
                       &one.q,         &one.k,         &one.v};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) *rows[i] = batch_of(f->memory, *rows[i]);
  one.forward.inputs.tensors = arena_array(f->memory, const DLTensor *, f->spec->n_inputs);
  one.inputs = arena_array(f->memory, DLTensor *, f->spec->n_inputs);
  for (int i = 0; i < f->spec->n_inputs; i++) {
    one.forward.inputs.tensors[i] = batch_of(f->memory, g->forward.inputs.tensors[i]);
    one.inputs[i] = batch_of(f->memory, g->inputs[i]);
  }
  return one;
}

static attention_gradients sequence_of(fixture *f, const attention_gradients *g, int s) {
  attention_gradients one = *g;
  DLTensor **of_q[] = {&one.forward.q, &one.forward.lse, &one.out, &one.g_out, &one.q},
           **of_k[] = {&one.forward.k, &one.forward.v, &one.k, &one.v};
  for (size_t i = 0; i < sizeof of_q / sizeof *of_q; i++) *of_q[i] = part_of(f->memory, *of_q[i], 2, false, s);
  for (size_t i = 0; i < sizeof of_k / sizeof *of_k; i++) *of_k[i] = part_of(f->memory, *of_k[i], 2, true, s);
  one.forward.positions = part_of(f->memory, one.forward.positions, 0, false, s);
  one.forward.k_positions = part_of(f->memory, one.forward.k_positions, 0, true, s);
  one.forward.inputs.tensors = arena_array(f->memory, const DLTensor *, f->spec->n_inputs);
  one.inputs = arena_array(f->memory, DLTensor *, f->spec->n_inputs);
  for (int i = 0; i < f->spec->n_inputs; i++) {
    one.forward.inputs.tensors[i] = part_of(f->memory, g->forward.inputs.tensors[i], 2, f->spec->input[i].of_keys, s);
    one.inputs[i] = part_of(f->memory, g->inputs[i], 2, f->spec->input[i].of_keys, s);
  }
  return one;
}

static void in_one_call(fixture *f, const pegen_kernel *kernel, attention_gradients *g, int parts) {
  arena *a = f->memory;
  pegen_args args = attention_trial_args(kernel, &g->forward, ragged_view(a, g->out));
  DLTensor of_q = {.data = q_bounds, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 32, 1}, .shape = bounds_shape},
           of_k = of_q;
  of_k.data = k_bounds;
  args.q = ragged_view(a, g->forward.q);
  args.k = ragged_view(a, g->forward.k);
  args.v = ragged_view(a, g->forward.v);
  args.lse = ragged_view(a, g->forward.lse);
  args.inputs = inputs_of(a, f->spec, &g->forward, -1, 0);
  args.cu_seqlens = &of_q;
  args.k_cu_seqlens = &of_k;
  for (int part = 0; part < parts; part++) assert_int_equal(kernel->attention(&args, part, parts), 0);
  DLTensor *inputs[SPEC_MAX_INPUTS];
  for (int i = 0; i < f->spec->n_inputs; i++) inputs[i] = ragged_view(a, g->inputs[i]);
  pegen_grad_args grad = {.struct_size = sizeof grad,
                          .out = ragged_view(a, g->g_out),
                          .q = ragged_view(a, g->q),
                          .k = ragged_view(a, g->k),
                          .v = ragged_view(a, g->v),
                          .inputs = inputs};
  args.grad = &grad;
  args.workspace_bytes = kernel->attention_backward_workspace(&args);
  args.workspace = arena_array(a, double, args.workspace_bytes / sizeof(double) + 1);
  for (int part = 0; part < parts; part++) assert_int_equal(kernel->attention_backward(&args, part, parts), 0);
  for (int part = 0; part < parts; part++) assert_int_equal(kernel->attention_backward_finish(&args, part, parts), 0);
}

TEST(sequences) {
  if (wanted) skip();
  SCOPED fixture f = open_kind("mixed", 0, 47);
  SCOPED_KERNEL *loaded = trial_load_gradients(f.memory, f.spec, f.targets[f.n_targets - 1], PEGEN_DTYPE_F32, 1);
  const pegen_kernel *kernel = run_kernel(loaded);
  for (int round = 0; round < 4; round++) {
    attention_trial t = trial_of(&f, round);
    attention_gradients g;
    assert_int_equal(attention_gradients_fill(f.memory, &g, &t, kernel, false, 1, ROWS_GAPS, &f.random), 0);
    g.operands = NULL;
    g = batch_one(&f, &g);
    g.forward.causal = round % 2;
    attention_gradients apart = attention_gradients_room(f.memory, &g),
                        together = attention_gradients_room(f.memory, &g);
    together.out = tensor_copy(f.memory, g.out);
    in_one_call(&f, kernel, &together, 1 + 2 * round);
    for (int s = 0; s < SEQUENCES; s++) {
      attention_gradients one = sequence_of(&f, &apart, s);
      assert_int_equal(attention_trial_call(kernel, &one.forward, one.out, 1), 0);
      assert_int_equal(attention_gradients_call(kernel, &one, 2), 0);
    }
    assert_true(tensor_identical(apart.out, together.out));
    assert_true(attention_gradients_same(&apart, &together));
  }
}

int main(int arguments, char **argument) {
  wanted = arguments > 1 ? argument[1] : NULL;
  return run_listed();
}
