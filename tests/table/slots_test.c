/* slots_test: encode of k to slots of a cache in pages (kernel/check_slots.c): each row is that of a call without
 * slots, what has none is left out, nothing else of the cache is written; and what is refused. */
#include "described.h"
#include "scoped.h"
#include "slots.h"
#include "test.h"
#include "verify/trial.h"

#include <string.h>

enum { TOKENS = 23, MOST_PARTS = 4 };

typedef struct world {
  arena *memory;
  spec *spec;
  const char **targets;
  int n_targets;
  uint64_t random;
} world;

static world open_world(const char *line) {
  world w = {.memory = arena_create(), .random = 5};
  w.spec = described(w.memory, "%s", line);
  w.n_targets = trial_targets(w.memory, NULL, &w.targets);
  return w;
}

/* Rotors, what is added to rows, matrices that are formed of exponentials, with a change of basis, and columns. */
static const char *const encodings[] = {"rope",
                                        "rope_mixed heads=2",
                                        "rope skip_tokens=2 head_dim=24",
                                        "sincos channels=24",
                                        "liere heads=2 head_dim=24",
                                        "liere skip_tokens=3 block=24",
                                        "string_cayley heads=2 head_dim=16",
                                        "pape heads=2 skip_tokens=2",
                                        "pape heads=2 head_dim=20"};

static int64_t out_dim(const pegen_kernel *kernel, number_type read) {
  return kernel->widths ? kernel->widths[read].out_dim : kernel->out_dim;
}

/* A table of the call's positions. */
static void prepare(world *w, const pegen_kernel *kernel, pegen_args *args) {
  args->table_bytes = kernel->table_bytes(args);
  uintptr_t room = (uintptr_t)arena_alloc(w->memory, args->table_bytes + 63);
  args->table = (void *)((room + 63) / 64 * 64);
  assert_int_equal(kernel->prepare(args, 0, 1), 0);
}

/* A call of k's rows to slots against one without: beside q and alone, in parts, by positions and by a table. */
static void one_call(world *w, const pegen_kernel *kernel, number_type read, number_type written, int round) {
  int64_t batch = 1 + round % 2, heads = kernel->heads ? kernel->heads : 3, slots[2 * TOKENS];
  row_order order = (row_order)(round % ROW_ORDER_COUNT);
  DLTensor *q = tensor_rows(w->memory, read, order, batch, heads, TOKENS, kernel->head_dim),
           *k = tensor_rows(w->memory, read, order, batch, heads, TOKENS, kernel->head_dim),
           *apart = tensor_rows(w->memory, written, ROWS_BHND, batch, heads, TOKENS, out_dim(kernel, read)),
           *q_apart = tensor_rows(w->memory, read, ROWS_BHND, batch, heads, TOKENS, out_dim(kernel, read)),
           *q_out = tensor_copy(w->memory, q_apart);
  tensor_randomize(q, &w->random);
  tensor_randomize(k, &w->random);
  double *places = arena_array(w->memory, double, 2 * TOKENS * 8), scale[] = {0.5};
  for (int i = 0; i < 2 * TOKENS * 8; i++) places[i] = (double)random_below(&w->random, 30);
  int64_t shape[] = {batch, TOKENS, kernel->n_axes}, one[] = {1};
  trial_operands operands = trial_random_operands(w->memory, w->spec, NUMBER_F32, &w->random);
  trial_inputs inputs = trial_random_inputs(w->memory, w->spec, read, batch, heads, TOKENS, &w->random);
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = kernel->n_operands,
                     .q = q,
                     .k = k,
                     .q_out = q_apart,
                     .k_out = apart,
                     .n_inputs = kernel->n_inputs,
                     .inputs = inputs.tensors,
                     .operands = operands.tensors};
  args.positions = tensor_contiguous(w->memory, NUMBER_F32, round % 3 ? 2 : 3, shape + !!(round % 3), places);
  int64_t axes = kernel->n_axes;
  if (kernel->has_origin) args.origin = tensor_contiguous(w->memory, NUMBER_F32, 1, &axes, places);
  if (read != written) args.k_scale = tensor_contiguous(w->memory, NUMBER_F32, 1, one, scale);
  for (int tabled = 0; tabled < 1 + !!kernel->prepare; tabled++) {
    args.slots = NULL;
    if (tabled) prepare(w, kernel, &args);
    args.q = q;
    args.q_out = q_apart;
    args.k_out = apart;
    assert_int_equal(kernel->encode(&args, 0, 1), 0);
    fill_slots(slots, batch * TOKENS, &w->random);
    DLTensor *cache = cache_of(w->memory, apart, round % 2), *wanted = cache_of(w->memory, apart, round % 2);
    place_rows(wanted, apart, slots);
    args.k_out = cache;
    args.slots = slots_of(w->memory, slots, 1 + round % 2, batch, TOKENS);
    for (int alone = 0; alone < 2; alone++)
      for (int parts = 1; parts <= MOST_PARTS; parts++) {
        memset(cache->data, 0x5a, room_of(cache));
        args.q = alone ? NULL : q;
        args.q_out = alone ? NULL : q_out;
        for (int part = parts - 1; part >= 0; part--) assert_int_equal(kernel->encode(&args, part, parts), 0);
        assert_memory_equal(cache->data, wanted->data, room_of(cache));
        if (!alone) assert_true(tensor_identical(q_out, q_apart));
      }
  }
}

static void as_rows(const char *line, int pair) {
  SCOPED world w = open_world(line);
  unsigned dtypes = pair ? PEGEN_DTYPE_BF16 | PEGEN_DTYPE_BF16 << PEGEN_TO_F8E4M3 : 0;
  for (int target = 0, round = 0; target < w.n_targets; target++) {
    SCOPED_KERNEL *loaded = held(trial_load(w.memory, w.spec, w.targets[target], dtypes, 1));
    for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++, round++) {
      number_type read = pair ? NUMBER_BF16 : (number_type)type;
      one_call(&w, run_kernel(loaded), read, pair ? NUMBER_F8E4M3 : read, round);
    }
  }
}

TEST(slots) {
  for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++) as_rows(encodings[i], 0);
}

TEST(converted) { as_rows(encodings[0], 1); }

/* More rows than a call says of at once where their slots are: of many tokens, of many batches. */
static void of_many(world *w, const pegen_kernel *kernel, int64_t batch, int64_t tokens) {
  int64_t heads = 2, width = kernel->head_dim, rows = batch * tokens, pages = rows / PAGE + 1;
  int64_t *slots = arena_array(w->memory, int64_t, rows), shape[] = {tokens, kernel->n_axes};
  double *places = arena_array(w->memory, double, tokens * kernel->n_axes);
  for (int64_t i = 0; i < tokens * kernel->n_axes; i++) places[i] = (double)random_below(&w->random, 30);
  DLTensor *k = tensor_rows(w->memory, NUMBER_F32, ROWS_BHND, batch, heads, tokens, width),
           *apart = tensor_copy(w->memory, k), *pool = cache_of(w->memory, k, 0);
  tensor_randomize(k, &w->random);
  trial_operands operands = trial_random_operands(w->memory, w->spec, NUMBER_F32, &w->random);
  pegen_args args = {.struct_size = sizeof args, .n_operands = kernel->n_operands, .k = k, .k_out = apart};
  args.operands = operands.tensors;
  args.positions = tensor_contiguous(w->memory, NUMBER_F32, 2, shape, places);
  assert_int_equal(kernel->encode(&args, 0, 1), 0);
  for (int64_t i = 0; i < rows; i++) slots[i] = i;
  for (int64_t i = rows - 1; i > 0; i--) {
    int64_t other = (int64_t)random_below(&w->random, (uint64_t)i + 1), held = slots[i];
    slots[i] = slots[other];
    slots[other] = held;
  }
  for (int64_t i = 0; i < rows; i += 7) slots[i] = -1;
  size_t row = (size_t)width * sizeof(float), token = (size_t)heads * row;
  pool->shape[0] = pages;
  pool->data = arena_alloc(w->memory, (size_t)(pages * PAGE) * token);
  args.k_out = pool;
  args.slots = slots_of(w->memory, slots, 2, batch, tokens);
  for (int parts = 1; parts <= MOST_PARTS; parts += 2) {
    memset(pool->data, 0x5a, (size_t)(pages * PAGE) * token);
    for (int part = parts - 1; part >= 0; part--) assert_int_equal(kernel->encode(&args, part, parts), 0);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t h = 0; slots[i] >= 0 && h < heads; h++)
        assert_memory_equal((char *)pool->data + (size_t)slots[i] * token + (size_t)h * row,
                            tensor_at(apart, i / tokens, h, i % tokens, 0), row);
    size_t untouched = 0, all = (size_t)(pages * PAGE) * (size_t)(heads * width);
    for (size_t i = 0; i < all; i++) untouched += ((uint32_t *)pool->data)[i] == 0x5a5a5a5a;
    assert_true(untouched >= all - (size_t)((rows - (rows + 6) / 7) * heads * width));
  }
}

TEST(many) {
  static const char *const two[] = {"rope skip_tokens=1 head_dim=8", "rope_mixed heads=2 head_dim=8"};
  for (int i = 0; i < 2; i++) {
    SCOPED world w = open_world(two[i]);
    SCOPED_KERNEL *loaded = trial_load(w.memory, w.spec, w.targets[0], PEGEN_DTYPE_F32, 1);
    of_many(&w, run_kernel(loaded), 3, 700);
    of_many(&w, run_kernel(loaded), 1100, 2);
    of_many(&w, run_kernel(loaded), 1, 1500);
  }
}

#define REFUSED(error, change) \
  do { \
    pegen_args args = sound; \
    DLTensor some = *sound.slots, pool = *cache; \
    change; \
    (void)some, (void)pool; \
    memset(cache->data, 0x5a, room_of(cache)); \
    assert_int_equal(kernel->encode(&args, 0, 1), error); \
    for (size_t i = 0; i < room_of(cache); i++) assert_int_equal(((unsigned char *)cache->data)[i], 0x5a); \
  } while (0)

/* As PyTorch has the strides of tensors without an element: those of sizes of one at least. */
TEST(no_tokens) {
  SCOPED world w = open_world("rope");
  SCOPED_KERNEL *loaded = trial_load(w.memory, w.spec, w.targets[0], PEGEN_DTYPE_F32, 1);
  const pegen_kernel *kernel = run_kernel(loaded);
  for (int batches = 0; batches < 3; batches += 2) {
    int64_t tokens = batches ? 0 : 3, sizes[] = {batches, tokens}, strides[] = {tokens ? tokens : 1, 1};
    DLTensor *k = tensor_rows(w.memory, NUMBER_F32, ROWS_BHND, batches, 2, tokens, kernel->head_dim),
             *cache = cache_of(w.memory, k, 0);
    double places[3] = {0};
    int64_t shape[] = {tokens, 1};
    DLTensor slots = {.device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 64, 1}, .shape = sizes, .strides = strides};
    pegen_args args = {.struct_size = sizeof args, .k = k, .k_out = cache, .slots = &slots};
    args.positions = tensor_contiguous(w.memory, NUMBER_F32, 2, shape, places);
    assert_int_equal(kernel->encode(&args, 0, 1), 0);
    sizes[1]++;
    assert_int_equal(kernel->encode(&args, 0, 1), batches ? PEGEN_ERROR_SLOTS : 0);
  }
}

TEST(refused) {
  SCOPED world w = open_world("rope");
  SCOPED_KERNEL *loaded = trial_load(w.memory, w.spec, w.targets[0], PEGEN_DTYPE_F32, 1);
  const pegen_kernel *kernel = run_kernel(loaded);
  DLTensor *k = tensor_rows(w.memory, NUMBER_F32, ROWS_BHND, 1, 2, 4, kernel->head_dim),
           *cache = cache_of(w.memory, k, 0);
  double places[] = {0, 1, 2, 3};
  int64_t shape[] = {4, 1}, at[] = {3, -1, 70, 5};
  pegen_args sound = {.struct_size = sizeof sound, .k = k, .k_out = cache};
  sound.positions = tensor_contiguous(w.memory, NUMBER_F32, 2, shape, places);
  sound.slots = slots_of(w.memory, at, 1, 1, 4);
  assert_int_equal(kernel->encode(&sound, 0, 1), 0);
  static const int64_t wrong[] = {-2, PAGES * PAGE, INT64_MAX, INT64_MIN};
  for (int i = 0; i < 4; i++) {
    at[2] = wrong[i];
    REFUSED(PEGEN_ERROR_SLOT, (void)0);
  }
  at[2] = 70;
  REFUSED(PEGEN_ERROR_SLOTS, (some.shape = (int64_t[]){3}, args.slots = &some));
  REFUSED(PEGEN_ERROR_SLOTS, (some.shape = NULL, args.slots = &some));
  REFUSED(PEGEN_ERROR_SLOTS, (some.ndim = 0, args.slots = &some));
  REFUSED(PEGEN_ERROR_SLOTS, (some.ndim = 2, some.shape = (int64_t[]){2, 2}, args.slots = &some));
  REFUSED(PEGEN_ERROR_SLOTS, (some.dtype.bits = 32, args.slots = &some));
  REFUSED(PEGEN_ERROR_SLOTS, (some.strides = (int64_t[]){2}, args.slots = &some));
  REFUSED(PEGEN_ERROR_DEVICE, (some.device.device_type = kDLCUDA, args.slots = &some));
  REFUSED(PEGEN_ERROR_NULL_DATA, (some.data = NULL, args.slots = &some));
  REFUSED(PEGEN_ERROR_ALIGNMENT, (some.byte_offset = 4, args.slots = &some));
  REFUSED(PEGEN_ERROR_RANK, (pool.ndim = 3, args.k_out = &pool));
  REFUSED(PEGEN_ERROR_NULL_SHAPE, (pool.shape = NULL, args.k_out = &pool));
  REFUSED(PEGEN_ERROR_SHAPE_MISMATCH, (pool.shape = (int64_t[]){PAGES, PAGE, 1, k->shape[3]}, args.k_out = &pool));
  REFUSED(PEGEN_ERROR_HEAD_DIM, (pool.shape = (int64_t[]){PAGES, PAGE, 2, k->shape[3] - 2}, args.k_out = &pool));
  REFUSED(PEGEN_ERROR_NEGATIVE_SIZE, (pool.shape = (int64_t[]){-1, PAGE, 2, k->shape[3]}, args.k_out = &pool));
  REFUSED(PEGEN_ERROR_SLOT, (pool.shape = (int64_t[]){4, PAGE, 2, k->shape[3]}, args.k_out = &pool));
  REFUSED(PEGEN_ERROR_STRIDE,
          (pool.strides = (int64_t[]){0, cache->strides[1], cache->strides[2], 1}, args.k_out = &pool));
  REFUSED(PEGEN_ERROR_DTYPE_MISMATCH, (pool.dtype.bits = 16, args.k_out = &pool));
  REFUSED(PEGEN_ERROR_DEVICE, (pool.device.device_type = kDLCUDA, args.k_out = &pool));
  REFUSED(PEGEN_ERROR_MISSING_OUTPUT, args.k_out = NULL);
  REFUSED(PEGEN_ERROR_MISSING_OUTPUT, args.k = NULL);
  REFUSED(PEGEN_ERROR_OVERLAP, (pool.data = k->data, pool.shape = (int64_t[]){1, 2, 2, k->shape[3]}, at[2] = at[0] = -1,
                                at[3] = 0, args.k_out = &pool));
  at[0] = 3, at[2] = 70, at[3] = 5;
}

/* k of no heads and a cache of none, or pages of no rows, have nothing to write; q beside it goes where it always does.
 */
TEST(of_nothing) {
  SCOPED world w = open_world("rope");
  SCOPED_KERNEL *loaded = trial_load(w.memory, w.spec, w.targets[0], PEGEN_DTYPE_F32, 1);
  const pegen_kernel *kernel = run_kernel(loaded);
  DLTensor *q = tensor_rows(w.memory, NUMBER_F32, ROWS_BHND, 1, 2, 4, kernel->head_dim),
           *q_out = tensor_copy(w.memory, q), *q_apart = tensor_copy(w.memory, q), k = *q, cache = *q;
  tensor_randomize(q, &w.random);
  double places[] = {0, 1, 2, 3};
  int64_t shape[] = {4, 1}, at[] = {3, -1, 2, 0}, none[] = {1, 0, 4, kernel->head_dim},
          pages[] = {1, 4, 0, kernel->head_dim};
  k.shape = none;
  cache.shape = pages;
  k.strides = cache.strides = NULL;
  pegen_args args = {.struct_size = sizeof args, .q = q, .q_out = q_apart};
  args.positions = tensor_contiguous(w.memory, NUMBER_F32, 2, shape, places);
  assert_int_equal(kernel->encode(&args, 0, 1), 0);
  args.q_out = q_out;
  args.k = &k;
  args.k_out = &cache;
  args.slots = slots_of(w.memory, at, 1, 1, 4);
  assert_int_equal(kernel->encode(&args, 0, 1), 0);
  assert_true(tensor_identical(q_out, q_apart));
  /* Pages of no rows, and no slot. */
  args.k = q;
  pages[1] = 0, pages[2] = 2;
  at[0] = at[2] = at[3] = -1;
  assert_int_equal(kernel->encode(&args, 0, 1), 0);
}

/* Entries that have none say so. */
TEST(elsewhere) {
  static const char *const names[] = {"attention", "rope", "string_cayley", "pape"};
  int64_t at[] = {0};
  for (int i = 0; i < 4; i++) {
    SCOPED world w = open_world(names[i]);
    pegen_args args = {.struct_size = sizeof args, .slots = slots_of(w.memory, at, 1, 1, 1)};
    SCOPED_KERNEL *loaded = trial_load_gradients(w.memory, w.spec, w.targets[0], PEGEN_DTYPE_F32, 1);
    const pegen_kernel *k = run_kernel(loaded);
    pegen_entry *entries[] = {i ? NULL : k->encode,  k->prepare,          k->encode_backward, k->attention,
                              k->attention_backward, k->prepare_backward, k->attention_finish};
    for (size_t e = 0; e < sizeof entries / sizeof *entries; e++)
      if (entries[e]) assert_int_equal(entries[e](&args, 0, 1), PEGEN_ERROR_NO_SLOTS);
  }
}

int main(void) { return run_listed(); }
