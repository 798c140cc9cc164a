/* fuzz_arguments: any arguments for a kernel.
 *
 * In: bytes that are read as a sound call and a few edits of it: shapes, strides, types, pointers, overlaps, part of
 * parts. All tensors lie in one small world whose other bytes are poisoned for the address sanitizer while the kernel
 * runs. The kernels are the hand-written twins and some emitted ones, all behind the real driver. What must hold:
 *
 *   - encode answers what the driver's check answers, and a refusal writes nothing;
 *   - no accepted tensor leaves the address space; no element of an output is also another element, or another tensor's,
 *     but its own input's by the same index;
 *   - an accepted call writes its outputs and nothing else, and they are those of contiguous copies in one part;
 *   - a sound call is accepted.
 */
#include "driver.h"
#include "fuzz_call.h"

#include <pegen/kernels.h>

#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>

/* The driver's view of a kernel, as far as its check looks. */
static int check(const pegen_kernel *kernel, const pegen_args *args, int part, int parts) {
  static int32_t chosen;
  const pegen_driver driver = {.kernel = kernel, .per_head = kernel->heads > 0, .chosen = &chosen};
  pegen_call call;
  return pegen_check(&driver, args, part, parts, &call);
}

/* ---- elements by index, without the driver's arithmetic ---- */

typedef __int128 wide;

/* Extents of a tensor's elements as addresses; false where there are none. Strides NULL: contiguous. */
static bool extents(const DLTensor *t, wide *low, wide *high) {
  wide element = t->dtype.bits / 8, count = 1;
  *low = *high = (wide)(uintptr_t)t->data + t->byte_offset;
  *high += element;
  for (int i = 0; i < t->ndim; i++)
    if (t->shape[i] == 0) return false;
  for (int i = t->ndim - 1; i >= 0; i--) {
    wide stride = (t->strides ? (wide)t->strides[i] : count) * element, reach = stride * (t->shape[i] - 1);
    if (t->shape[i] > 1) *(reach < 0 ? low : high) += reach;
    if (!t->strides) count *= t->shape[i];
  }
  return true;
}

/* In the world, and few enough to be walked here. */
static bool in_world(const DLTensor *t) {
  wide low, high, count = 1;
  if (!extents(t, &low, &high)) return true;
  EXPECT(low >= 0 && high <= (wide)1 << 64);
  for (int i = 0; i < t->ndim && count <= WORLD; i++) count *= t->shape[i];
  return low >= (wide)(uintptr_t)world && high <= (wide)(uintptr_t)world + WORLD && count <= WORLD;
}

/* Element number `index` in the order of a contiguous tensor. */
static size_t offset_of(const DLTensor *t, int64_t index) {
  int64_t at = 0, count = 1;
  for (int i = t->ndim - 1; i >= 0; i--) {
    at += index % t->shape[i] * (t->strides ? t->strides[i] : count);
    count *= t->shape[i];
    index /= t->shape[i];
  }
  return (size_t)((unsigned char *)t->data + t->byte_offset - world) + (size_t)(at * (t->dtype.bits / 8));
}

static int64_t elements(const DLTensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->ndim; i++)
    if (t->shape[i] == 0) return 0; /* whatever the others are */
  for (int i = 0; i < t->ndim; i++) count *= t->shape[i];
  return count;
}

/* ---- what an accepted call may touch ---- */

static uint8_t owner[WORLD]; /* which tensor's element a byte belongs to: FREE, READ, or WRITTEN + output */
enum { FREE, READ, WRITTEN };

static void own_inputs(const DLTensor *t) {
  for (int64_t i = 0; t && i < elements(t); i++) memset(owner + offset_of(t, i), READ, t->dtype.bits / 8);
}

/* Outputs last: their elements must be free, or the same element of their own input, which nobody else reads. */
static void own_output(const DLTensor *out) {
  size_t bytes = out->dtype.bits / 8;
  for (int64_t i = 0; i < elements(out); i++) {
    uint8_t *at = owner + offset_of(out, i);
    for (size_t b = 0; b < bytes; b++) EXPECT(at[b] == FREE);
    memset(at, WRITTEN, bytes);
  }
}

static bool same_elements(const DLTensor *in, const DLTensor *out) {
  for (int64_t i = 0; i < elements(in); i++)
    if (offset_of(in, i) != offset_of(out, i)) return false;
  return true;
}

static bool has_table(const pegen_args *args) { return args->struct_size > PEGEN_ARGS_FIRST_SIZE && args->table; }

static void own_all(const pegen_kernel *kernel, const pegen_args *args) {
  memset(owner, FREE, sizeof owner);
  bool tabled = kernel->prepare && has_table(args); /* then nobody reads positions and operands */
  if (args->q && !tabled) own_inputs(args->positions);
  if (args->k && !tabled) own_inputs(args->k_positions ? args->k_positions : args->positions);
  for (int i = 0; i < kernel->n_operands && !tabled; i++) own_inputs(args->operands[i]);
  bool q_in_place = args->q && same_elements(args->q, args->q_out), k_in_place = args->k && same_elements(args->k, args->k_out);
  if (args->q && !q_in_place) own_inputs(args->q);
  if (args->k && !k_in_place) own_inputs(args->k);
  if (args->q) own_output(args->q_out);
  if (args->k) own_output(args->k_out);
}

/* Poisons whatever is nobody's, as far as the sanitizer's grain of 8 bytes allows. */
static void poison(void) {
  static const uint8_t nobody[8];
  size_t from = 0; /* of the run of free grains that i is in */
  for (size_t i = 0; i <= WORLD; i += 8) {
    if (i < WORLD && !memcmp(owner + i, nobody, 8)) continue;
    if (i > from) ASAN_POISON_MEMORY_REGION(world + from, i - from);
    from = i + 8;
  }
}

/* ---- the same call on contiguous copies ---- */

typedef struct copy {
  DLTensor tensor;
  int64_t shape[FUZZ_RANK];
} copy;

static const DLTensor *copy_of(copy *c, const DLTensor *t) {
  if (!t) return NULL;
  size_t bytes = t->dtype.bits / 8;
  c->tensor = *t;
  memcpy(c->shape, t->shape, sizeof(int64_t) * (size_t)t->ndim);
  c->tensor.shape = c->shape;
  c->tensor.strides = NULL;
  c->tensor.byte_offset = 0;
  unsigned char *data = malloc((size_t)elements(t) * bytes + 8); /* 8: never NULL, and still a red zone for the rest */
  c->tensor.data = data;
  for (int64_t i = 0; i < elements(t); i++) memcpy(data + (size_t)i * bytes, world + offset_of(t, i), bytes);
  return &c->tensor;
}

static bool is_nan(const unsigned char *at, DLDataType type) {
  uint32_t bits = 0;
  memcpy(&bits, at, type.bits / 8);
  if (type.bits == 32) return (bits & 0x7fffffff) > 0x7f800000;
  return (bits & 0x7fff) > (type.code == kDLBfloat ? 0x7f80 : 0x7c00);
}

static void expect_same(const DLTensor *out, const DLTensor *expected) {
  size_t bytes = out->dtype.bits / 8;
  for (int64_t i = 0; i < elements(out); i++) {
    const unsigned char *x = world + offset_of(out, i), *y = (unsigned char *)expected->data + (size_t)i * bytes;
    EXPECT(!memcmp(x, y, bytes) || (is_nan(x, out->dtype) && is_nan(y, out->dtype)));
  }
}

enum { Q, K, Q_OUT, K_OUT, POSITIONS, K_POSITIONS, OPERANDS, COPIES = OPERANDS + FUZZ_OPERANDS };

/* Runs the call on copies before the world changes; the copies' outputs stay in c[Q_OUT] and c[K_OUT]. */
static void run_copies(const pegen_kernel *kernel, const pegen_args *args, bool sound, copy *c) {
  pegen_args apart = *args;
  bool tabled = kernel->prepare && has_table(args) && !sound; /* a sound table says what positions and operands do */
  if (!tabled && args->struct_size == sizeof *args) apart.table = NULL;
  const DLTensor *operands[FUZZ_OPERANDS];
  apart.q = copy_of(&c[Q], args->q);
  apart.k = copy_of(&c[K], args->k);
  apart.q_out = (DLTensor *)copy_of(&c[Q_OUT], args->q_out);
  apart.k_out = (DLTensor *)copy_of(&c[K_OUT], args->k_out);
  if (!tabled) apart.positions = args->q || !args->k_positions ? copy_of(&c[POSITIONS], args->positions) : NULL;
  if (!tabled) apart.k_positions = args->k ? copy_of(&c[K_POSITIONS], args->k_positions) : NULL;
  if (tabled) apart.positions = apart.k_positions = NULL;
  for (int i = 0; i < kernel->n_operands && !tabled; i++) operands[i] = copy_of(&c[OPERANDS + i], args->operands[i]);
  apart.operands = operands;
  EXPECT(kernel->encode(&apart, 0, 1) == PEGEN_ERROR_OK);
}

/* ---- one call ---- */

static unsigned char before[WORLD];

static void expect_unchanged(bool outputs_too) {
  if (!memcmp(world, before, WORLD)) return;
  for (size_t i = 0; i < WORLD; i++)
    if (world[i] != before[i]) EXPECT(!outputs_too && owner[i] == WRITTEN);
}

static bool all_in_world(const pegen_kernel *kernel, const pegen_args *args) {
  bool tabled = kernel->prepare && has_table(args);
  const DLTensor *tensors[] = {args->q, args->k, args->q_out, args->k_out,
                               !tabled && (args->q || !args->k_positions) ? args->positions : NULL,
                               !tabled && args->k ? args->k_positions : NULL};
  bool inside = true;
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    if (!tensors[i]) continue;
    inside = in_world(tensors[i]) && inside;
  }
  for (int i = 0; i < kernel->n_operands && !tabled; i++) inside = in_world(args->operands[i]) && inside;
  return inside;
}

static void run_accepted(const pegen_kernel *kernel, const pegen_args *args, bool sound, int parts) {
  copy copies[COPIES];
  memset(copies, 0, sizeof copies);
  own_all(kernel, args);
  run_copies(kernel, args, sound, copies);
  poison();
  for (int part = parts - 1; part >= 0; part--) EXPECT(kernel->encode(args, part, parts) == PEGEN_ERROR_OK);
  ASAN_UNPOISON_MEMORY_REGION(world, WORLD);
  expect_unchanged(false);
  if (args->q) expect_same(args->q_out, &copies[Q_OUT].tensor);
  if (args->k) expect_same(args->k_out, &copies[K_OUT].tensor);
  for (int i = 0; i < COPIES; i++) free(copies[i].tensor.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static fuzz_call call;
  fuzz_call_read(&call, data, size);
  const pegen_kernel *kernel = call.kernel;
  memcpy(before, world, WORLD);
  int expected = check(kernel, call.given, call.part, call.parts);
  if (call.sound) EXPECT(expected == PEGEN_ERROR_OK);
  if (expected) {
    EXPECT(kernel->encode(call.given, call.part, call.parts) == expected);
    expect_unchanged(true);
  } else if (all_in_world(kernel, call.given)) { /* elsewhere is the caller's lie, which nobody can see */
    run_accepted(kernel, call.given, call.sound, call.parts > 64 ? 1 : call.parts);
  }
  fuzz_call_free(&call);
  return 0;
}
