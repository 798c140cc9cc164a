/* enter.c: the one way from an entry into a form's driver. Arithmetic is done in one floating-point state whatever the
 * caller's is, from the first check to the last store, and the caller's is back on every way out. */
#include "driver.h"
#include "float_state.h"

int pegen_enter(const pegen_driver *driver, const pegen_args *args, int part, int parts, pegen_driver_entry *entry) {
  uint64_t found = pegen_float_begin();
  int error = entry(driver, args, part, parts);
  pegen_float_end(found);
  return error;
}
