/* enter.c: the one way from an entry into a form's driver. Arithmetic is done in one floating-point state whatever the
 * caller's is, from the first check to the last store, and the caller's is back on every way out. All entries but those
 * of sizes skip fewer tokens here where a call's rows begin behind their sequence's first. */
#include "driver.h"
#include "float_state.h"

/* Structs of whole words, whose fields are of many types; an assignment might call memcpy, which an object has not.
 * Inlined it would be unrolled. */
__attribute__((noinline)) static void copy_words(void *to, const void *from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word;
    __builtin_memcpy(&word, (const char *)from + i, 8);
    __builtin_memcpy((char *)to + i, &word, 8);
  }
}

void pegen_copy_args(pegen_args *to, const pegen_args *from) {
  size_t known = from->struct_size < sizeof *to ? from->struct_size : sizeof *to, i = known;
  copy_words(to, from, known);
  for (uint64_t word = 0; i < sizeof *to; i += 8) __builtin_memcpy((char *)to + i, &word, 8);
  to->struct_size = sizeof *to;
}

const pegen_driver *pegen_from_first_token(const pegen_driver *driver, const pegen_args *args, pegen_own_driver *own) {
  int64_t first = args ? PEGEN_GIVEN(args, first_token) : 0, skip = driver->kernel->skip_tokens;
  if (first <= 0 || !skip) return driver;
  copy_words(&own->driver, driver, sizeof own->driver);
  copy_words(&own->kernel, driver->kernel, sizeof own->kernel);
  own->driver.kernel = &own->kernel;
  own->kernel.skip_tokens = first < skip ? (int32_t)(skip - first) : 0;
  return &own->driver;
}

int pegen_enter(const pegen_driver *driver, const pegen_args *args, int part, int parts, pegen_driver_entry *entry) {
  pegen_own_driver own;
  uint64_t found = pegen_float_begin();
  int error = entry(pegen_from_first_token(driver, args, &own), args, part, parts);
  pegen_float_end(found);
  return error;
}
