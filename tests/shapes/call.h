/* call: sound calls of an entry on tensors of any sizes, what they wrote, and the same calls on tensors of other
 * shapes. */
#ifndef PEGEN_TESTS_SHAPES_CALL_H
#define PEGEN_TESTS_SHAPES_CALL_H

#include "../attention/fixture.h"
#include "test.h"

typedef enum entry_kind { ENCODE, ENCODE_BACKWARD, ATTENTION, ATTENTION_BACKWARD, ENTRY_KINDS } entry_kind;

enum { MOST_WRITTEN = 16 };

typedef struct sizes {
  int64_t batch, heads, k_heads, tokens, keys;
  bool same_places; /* k has no positions of its own */
  bool by_batch;    /* positions are those of batches */
  bool is_later;    /* what attention's gradients read of its output is not there yet */
} sizes;

typedef struct sample {
  fixture *f;
  const pegen_kernel *kernel;
  entry_kind kind;
  sizes sizes;
  pegen_args args;
  pegen_grad_args grad;
  DLTensor *written[MOST_WRITTEN]; /* of 4 dimensions, and so on */
  int n_written;
  DLTensor *operand_gradients[8], *input_gradients[8];
} sample;

bool sample_has(const pegen_kernel *kernel, entry_kind kind);
/* grad->positions is asked for where the kernel has it. */
void sample_make(sample *s, fixture *f, const pegen_kernel *kernel, entry_kind kind, number_type type,
                 const sizes *sizes);

/* Runs all parts and what finishes them, in a workspace of NaN; the first error. */
int sample_run(const sample *s, const pegen_args *args, int parts);
/* What was written, and then other bits in its place. */
void *sample_take(sample *s);
bool sample_is(const sample *s, const void *taken);

/* The call with tensors that lack the dimension of batches, where there is one batch, or positions that lack that of
 * axes. */
typedef struct reshaped {
  pegen_args args;
  pegen_grad_args grad;
} reshaped;
void sample_reshape(sample *s, bool is_flat, bool is_bare, reshaped *to);

DLTensor *without_batch(arena *a, const DLTensor *rows);
DLTensor *without_axes(arena *a, const DLTensor *positions);
/* Indices begin, begin + step .. below end of a dimension. */
DLTensor *slice(arena *a, const DLTensor *of, int dim, int64_t begin, int64_t end, int64_t step);

#endif
