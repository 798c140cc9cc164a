/* arguments.h: the rows of kernel/arguments.h as data. */
#pragma once

#include "pegen/pegen.h"

#include "../kernel/arguments.h"
#include "../kernel/entries.h"

typedef struct pegen_argument_row {
  const char *name; /* of the field, as C has it: "q", "grad->q" */
  int is_grad;
  pegen_argument_kind kind;
  pegen_argument_type type;
  int wrong; /* a pegen_error; 0: none of its own */
  size_t offset;
  const char *shape, *uses;
} pegen_argument_row;

extern const __attribute__((visibility("hidden"))) pegen_argument_row pegen_argument_rows[PEGEN_ARGUMENT_COUNT];

/* The column of `uses` for an entry, its finish and its sizes; entry: the name of the first. -1: there is none. */
__attribute__((visibility("hidden"))) int pegen_argument_column(const char *name, const char **entry);
/* Where its field is in args or grad; NULL: there is no grad. */
__attribute__((visibility("hidden"))) void *pegen_argument_field(const pegen_argument_row *row, const pegen_args *args,
                                                                 const pegen_grad_args *grad);

static inline int pegen_argument_is_written(const pegen_argument_row *row, int column) {
  return (row->uses[column] | 0x20) == 'w';
}
static inline int pegen_argument_is_rows(const pegen_argument_row *row) {
  return row->type == PEGEN_TYPE_ROW || row->type == PEGEN_TYPE_OUT;
}
