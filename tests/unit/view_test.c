/* Do two views share a byte? Against counting them, and where the search ends before it knows. */
#include "driver.h"
#include "test.h"

#include <string.h>

enum { ROOM = 4096, ROUNDS = 20000 };

/* A whole number of [from, from + count). */
static int64_t drawn(uint64_t *random, int64_t from, int64_t count) {
  *random = *random * 6364136223846793005u + 1442695040888963407u;
  return from + (int64_t)((*random >> 33) % (uint64_t)count);
}

static pegen_view view_at(uintptr_t base, int64_t width, const int64_t *size, const int64_t *stride) {
  pegen_view v = {.base = base, .width = width};
  int64_t low = 0, high = width;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) {
    v.size[i] = size[i];
    v.stride[i] = size[i] > 1 ? stride[i] : 0;
    *(v.stride[i] < 0 ? &low : &high) += v.stride[i] * (size[i] - 1);
  }
  v.low = base + (uintptr_t)low;
  v.high = base + (uintptr_t)high;
  return v;
}

static void mark(const pegen_view *v, unsigned char *bytes, uintptr_t from) {
  for (int64_t i = 0; i < v->size[0]; i++)
    for (int64_t j = 0; j < v->size[1]; j++)
      for (int64_t k = 0; k < v->size[2]; k++)
        for (int64_t b = 0; b < v->width; b++)
          bytes[v->base + (uintptr_t)(i * v->stride[0] + j * v->stride[1] + k * v->stride[2] + b) - from]++;
}

static pegen_view random_view(uint64_t *random) {
  int64_t size[PEGEN_VIEW_DIMS], stride[PEGEN_VIEW_DIMS];
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) {
    size[i] = drawn(random, 1, 5);
    stride[i] = 4 * drawn(random, -24, 48);
  }
  int64_t base = ROOM + 4 * drawn(random, 0, 40), width = 4 * drawn(random, 1, 4);
  return view_at((uintptr_t)base, width, size, stride);
}

/* Small views are searched to the end: the answer is exact, from both sides. Views that nest have no byte twice. */
TEST(as_counted) {
  static unsigned char first[3 * ROOM], second[3 * ROOM];
  uint64_t random = 6;
  int met = 0, nested = 0;
  for (int round = 0; round < ROUNDS; round++) {
    pegen_view a = random_view(&random), b = random_view(&random);
    memset(first, 0, sizeof first);
    memset(second, 0, sizeof second);
    mark(&a, first, 0);
    mark(&b, second, 0);
    int meet = 0, doubled = 0;
    for (int i = 0; i < 3 * ROOM; i++) {
      meet |= first[i] && second[i];
      doubled |= first[i] > 1;
    }
    assert_int_equal(pegen_views_meet(&a, &b), meet);
    assert_int_equal(pegen_views_meet(&b, &a), meet);
    if (pegen_view_nests(&a)) assert_false(doubled);
    nested += pegen_view_nests(&a);
    met += meet;
  }
  assert_in_range(met, ROUNDS / 10, ROUNDS * 9 / 10);
  assert_in_range(nested, ROUNDS / 50, ROUNDS);
}

/* Six strides without a common measure: after some steps the answer is that they meet, which refuses a call that would
 * have been fine; never that they do not, which would let one through that overwrites what it reads. */
TEST(search_that_runs_out) {
  static const int64_t sizes[PEGEN_VIEW_DIMS] = {40, 40, 40};
  static const int64_t strides[2][PEGEN_VIEW_DIMS] = {{8 * 1009, 8 * 101, 8 * 11}, {8 * 997, 8 * 103, 8 * 13}};
  pegen_view a = view_at(1 << 20, 4, sizes, strides[0]), b = view_at((1 << 20) + 4, 4, sizes, strides[1]);
  assert_int_equal(pegen_views_meet(&a, &b), 1); /* they do not, being 4 bytes apart modulo 8 */
  assert_int_equal(pegen_views_meet(&b, &a), 1);
  pegen_view aside = view_at(a.high, 4, sizes, strides[1]);
  assert_int_equal(pegen_views_meet(&a, &aside), 0); /* nothing to search */
}

int main(void) { return run_listed(); }
