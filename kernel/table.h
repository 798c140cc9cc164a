/* table.h: tables that NAME_prepare writes and NAME_encode reads.
 *
 *     header, 128 bytes      what it was made for
 *     section of q           rows for [batches of positions][tokens][heads that differ], a form's own affair
 *     section of k           the same, where k has positions of its own; else q's section serves both
 *
 * Every section begins at a multiple of 64 bytes. Rows are float32 and do not depend on the processor.
 */
#ifndef PEGEN_KERNEL_TABLE_H
#define PEGEN_KERNEL_TABLE_H

#include "driver.h"

typedef struct pegen_table_header {
  uint64_t magic;
  uint64_t digest[4];      /* the kernel's, 32 digits */
  int64_t bytes;           /* of the whole table */
  int64_t row_bytes;       /* of one token and head */
  int64_t heads;           /* rows of a token */
  int64_t sections;        /* 1, or 2 where k has its own */
  int64_t batches[2], tokens[2];
  uint64_t seal;           /* of all fields above: a header that was damaged in a file is not believed */
  int64_t unused[2];
} pegen_table_header;

/* What a table for the call would be: positions of the call's streams are known. */
PEGEN_INTERNAL void pegen_table_plan(const pegen_driver *driver, const pegen_call *call, int64_t row_bytes,
                                     pegen_table_header *header);
/* Where section s begins, in bytes. */
PEGEN_INTERNAL int64_t pegen_table_section(const pegen_table_header *header, int s);

/* Is args->table one of this kernel for these q and k? ALIGNMENT TABLE_BYTES TABLE */
PEGEN_INTERNAL int pegen_table_check(const pegen_driver *driver, const pegen_args *args);
PEGEN_INTERNAL int64_t pegen_table_sections(const pegen_args *args);
PEGEN_INTERNAL void pegen_table_view(const pegen_args *args, pegen_view *view);

/* For prepare: may args->table be written as planned? MISSING_TABLE ALIGNMENT TABLE_BYTES OVERLAP */
PEGEN_INTERNAL int pegen_table_room(const pegen_driver *driver, const pegen_args *args, const pegen_call *call,
                                    const pegen_table_header *header);
/* Writes the header; part 0 does. */
PEGEN_INTERNAL void pegen_table_sign(const pegen_args *args, const pegen_table_header *header);

/* NAME_table_bytes: 0 where the arguments are wrong. */
PEGEN_INTERNAL size_t pegen_table_size(const pegen_driver *driver, const pegen_args *args, int64_t row_bytes);

#endif
