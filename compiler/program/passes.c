/* program/passes: the table; see program/passes.h. */
#include "program/passes.h"

#include "base/diag.h"

#include <string.h>

static const program_pass passes[] = {
    {"transpose", "rows the other way: loads are stores, matrices are transposed", program_transpose},
    {"product", "matrices that are applied one after the other are multiplied first", program_multiply},
};

int program_passes(const program_pass **rows) {
  *rows = passes;
  return sizeof passes / sizeof *passes;
}

const program *program_run(arena *a, const program *p, const char *pass) {
  for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
    if (!strcmp(passes[i].name, pass)) {
      const program *made = passes[i].run(a, p);
      program_check(a, made, pass);
      return made;
    }
  diag_bug("program", "no pass is called '%s'", pass);
}
