/* Packed functions beside the entries that they call: the same numbers, None for what is left out, and errors by the
 * one function that an object imports, or without words where there is none (RAISES 0). */
#include "test.h"
#include <pegen/pegen.h>
#include <stdio.h>
#include <string.h>

/* TVMFFIAny, as its documentation has it. */
typedef struct value {
  int32_t type;
  uint32_t zero;
  union {
    int64_t integer;
    double number;
    const void *pointer;
  } u;
} value;

typedef int packed(void *handle, const value *given, int32_t count, value *result);
extern packed __tvm_ffi_rope_mixed_encode, __tvm_ffi_rope_mixed_encode_backward,
    __tvm_ffi_rope_mixed_encode_backward_workspace, __tvm_ffi_rope_mixed_append, __tvm_ffi_rope_mixed_prepare,
    __tvm_ffi_rope_mixed_table_bytes, __tvm_ffi_alibi_attention;
extern const pegen_kernel rope_mixed_kernel, alibi_kernel;

static char raised_kind[32], raised[600];

#if RAISES
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) {
  strcpy(raised_kind, kind);
  strcpy(raised, message);
}
#endif

enum { B = 2, H = 2, N = 5, D = 64, AXES = 2 };
static float q[B][H][N][D], k[B][H][N][D], q_out[B][H][N][D], k_out[B][H][N][D], expected[B][H][N][D];
static float places[N][AXES], freqs[AXES][H][D / 2], gained[2][AXES][H][D / 2];
static double workspace[1 << 16];

static int64_t row_shape[] = {B, H, N, D}, place_shape[] = {N, AXES}, freq_shape[] = {AXES, H, D / 2};

static DLTensor tensor(void *data, int rank, int64_t *shape) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

static value of(const DLTensor *t) { return (value){.type = 7, .u.pointer = t}; }
static value none(void) { return (value){0}; }
static value integer(int64_t i) { return (value){.type = 1, .u.integer = i}; }

/* A tensor of TVM's own, which has a head before it. */
typedef struct object {
  char head[24];
  DLTensor tensor;
} object;

static int set_up(void **state) {
  (void)state;
  float *arrays[] = {&q[0][0][0][0], &k[0][0][0][0], &places[0][0], &freqs[0][0][0]};
  size_t sizes[] = {B * H * N * D, B * H * N * D, N * AXES, AXES * H * D / 2};
  for (int a = 0; a < 4; a++)
    for (size_t i = 0; i < sizes[a]; i++) arrays[a][i] = (float)((i * 37 + (size_t)a * 11) % 101) / 50 - 1;
  raised[0] = raised_kind[0] = 0;
  return 0;
}

TEST_BETWEEN(test_encode, set_up, NULL) {
  DLTensor tq = tensor(q, 4, row_shape), tk = tensor(k, 4, row_shape), out = tensor(expected, 4, row_shape);
  DLTensor p = tensor(places, 2, place_shape), f = tensor(freqs, 3, freq_shape);
  object mine = {.tensor = tensor(q_out, 4, row_shape)};
  DLTensor mine_k = tensor(k_out, 4, row_shape);
  const DLTensor *operands[] = {&f};
  pegen_args args = {
      .struct_size = sizeof args, .n_operands = 1, .q = &tq, .q_out = &out, .positions = &p, .operands = operands};
  assert_int_equal(rope_mixed_kernel.encode(&args, 0, 1), 0);
  value q_object = {.type = 70, .u.pointer = &mine}, result = integer(5);
  value given[] = {of(&tq), of(&tk), of(&p), none(), of(&f), q_object, of(&mine_k)};
  assert_int_equal(__tvm_ffi_rope_mixed_encode(NULL, given, 7, &result), 0);
  assert_int_equal(result.type, 0);
  assert_memory_equal(q_out, expected, sizeof expected);
  out.data = expected, args.q = &tk;
  assert_int_equal(rope_mixed_kernel.encode(&args, 0, 1), 0);
  assert_memory_equal(k_out, expected, sizeof expected);
  /* None at the end need not be there: k is left out with its output. */
  memset(q_out, 0, sizeof q_out);
  given[1] = none();
  assert_int_equal(__tvm_ffi_rope_mixed_encode(NULL, given, 6, &result), 0);
  args.q = &tq;
  assert_int_equal(rope_mixed_kernel.encode(&args, 0, 1), 0);
  assert_memory_equal(q_out, expected, sizeof expected);
}

TEST_BETWEEN(test_backward, set_up, NULL) {
  DLTensor tq = tensor(q, 4, row_shape), grad = tensor(k, 4, row_shape), out = tensor(expected, 4, row_shape);
  DLTensor p = tensor(places, 2, place_shape), f = tensor(freqs, 3, freq_shape);
  DLTensor sums = tensor(gained[0], 3, freq_shape), *gradients[] = {&sums};
  const DLTensor *operands[] = {&f};
  pegen_grad_args back = {.struct_size = sizeof back, .flags = PEGEN_GRAD_FROM_INPUT, .q_out = &grad, .q = &out};
  pegen_args args = {.struct_size = sizeof args, .n_operands = 1, .q = &tq, .positions = &p, .operands = operands};
  back.operands = gradients;
  args.grad = &back;
  args.workspace = workspace;
  size_t bytes = rope_mixed_kernel.encode_backward_workspace(&args);
  assert_in_range(bytes, 1, sizeof workspace);
  assert_int_equal(rope_mixed_kernel.encode_backward(&args, 0, 1), 0);
  assert_int_equal(rope_mixed_kernel.encode_backward_finish(&args, 0, 1), 0);

  int64_t room_shape[] = {(int64_t)sizeof workspace};
  DLTensor room = tensor(workspace, 1, room_shape), mine = tensor(q_out, 4, row_shape);
  DLTensor summed = tensor(gained[1], 3, freq_shape);
  room.dtype = (DLDataType){kDLUInt, 8, 1};
  value result, given[] = {of(&grad), none(), of(&p),     none(), of(&f), of(&mine),   none(),
                           of(&tq),   none(), integer(1), none(), none(), of(&summed), of(&room)};
  assert_int_equal(__tvm_ffi_rope_mixed_encode_backward_workspace(NULL, given, 13, &result), 0);
  assert_int_equal(result.type, 1);
  assert_int_equal(result.u.integer, bytes);
  assert_int_equal(__tvm_ffi_rope_mixed_encode_backward(NULL, given, 14, &result), 0);
  assert_memory_equal(q_out, expected, sizeof expected);
  assert_memory_equal(gained[1], gained[0], sizeof gained[0]);
}

TEST_BETWEEN(test_attention, set_up, NULL) {
  int64_t line_shape[] = {N, 1};
  DLTensor tq = tensor(q, 4, row_shape), tk = tensor(k, 4, row_shape), out = tensor(expected, 4, row_shape);
  DLTensor p = tensor(places, 2, line_shape), mine = tensor(q_out, 4, row_shape);
  pegen_args args = {
      .struct_size = sizeof args, .q = &tq, .k = &tk, .v = &tk, .out = &out, .positions = &p, .causal = 1, .scale = 2};
  assert_int_equal(alibi_kernel.attention(&args, 0, 1), 0);
  value result, two = {.type = 3, .u.number = 2};
  value given[] = {of(&tq), of(&tk), of(&tk), of(&p), none(), of(&mine), none(), integer(1), two};
  assert_int_equal(__tvm_ffi_alibi_attention(NULL, given, 9, &result), 0);
  assert_memory_equal(q_out, expected, sizeof expected);
  given[8] = integer(2);
  memset(q_out, 0, sizeof q_out);
  assert_int_equal(__tvm_ffi_alibi_attention(NULL, given, 9, &result), 0);
  assert_memory_equal(q_out, expected, sizeof expected);
}

/* ---- append ---- */

enum { PAGE = 4, PAGES = 3 };
typedef float cache[PAGES][PAGE][H][D];
static cache caches[2][2]; /* [entry, packed][k, v] */
static float values[B][H][N][D], weights[2][D];
static int64_t slots[B][N] = {{11, 3, -1, 4, 0}, {5, 6, 7, 9, 2}};
static int64_t slot_shape[] = {B, N}, weight_shape[] = {D}, cache_shape[] = {PAGES, PAGE, H, D};

enum { APPEND_Q, APPEND_K, APPEND_V, APPEND_PLACES, APPEND_FREQS = 5, APPEND_SLOTS, APPEND_Q_OUT, APPEND_K_OUT };
enum { APPEND_V_OUT = APPEND_K_OUT + 1, APPEND_Q_NORM, APPEND_K_NORM, APPEND_EPSILON, APPEND_Q_SCALE };
enum { APPEND_TABLE = APPEND_Q_SCALE + 3, APPEND_COUNT };

/* A call's tensors, and it as arguments of the packed function. */
typedef struct appending {
  DLTensor q, k, v, places, freqs, slots, q_out, caches[2], norms[2];
  value given[APPEND_COUNT];
} appending;

static void lay_append(appending *a) {
  *a = (appending){.q = tensor(q, 4, row_shape),
                   .k = tensor(k, 4, row_shape),
                   .v = tensor(values, 4, row_shape),
                   .places = tensor(places, 2, place_shape),
                   .freqs = tensor(freqs, 3, freq_shape),
                   .slots = tensor(slots, 2, slot_shape),
                   .q_out = tensor(q_out, 4, row_shape)};
  a->slots.dtype = (DLDataType){kDLInt, 64, 1};
  memset(caches, 0, sizeof caches);
  for (int i = 0; i < 2; i++) {
    a->caches[i] = tensor(caches[1][i], 4, cache_shape);
    a->norms[i] = tensor(weights[i], 1, weight_shape);
    for (int c = 0; c < D; c++) weights[i][c] = (float)(1 + i) - (float)c / D;
  }
  float *v = &values[0][0][0][0];
  for (size_t i = 0; i < B * H * N * D; i++) v[i] = (float)i;
  const DLTensor *all[] = {[APPEND_Q] = &a->q,
                           [APPEND_K] = &a->k,
                           [APPEND_V] = &a->v,
                           [APPEND_PLACES] = &a->places,
                           [APPEND_FREQS] = &a->freqs,
                           [APPEND_SLOTS] = &a->slots,
                           [APPEND_Q_OUT] = &a->q_out,
                           [APPEND_K_OUT] = &a->caches[0],
                           [APPEND_V_OUT] = &a->caches[1],
                           [APPEND_Q_NORM] = &a->norms[0],
                           [APPEND_K_NORM] = &a->norms[1]};
  for (int i = 0; i < (int)(sizeof all / sizeof *all); i++)
    if (all[i]) a->given[i] = of(all[i]);
  a->given[APPEND_EPSILON] = (value){.type = 3, .u.number = 0.25};
}

/* The entry itself, to `expected` and the first caches. */
static void append_directly(const appending *a, int norms) {
  DLTensor out = tensor(expected, 4, row_shape), own[2] = {a->caches[0], a->caches[1]};
  const DLTensor *operands[] = {&a->freqs};
  for (int i = 0; i < 2; i++) own[i].data = caches[0][i];
  pegen_args args = {.struct_size = sizeof args, .n_operands = 1, .q = &a->q, .k = &a->k, .v = &a->v, .q_out = &out};
  args.k_out = &own[0], args.v_out = &own[1];
  args.positions = &a->places, args.operands = operands, args.slots = &a->slots;
  if (norms) args.q_norm = &a->norms[0], args.k_norm = &a->norms[1], args.norm_epsilon = 0.25;
  assert_int_equal(rope_mixed_kernel.append(&args, 0, 1), 0);
}

TEST_BETWEEN(test_append, set_up, NULL) {
  float with_norms[B][H][N][D];
  appending a;
  value result = integer(5);
  lay_append(&a);
  append_directly(&a, 1);
  memcpy(with_norms, expected, sizeof expected);
  assert_int_equal(__tvm_ffi_rope_mixed_append(NULL, a.given, APPEND_COUNT, &result), 0);
  assert_int_equal(result.type, 0);
  assert_memory_equal(q_out, expected, sizeof expected);
  assert_memory_equal(caches[1], caches[0], sizeof caches[0]);
  assert_memory_equal(caches[1][1][11 / PAGE][11 % PAGE][1], values[0][1][0], sizeof values[0][1][0]);
  /* Without the last arguments: no norms. */
  lay_append(&a);
  append_directly(&a, 0);
  assert_memory_not_equal(with_norms, expected, sizeof expected);
  assert_int_equal(__tvm_ffi_rope_mixed_append(NULL, a.given, APPEND_Q_NORM, &result), 0);
  assert_memory_equal(q_out, expected, sizeof expected);
  assert_memory_equal(caches[1], caches[0], sizeof caches[0]);
}

/* A table stands for positions and operands, of append and of encode; what is no room for one is refused. */
TEST_BETWEEN(test_table, set_up, NULL) {
  static _Alignas(64) char table[1 << 14];
  appending a;
  value result;
  lay_append(&a);
  append_directly(&a, 1);
  value prepared[] = {of(&a.places), none(), of(&a.freqs), none()};
  assert_int_equal(__tvm_ffi_rope_mixed_table_bytes(NULL, prepared, 3, &result), 0);
  assert_int_equal(result.type, 1);
  int64_t bytes[] = {result.u.integer}, few[] = {bytes[0] - 1};
  assert_in_range(bytes[0], 1, sizeof table);
  DLTensor room = tensor(table, 1, bytes);
  room.dtype = (DLDataType){kDLUInt, 8, 1};
  prepared[3] = of(&room);
  assert_int_equal(__tvm_ffi_rope_mixed_prepare(NULL, prepared, 4, &result), 0);
  assert_int_equal(result.type, 0);
  a.given[APPEND_PLACES] = a.given[APPEND_FREQS] = none();
  a.given[APPEND_TABLE] = of(&room);
  assert_int_equal(__tvm_ffi_rope_mixed_append(NULL, a.given, APPEND_COUNT, &result), 0);
  assert_memory_equal(q_out, expected, sizeof expected);
  assert_memory_equal(caches[1], caches[0], sizeof caches[0]);
  DLTensor mine = tensor(q_out, 4, row_shape);
  value encode[] = {of(&a.q), none(), none(), none(), none(), of(&mine), none(), of(&room)};
  append_directly(&a, 0);
  memset(q_out, 0, sizeof q_out);
  assert_int_equal(__tvm_ffi_rope_mixed_encode(NULL, encode, 8, &result), 0);
  assert_memory_equal(q_out, expected, sizeof expected);
  room.shape = few;
  assert_int_equal(__tvm_ffi_rope_mixed_prepare(NULL, prepared, 4, &result), -1);
  assert_int_equal(__tvm_ffi_rope_mixed_append(NULL, a.given, APPEND_COUNT, &result), -1);
  assert_int_equal(__tvm_ffi_rope_mixed_prepare(NULL, prepared, 3, &result), -1);
}

static const char *words_of(int error) {
  switch (error) {
#define CASE(name, value, words) \
  case value: return words;
    PEGEN_ERRORS(CASE)
#undef CASE
  }
  return "";
}

static void refused(packed *f, const value *given, int count, const char *kind, const char *words) {
  value result;
  raised[0] = 0;
  assert_int_equal(f(NULL, given, count, &result), -1);
  if (!RAISES) return;
  assert_string_equal(raised_kind, kind);
  assert_string_equal(raised, words);
}

TEST_BETWEEN(test_refused, set_up, NULL) {
  DLTensor tq = tensor(q, 4, row_shape), p = tensor(places, 2, place_shape), f = tensor(freqs, 3, freq_shape);
  DLTensor out = tensor(q_out, 4, row_shape);
  value given[9] = {of(&tq), none(), of(&p), none(), of(&f), of(&out), none(), none()};
  packed *encode = &__tvm_ffi_rope_mixed_encode;
  refused(encode, given, 9, "TypeError", "rope_mixed_encode: more arguments than it takes");
  refused(encode, given, 0, "ValueError", "rope_mixed_encode: neither q with q_out nor k with k_out was given");
  given[2] = integer(3);
  refused(encode, given, 7, "TypeError", "rope_mixed_encode: positions: expected a tensor, or None");
  given[2] = none();
  refused(encode, given, 7, "ValueError", "rope_mixed_encode: positions is NULL, and this kernel has no built-in grid");
  given[2] = of(&p), given[4] = none();
  refused(encode, given, 7, "ValueError",
          "rope_mixed_encode: fewer operands were given than the kernel has, or one of them is NULL");
  value attended[9] = {of(&tq), of(&tq), of(&tq), of(&p), none(), of(&out), none(), of(&tq), none()};
  refused(&__tvm_ffi_alibi_attention, attended, 9, "TypeError",
          "alibi_attention: causal: expected an integer, or None");
  attended[7] = none(), attended[8] = of(&tq);
  refused(&__tvm_ffi_alibi_attention, attended, 9, "TypeError", "alibi_attention: scale: expected a number, or None");
  value back[14] = {of(&tq), none(), of(&p), none(), of(&f), of(&out), none(),
                    none(),  none(), none(), none(), none(), none(),   of(&p)};
  refused(&__tvm_ffi_rope_mixed_encode_backward, back, 14, "ValueError",
          "rope_mixed_encode_backward: workspace: expected one dense dimension of bytes");
  back[13] = integer(1);
  refused(&__tvm_ffi_rope_mixed_encode_backward, back, 14, "TypeError",
          "rope_mixed_encode_backward: workspace: expected a tensor, or None");
}

static void refused_append(const appending *a, int error) {
  char words[600];
  snprintf(words, sizeof words, "rope_mixed_append: %s", words_of(error));
  refused(&__tvm_ffi_rope_mixed_append, a->given, APPEND_COUNT, "ValueError", words);
}

TEST_BETWEEN(test_append_refused, set_up, NULL) {
  int64_t narrow[] = {D - 1}, fewer[] = {B, H, N - 1, D}, too_far[B][N] = {{PAGES * PAGE, 1, 2, 3, 4}, {5, 6, 7, 8, 9}};
  appending a;
  packed *append = &__tvm_ffi_rope_mixed_append;
  lay_append(&a);
  memset(q_out, 0, sizeof q_out);
  a.given[APPEND_EPSILON] = of(&a.q);
  refused(append, a.given, APPEND_COUNT, "TypeError", "rope_mixed_append: norm_epsilon: expected a number, or None");
  a.given[APPEND_EPSILON] = (value){.type = 3, .u.number = -1};
  refused_append(&a, PEGEN_ERROR_NORM);
  a.given[APPEND_EPSILON] = none(), a.given[APPEND_SLOTS] = integer(1);
  refused(append, a.given, APPEND_COUNT, "TypeError", "rope_mixed_append: slots: expected a tensor, or None");
  a.given[APPEND_SLOTS] = none();
  refused_append(&a, PEGEN_ERROR_SLOTS);
  a.given[APPEND_SLOTS] = of(&a.slots), a.norms[1].shape = narrow;
  refused_append(&a, PEGEN_ERROR_NORM);
  a.norms[1].shape = weight_shape, a.v.shape = fewer;
  refused_append(&a, PEGEN_ERROR_SHAPE_MISMATCH);
  a.v.shape = row_shape, a.v.dtype = (DLDataType){kDLFloat, 16, 1};
  refused_append(&a, PEGEN_ERROR_DTYPE_MISMATCH);
  a.v.dtype = a.k.dtype, a.given[APPEND_V_OUT] = none();
  refused_append(&a, PEGEN_ERROR_MISSING_OUTPUT);
  a.given[APPEND_V_OUT] = of(&a.caches[1]), a.caches[1].data = caches[1][0];
  refused_append(&a, PEGEN_ERROR_OVERLAP);
  a.caches[1].data = caches[1][1], a.slots.data = too_far;
  refused_append(&a, PEGEN_ERROR_SLOT);
  assert_memory_equal(caches[1], (float[2 * PAGES * PAGE * H * D]){0}, sizeof caches[1]);
  assert_memory_equal(q_out, (float[B * H * N * D]){0}, sizeof q_out);
}

/* A workspace that is not there, too small, or elsewhere. */
TEST_BETWEEN(test_workspace, set_up, NULL) {
  int64_t size = 0;
  DLTensor tq = tensor(q, 4, row_shape), p = tensor(places, 2, place_shape), f = tensor(freqs, 3, freq_shape);
  DLTensor out = tensor(q_out, 4, row_shape), sums = tensor(gained[0], 3, freq_shape);
  DLTensor room = tensor(workspace, 1, &size);
  value back[14] = {of(&tq), none(), of(&p), none(), of(&f), of(&out),  none(),
                    of(&tq), none(), none(), none(), none(), of(&sums), of(&room)};
  packed *backward = &__tvm_ffi_rope_mixed_encode_backward;
  char words[600];
  snprintf(words, sizeof words, "rope_mixed_encode_backward: %s", words_of(PEGEN_ERROR_WORKSPACE));
  for (size = -8; size <= 8; size += 8) refused(backward, back, 14, "ValueError", words);
  size = 1 << 16;
  room.device.device_type = kDLCUDA;
  refused(backward, back, 14, "ValueError", "rope_mixed_encode_backward: workspace: expected memory of the processor");
}

int main(void) { return run_listed(); }
