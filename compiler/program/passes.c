/* program/passes: the table; see program/passes.h. */
#include "program/passes.h"

#include "base/diag.h"

#include <string.h>

static const struct {
  const char *name;
  const program *(*run)(arena *a, const program *p);
} passes[] = {{"transpose", program_transpose}, {"product", program_multiply}};

const program *program_run(arena *a, const program *p, const char *pass) {
  for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
    if (!strcmp(passes[i].name, pass)) {
      const program *made = passes[i].run(a, p);
      program_check(a, made, pass);
      return made;
    }
  diag_bug("program", "no pass is called '%s'", pass);
}
