/* append_test: NAME_append (kernel/append.c): its rows are those of encode, of float32 rows that were normalised
 * before, rounded once, at their slots; norms are those of their definition; v stands at the same slots; nothing else
 * is written; and what is refused. */
#include "described.h"
#include "scoped.h"
#include "slots.h"
#include "test.h"
#include "verify/trial.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 9, MOST_PARTS = 3 };

/* What one call has, beside the cases' own. */
typedef struct world {
  arena *memory;
  spec *spec, *still; /* still: RoPE of as many channels, which at position 0 turns by nothing */
  loaded_kernel *loaded, *unturned;
  const pegen_kernel *kernel, *plain;
  uint64_t random;
} world;

typedef struct test_case {
  const char *line;
  int heads, group; /* of k, and of q for each of them */
  int pair;         /* bfloat16 rows, float8 caches */
} test_case;

static const test_case cases[] = {
    {"rope", 2, 3, 0},
    {"rope head_dim=130", 1, 2, 0}, /* vectors in loops, and a last one that overlaps */
    {"rope skip_tokens=2 head_dim=20 rotary_dim=8", 2, 1, 0},
    {"rope head_dim=512 skip_tokens=1", 3, 7, 0}, /* a token's rows in pieces */
    {"rope head_dim=48", 2, 2, 1},
    {"rope head_dim=520 skip_tokens=3", 2, 20, 1},
    {"rope_mixed heads=2", 2, 2, 0},
    {"rope_mixed heads=20 head_dim=256", 20, 1, 0},
    {"sincos channels=24", 2, 2, 0},
    {"care heads=2", 2, 1, 0},
    {"geope3d", 2, 2, 0},
    {"quatro heads=2", 2, 1, 0},
    {"more/geope_video", 3, 1, 0},
    {"../tests/spec/good/head_parts head_dim=71", 2, 2, 1},
    {"../tests/spec/good/head_parts heads=2 skip_tokens=2", 2, 2, 0},
    {"more/selective_rope head_dim=16", 2, 1, 0},
    {"more/selective_rope head_dim=1024", 9, 1, 0},
};

static world open_world(const test_case *c, const char *target, unsigned dtypes) {
  world w = {.memory = arena_create(), .random = 7};
  w.spec = described(w.memory, "%s", c->line);
  w.still = described(w.memory, "rope head_dim=%d", w.spec->head_dim);
  w.loaded = trial_load(w.memory, w.spec, target, dtypes, 1);
  w.unturned = trial_load(w.memory, w.still, target, dtypes, 1);
  assert_true(w.loaded && w.unturned);
  w.kernel = run_kernel(w.loaded);
  w.plain = run_kernel(w.unturned);
  return w;
}

static void close_world(world *w) {
  run_unload(w->loaded);
  run_unload(w->unturned);
  arena_destroy(w->memory);
}

static const DLTensor *places_of(world *w, int64_t axes, int64_t most) {
  int64_t shape[] = {TOKENS, axes};
  double *at = arena_array(w->memory, double, TOKENS *axes + 1);
  for (int64_t i = 0; i < TOKENS * axes; i++) at[i] = most ? (double)random_below(&w->random, (uint64_t)most) : 0;
  return tensor_contiguous(w->memory, NUMBER_F32, 2, shape, at);
}

static const DLTensor *weights_of(world *w, number_type type) {
  int64_t width = w->spec->head_dim;
  double *at = arena_array(w->memory, double, width);
  for (int64_t i = 0; i < width; i++) at[i] = random_uniform(&w->random, -2, 2);
  return tensor_contiguous(w->memory, type, 1, &width, at);
}

static double weight(const DLTensor *of, int64_t i) {
  number_type type = number_type_of(of->dtype);
  return number_round(NUMBER_F32, number_load(type, (char *)of->data + i * number_bytes(type)));
}

/* Rows x w / sqrt(mean(x^2) + epsilon): the kernel's own, by an append that turns by nothing, held against the
 * definition. */
static DLTensor *normalised(world *w, const DLTensor *x, const DLTensor *norm, double epsilon) {
  int64_t batch = x->shape[0], heads = x->shape[1], width = x->shape[3], none[2 * TOKENS];
  number_type type = number_type_of(x->dtype);
  DLTensor *k = tensor_rows(w->memory, type, ROWS_BHND, batch, 1, TOKENS, width),
           *y = tensor_rows(w->memory, type, ROWS_BHND, batch, heads, TOKENS, width);
  for (int i = 0; i < 2 * TOKENS; i++) none[i] = -1;
  pegen_args args = {.struct_size = sizeof args, .q = x, .q_out = y, .k = k, .k_out = cache_of(w->memory, k, 0)};
  args.positions = places_of(w, 1, 0);
  args.slots = slots_of(w->memory, none, 1, batch, TOKENS);
  args.q_norm = norm;
  args.norm_epsilon = epsilon;
  assert_int_equal(w->plain->append(&args, 0, 1), 0);
  for (int64_t b = 0; b < batch; b++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t n = 0; n < TOKENS; n++) {
        long double sum = 0;
        for (int64_t c = 0; c < width; c++) {
          long double value = number_load(type, tensor_at(x, b, h, n, c));
          sum += value * value;
        }
        long double factor = 1 / sqrtl(sum / width + epsilon);
        for (int64_t c = 0; c < width; c++) {
          long double want = number_load(type, tensor_at(x, b, h, n, c)) * factor * weight(norm, c),
                      error = fabsl(number_load(type, tensor_at(y, b, h, n, c)) - want);
          assert_true(error <= fabsl(want) * 0x1p-20L);
        }
      }
  return y;
}

/* Returns the rows converted to another type. */
static DLTensor *converted(world *w, const DLTensor *x, number_type type) {
  int64_t batch = x->shape[0], heads = x->shape[1], tokens = x->shape[2], width = x->shape[3];
  number_type from = number_type_of(x->dtype);
  DLTensor *y = tensor_rows(w->memory, type, ROWS_BHND, batch, heads, tokens, width);
  for (int64_t b = 0; b < batch; b++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t n = 0; n < tokens; n++)
        for (int64_t c = 0; c < width; c++)
          number_store(type, tensor_at(y, b, h, n, c), number_load(from, tensor_at(x, b, h, n, c)));
  return y;
}

/* [1,H,N,D] as [N,H,D]. */
static DLTensor *without_batches(arena *a, const DLTensor *x) {
  DLTensor *flat = arena_new(a, DLTensor);
  *flat = *x;
  flat->ndim = 3;
  flat->shape = arena_array(a, int64_t, 3);
  flat->strides = arena_array(a, int64_t, 3);
  memcpy(flat->shape, (int64_t[]){x->shape[2], x->shape[1], x->shape[3]}, 3 * sizeof(int64_t));
  memcpy(flat->strides, (int64_t[]){x->strides[2], x->strides[1], x->strides[3]}, 3 * sizeof(int64_t));
  return flat;
}

/* To the bit; to the last place of what is added to rows, whose product with a weight is not rounded before the sum,
 * and of parts, whose products and sums are fused in one function as they are not in another. */
static bool are_alike(const world *w, number_type type, const void *made, const void *wanted, size_t bytes) {
  bool is_near = w->spec->additive || w->spec->n_parts;
  if (!memcmp(made, wanted, bytes)) return true;
  size_t step = (size_t)number_bytes(type);
  for (size_t at = 0; is_near && at < bytes; at += step) {
    long double x = number_load(type, (const char *)made + at), y = number_load(type, (const char *)wanted + at);
    bool is_equal = !memcmp((const char *)made + at, (const char *)wanted + at, step);
    if (!is_equal && !(fabsl(x - y) <= 0x1p-21L + 2 * number_half_ulp(type, y))) return false;
  }
  return is_near;
}

/* Calls in parts, the last first, q apart and in place, against what is wanted. */
static void expect(world *w, pegen_args *args, const DLTensor *q, const DLTensor *wanted_q, DLTensor *const *caches,
                   DLTensor *const *wanted) {
  bool is_flat = args->k->ndim == 3;
  number_type type = number_type_of(q->dtype);
  for (int parts = 1; parts <= MOST_PARTS; parts++)
    for (int in_place = 0; in_place < 2; in_place++) {
      DLTensor *own = tensor_copy(w->memory, in_place ? q : wanted_q);
      for (int i = 0; i < 2; i++) memset(caches[i]->data, 0x5a, room_of(caches[i]));
      args->q_out = is_flat ? without_batches(w->memory, own) : own;
      args->q = in_place ? args->q_out : is_flat ? without_batches(w->memory, q) : q;
      if (!in_place) memset(own->data, 0, (size_t)number_bytes(number_type_of(own->dtype)));
      for (int part = parts - 1; part >= 0; part--) assert_int_equal(w->kernel->append(args, part, parts), 0);
      const DLTensor *packed = converted(w, own, type);
      size_t bytes = (size_t)(own->shape[0] * own->shape[1] * TOKENS * own->shape[3] * number_bytes(type));
      assert_true(are_alike(w, type, packed->data, wanted_q->data, bytes));
      for (int i = 0; i < 2; i++)
        assert_true(
            are_alike(w, number_type_of(caches[i]->dtype), caches[i]->data, wanted[i]->data, room_of(caches[i])));
    }
}

static void run_type(world *w, const test_case *c, number_type read, int round) {
  number_type written = c->pair ? NUMBER_F8E4M3 : read;
  static const number_type kinds[] = {NUMBER_F32, NUMBER_BF16, NUMBER_F64};
  arena *a = w->memory;
  int64_t batch = w->spec->n_inputs ? 1 : 1 + round % 2, width = w->spec->head_dim, slots[2 * TOKENS], one[] = {1};
  double epsilon = round % 3 ? 1e-6 : 0.25, scale[] = {0.5};
  row_order order = (row_order)(round % ROW_ORDER_COUNT);
  DLTensor *q = tensor_rows(a, read, order, batch, c->heads * c->group, TOKENS, width),
           *k = tensor_rows(a, read, order, batch, c->heads, TOKENS, width), *v = tensor_copy(a, k),
           *q_out = tensor_rows(a, NUMBER_F32, order, batch, c->heads * c->group, TOKENS, width),
           *k_out = tensor_rows(a, c->pair ? written : NUMBER_F32, ROWS_BHND, batch, c->heads, TOKENS, width),
           *v_out = tensor_copy(a, k_out);
  tensor_randomize(q, &w->random), tensor_randomize(k, &w->random), tensor_randomize(v, &w->random);
  const DLTensor *norms[] = {weights_of(w, kinds[round % 3]), weights_of(w, kinds[(round + 1) % 3])};
  int which = round % 4; /* 3: none of them, 1, 2: one */
  if (which == 1 || which == 3) norms[0] = NULL;
  if (which >= 2) norms[1] = NULL;
  trial_operands operands = trial_random_operands(a, w->spec, NUMBER_F32, &w->random);
  trial_inputs inputs = trial_random_inputs(a, w->spec, NUMBER_F32, batch, c->heads, TOKENS, &w->random);
  pegen_args args = {.struct_size = sizeof args, .n_operands = w->spec->n_operands, .operands = operands.tensors};
  args.inputs = w->spec->n_inputs ? inputs.tensors : NULL;
  args.n_inputs = w->spec->n_inputs;
  args.positions = places_of(w, w->kernel->n_axes, 30);
  const DLTensor *wide_q = converted(w, q, NUMBER_F32), *wide_k = converted(w, k, NUMBER_F32);
  args.q = norms[0] ? normalised(w, wide_q, norms[0], epsilon) : wide_q;
  args.k = norms[1] ? normalised(w, wide_k, norms[1], epsilon) : wide_k;
  args.q_out = q_out, args.k_out = k_out;
  if (c->pair) args.k_scale = tensor_contiguous(a, NUMBER_F32, 1, one, scale);
  assert_int_equal(w->kernel->encode(&args, 0, 1), 0);
  q_out = converted(w, q_out, read);
  if (!c->pair) k_out = converted(w, k_out, read);
  pegen_args of_values = {.struct_size = sizeof args, .k = v, .k_out = v_out, .positions = places_of(w, 1, 0)};
  if (c->pair) of_values.k_scale = tensor_contiguous(a, NUMBER_F32, 1, one, scale);
  if (c->pair) assert_int_equal(w->plain->encode(&of_values, 0, 1), 0);
  fill_slots(slots, batch * TOKENS, &w->random);
  DLTensor *caches[] = {cache_of(a, k_out, round % 2), cache_of(a, k_out, 1)},
           *wanted[] = {cache_of(a, k_out, round % 2), cache_of(a, k_out, 1)};
  place_rows(wanted[0], k_out, slots);
  place_rows(wanted[1], c->pair ? v_out : v, slots);
  bool is_flat = batch == 1 && round % 3 == 0 && !w->spec->n_inputs;
  args.k = is_flat ? without_batches(a, k) : k, args.v = is_flat ? without_batches(a, v) : v;
  args.k_out = caches[0], args.v_out = caches[1];
  args.v_scale = args.k_scale;
  args.slots = slots_of(a, slots, 1 + round % 2, batch, TOKENS);
  args.q_norm = norms[0], args.k_norm = norms[1], args.norm_epsilon = epsilon;
  expect(w, &args, q, q_out, caches, wanted);
  if (!w->kernel->prepare) return;
  pegen_args tabled = {.struct_size = sizeof args, .n_operands = w->spec->n_operands, .operands = operands.tensors};
  tabled.positions = args.positions;
  args.table_bytes = tabled.table_bytes = w->kernel->table_bytes(&tabled); /* by a table: the same */
  args.table = tabled.table = (void *)(((uintptr_t)arena_alloc(a, args.table_bytes + 64) + 63) / 64 * 64);
  assert_int_equal(w->kernel->prepare(&tabled, 0, 1), 0);
  expect(w, &args, q, q_out, caches, wanted);
}

TEST(as_encode) {
  SCOPED arena *memory = arena_create();
  const char **targets;
  int n_targets = trial_targets(memory, NULL, &targets), round = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int target = 0; target < n_targets; target++) {
      unsigned dtypes = cases[i].pair ? (PEGEN_DTYPE_BF16 | PEGEN_DTYPE_F32) * (1u + (1u << PEGEN_TO_F8E4M3)) : 0;
      world w = open_world(&cases[i], targets[target], dtypes);
      for (int type = 0; type < (cases[i].pair ? 4 : 2 * NUMBER_CHANNEL_TYPES); type++, round++)
        run_type(&w, &cases[i], cases[i].pair ? NUMBER_BF16 : (number_type)(type % NUMBER_CHANNEL_TYPES), round);
      close_world(&w);
    }
}

/* ---- refusals ---- */

#define REFUSED(error, change) \
  do { \
    pegen_args args = sound; \
    DLTensor some = *sound.q_norm, pool = *sound.v_out, value = *sound.v; \
    change; \
    (void)some, (void)pool, (void)value; \
    for (int i = 0; i < 2; i++) memset(caches[i]->data, 0x5a, room_of(caches[i])); \
    DLTensor *before = tensor_copy(w.memory, q_out); \
    assert_int_equal(w.kernel->append(&args, 0, 1), error); \
    assert_true(tensor_identical(before, q_out)); \
    for (int c = 0; c < 2; c++) \
      for (size_t i = 0; i < room_of(caches[c]); i++) assert_int_equal(((unsigned char *)caches[c]->data)[i], 0x5a); \
  } while (0)

TEST(refused) {
  SCOPED arena *memory = arena_create();
  const char **targets;
  trial_targets(memory, NULL, &targets);
  world w = open_world(&cases[0], targets[0], PEGEN_DTYPE_F32);
  int64_t width = w.spec->head_dim, at[TOKENS];
  for (int i = 0; i < TOKENS; i++) at[i] = 70 - i;
  DLTensor *q = tensor_rows(w.memory, NUMBER_F32, ROWS_BHND, 1, 2, TOKENS, width), *q_out = tensor_copy(w.memory, q),
           *k = tensor_copy(w.memory, q), *v = tensor_copy(w.memory, q),
           *caches[] = {cache_of(w.memory, k, 0), cache_of(w.memory, k, 0)};
  pegen_args sound = {.struct_size = sizeof sound, .q = q, .q_out = q_out, .k = k, .v = v, .k_out = caches[0]};
  sound.v_out = caches[1];
  sound.positions = places_of(&w, 1, 9);
  sound.slots = slots_of(w.memory, at, 1, 1, TOKENS);
  sound.q_norm = weights_of(&w, NUMBER_F32), sound.k_norm = weights_of(&w, NUMBER_F32);
  assert_int_equal(w.kernel->append(&sound, 0, 1), 0);
  assert_int_equal(w.kernel->append(NULL, 0, 1), PEGEN_ERROR_NULL_ARGS);
  REFUSED(PEGEN_ERROR_STRUCT_SIZE, args.struct_size = 8);
  REFUSED(PEGEN_ERROR_SLOTS, args.struct_size = PEGEN_ARGS_FIRST_SIZE);
  REFUSED(PEGEN_ERROR_SLOTS, args.slots = NULL);
  assert_int_equal(w.kernel->append(&sound, 1, 1), PEGEN_ERROR_PART);
  REFUSED(PEGEN_ERROR_MISSING_OUTPUT, args.k = NULL);
  REFUSED(PEGEN_ERROR_MISSING_OUTPUT, args.q_out = NULL);
  REFUSED(PEGEN_ERROR_MISSING_OUTPUT, args.v = NULL);
  REFUSED(PEGEN_ERROR_MISSING_OUTPUT, args.v_out = NULL);
  REFUSED(PEGEN_ERROR_MISSING_POSITIONS, args.positions = NULL);
  REFUSED(PEGEN_ERROR_RANK, args.v = without_batches(w.memory, v));
  REFUSED(PEGEN_ERROR_RANK, args.q = without_batches(w.memory, q));
  REFUSED(PEGEN_ERROR_NULL_SHAPE, (value.shape = NULL, args.v = &value));
  REFUSED(PEGEN_ERROR_SHAPE_MISMATCH, (value.shape = (int64_t[]){1, 2, TOKENS - 1, width}, args.v = &value));
  REFUSED(PEGEN_ERROR_HEAD_DIM, (value.shape = (int64_t[]){1, 2, TOKENS, width / 2}, args.v = &value));
  REFUSED(PEGEN_ERROR_DTYPE_MISMATCH, (value.dtype.bits = 16, args.v = &value));
  REFUSED(PEGEN_ERROR_DTYPE_MISMATCH, (pool.dtype.bits = 16, args.v_out = &pool));
  REFUSED(PEGEN_ERROR_OUTPUT_SCALE, args.v_scale = sound.q_norm);
  REFUSED(PEGEN_ERROR_SLOT, (pool.shape = (int64_t[]){4, PAGE, 2, width}, args.v_out = &pool));
  REFUSED(PEGEN_ERROR_SHAPE_MISMATCH, (pool.shape = (int64_t[]){PAGES, PAGE, 1, width}, args.v_out = &pool));
  REFUSED(PEGEN_ERROR_DEVICE, (pool.device.device_type = kDLCUDA, args.v_out = &pool));
  REFUSED(PEGEN_ERROR_NORM, (some.shape = (int64_t[]){width - 1}, args.q_norm = &some));
  REFUSED(PEGEN_ERROR_NORM, (some.shape = NULL, args.k_norm = &some));
  REFUSED(PEGEN_ERROR_NORM, (some.ndim = 2, args.q_norm = &some));
  REFUSED(PEGEN_ERROR_NORM, (some.strides = (int64_t[]){2}, args.q_norm = &some));
  REFUSED(PEGEN_ERROR_NORM, (some.dtype.code = kDLInt, args.q_norm = &some));
  REFUSED(PEGEN_ERROR_NORM, (args.q = NULL, args.q_out = NULL));
  REFUSED(PEGEN_ERROR_NORM, args.norm_epsilon = -1e-6);
  REFUSED(PEGEN_ERROR_NORM, args.norm_epsilon = NAN);
  REFUSED(PEGEN_ERROR_NORM, args.norm_epsilon = INFINITY);
  REFUSED(PEGEN_ERROR_DEVICE, (some.device.device_type = kDLCUDA, args.k_norm = &some));
  REFUSED(PEGEN_ERROR_NULL_DATA, (some.data = NULL, args.k_norm = &some));
  REFUSED(PEGEN_ERROR_ALIGNMENT, (some.byte_offset = 2, args.k_norm = &some));
  REFUSED(PEGEN_ERROR_OVERLAP, args.v_out = args.k_out);
  REFUSED(PEGEN_ERROR_OVERLAP, args.v = q_out);
  REFUSED(PEGEN_ERROR_OVERLAP, (some.data = caches[0]->data, args.q_norm = &some));
  REFUSED(PEGEN_ERROR_OVERLAP, (some.data = caches[1]->data, args.k_norm = &some));
  REFUSED(PEGEN_ERROR_OVERLAP, (some.data = q_out->data, args.q_norm = &some));
  memset(at, 0, sizeof at);
  REFUSED(PEGEN_ERROR_OVERLAP, (pool.data = q->data, pool.shape = (int64_t[]){1, 1, 2, width}, args.v_out = &pool));
  REFUSED(PEGEN_ERROR_OVERLAP, (pool.data = k->data, pool.shape = (int64_t[]){1, 1, 2, width}, args.v_out = &pool));
  REFUSED(PEGEN_ERROR_OVERLAP, (pool.data = v->data, pool.shape = (int64_t[]){1, 1, 2, width}, args.k_out = &pool));
  close_world(&w);
}

/* What append alone has is refused elsewhere, and kernels without slots have no such entry. */
TEST(elsewhere) {
  static const test_case others[] = {{"rope", 1, 1, 0}, {"liere", 1, 1, 0}};
  SCOPED arena *memory = arena_create();
  const char **targets;
  trial_targets(memory, NULL, &targets);
  for (int i = 0; i < 2; i++) {
    world w = open_world(&others[i], targets[0], PEGEN_DTYPE_F32);
    DLTensor *some = tensor_rows(w.memory, NUMBER_F32, ROWS_BHND, 1, 1, 1, 1);
    for (int which = 0; which < 3; which++) {
      pegen_args args = {.struct_size = sizeof args};
      if (which == 0) args.q_norm = some;
      if (which == 1) args.k_norm = some;
      if (which == 2) args.v_out = some;
      assert_int_equal(w.kernel->encode(&args, 0, 1), PEGEN_ERROR_NO_NORM);
      assert_int_equal(w.kernel->prepare(&args, 0, 1), PEGEN_ERROR_NO_NORM);
    }
    assert_int_equal(w.kernel->append == NULL, i);
    close_world(&w);
  }
}

int main(void) { return run_listed(); }
