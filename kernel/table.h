/* table.h: tables that NAME_prepare writes and NAME_encode reads.
 *
 *     header, 128 bytes      what it was made for
 *     section of q           rows for [batches of positions][tokens][heads that differ], a form's own affair
 *     section of k           the same, where k has positions of its own; else q's section serves both
 *
 * Every section begins at a multiple of 64 bytes. Rows are float32 and do not depend on the processor.
 */
#pragma once

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
  int64_t unused[2];       /* 0 */
} pegen_table_header;

/* The seal that a header should have. Every step can be undone, so a change of one field always changes the result. */
static inline uint64_t pegen_table_seal(const pegen_table_header *header) {
  const uint64_t *fields = (const uint64_t *)header;
  uint64_t seal = 0;
  for (size_t i = 0; i < offsetof(pegen_table_header, seal) / sizeof *fields; i++) {
    seal = (seal ^ fields[i]) * 0x9e3779b97f4a7c15u;
    seal ^= seal >> 32;
  }
  return seal;
}

/* Where section s begins, in bytes. */
PEGEN_INTERNAL int64_t pegen_table_section(const pegen_table_header *header, int s);

/* Is args->table one of this kernel for these q and k? Nothing in it is believed: every field is what the kernel, the
 * call or the other fields say. row_bytes: of the kernel's rows. ALIGNMENT TABLE_BYTES TABLE */
PEGEN_INTERNAL int pegen_table_check(const pegen_driver *driver, const pegen_args *args, int64_t row_bytes);
/* Memory that a table begins in: aligned, and `bytes` of it before the last address. ALIGNMENT SIZE_OVERFLOW */
PEGEN_INTERNAL int pegen_table_check_memory(const pegen_args *args, uint64_t bytes);
PEGEN_INTERNAL int64_t pegen_table_sections(const pegen_args *args);
PEGEN_INTERNAL int64_t pegen_table_extent(const pegen_args *args); /* bytes, of a table that was checked */

/* What a table for a call of NAME_prepare would be, whose positions are checked: its rows, of so many bytes, are what
 * `magic` names. bytes < 0: too large. */
PEGEN_INTERNAL void pegen_table_plan(const pegen_driver *driver, const pegen_call *call, int64_t row_bytes,
                                     pegen_table_header *header);
/* Another one of the same tokens, batches and heads. */
PEGEN_INTERNAL void pegen_table_like(const pegen_table_header *of, uint64_t magic, int64_t row_bytes,
                                     pegen_table_header *header);

/* Begins NAME_prepare: checks the call, plans the table, chooses the target, and part 0 writes the header.
 * What pegen_check_prepare returns, MISSING_TABLE ALIGNMENT SIZE_OVERFLOW TABLE_BYTES OVERLAP PROCESSOR */
PEGEN_INTERNAL int pegen_table_begin(const pegen_driver *driver, const pegen_args *args, int part, int parts,
                                     int64_t row_bytes, pegen_call *call, pegen_table_header *header, int *target);

/* NAME_table_bytes: 0 where the arguments are wrong. */
PEGEN_INTERNAL size_t pegen_table_size(const pegen_driver *driver, const pegen_args *args, int64_t row_bytes);
