/* fuzz_call: from bytes to a call of a kernel's entry: a sound one, then edits of it.
 *
 * Bytes that are missing read as 0, so every input is a call, and short ones are simple ones.
 */
#ifndef PEGEN_TESTS_FUZZ_CALL_H
#define PEGEN_TESTS_FUZZ_CALL_H

#include "attention.h"
#include "fuzz_bytes.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPECT(condition) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      abort(); \
    } \
  } while (0)

#ifndef FUZZ_WORLD_KIB
#define FUZZ_WORLD_KIB 96
#endif
enum { WORLD = FUZZ_WORLD_KIB * 1024, FUZZ_RANK = 6, FUZZ_OPERANDS = 4, FUZZ_INPUTS = 4 };

/* All memory that tensors are laid into. */
extern unsigned char world[WORLD];

typedef struct fuzz_tensor {
  DLTensor dl;
  int64_t *shape, *strides; /* of their own, exactly as long as the rank: the sanitizer sees what reads past them */
} fuzz_tensor;

enum {
  FUZZ_Q,
  FUZZ_K,
  FUZZ_Q_OUT,
  FUZZ_K_OUT,
  FUZZ_POSITIONS,
  FUZZ_K_POSITIONS,
  FUZZ_ORIGIN,
  FUZZ_OPERAND,
  FUZZ_V = FUZZ_OPERAND + FUZZ_OPERANDS,
  FUZZ_OUT,
  FUZZ_INPUT,
  FUZZ_TENSORS = FUZZ_INPUT + FUZZ_INPUTS, /* of forward calls; what follows is of backward ones */
  FUZZ_LSE = FUZZ_TENSORS,
  FUZZ_G_Q_OUT, /* coming in */
  FUZZ_G_K_OUT,
  FUZZ_G_OUT,
  FUZZ_G_LSE,
  FUZZ_G_Q, /* going out */
  FUZZ_G_K,
  FUZZ_G_V,
  FUZZ_G_POSITIONS,
  FUZZ_G_K_POSITIONS,
  FUZZ_G_OPERAND,
  FUZZ_G_INPUT = FUZZ_G_OPERAND + FUZZ_OPERANDS,
  FUZZ_ALL_TENSORS = FUZZ_G_INPUT + FUZZ_INPUTS
};

/* What is called: an entry of the kernel, or pegen_launch_plan for its PTX. */
typedef enum fuzz_entry { FUZZ_ENCODE, FUZZ_ATTENTION, FUZZ_PREPARE, FUZZ_LAUNCH } fuzz_entry;

/* A kernel, and what its driver knows of it. */
typedef struct fuzz_kernel {
  const pegen_kernel *kernel;
  int64_t per_head; /* PEGEN_PER_HEAD_ */
  const pegen_attention *attention; /* NULL: it encodes; value_dim, placed, by_rows and indexed alone are read */
} fuzz_kernel;

enum { FUZZ_KERNELS = 18 };
fuzz_kernel fuzz_kernel_at(unsigned index);

typedef struct fuzz_call {
  fuzz_kernel of;
  const pegen_kernel *kernel; /* of.kernel */
  fuzz_entry entry;
  unsigned n_tensors; /* of which edits choose one */
  fuzz_tensor tensor[FUZZ_ALL_TENSORS];
  const DLTensor *operands[FUZZ_OPERANDS], *inputs[FUZZ_INPUTS];
  union {
    pegen_args args;
    unsigned char room[PEGEN_ARGS_MOST_SIZE]; /* zeros behind them, and fields of later versions that edits make */
  };
  const pegen_args *given; /* &args or NULL */
  int part, parts;
  bool sound; /* nothing was edited: it must be accepted */
  bool appends; /* a call of encode goes to append */
  size_t table_words; /* of the table's header, where there is a table */
  int64_t row_bytes; /* and of its rows, as prepare wrote them */
  bool table_edited;
} fuzz_call;

/* What the tensors of a sound call have in common. */
typedef struct fuzz_layout {
  int64_t batch, heads[2], tokens[2]; /* of q, k */
  DLDataType type;
  size_t used; /* bytes of the world */
} fuzz_layout;

/* Channels that encode writes of rows of a type. */
int64_t fuzz_out_dim(const pegen_kernel *kernel, DLDataType type);

void fuzz_call_read(fuzz_call *call, const uint8_t *data, size_t size);
/* Its sound part, of `of` and `entry`, which are set; fills *layout. */
void fuzz_call_read_sound(reader *r, fuzz_call *call, fuzz_layout *layout);
/* A tensor with strides of its own in the next free bytes of the world: rows of q (which 0) or k, or of any shape,
 * whose dimensions lie in memory in that order, outermost first. */
void fuzz_place_rows(reader *r, fuzz_tensor *t, fuzz_layout *layout, int which, int64_t channels);
void fuzz_place(reader *r, fuzz_tensor *t, fuzz_layout *layout, int rank, const int64_t *shape, DLDataType type,
                const int *order);
void fuzz_call_free(fuzz_call *call);

/* Parts of so many that this one has no share of what fits into the world. */
enum { FUZZ_PARTS = INT32_MAX, FUZZ_NO_SHARE = FUZZ_PARTS / 2 - 1000 };
/* Whether a tensor has `most` elements or more, of which the parts above could have a share. */
bool fuzz_any_huge(const fuzz_call *call, int64_t most);

/* One edit of the call; it may leave it sound. */
void fuzz_call_edit(reader *r, fuzz_call *call);

#endif
