/* fuzz_call: from bytes to a call of a kernel: a sound one, then edits of it.
 *
 * Bytes that are missing read as 0, so every input is a call, and short ones are simple ones.
 */
#ifndef PEGEN_TESTS_FUZZ_CALL_H
#define PEGEN_TESTS_FUZZ_CALL_H

#include "pegen/pegen.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPECT(condition)                                                                       \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);            \
      abort();                                                                                  \
    }                                                                                           \
  } while (0)

enum { WORLD = 96 * 1024, FUZZ_RANK = 6, FUZZ_OPERANDS = 4 };

/* All memory that tensors are laid into. */
extern unsigned char world[WORLD];

typedef struct fuzz_tensor {
  DLTensor dl;
  int64_t *shape, *strides; /* of their own, exactly as long as the rank: the sanitizer sees what reads past them */
} fuzz_tensor;

enum { FUZZ_Q, FUZZ_K, FUZZ_Q_OUT, FUZZ_K_OUT, FUZZ_POSITIONS, FUZZ_K_POSITIONS, FUZZ_OPERAND, FUZZ_TENSORS = FUZZ_OPERAND + FUZZ_OPERANDS };

typedef struct fuzz_call {
  const pegen_kernel *kernel;
  fuzz_tensor tensor[FUZZ_TENSORS];
  const DLTensor *operands[FUZZ_OPERANDS];
  pegen_args args;
  const pegen_args *given; /* &args or NULL */
  int part, parts;
  bool sound; /* nothing was edited: it must be accepted */
  size_t table_words; /* of the table's header, where there is a table */
  bool table_edited;
} fuzz_call;

void fuzz_call_read(fuzz_call *call, const uint8_t *data, size_t size);
void fuzz_call_free(fuzz_call *call);

#endif
