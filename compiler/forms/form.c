/* forms/form: the table; see forms/form.h. */
#include "forms/form.h"

#include "base/diag.h"

#include <string.h>

static const form *const forms[FORM_COUNT] = {
#define X(name, row) [FORM_##name] = &row,
    FORMS(X)
#undef X
};

int form_programs(arena *a, const form *f, const void *plan, const program **out) {
  int count = f->programs(a, plan, out);
  for (int i = 0; i < count; i++) program_check(a, out[i], f->name);
  return count;
}

const program *form_program(arena *a, const form *f, const void *plan, const char *entry) {
  const program *programs[FORM_MAX_PROGRAMS];
  int count = form_programs(a, f, plan, programs);
  for (int i = 0; i < count; i++)
    if (!strcmp(programs[i]->entry, entry)) return programs[i];
  return NULL;
}

const form *form_of(const spec *s) {
  for (int i = 0; i < FORM_COUNT; i++)
    if (forms[i]->takes(s)) return forms[i];
  diag_error(s->file, s->line,
             "no kernel can be made of what '%s' says together; expected blocks of blades, or dense blocks without a "
             "change of basis",
             s->name);
  return NULL;
}
