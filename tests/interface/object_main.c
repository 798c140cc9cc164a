/* object_main.c: both walks over one compiled kernel. PEGEN_TESTED_KERNEL is its symbol, NAME_kernel. */
#include "host.h"

extern const pegen_kernel PEGEN_TESTED_KERNEL;

int main(void) {
  int failures = walk_interface(&PEGEN_TESTED_KERNEL);
  return failures + walk_refusals(&PEGEN_TESTED_KERNEL) != 0;
}
