/* arguments.c: see arguments.h. */
#include "arguments.h"

#include <string.h>

const pegen_argument_row pegen_argument_rows[PEGEN_ARGUMENT_COUNT] = {
#define STRUCT_args pegen_args
#define STRUCT_grad pegen_grad_args
#define IS_GRAD_args 0
#define IS_GRAD_grad 1
#define PREFIX_args ""
#define PREFIX_grad "grad->"
#define X(of, field, kind, shape, type, uses, wrong, refused) \
  {PREFIX_##of #field, \
   IS_GRAD_##of, \
   PEGEN_ARGUMENT_##kind, \
   PEGEN_TYPE_##type, \
   PEGEN_ERROR_##wrong, \
   offsetof(STRUCT_##of, field), \
   shape, \
   uses},
#define PEGEN_ERROR_OK 0
    PEGEN_ARGUMENTS(X)
#undef X
};

int pegen_argument_column(const char *name, const char **entry) {
  static const char *const names[][2] = {
#define X(name, role, of, option, text) {#name, #of},
      PEGEN_ENTRIES(X)
#undef X
  };
  static const char *const columns[] = {
#define X(entry) #entry,
      PEGEN_ARGUMENT_USES(X)
#undef X
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(names[i][0], name)) continue;
    *entry = names[i][1];
    for (size_t column = 0; column < sizeof columns / sizeof *columns; column++)
      if (!strcmp(columns[column], *entry)) return (int)column;
  }
  return -1;
}

void *pegen_argument_field(const pegen_argument_row *row, const pegen_args *args, const pegen_grad_args *grad) {
  if (row->is_grad && !grad) return NULL;
  return (char *)(uintptr_t)(row->is_grad ? (const void *)grad : (const void *)args) + row->offset;
}
