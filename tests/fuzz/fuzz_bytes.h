/* fuzz_bytes: numbers out of the fuzzer's bytes. Bytes that are missing read as 0. */
#ifndef PEGEN_TESTS_FUZZ_BYTES_H
#define PEGEN_TESTS_FUZZ_BYTES_H

#include <stddef.h>
#include <stdint.h>

typedef struct reader {
  const uint8_t *data;
  size_t size;
} reader;

static inline unsigned byte(reader *r) {
  if (r->size == 0) return 0;
  r->size--;
  return *r->data++;
}

static inline unsigned below(reader *r, unsigned bound) { return byte(r) % bound; }

/* Numbers on which checks turn, small ones, and any. */
static inline int64_t number(reader *r) {
  static const int64_t telling[] = {0,         1,         -1,        INT64_MAX,       INT64_MIN,     INT32_MAX,
                                    INT32_MIN, 1LL << 32, 1LL << 56, (1LL << 56) + 1, -(1LL << 56),  1LL << 62,
                                    16,        64,        63,        INT64_MAX / 4,   INT64_MIN / 2, 96 * 1024};
  unsigned kind = byte(r);
  if (kind < 64) return telling[kind % (sizeof telling / sizeof *telling)];
  if (kind < 240) return (int64_t)byte(r) - 64;
  uint64_t any = 0;
  for (int i = 0; i < 8; i++) any = any << 8 | byte(r);
  return (int64_t)any;
}

#endif
