/* table_begin.c: a table for a call of NAME_prepare: its room, checked, and its header, written; see table.h. */
#include "memory.h"
#include "table.h"

/* May args->table be written as planned? */
static int check_room(const pegen_driver *driver, const pegen_args *args, const pegen_call *call,
                      const pegen_table_header *h) {
  pegen_view table;
  pegen_memory memory;
  if (!PEGEN_GIVEN(args, table)) return PEGEN_ERROR_MISSING_TABLE;
  PEGEN_TRY(pegen_table_check_memory(args, h->bytes < 0 ? UINT64_MAX : (uint64_t)h->bytes));
  if (args->table_bytes < (uint64_t)h->bytes) return PEGEN_ERROR_TABLE_BYTES;
  PEGEN_TRY(pegen_view_memory(args->table, h->bytes, &table));
  pegen_memory_begin(&memory, driver->kernel, args, 0);
  for (int s = 0; s < 2; s++)
    if (call->stream[s].given && !call->stream[s].grid) pegen_memory_reads(&memory, &call->stream[s].positions);
  pegen_memory_writes(&memory, &table);
  return pegen_check_memory(&memory);
}

static void sign_table(const pegen_args *args, const pegen_table_header *h) {
  const uint64_t *from = (const uint64_t *)h;
  uint64_t *to = args->table;
  for (size_t i = 0; i < sizeof *h / sizeof *from; i++) to[i] = from[i];
}

int pegen_table_begin(const pegen_driver *driver, const pegen_args *args, int part, int parts, int64_t row_bytes,
                      pegen_call *call, pegen_table_header *h, int *target) {
  pegen_tuning tuning;
  PEGEN_TRY(pegen_check_prepare(driver, args, part, parts, call));
  pegen_table_plan(driver, call, row_bytes, h);
  PEGEN_TRY(check_room(driver, args, call, h));
  *target = pegen_dispatch(driver, &tuning);
  if (*target < 0) return PEGEN_ERROR_PROCESSOR;
  if (part == 0) sign_table(args, h);
  return 0;
}

size_t pegen_table_size(const pegen_driver *driver, const pegen_args *args, int64_t row_bytes) {
  pegen_call call;
  pegen_table_header h;
  if (pegen_check_prepare(driver, args, 0, 1, &call) != 0) return 0;
  pegen_table_plan(driver, &call, row_bytes, &h);
  return h.bytes < 0 ? 0 : (size_t)h.bytes;
}
