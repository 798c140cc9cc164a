/* backward_test: gradients of attention in sizes and strides of all kinds against the reference's, what is not asked
 * for, what is not seen, and what is refused.
 *
 *     attention_backward_test [TARGET [TEST]]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fixture.h"
#include "gradients.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *wanted; /* a target; NULL: all that this machine runs */

static bool is_gpu(void) { return wanted && strncmp(wanted, "sm_", 3) == 0; }

static fixture open_spec(const char *folder, const char *name, int n_defines, const loader_define *defines) {
  return fixture_open(folder, name, n_defines, defines, wanted, 11);
}

/* dtypes: PEGEN_DTYPE_ bits; 0: all. */
static loaded_kernel *load(const fixture *f, int target, unsigned dtypes) {
  loaded_kernel *loaded = trial_load_gradients(f->memory, f->spec, f->targets[target], dtypes, is_gpu() ? 1 : 2);
  assert_non_null(loaded);
  return loaded;
}

/* Any number of parts gives the same bits; of a GPU's threads, which run in another order each time, one more call. */
static void assert_parts(const fixture *f, const pegen_kernel *kernel, const attention_gradients *g) {
  gradients_assert_parts(f->memory, kernel, g, is_gpu() ? 1 : 4);
}

/* Tokens and keys around the sizes of tiles, grouped heads, causal or not, all types, all strides. */
static void sizes_and_strides(void **state) {
  (void)state;
  static const attention_sizes sizes[] = {{1, 4, 4, 1, 1},   {2, 4, 2, 3, 70}, {1, 4, 1, 33, 64},
                                          {1, 4, 4, 32, 65}, {1, 4, 2, 70, 9}, {1, 4, 4, 5, 0},
                                          {0, 4, 4, 5, 5},   {1, 4, 4, 0, 5},  {1, 4, 2, 40, 130}};
  loader_define defines[] = {
      {"axes", "2"}, {"heads", "4"}, {"head_dim", "24"}, {"value_dim", "35"}, {"skip_tokens", "2"}};
  fixture f = open_spec(SPECS_DIR, "alibi", 5, defines);
  int round = 0;
  for (int target = 0; target < f.n_targets; target++) {
    loaded_kernel *loaded = load(&f, target, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++, round++) {
        if (fixture_leaves_out(wanted, i, (number_type)type)) continue;
        attention_trial t = {.spec = f.spec, .causal = round & 1, .scale = round % 3 ? 0 : 0.3};
        attention_trial_fill(f.memory, &t, &sizes[i], (number_type)type, (row_order)(round % ROW_ORDER_COUNT),
                             &f.random);
        t.positions = fixture_positions(&f, NUMBER_F32, 0, sizes[i].tokens);
        t.k_positions = fixture_positions(&f, NUMBER_F32, 0, sizes[i].keys);
        t.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
        attention_gradients g;
        assert_int_equal(
            attention_gradients_fill(f.memory, &g, &t, run_kernel(loaded), round % 5 < 3, 1, ROWS_GAPS, &f.random), 0);
        if (round % 3) attention_gradients_of_positions(f.memory, &g, round & 2 ? NUMBER_F32 : NUMBER_F64);
        attention_gradients before = attention_gradients_room(f.memory, &g);
        assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), 0);
        gradients_compare(f.memory, &g, 1);
        assert_true(tensor_gaps_identical(g.q, before.q) && tensor_gaps_identical(g.k, before.k) &&
                    tensor_gaps_identical(g.v, before.v));
        assert_parts(&f, run_kernel(loaded), &g);
      }
    run_unload(loaded);
  }
  arena_destroy(f.memory);
}

/* The last `count` tokens of a tensor of rows or of numbers of tokens. */
static DLTensor *last_tokens(arena *a, const DLTensor *of, int64_t count) {
  DLTensor *last = arena_new(a, DLTensor);
  int64_t *shape = arena_array(a, int64_t, of->ndim);
  *last = *of;
  for (int i = 0; i < of->ndim; i++) shape[i] = of->shape[i];
  shape[2] = count;
  last->shape = shape;
  last->byte_offset += (uint64_t)((of->shape[2] - count) * of->strides[2] * of->dtype.bits / 8);
  return last;
}

/* What a query gains is the same to the bit in a full tile and in one whose queries fill one register, or not even
 * that. */
static void queries_of_their_own(void **state) {
  (void)state;
  fixture f = open_spec(SPECS_DIR, "attention", 0, NULL);
  for (int target = 0; target < f.n_targets; target++) {
    loaded_kernel *loaded = load(&f, target, PEGEN_DTYPE_F32);
    attention_trial t = {.spec = f.spec};
    attention_trial_fill(f.memory, &t, &(attention_sizes){1, 2, 2, 64, 75}, NUMBER_F32, ROWS_BNHD, &f.random);
    attention_gradients all, some;
    assert_int_equal(attention_gradients_fill(f.memory, &all, &t, run_kernel(loaded), true, 1, ROWS_BNHD, &f.random),
                     0);
    assert_int_equal(attention_gradients_call(run_kernel(loaded), &all, 1), 0);
    for (int64_t count = 1; count < 40; count += 3) {
      some = all;
      some.forward.q = last_tokens(f.memory, all.forward.q, count);
      some.out = last_tokens(f.memory, all.out, count);
      some.forward.lse = last_tokens(f.memory, all.forward.lse, count);
      some.g_out = last_tokens(f.memory, all.g_out, count);
      some.g_lse = last_tokens(f.memory, all.g_lse, count);
      some.q = last_tokens(f.memory, tensor_copy(f.memory, all.q), count);
      some.k = some.v = NULL;
      assert_int_equal(attention_gradients_call(run_kernel(loaded), &some, 1), 0);
      assert_true(tensor_identical(some.q, last_tokens(f.memory, all.q, count)));
    }
    run_unload(loaded);
  }
  arena_destroy(f.memory);
}

/* Head dimensions that no register divides; what is not asked for changes nothing of the rest. */
static void head_dims(void **state) {
  (void)state;
  const char *const dims[] = {"1", "3", "17", "48", "80", "130", is_gpu() ? "256" : "300"};
  for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
    loader_define defines[] = {{"head_dim", dims[i]}, {"value_dim", dims[(i + 3) % 7]}};
    fixture f = open_spec(SPECS_DIR, "attention", 2, defines);
    for (int target = 0; target < f.n_targets; target++) {
      number_type type = (number_type)((int)i % NUMBER_CHANNEL_TYPES);
      loaded_kernel *loaded = load(&f, target, 1u << type);
      attention_trial t = {.spec = f.spec};
      attention_trial_fill(f.memory, &t, &(attention_sizes){1, 2, 1, 19, 37}, type, ROWS_BNHD, &f.random);
      attention_gradients g;
      assert_int_equal(attention_gradients_fill(f.memory, &g, &t, run_kernel(loaded), true, 1, ROWS_BHND, &f.random),
                       0);
      assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), 0);
      gradients_compare(f.memory, &g, 1);
      for (int asked = 1; asked < 7; asked++) {
        attention_gradients some = attention_gradients_room(f.memory, &g);
        if (!(asked & 1)) some.q = NULL;
        if (!(asked & 2)) some.k = NULL;
        if (!(asked & 4)) some.v = NULL;
        assert_int_equal(attention_gradients_call(run_kernel(loaded), &some, 1 + asked % 3), 0);
        assert_true(attention_gradients_same(&g, &some));
      }
      run_unload(loaded);
    }
    arena_destroy(f.memory);
  }
}

/* Tables of displacements on a grid, in runs that tiles of keys do not fill, and a polynomial's columns; rotations of
 * pairs, by mirrors and by matrices, beside a bias, too. */
static void kinds_of_pairs(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int n_defines;
    loader_define defines[6];
    int tokens; /* of a grid; 0: there is none */
    bool gains; /* operands have gradients */
  } cases[] = {
      {"alibi", 3, {{"axes", "2"}, {"grid", "5,7"}, {"skip_tokens", "3"}}, 38, false},
      {"relative_bias_table", 3, {{"grid", "2,70"}, {"heads", "2"}, {"head_dim", "16"}}, 140, true},
      {"relative_bias_table", 3, {{"heads", "2"}, {"head_dim", "16"}, {"value_dim", "9"}}, 0, true},
      {"relative_bias_table", 3, {{"grid", "11,4"}, {"heads", "2"}, {"head_dim", "16"}}, 44, true},
      {"relative_bias_table", 3, {{"grid", "6,7"}, {"heads", "2"}, {"head_dim", "16"}}, 42, true},
      {"../tests/attention/slopes", 1, {{"heads", "3"}}, 0, true},
      {"../tests/attention/slopes", 3, {{"heads", "3"}, {"skip_tokens", "2"}, {"grid", "4,9"}}, 38, true},
      {"pape", 4, {{"role", "pairwise"}, {"parabolas", "3"}, {"head_dim", "20"}, {"skip_tokens", "1"}}, 0, true},
      {"lookhere", 1, {{"skip_tokens", "1"}}, 0, false},
      {"lingeope", 3, {{"head_dim", "10"}, {"value_dim", "9"}, {"grid", "2,70"}}, 140, false},
      {"lingeope", 3, {{"axes", "3"}, {"grid", "2,2,32"}, {"head_dim", "12"}}, 128, false},
      {"../tests/attention/mirrors", 2, {{"skip_tokens", "1"}, {"grid", "5,9"}}, 46, false},
      {"../tests/attention/mirrors", 1, {{"skip_tokens", "2"}}, 0, false},
      {"../tests/attention/rope_pairwise", 0, {{NULL, NULL}}, 0, false},
      {"../tests/attention/rope_pairwise", 1, {{"grid", "41"}}, 41, false},
      {"../tests/attention/rope_pairwise", 1, {{"biased", "true"}}, 0, true},
      {"../tests/attention/turning", 1, {{"skip_tokens", "2"}}, 0, true},
      {"../tests/attention/turning", 2, {{"combine", "mean"}, {"head_dim", "7"}}, 0, true},
      {"../tests/attention/turning", 2, {{"combine", "sum"}, {"grid", "4,9"}}, 36, true},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fixture f = open_spec(SPECS_DIR, cases[i].name, cases[i].n_defines, cases[i].defines);
    loaded_kernel *loaded = load(&f, (int)i % f.n_targets, PEGEN_DTYPE_F32);
    int64_t tokens = cases[i].tokens ? cases[i].tokens : 50, heads = f.spec->heads > 1 ? f.spec->heads : 2;
    for (int causal = 0; causal < 2; causal++) {
      attention_trial t = {.spec = f.spec, .causal = causal};
      attention_trial_fill(f.memory, &t, &(attention_sizes){1, heads, heads, tokens, tokens}, NUMBER_F32, ROWS_BHND,
                           &f.random);
      t.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
      if (!cases[i].tokens) t.positions = fixture_positions(&f, NUMBER_F32, 0, tokens);
      attention_gradients g;
      int64_t step = f.spec->n_components ? 16 : 1; /* the reference exponentiates for every pair and block */
      assert_int_equal(
          attention_gradients_fill(f.memory, &g, &t, run_kernel(loaded), false, step, ROWS_BHND, &f.random), 0);
      if (t.positions) attention_gradients_of_positions(f.memory, &g, causal ? NUMBER_F32 : NUMBER_F64);
      if (!cases[i].gains && g.operands) {
        assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), PEGEN_ERROR_NO_GRADIENT);
        g.operands = NULL;
      }
      assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), 0);
      gradients_compare(f.memory, &g, step);
      assert_parts(&f, run_kernel(loaded), &g);
      attention_gradients rows = attention_gradients_room(f.memory, &g), sums = attention_gradients_room(f.memory, &g);
      rows.operands = NULL; /* rows have the same bits, asked for operands or not */
      assert_int_equal(attention_gradients_call(run_kernel(loaded), &rows, 3), 0);
      assert_true(attention_gradients_same(&g, &rows));
      if (!g.operands) continue;
      sums.q = sums.k = sums.v = NULL; /* and operands without rows */
      assert_int_equal(attention_gradients_call(run_kernel(loaded), &sums, 3), 0);
      assert_true(attention_gradients_same(&g, &sums));
    }
    run_unload(loaded);
    arena_destroy(f.memory);
  }
}

/* Of positions of their own for each batch, added to or not, in float32; those that batches share gain the sum, and
 * k's own are apart from q's. What has a grid takes none, and what is no function of them has none. */
static void positions(void **state) {
  (void)state;
  enum { BATCHES = 3, PLACES = 20 };
  static const char *const names[] = {"turning", "slopes"};
  for (int i = 0; i < 2; i++) {
    loader_define heads = {"heads", "2"};
    fixture f = open_spec(LOCAL_DIR, names[i], 1, &heads);
    loaded_kernel *loaded = load(&f, 0, PEGEN_DTYPE_F32);
    const pegen_kernel *kernel = run_kernel(loaded);
    attention_trial t = {.spec = f.spec};
    attention_trial_fill(f.memory, &t, &(attention_sizes){BATCHES, 2, 1, PLACES, PLACES}, NUMBER_F32, ROWS_BHND,
                         &f.random);
    t.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
    t.positions = fixture_positions(&f, NUMBER_F64, 0, PLACES);
    attention_gradients shared, own, apart;
    assert_int_equal(attention_gradients_fill(f.memory, &shared, &t, kernel, true, 1, ROWS_BHND, &f.random), 0);
    shared.operands = NULL;
    own = apart = shared;
    attention_gradients_of_positions(f.memory, &shared, NUMBER_F64);
    assert_int_equal(attention_gradients_call(kernel, &shared, 1), 0);
    int64_t axes = f.spec->n_axes, count = PLACES * axes, shape[] = {BATCHES, PLACES, axes};
    double *values = arena_array(f.memory, double, BATCHES *count);
    for (int64_t n = 0; n < BATCHES * count; n++) values[n] = ((double *)t.positions->data)[n % count];
    own.forward.positions = tensor_contiguous(f.memory, NUMBER_F64, 3, shape, values);
    attention_gradients_of_positions(f.memory, &own, NUMBER_F32);
    apart.forward.k_positions = t.positions;
    attention_gradients_of_positions(f.memory, &apart, NUMBER_F64);
    assert_int_equal(attention_gradients_call(kernel, &apart, 2), 0);
    for (uint32_t flags = 0; flags < 2; flags++) {
      own.flags = flags;
      assert_int_equal(attention_gradients_call(kernel, &own, 3), 0);
    }
    for (int64_t n = 0; n < count; n++) {
      double sum = 0, size = 1e-3, expected = ((double *)shared.positions->data)[n];
      for (int b = 0; b < BATCHES; b++) sum += ((float *)own.positions->data)[b * count + n] / 2;
      for (int b = 0; b < BATCHES; b++) size += fabs(((float *)own.positions->data)[b * count + n]);
      assert_true(fabs(sum - expected) <= 1e-5 * size);
      sum = ((double *)apart.positions->data)[n] + ((double *)apart.k_positions->data)[n];
      assert_true(fabs(sum - expected) <= 1e-9 * (size + fabs(sum)));
    }
    own = shared;
    own.k_positions = own.positions; /* k has none of its own */
    assert_int_equal(attention_gradients_call(kernel, &own, 1), PEGEN_ERROR_NO_GRADIENT);
    own.k_positions = NULL, own.positions = shared.q;
    assert_int_equal(attention_gradients_call(kernel, &own, 1), PEGEN_ERROR_GRADIENT_SHAPE);
    DLTensor wrong = *shared.positions;
    own.positions = &wrong, wrong.dtype.bits = 16;
    assert_int_equal(attention_gradients_call(kernel, &own, 1), PEGEN_ERROR_GRADIENT_DTYPE);
    void *const taken[] = {t.positions->data, shared.q->data, t.k->data, shared.out->data};
    for (size_t n = 0; n < sizeof taken / sizeof *taken; n++) {
      wrong = *shared.positions, wrong.data = taken[n];
      assert_int_equal(attention_gradients_call(kernel, &own, 1), PEGEN_ERROR_OVERLAP);
    }
    run_unload(loaded);
    arena_destroy(f.memory);
  }
}

/* Pairs that are rotated, around the sizes of tiles and of blocks: grouped heads, causal or not, all types, all
 * strides, with channels that are left over, on every target. */
static void rotations(void **state) {
  (void)state;
  static const attention_sizes sizes[] = {
      {1, 2, 2, 1, 1}, {2, 4, 2, 3, 70}, {1, 4, 1, 33, 64}, {1, 2, 2, 5, 0}, {1, 2, 1, 40, 17}};
  loader_define defines[] = {
      {"axes", "3"}, {"head_dim", "20"}, {"value_dim", "35"}, {"skip_tokens", "2"}, {"layout", "split"}};
  fixture f = open_spec(SPECS_DIR, "lingeope", 5, defines);
  int round = 0;
  for (int target = 0; target < f.n_targets; target++) {
    loaded_kernel *loaded = load(&f, target, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++, round++) {
        if (fixture_leaves_out(wanted, i, (number_type)type)) continue;
        attention_trial t = {.spec = f.spec, .causal = round & 1, .scale = round % 3 ? 0 : 0.3};
        attention_trial_fill(f.memory, &t, &sizes[i], (number_type)type, (row_order)(round % ROW_ORDER_COUNT),
                             &f.random);
        t.positions = fixture_positions(&f, NUMBER_F32, 0, sizes[i].tokens);
        t.k_positions = fixture_positions(&f, NUMBER_F32, 0, sizes[i].keys);
        attention_gradients g;
        assert_int_equal(
            attention_gradients_fill(f.memory, &g, &t, run_kernel(loaded), round % 5 < 3, 16, ROWS_GAPS, &f.random), 0);
        assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), 0);
        gradients_compare(f.memory, &g, 16);
        assert_parts(&f, run_kernel(loaded), &g);
        attention_gradients some = attention_gradients_room(f.memory, &g); /* what is not asked for changes nothing */
        if (round & 1) some.k = NULL;
        else some.q = NULL;
        assert_int_equal(attention_gradients_call(run_kernel(loaded), &some, 2), 0);
        assert_true(attention_gradients_same(&g, &some));
      }
    run_unload(loaded);
  }
  arena_destroy(f.memory);
}

/* Rows that are turned, with prefix tokens, which are not, heads that share keys and turn them by rotors of their own,
 * stretched channels and channels that stay; more tiles of queries than go through the keys together, and more keys
 * than a panel has. Rows have the same bits, asked for operands and positions or not. */
static void rows_that_turn(void **state) {
  (void)state;
  static const attention_sizes sizes[] = {{1, 4, 4, 1, 1}, {2, 4, 2, 3, 70},  {1, 4, 1, 33, 64},
                                          {1, 4, 4, 5, 0}, {1, 4, 2, 40, 17}, {1, 4, 2, 290, 330}};
  loader_define defines[] = {{"heads", "4"}, {"head_dim", "12"}, {"skip_tokens", "2"}, {"value_dim", "19"}};
  static const char *const names[] = {"rows_turned", "values"};
  for (int i = 0; i < 2; i++) {
    fixture f = open_spec(LOCAL_DIR, names[i], i ? 2 : 4, defines);
    int round = 0;
    for (int target = 0; target < f.n_targets; target++) {
      loaded_kernel *loaded = load(&f, target, 0);
      for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++, round++) {
        number_type type = (number_type)(round % NUMBER_CHANNEL_TYPES);
        attention_trial t = {.spec = f.spec, .causal = round & 1, .scale = round % 3 ? 0 : 0.3};
        attention_trial_fill(f.memory, &t, &sizes[n], type, (row_order)(round % ROW_ORDER_COUNT), &f.random);
        t.positions = fixture_positions(&f, NUMBER_F32, 0, sizes[n].tokens);
        t.k_positions = fixture_positions(&f, NUMBER_F64, 0, sizes[n].keys);
        t.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
        attention_gradients g;
        assert_int_equal(
            attention_gradients_fill(f.memory, &g, &t, run_kernel(loaded), round % 5 < 3, 61, ROWS_GAPS, &f.random), 0);
        if (i) g.operands = NULL; /* what turns values has none */
        assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), 0);
        gradients_compare(f.memory, &g, 61);
        assert_parts(&f, run_kernel(loaded), &g);
        attention_gradients some = attention_gradients_room(f.memory, &g);
        if (round & 1) some.k = NULL;
        else some.q = NULL;
        some.operands = NULL;
        assert_int_equal(attention_gradients_call(run_kernel(loaded), &some, 2), 0);
        assert_true(attention_gradients_same(&g, &some));
      }
      run_unload(loaded);
    }
    arena_destroy(f.memory);
  }
}

/* Scores that are functions of the product, of the displacement, of tokens' indices, of operands and tables, and where
 * pairs are rotated: of rows, of operands, of positions where they read some. */
static void scores(void **state) {
  (void)state;
  static const struct {
    const char *kind;
    bool gains[3]; /* slope, gate, bias */
  } cases[] = {
      {"softcap", {false, false, false}},  {"prefix", {false, false, false}}, {"nothing", {false, false, false}},
      {"tempered", {false, false, false}}, {"nested", {false, false, false}}, {"learned", {true, true, false}},
      {"table", {false, false, true}},     {"turned", {true, false, false}},  {"both", {false, true, false}}};
  static const attention_sizes sizes[] = {{2, 2, 1, 40, 70}, {1, 2, 2, 5, 33}, {1, 2, 2, 70, 9}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    loader_define defines[] = {{"kind", cases[i].kind}, {"head_dim", i % 2 ? "12" : "20"}, {"skip_tokens", "2"}};
    fixture f = open_spec(LOCAL_DIR, "scores", 3, defines);
    loaded_kernel *loaded = load(&f, (int)i % f.n_targets, PEGEN_DTYPE_F32);
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
      attention_trial t = {.spec = f.spec, .causal = (int)((i + n) % 2)};
      attention_trial_fill(f.memory, &t, &sizes[n], NUMBER_F32, (row_order)(n % ROW_ORDER_COUNT), &f.random);
      t.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
      t.positions = fixture_positions(&f, NUMBER_F32, 0, sizes[n].tokens);
      t.k_positions = fixture_positions(&f, NUMBER_F32, 0, sizes[n].keys);
      attention_gradients g;
      assert_int_equal(attention_gradients_fill(f.memory, &g, &t, run_kernel(loaded), n == 1, 1, ROWS_BHND, &f.random),
                       0);
      bool some = false;
      for (int operand = 0; operand < 3; operand++) {
        if (!cases[i].gains[operand]) g.operands[operand] = NULL;
        some = some || g.operands[operand];
      }
      if (!some) g.operands = NULL;
      if (strcmp(cases[i].kind, "learned") == 0) attention_gradients_of_positions(f.memory, &g, NUMBER_F64);
      assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), 0);
      gradients_compare(f.memory, &g, 1);
      assert_parts(&f, run_kernel(loaded), &g);
      attention_gradients rows = attention_gradients_room(f.memory, &g);
      rows.operands = NULL; /* rows have the same bits, asked for operands and positions or not */
      rows.positions = rows.k_positions = NULL;
      assert_int_equal(attention_gradients_call(run_kernel(loaded), &rows, 3), 0);
      assert_true(attention_gradients_same(&g, &rows));
    }
    run_unload(loaded);
    arena_destroy(f.memory);
  }
}

/* Operands that turn pairs, or bias them, by one number more than a GPU's thread sums at once, and by more than twice
 * as many. */
static void crowded(void **state) {
  (void)state;
  static const char *const counts[] = {"17", "35"};
  for (int i = 0; i < 4; i++) {
    loader_define defines[] = {{"count", counts[i % 2]}, {"biased", i < 2 ? "false" : "true"}};
    fixture f = open_spec(LOCAL_DIR, "crowded", 2, defines);
    loaded_kernel *loaded = load(&f, 0, PEGEN_DTYPE_F32);
    attention_trial t = {.spec = f.spec};
    attention_trial_fill(f.memory, &t, &(attention_sizes){1, 2, 1, 21, 21}, NUMBER_F32, ROWS_BHND, &f.random);
    t.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
    t.positions = fixture_positions(&f, NUMBER_F32, 0, 21);
    attention_gradients g;
    assert_int_equal(attention_gradients_fill(f.memory, &g, &t, run_kernel(loaded), true, 1, ROWS_BHND, &f.random), 0);
    attention_gradients_of_positions(f.memory, &g, NUMBER_F64);
    assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), 0);
    gradients_compare(f.memory, &g, 1);
    run_unload(loaded);
    arena_destroy(f.memory);
  }
}

/* So many tiles, and so large an operand, that some share the sums of a chunk. */
static void many_tiles(void **state) {
  (void)state;
  static const struct {
    const char *folder, *name;
    int n_defines;
    loader_define defines[3];
    attention_sizes sizes;
    number_type type; /* of 16 bits: on GPUs alone, where tensor cores have tiles of their own */
  } cases[] = {{LOCAL_DIR, "slopes", 1, {{"heads", "3"}}, {400, 3, 3, 1, 3}, NUMBER_F32},
               {LOCAL_DIR, "slopes", 1, {{"heads", "3"}}, {400, 3, 3, 1, 3}, NUMBER_F16},
               {SPECS_DIR,
                "relative_bias_table",
                3,
                {{"window_h", "128"}, {"window_w", "128"}, {"heads", "1"}},
                {9, 1, 1, 40, 20},
                NUMBER_F32}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (cases[i].type != NUMBER_F32 && !is_gpu()) continue;
    fixture f = open_spec(cases[i].folder, cases[i].name, cases[i].n_defines, cases[i].defines);
    loaded_kernel *loaded = load(&f, 0, 1u << cases[i].type);
    attention_trial t = {.spec = f.spec};
    attention_trial_fill(f.memory, &t, &cases[i].sizes, cases[i].type, ROWS_BHND, &f.random);
    t.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
    t.positions = fixture_positions(&f, NUMBER_F32, 0, cases[i].sizes.tokens);
    t.k_positions = fixture_positions(&f, NUMBER_F32, 0, cases[i].sizes.keys);
    attention_gradients g;
    assert_int_equal(attention_gradients_fill(f.memory, &g, &t, run_kernel(loaded), true, 1, ROWS_BHND, &f.random), 0);
    assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), 0);
    gradients_compare(f.memory, &g, 1);
    assert_parts(&f, run_kernel(loaded), &g);
    run_unload(loaded);
    arena_destroy(f.memory);
  }
}

/* A query that sees nothing gains nothing, nor does a key that nobody sees. */
static void nothing_seen(void **state) {
  (void)state;
  fixture f = open_spec(LOCAL_DIR, "blind", 0, NULL);
  for (int target = 0; target < f.n_targets; target++) {
    loaded_kernel *loaded = load(&f, target, PEGEN_DTYPE_F32);
    attention_trial t = {.spec = f.spec, .causal = 1};
    attention_trial_fill(f.memory, &t, &(attention_sizes){1, 2, 2, 50, 40}, NUMBER_F32, ROWS_BHND, &f.random);
    double *numbers = arena_array(f.memory, double, 50);
    for (int i = 0; i < 50; i++) numbers[i] = i;
    t.positions = tensor_contiguous(f.memory, NUMBER_I32, 2, (int64_t[]){50, 1}, numbers);
    t.k_positions = tensor_contiguous(f.memory, NUMBER_I32, 2, (int64_t[]){40, 1}, numbers);
    for (t.causal = 0; t.causal < 2; t.causal++) {
      attention_gradients g;
      assert_int_equal(attention_gradients_fill(f.memory, &g, &t, run_kernel(loaded), true, 1, ROWS_BHND, &f.random),
                       0);
      assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), 0);
      gradients_compare(f.memory, &g, 1);
      for (int64_t n = 0; n < 50; n++)
        for (int c = 0; c < 16; c++) assert_true(*(float *)tensor_at(g.q, 0, 1, n, c) == 0); /* head 1 sees nothing */
      for (int64_t n = 0; n < 40; n++)
        for (int c = 0; c < 16; c++) assert_true(*(float *)tensor_at(g.v, 0, 1, n, c) == 0);
    }
    run_unload(loaded);
  }
  arena_destroy(f.memory);
}

/* Rows alone, and beside them what operands, inputs and positions gain, by entries that make both, or, where rows are
 * turned, by others. */
static void tensor_cores(void **state) {
  (void)state;
  if (!is_gpu()) return;
  loader_define biased[] = {
      {"axes", "2"}, {"heads", "4"}, {"head_dim", "24"}, {"value_dim", "40"}, {"skip_tokens", "2"}};
  loader_define plain[] = {{"head_dim", "72"}, {"value_dim", "8"}}, score[] = {{"kind", "learned"}};
  loader_define turned[] = {{"head_dim", "24"}, {"value_dim", "40"}};
  fixture all[] = {open_spec(SPECS_DIR, "alibi", 5, biased),       open_spec(SPECS_DIR, "attention", 2, plain),
                   open_spec(LOCAL_DIR, "scores", 1, score),       open_spec(LOCAL_DIR, "rope_pairwise", 0, NULL),
                   open_spec(LOCAL_DIR, "rows_turned", 2, turned), open_spec(LOCAL_DIR, "values", 1, turned)};
  for (int i = 0; i < 6; i++) {
    fixture *f = &all[i];
    loaded_kernel *loaded = load(f, 0, PEGEN_DTYPE_BF16 | PEGEN_DTYPE_F16);
    for (int round = 0; round < 2 * FIXTURE_MMA_COUNT; round++) {
      const attention_sizes *sizes = &FIXTURE_MMA_SIZES[round / 2];
      attention_trial t = fixture_mma_trial(f, sizes, round % 2 ? NUMBER_F16 : NUMBER_BF16, round / 2 + round % 2);
      t.splits = i >= 3;
      attention_gradients g;
      assert_int_equal(
          attention_gradients_fill(f->memory, &g, &t, run_kernel(loaded), round % 3, 1, ROWS_BNHD, &f->random), 0);
      if (round % 3 == 0 || i == 1) g.operands = NULL; /* plain attention reads no positions */
      else if (i != 5)
        attention_gradients_of_positions(f->memory, &g, NUMBER_F64); /* those that turn values gain not */
      if (i == 2 && g.operands) g.operands[2] = NULL; /* this kind does not read it */
      int error = attention_gradients_call(run_kernel(loaded), &g, 1);
      if (error) fail_msg("%s, round %d: %s", f->spec->name, round, pegen_strerror(error));
      assert_true(fixture_is_mma(run_kernel(loaded), &g.forward, g.out) == (sizes->batch && sizes->tokens));
      gradients_compare(f->memory, &g, 1);
      assert_parts(f, run_kernel(loaded), &g);
    }
    run_unload(loaded);
    arena_destroy(f->memory);
  }
}

static void spoil(const DLTensor *rows, int64_t token, int channel, double value) {
  number_store(number_type_of(rows->dtype), tensor_at(rows, 0, 0, token, channel), value);
}

enum { TOKENS = 90, SPOILT = 60, EARLY = 20 };

static void lose(const DLTensor *positions, int64_t token) {
  ((float *)positions->data)[token * positions->shape[1]] = NAN;
}

/* Causal, a key from SPOILT on meets queries from there on alone. lost: its position is no number, or the query's. */
static void assert_no_trace(fixture *f, const pegen_kernel *kernel, attention_trial *t, bool of_keys, bool lost) {
  attention_gradients good, bad;
  assert_int_equal(attention_gradients_fill(f->memory, &good, t, kernel, true, 1, ROWS_BHND, &f->random), 0);
  assert_int_equal(attention_gradients_call(kernel, &good, 1), 0);
  bad = attention_gradients_room(f->memory, &good);
  if (lost) lose(of_keys ? t->k_positions : t->positions, of_keys ? SPOILT : EARLY);
  if (of_keys) {
    if (!lost) spoil(t->k, SPOILT, 3, NAN), spoil(t->v, SPOILT, 5, INFINITY);
    assert_int_equal(attention_trial_call(kernel, &bad.forward, bad.out, 1), 0);
  } else if (!lost) spoil(t->q, EARLY, 3, NAN), spoil(bad.g_out, EARLY, 5, INFINITY);
  assert_int_equal(attention_gradients_call(kernel, &bad, 1), 0);
  /* Blocks of a tile program with such rows are made again without them, and nothing is rounded on the way there. */
  number_type type = number_type_of(t->q->dtype);
  double within = fixture_has_tiles(kernel, t, good.out) ? fmax(16 * (double)number_half_ulp(type, 1), 0x1p-18) : 0;
  for (int64_t n = 0; n < TOKENS; n++) {
    bool q_reached = of_keys ? n >= SPOILT : n == EARLY, k_reached = of_keys || n <= EARLY;
    assert_true(q_reached == fixture_rows_differ(good.q, bad.q, 0, n, within));
    if (!k_reached)
      assert_false(fixture_rows_differ(good.k, bad.k, 0, n, within) ||
                   fixture_rows_differ(good.v, bad.v, 0, n, within));
  }
}

/* Keys and values, queries and what comes in that are no numbers leave no trace in pairs that do not see each other,
 * rotated, by pairs or by rows, or not; nor do positions that are none. */
static void unseen_rows_leave_no_trace(void **state) {
  (void)state;
  loader_define grid = {"grid", "6,15"};
  static const char *const names[] = {"attention", "lingeope", "../tests/attention/rope_pairwise", "lingeope"};
  for (int i = 0; i < 4; i++) {
    fixture f = open_spec(SPECS_DIR, names[i], i == 3, &grid);
    int placed = i == 1 || i == 2, loses = placed && !is_gpu();
    for (int target = 0; target < f.n_targets; target++) {
      loaded_kernel *loaded = load(&f, target, 0);
      for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
        for (int of_keys = 0, lost = 0; lost <= loses; lost += of_keys, of_keys ^= 1) {
          attention_trial t = {.spec = f.spec, .causal = 1, .splits = i == 2}; /* rows are turned in a workspace */
          attention_trial_fill(f.memory, &t, &(attention_sizes){1, 1, 1, TOKENS, TOKENS}, (number_type)type, ROWS_BHND,
                               &f.random);
          if (placed) t.positions = fixture_positions(&f, NUMBER_F32, 0, TOKENS);
          if (placed) t.k_positions = fixture_positions(&f, NUMBER_F32, 0, TOKENS);
          assert_no_trace(&f, run_kernel(loaded), &t, of_keys, lost);
        }
      run_unload(loaded);
    }
    arena_destroy(f.memory);
  }
}

/* ---- refusals ---- */

enum { B = 1, H = 4, HKV = 2, N = 5, M = 7, D = 8, DV = 6, ROWS = 10 };
enum { T_Q, T_K, T_V, T_OUT, T_G_OUT, T_GQ, T_GK, T_GV, T_LSE, T_G_LSE };

typedef struct call {
  DLTensor tensor[ROWS];
  int64_t shape[ROWS][4], strides[4];
  float memory[ROWS][1024];
  double workspace[1024];
  pegen_grad_args grad;
  pegen_args args;
} call;

static void fill(call *c) {
  const int64_t shapes[][4] = {{B, H, N, D}, {B, HKV, M, D}, {B, HKV, M, DV}, {B, H, N, DV}, {B, H, N, DV},
                               {B, H, N, D}, {B, HKV, M, D}, {B, HKV, M, DV}, {B, H, N},     {B, H, N}};
  memset(c, 0, sizeof *c);
  memcpy(c->shape, shapes, sizeof shapes);
  for (int i = 0; i < ROWS; i++)
    c->tensor[i] = (DLTensor){.data = c->memory[i],
                              .device = {kDLCPU, 0},
                              .ndim = i < T_LSE ? 4 : 3,
                              .dtype = {kDLFloat, 32, 1},
                              .shape = c->shape[i]};
  DLTensor *t = c->tensor;
  for (int i = T_GQ; i <= T_GV; i++) memset(c->memory[i], 0x5a, sizeof c->memory[i]);
  c->grad = (pegen_grad_args){.struct_size = sizeof c->grad,
                              .out = &t[T_G_OUT],
                              .lse = &t[T_G_LSE],
                              .q = &t[T_GQ],
                              .k = &t[T_GK],
                              .v = &t[T_GV]};
  c->args = (pegen_args){.struct_size = sizeof c->args,
                         .q = &t[T_Q],
                         .k = &t[T_K],
                         .v = &t[T_V],
                         .out = &t[T_OUT],
                         .lse = &t[T_LSE],
                         .workspace = c->workspace,
                         .grad = &c->grad};
}

/* Runs it; where it was refused, gradients must be as before. */
static int run(const pegen_kernel *kernel, call *c) {
  int error = kernel->attention_backward(&c->args, 0, 1);
  for (int t = T_GQ; t <= T_GV && error; t++)
    for (size_t i = 0; i < sizeof c->memory[t]; i++) assert_int_equal(((unsigned char *)c->memory[t])[i], 0x5a);
  return error;
}

#define REFUSED(error, change) \
  do { \
    fill(c); \
    change; \
    assert_int_equal(run(kernel, c), PEGEN_ERROR_##error); \
  } while (0)

static void refusals(void **state) {
  (void)state;
  loader_define defines[] = {{"head_dim", "8"}, {"value_dim", "6"}};
  fixture f = open_spec(SPECS_DIR, "attention", 2, defines);
  loaded_kernel *loaded = load(&f, 0, PEGEN_DTYPE_F32);
  const pegen_kernel *kernel = run_kernel(loaded);
  call *c = arena_new(f.memory, call);
  fill(c);
  assert_int_equal(run(kernel, c), 0);
  fill(c);
  int64_t bytes = (int64_t)kernel->attention_backward_workspace(&c->args);
  assert_int_equal(bytes, is_gpu() ? B * H * N * 4 : B * HKV * M * (16 + 16) * 4);
  assert_int_equal(kernel->attention_backward(NULL, 0, 1), PEGEN_ERROR_NULL_ARGS);
  assert_int_equal(kernel->attention_backward(&c->args, 1, 1), PEGEN_ERROR_PART);
  REFUSED(MISSING_GRADIENT, c->args.grad = NULL);
  REFUSED(MISSING_GRADIENT, c->grad.out = NULL);
  REFUSED(STRUCT_SIZE, c->grad.struct_size = 4);
  REFUSED(GRADIENT_FLAGS, c->grad.flags = PEGEN_GRAD_FROM_INPUT);
  REFUSED(NO_GRADIENT, c->grad.q_out = &c->tensor[T_G_OUT]);
  REFUSED(NO_GRADIENT, c->grad.positions = &c->tensor[T_GQ]);
  REFUSED(LSE, c->args.lse = NULL);
  REFUSED(LSE, c->shape[T_LSE][2] = M);
  REFUSED(LSE, c->shape[T_G_LSE][2] = M);
  REFUSED(MISSING_TENSOR, c->args.out = NULL);
  REFUSED(SCALE, c->args.scale = NAN);
  REFUSED(SHAPE_MISMATCH, c->shape[T_V][2] = M - 1);
  REFUSED(GRADIENT_SHAPE, c->shape[T_G_OUT][3] = D);
  REFUSED(GRADIENT_SHAPE, c->shape[T_GQ][2] = M);
  REFUSED(GRADIENT_SHAPE, c->shape[T_GK][1] = H);
  REFUSED(RANK, c->tensor[T_GV].ndim = 3);
  REFUSED(GRADIENT_DTYPE, c->tensor[T_GK].dtype.bits = 16);
  REFUSED(GRADIENT_DTYPE, c->tensor[T_G_OUT].dtype.bits = 16);
  REFUSED(DEVICE, c->tensor[T_GV].device.device_type = kDLCUDA);
  REFUSED(DEVICE, c->tensor[T_G_LSE].device.device_type = kDLCUDA);
  REFUSED(NULL_DATA, c->tensor[T_G_OUT].data = NULL);
  REFUSED(ALIGNMENT, c->tensor[T_GQ].byte_offset = 2);
  REFUSED(STRIDE,
          (memcpy(c->strides, (int64_t[]){1, 1, 1, 1}, sizeof c->strides), c->tensor[T_GK].strides = c->strides));
  REFUSED(WORKSPACE, c->args.workspace = NULL);
  REFUSED(WORKSPACE, c->args.workspace_bytes = (size_t)bytes - 1);
  REFUSED(ALIGNMENT, c->args.workspace = (char *)c->workspace + 4);
  for (int read = T_Q; read <= T_G_LSE; read++)
    for (int written = T_GQ; written <= T_GV; written++)
      if (read < T_GQ || read > T_GV) REFUSED(OVERLAP, c->tensor[read].data = c->memory[written]);
  REFUSED(OVERLAP, c->tensor[T_GK].data = c->memory[T_GQ]);
  REFUSED(OVERLAP, c->tensor[T_GV].data = c->memory[T_GK]);
  REFUSED(OVERLAP, c->args.workspace = c->memory[T_K]);
  REFUSED(OVERLAP, c->args.workspace = c->memory[T_GV]);
  run_unload(loaded);
  arena_destroy(f.memory);
}

/* Of operands: shapes, types, memory, and what is added to. */
static void operands(void **state) {
  (void)state;
  enum { TOKENS = 12, HEADS = 3 };
  loader_define heads = {"heads", "3"};
  fixture f = open_spec(LOCAL_DIR, "slopes", 1, &heads);
  loaded_kernel *loaded = load(&f, 0, PEGEN_DTYPE_F32);
  const pegen_kernel *kernel = run_kernel(loaded);
  attention_trial t = {.spec = f.spec};
  attention_trial_fill(f.memory, &t, &(attention_sizes){1, HEADS, HEADS, TOKENS, TOKENS}, NUMBER_F32, ROWS_BHND,
                       &f.random);
  t.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
  t.positions = fixture_positions(&f, NUMBER_F32, 0, TOKENS);
  attention_gradients g;
  assert_int_equal(attention_gradients_fill(f.memory, &g, &t, kernel, false, 1, ROWS_BHND, &f.random), 0);
  assert_int_equal(attention_gradients_call(kernel, &g, 1), 0);
  gradients_compare(f.memory, &g, 1);
  DLTensor slope = *g.operands[0],
           narrow = *tensor_contiguous(f.memory, NUMBER_F32, 1, (int64_t[]){HEADS}, (double[]){1, 2, 3});
  g.operands[0] = &narrow; /* float32, overwritten and then added to */
  for (uint32_t flags = 0; flags < 2; flags++) {
    g.flags = flags;
    assert_int_equal(attention_gradients_call(kernel, &g, 1 + (int)flags), 0);
    for (int h = 0; h < HEADS; h++) {
      double expected = (1 + flags) * ((double *)slope.data)[h];
      assert_true(fabs(((float *)narrow.data)[h] - expected) <= 1e-6 * fabs(expected));
    }
  }
  g.flags = 0;
  DLTensor wrong = slope;
  int64_t shape = HEADS + 1, stride = 2;
  g.operands[0] = &wrong;
  wrong.shape = &shape;
  assert_int_equal(attention_gradients_call(kernel, &g, 1), PEGEN_ERROR_GRADIENT_SHAPE);
  wrong = slope, wrong.strides = &stride;
  assert_int_equal(attention_gradients_call(kernel, &g, 1), PEGEN_ERROR_GRADIENT_SHAPE);
  wrong = slope, wrong.dtype.bits = 16;
  assert_int_equal(attention_gradients_call(kernel, &g, 1), PEGEN_ERROR_GRADIENT_DTYPE);
  wrong = slope, wrong.device.device_type = kDLCUDA;
  assert_int_equal(attention_gradients_call(kernel, &g, 1), PEGEN_ERROR_DEVICE);
  void *const taken[] = {g.q->data, t.q->data, t.operands.tensors[0]->data, g.operands[1]->data, g.out->data};
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
    wrong = slope, wrong.data = taken[i];
    assert_int_equal(attention_gradients_call(kernel, &g, 1), PEGEN_ERROR_OVERLAP);
  }
  run_unload(loaded);
  arena_destroy(f.memory);
}

/* Where batches share positions, what is computed of pairs that read a table is kept from batch to batch: several
 * tiles, the last of one register, more batches than are summed in float32, units of more than one head, prefix tokens.
 * Where each batch has its own, nothing is; the same gradients. */
static void batches_that_share_pairs(void **state) {
  (void)state;
  static const struct {
    attention_sizes sizes;
    const char *window, *heads, *skip;
    bool causal;
  } cases[] = {{{5, 2, 1, 37, 70}, "5", "2", "0", false},
               {{40, 1, 1, 9, 9}, "18", "1", "0", false},
               {{9, 3, 3, 66, 40}, "3", "3", "2", false},
               {{3, 2, 2, 49, 49}, "7", "2", "0", true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    loader_define defines[] = {{"heads", cases[i].heads},
                               {"window_h", cases[i].window},
                               {"window_w", cases[i].window},
                               {"head_dim", "16"},
                               {"skip_tokens", cases[i].skip}};
    fixture f = open_spec(SPECS_DIR, "relative_bias_table", 5, defines);
    const attention_sizes *sizes = &cases[i].sizes;
    for (int target = 0; target < f.n_targets; target++) {
      loaded_kernel *loaded = load(&f, target, PEGEN_DTYPE_F32);
      attention_trial t = {.spec = f.spec, .causal = cases[i].causal};
      attention_trial_fill(f.memory, &t, sizes, NUMBER_F32, ROWS_BNHD, &f.random);
      t.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
      for (int own = 0; own < 2; own++) {
        int64_t batch = own ? sizes->batch : 0;
        t.positions = fixture_positions(&f, NUMBER_F32, batch, sizes->tokens);
        t.k_positions = sizes->keys == sizes->tokens ? NULL : fixture_positions(&f, NUMBER_F32, batch, sizes->keys);
        attention_gradients g;
        assert_int_equal(attention_gradients_fill(f.memory, &g, &t, run_kernel(loaded), true, 1, ROWS_BHND, &f.random),
                         0);
        if (!is_gpu()) attention_gradients_of_positions(f.memory, &g, NUMBER_F32);
        assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), 0);
        gradients_compare(f.memory, &g, 1);
        assert_parts(&f, run_kernel(loaded), &g);
        attention_gradients some = attention_gradients_room(f.memory, &g);
        some.k = some.v = NULL;
        assert_int_equal(attention_gradients_call(run_kernel(loaded), &some, 2), 0);
        assert_true(attention_gradients_same(&g, &some));
      }
      run_unload(loaded);
    }
    arena_destroy(f.memory);
  }
}

int main(int argc, char **argv) {
  wanted = argc > 1 ? argv[1] : NULL;
  const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_and_strides),
                                     cmocka_unit_test(head_dims),
                                     cmocka_unit_test(kinds_of_pairs),
                                     cmocka_unit_test(nothing_seen),
                                     cmocka_unit_test(tensor_cores),
                                     cmocka_unit_test(refusals),
                                     cmocka_unit_test(unseen_rows_leave_no_trace),
                                     cmocka_unit_test(operands),
                                     cmocka_unit_test(many_tiles),
                                     cmocka_unit_test(batches_that_share_pairs),
                                     cmocka_unit_test(positions),
                                     cmocka_unit_test(rotations),
                                     cmocka_unit_test(scores),
                                     cmocka_unit_test(crowded)};
  const struct CMUnitTest of_processors[] = {cmocka_unit_test(queries_of_their_own), cmocka_unit_test(rows_that_turn)};
  if (argc > 2) cmocka_set_test_filter(argv[2]);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return is_gpu() ? failed : failed + cmocka_run_group_tests(of_processors, NULL, NULL);
}
