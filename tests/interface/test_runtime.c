/* test_runtime.c: libpegen by itself. */
#include "pegen/pegen.h"
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

TEST(errors_have_words) {
  static const int values[] = {
#define VALUE(name, value, text) value,
      PEGEN_ERRORS(VALUE)
#undef VALUE
  };
  int n = sizeof values / sizeof *values;
  for (int i = 0; i < n; i++) {
    assert_string_not_equal(pegen_strerror(values[i]), "unknown error");
    assert_memory_equal(pegen_error_name(values[i]), "PEGEN_ERROR_", 12);
    for (int j = 0; j < i; j++) {
      assert_int_not_equal(values[i], values[j]);
      assert_string_not_equal(pegen_strerror(values[i]), pegen_strerror(values[j]));
    }
  }
  assert_string_equal(pegen_error_name(PEGEN_ERROR_SHAPE_MISMATCH), "PEGEN_ERROR_SHAPE_MISMATCH");
  for (int i = -3; i < 1000; i++) {
    int known = 0;
    for (int j = 0; j < n; j++) known = known || values[j] == i;
    if (!known) {
      assert_string_equal(pegen_strerror(i), "unknown error");
      assert_string_equal(pegen_error_name(i), "PEGEN_ERROR_UNKNOWN");
    }
  }
}

static atomic_int called[64];
static int fail_from;

static int count_part(const pegen_args *args, int part, int parts) {
  (void)args;
  (void)parts;
  atomic_fetch_add(&called[part], 1);
  return part >= fail_from ? 100 + part : 0;
}

TEST(every_part_runs_once) {
  for (int threads = -1; threads <= 64; threads++) {
    int parts = threads < 1 ? 1 : threads;
    for (int i = 0; i < 64; i++) atomic_store(&called[i], 0);
    fail_from = 64;
    assert_int_equal(pegen_parallel(count_part, NULL, threads), 0);
    for (int i = 0; i < 64; i++) assert_int_equal(atomic_load(&called[i]), i < parts);
    fail_from = parts / 2; /* the first error in the order of parts, whoever finishes first */
    assert_int_equal(pegen_parallel(count_part, NULL, threads), 100 + parts / 2);
  }
}

/* The library's call of pthread_create ends here: a machine that is short of threads, on demand. */
static atomic_int threads_left;
static int short_of_threads;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *data) {
  int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  if (short_of_threads && atomic_fetch_sub(&threads_left, 1) <= 0) return EAGAIN;
  *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
  return create(thread, attributes, run, data);
}

TEST(parts_without_threads_run) {
  enum { PARTS = 6 };
  fail_from = 64;
  short_of_threads = 1;
  for (int given = 0; given <= PARTS; given++) {
    for (int i = 0; i < 64; i++) atomic_store(&called[i], 0);
    atomic_store(&threads_left, given);
    assert_int_equal(pegen_parallel(count_part, NULL, PARTS), 0);
    for (int i = 0; i < 64; i++) assert_int_equal(atomic_load(&called[i]), i < PARTS);
  }
  assert_int_equal(atomic_load(&threads_left), 1); /* the stand-in was asked, five times the last time */
  short_of_threads = 0;
}

TEST(unknown_kernels) {
  pegen_kernel k;
  memset(&k, 0, sizeof k);
  assert_false(pegen_kernel_supported(NULL));
  assert_false(pegen_kernel_supported(&k));
  k.struct_size = sizeof k;
  k.abi_version = PEGEN_ABI_VERSION;
  assert_true(pegen_kernel_supported(&k));
  k.struct_size += 16; /* fields added by a later compiler */
  assert_true(pegen_kernel_supported(&k));
  k.abi_version++;
  assert_false(pegen_kernel_supported(&k));
  assert_int_equal(pegen_find_operand(NULL, "x"), -1);
  assert_int_equal(pegen_find_operand(&k, NULL), -1);
  assert_int_equal(pegen_operand_size(NULL, 0), 0);
}

int main(void) { return run_listed(); }
