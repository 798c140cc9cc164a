/* forms/form: the table; see forms/form.h. */
#include "forms/form.h"

#include "base/diag.h"
#include "program/passes.h"

#include <string.h>

static const form *const forms[FORM_COUNT] = {
#define X(name, row) [FORM_##name] = &row,
    FORMS(X)
#undef X
};

static const program *make(arena *a, const form *f, const form_program_row *row, const void *plan) {
  const program *made = row->back ? row->back(a, plan, row->frame, row->way) : row->make(a, plan);
  if (made && row->pass) made = program_run(a, made, row->pass);
  if (made) program_check(a, made, f->name);
  return made;
}

int form_programs(arena *a, const form *f, const void *plan, const program **out) {
  int count = 0;
  for (int i = 0; i < FORM_MAX_PROGRAMS && f->programs[i].word; i++)
    if ((out[count] = make(a, f, &f->programs[i], plan)) != NULL) count++;
  return count;
}

const program *form_program(arena *a, const form *f, const void *plan, const char *word) {
  for (int i = 0; i < FORM_MAX_PROGRAMS && f->programs[i].word; i++)
    if (!strcmp(f->programs[i].word, word)) return make(a, f, &f->programs[i], plan);
  return NULL;
}

const entry_row entry_rows[PEGEN_ENTRY_COUNT] = {
#define X(name, role, of, option, text) {#name, ENTRY_##role, PEGEN_ENTRY_##of, ENTRY_##option, text},
    PEGEN_ENTRIES(X)
#undef X
};

const char *form_entry(const form *f, pegen_entry_kind kind, entry_option most) {
  const char *const names[PEGEN_ENTRY_COUNT] = {
#define X(name, role, of, option, text) f->entries.name,
      PEGEN_ENTRIES(X)
#undef X
  };
  return entry_rows[kind].option > most ? NULL : names[kind];
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
