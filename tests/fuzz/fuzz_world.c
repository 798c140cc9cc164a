/* fuzz_world: see fuzz_world.h. */
#include "fuzz_world.h"

#include <sanitizer/asan_interface.h>
#include <string.h>

unsigned char world[WORLD] __attribute__((aligned(64)));
static unsigned char before[WORLD];

/* Whose a byte is. A run of bytes that is poisoned is a run of whole grains without an owner. */
enum { FREE, READ, WRITTEN };
static uint8_t owner[WORLD];

typedef __int128 wide;

/* ---- elements by index ---- */

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

bool world_holds(const DLTensor *t) {
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

/* ---- owners ---- */

void world_clear(void) { memset(owner, FREE, sizeof owner); }

void world_read(const DLTensor *t) {
  int64_t count = elements(t);
  int bytes = t->dtype.bits / 8;
  for (int64_t i = 0; i < count; i++) {
    uint8_t *at = owner + offset_of(t, i);
    for (int b = 0; b < bytes; b++) at[b] = READ;
  }
}

bool world_write(const DLTensor *t) {
  int64_t count = elements(t);
  int bytes = t->dtype.bits / 8;
  for (int64_t i = 0; i < count; i++) {
    uint8_t *at = owner + offset_of(t, i);
    for (int b = 0; b < bytes; b++) {
      if (at[b] != FREE) return false;
      at[b] = WRITTEN;
    }
  }
  return true;
}

bool world_same_elements(const DLTensor *a, const DLTensor *b) {
  for (int i = 0; i < a->ndim; i++)
    if (a->shape[i] != b->shape[i]) return false;
  int64_t count = elements(a);
  for (int64_t i = 0; i < count; i++)
    if (offset_of(a, i) != offset_of(b, i)) return false;
  return true;
}

bool world_owned(const void *at, size_t bytes, bool written) {
  size_t from = (size_t)((const unsigned char *)at - world);
  if (from > WORLD || bytes > WORLD - from) return false;
  for (size_t i = 0; i < bytes; i++)
    if (written ? owner[from + i] != WRITTEN : owner[from + i] == FREE) return false;
  return true;
}

void world_poison(void) {
  size_t from = 0; /* of the run of free grains that i is in */
  for (size_t i = 0; i <= WORLD; i += 8) {
    uint64_t grain = 1;
    if (i < WORLD) memcpy(&grain, owner + i, sizeof grain);
    if (grain == 0) continue;
    if (i > from) ASAN_POISON_MEMORY_REGION(world + from, i - from);
    from = i + 8;
  }
}

void world_unpoison(void) { ASAN_UNPOISON_MEMORY_REGION(world, WORLD); }

void world_remember(void) { memcpy(before, world, WORLD); }

void world_restore(void) { memcpy(world, before, WORLD); }

void world_expect_unchanged(bool but_written) {
  if (!memcmp(world, before, WORLD)) return;
  for (size_t i = 0; i < WORLD; i++)
    if (world[i] != before[i]) EXPECT(but_written && owner[i] == WRITTEN);
}

/* ---- copies ---- */

typedef struct copy {
  DLTensor tensor; /* first: world_copy_free is given its address */
  int64_t shape[FUZZ_RANK];
} copy;

DLTensor *world_copy(const DLTensor *t) {
  copy *c = calloc(1, sizeof *c);
  int bytes = t->dtype.bits / 8;
  int64_t count = elements(t);
  c->tensor = *t;
  memcpy(c->shape, t->shape, sizeof(int64_t) * (size_t)t->ndim);
  c->tensor.shape = c->shape;
  c->tensor.strides = NULL;
  c->tensor.byte_offset = 0;
  void *memory;
  if (posix_memalign(&memory, 64, (size_t)(count * bytes) + !count))
    abort(); /* never NULL, and red zones behind the last byte */
  c->tensor.data = memory;
  unsigned char *data = memory;
  for (int64_t i = 0; i < count; i++) {
    const unsigned char *from = world + offset_of(t, i);
    for (int b = 0; b < bytes; b++) *data++ = from[b];
  }
  return &c->tensor;
}

void world_copy_free(DLTensor *t) {
  if (t) free(t->data);
  free(t);
}

static bool is_nan(const unsigned char *at, DLDataType type) {
  uint32_t bits = 0;
  double wide;
  if (type.code == kDLUInt) return false;
  if (type.bits == 64) {
    memcpy(&wide, at, 8);
    return wide != wide;
  }
  memcpy(&bits, at, type.bits / 8);
  if (type.bits == 32) return (bits & 0x7fffffff) > 0x7f800000;
  return (bits & 0x7fff) > (type.code == kDLBfloat ? 0x7f80 : 0x7c00);
}

static void print_difference(const DLTensor *t, int64_t index, const unsigned char *x, const unsigned char *y) {
  fprintf(stderr, "element %lld of", (long long)index);
  for (int i = 0; i < t->ndim; i++) fprintf(stderr, " %lld", (long long)t->shape[i]);
  fprintf(stderr, ": 0x");
  for (int b = t->dtype.bits / 8; b--;) fprintf(stderr, "%02x", x[b]);
  fprintf(stderr, " where 0x");
  for (int b = t->dtype.bits / 8; b--;) fprintf(stderr, "%02x", y[b]);
  fprintf(stderr, " is expected\n");
}

void world_expect_same(const DLTensor *t, const DLTensor *expected) {
  int64_t count = elements(t);
  int bytes = t->dtype.bits / 8;
  for (int64_t i = 0; i < count; i++) {
    const unsigned char *x = world + offset_of(t, i), *y = (unsigned char *)expected->data + i * bytes;
    bool same = true;
    for (int b = 0; b < bytes; b++) same = same && x[b] == y[b];
    same = same || (is_nan(x, t->dtype) && is_nan(y, t->dtype));
    if (!same) print_difference(t, i, x, y);
    EXPECT(same);
  }
}
