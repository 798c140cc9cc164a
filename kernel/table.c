/* table.c: the header of a table, as encode reads it; see table.h. prepare writes it (table_begin.c).
 *
 * The seal finds accidents. A table may also come from a stranger, who can seal whatever he likes: so each field is
 * held against what the kernel and the call say, and what is left to the header (the number of sections, and whether
 * batches share their positions) is safe either way, for the sizes that follow from it must fit into the room. */
#include "table.h"

static const uint64_t MAGIC = 0x31656c6261746770u; /* "pgtable1" */

static void digest_of(const pegen_kernel *kernel, uint64_t *words) {
  for (int i = 0; i < 4; i++) {
    words[i] = 0;
    for (int j = 0; j < 8; j++) words[i] |= (uint64_t)(uint8_t)kernel->digest[i * 8 + j] << (8 * j);
  }
}

static int64_t section_bytes(const pegen_table_header *h, int s) {
  int64_t bytes;
  if (__builtin_mul_overflow(h->batches[s], h->tokens[s], &bytes) || __builtin_mul_overflow(bytes, h->heads, &bytes) ||
      __builtin_mul_overflow(bytes, h->row_bytes, &bytes) || bytes > INT64_MAX / 4)
    return -1;
  return (bytes + 63) / 64 * 64;
}

int64_t pegen_table_section(const pegen_table_header *h, int s) {
  return (int64_t)sizeof(pegen_table_header) + (s ? section_bytes(h, 0) : 0);
}

static void seal_sizes(pegen_table_header *h) {
  h->bytes = (int64_t)sizeof(pegen_table_header);
  for (int s = 0; s < h->sections; s++) {
    int64_t bytes = section_bytes(h, s);
    h->bytes = bytes < 0 || h->bytes < 0 ? -1 : h->bytes + bytes;
  }
  h->seal = pegen_table_seal(h);
}

void pegen_table_plan(const pegen_driver *driver, const pegen_call *call, int64_t row_bytes, pegen_table_header *h) {
  const pegen_kernel *kernel = driver->kernel;
  h->magic = MAGIC;
  digest_of(kernel, h->digest);
  h->row_bytes = row_bytes;
  h->heads = driver->per_head ? kernel->heads : 1;
  h->sections = call->stream[1].given ? 2 : 1;
  h->unused[0] = h->unused[1] = 0;
  for (int s = 0; s < 2; s++) {
    const pegen_stream *stream = &call->stream[s];
    h->batches[s] = h->tokens[s] = 0;
    if (s >= h->sections) continue;
    h->batches[s] = stream->grid ? 1 : stream->positions.size[PEGEN_POSITION_BATCH];
    h->tokens[s] = stream->grid ? pegen_grid_tokens(kernel) : stream->positions.size[PEGEN_POSITION_TOKEN];
  }
  seal_sizes(h);
}

void pegen_table_like(const pegen_table_header *of, uint64_t magic, int64_t row_bytes, pegen_table_header *h) {
  const uint64_t *from = (const uint64_t *)of;
  for (size_t i = 0; i < sizeof *h / sizeof *from; i++) ((uint64_t *)h)[i] = from[i];
  h->magic = magic;
  h->row_bytes = row_bytes;
  seal_sizes(h);
}

int64_t pegen_table_sections(const pegen_args *args) { return ((const pegen_table_header *)args->table)->sections; }

int64_t pegen_table_extent(const pegen_args *args) { return ((const pegen_table_header *)args->table)->bytes; }

/* Do the sizes in the header agree with each other and with the kernel? Reads stay inside of h->bytes then. */
static int is_whole(const pegen_driver *driver, const pegen_table_header *h, int64_t row_bytes) {
  int64_t total = (int64_t)sizeof *h;
  if (h->seal != pegen_table_seal(h) || h->heads != pegen_heads_apart(driver) || h->row_bytes != row_bytes ||
      (h->sections != 1 && h->sections != 2) || (driver->has_sides && h->sections != 2) || h->unused[0] || h->unused[1])
    return 0;
  if (h->sections == 1 && (h->batches[1] || h->tokens[1])) return 0;
  for (int s = 0; s < h->sections; s++) {
    int64_t bytes = h->batches[s] < 0 || h->tokens[s] < 0 ? -1 : section_bytes(h, s);
    if (bytes < 0 || __builtin_add_overflow(total, bytes, &total)) return 0;
  }
  return total == h->bytes;
}

static int fits(const pegen_table_header *h, int s, const DLTensor *rows) {
  return h->tokens[s] == pegen_rows_size(rows, 4, PEGEN_TOKEN) &&
         (h->batches[s] == 1 || h->batches[s] == pegen_rows_size(rows, 4, PEGEN_BATCH));
}

int pegen_table_check_memory(const pegen_args *args, uint64_t bytes) {
  uintptr_t end;
  if ((uintptr_t)args->table & 63) return PEGEN_ERROR_ALIGNMENT;
  return __builtin_add_overflow((uintptr_t)args->table, bytes, &end) ? PEGEN_ERROR_SIZE_OVERFLOW : 0;
}

int pegen_table_check(const pegen_driver *driver, const pegen_args *args, int64_t row_bytes) {
  const pegen_table_header *h = args->table;
  uint64_t digest[4];
  PEGEN_TRY(pegen_table_check_memory(args, sizeof(pegen_table_header)));
  if (args->table_bytes < sizeof(pegen_table_header)) return PEGEN_ERROR_TABLE_BYTES;
  digest_of(driver->kernel, digest);
  if (h->magic != MAGIC) return PEGEN_ERROR_TABLE;
  for (int i = 0; i < 4; i++)
    if (h->digest[i] != digest[i]) return PEGEN_ERROR_TABLE;
  if (!is_whole(driver, h, row_bytes)) return PEGEN_ERROR_TABLE;
  if ((uint64_t)h->bytes > args->table_bytes) return PEGEN_ERROR_TABLE_BYTES;
  PEGEN_TRY(pegen_table_check_memory(args, (uint64_t)h->bytes));
  if (args->q && !fits(h, 0, args->q)) return PEGEN_ERROR_TABLE;
  if (args->k && !fits(h, h->sections > 1, args->k)) return PEGEN_ERROR_TABLE;
  return 0;
}
