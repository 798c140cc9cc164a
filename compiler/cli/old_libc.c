/* cli/old_libc: what the statically linked program would otherwise need a libc younger than 2.34 for, so that it runs
 * on systems of 2021. 2.34 itself is the floor: since then libc has what was libpthread and libdl, and a program linked
 * on such a system asks for those names in that version. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

/* 2.36; LLVM's random numbers, for names of temporary files. */
uint32_t arc4random(void);
uint32_t arc4random(void) {
  uint32_t number;
  while (getrandom(&number, sizeof number, 0) != sizeof number)
    if (errno != EINTR) abort();
  return number;
}

/* 2.35; where the unwinder finds tables. This program has none (cmake/PegenLLVM.cmake): nothing in it catches an
 * exception. */
struct dl_find_object;
int _dl_find_object(void *address, struct dl_find_object *result);
int _dl_find_object(void *address, struct dl_find_object *result) {
  (void)address, (void)result;
  return -1;
}
