/* memory.h: the memory of a call: nothing that is written shares a byte with anything else of it. */
#pragma once

#include "driver.h"

enum { PEGEN_MEMORY_MOST = 24 + PEGEN_MAX_INPUTS };

/* Views stay the caller's. Operands are read, too, or the table that stands for them. */
typedef struct pegen_memory {
  const pegen_kernel *kernel; /* NULL: operands are not looked at */
  const pegen_args *args;
  int tabled;
  int n_read, n_written;
  const pegen_view *read[PEGEN_MEMORY_MOST], *written[PEGEN_MEMORY_MOST];
  DLTensor *const *gained; /* gradients of operands, which are written; NULL: none, and each may be NULL */
} pegen_memory;

static inline void pegen_memory_begin(pegen_memory *m, const pegen_kernel *kernel, const pegen_args *args, int tabled) {
  m->kernel = kernel;
  m->args = args;
  m->tabled = tabled;
  m->n_read = m->n_written = 0;
  m->gained = 0;
}
static inline void pegen_memory_reads(pegen_memory *m, const pegen_view *view) {
  if (!view->empty) m->read[m->n_read++] = view;
}
static inline void pegen_memory_writes(pegen_memory *m, const pegen_view *view) {
  if (!view->empty) m->written[m->n_written++] = view;
}

/* Begins with all of a call of rows. written: where q and k go; NULL: they are read where they are. */
PEGEN_INTERNAL void pegen_memory_of_rows(pegen_memory *m, const pegen_driver *driver, const pegen_args *args,
                                         const pegen_call *call, const pegen_view *const written[2]);
/* PEGEN_ERROR_OVERLAP, or 0. */
PEGEN_INTERNAL int pegen_check_memory(const pegen_memory *m);
