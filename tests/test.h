/* test.h: cmocka with the headers it wants first, and tests that list themselves. */
#ifndef PEGEN_TESTS_TEST_H
#define PEGEN_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

static struct CMUnitTest *listed_tests;
static size_t listed_count;

static inline void list_test(struct CMUnitTest test) {
  listed_tests = realloc(listed_tests, (listed_count + 1) * sizeof test);
  if (!listed_tests) abort();
  listed_tests[listed_count++] = test;
}

/* A test of a row of a table. */
static inline void list_row(const char *name, CMUnitTestFunction function, const void *row) {
  list_test((struct CMUnitTest){name, function, NULL, NULL, (void *)(uintptr_t)row});
}

/* TEST(name) { ... }: a test. Before main, it lists itself behind those that stand above it in its file. */
#define TEST(name) TEST_BETWEEN(name, NULL, NULL)
#define TEST_BETWEEN(name, set_up, tear_down) \
  static void name(void **state); \
  __attribute__((constructor)) static void list_##name(void) { \
    list_test((struct CMUnitTest){#name, name, set_up, tear_down, NULL}); \
  } \
  static void name(__attribute__((unused)) void **state)

/* All that are listed. */
static inline int run_listed_between(CMFixtureFunction set_up, CMFixtureFunction tear_down) {
  return _cmocka_run_group_tests("tests", listed_tests, listed_count, set_up, tear_down);
}

static inline int run_listed(void) { return run_listed_between(NULL, NULL); }

#endif
