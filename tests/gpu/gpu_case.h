/* gpu_case: one kernel and its operands on the device, shared by the files of gpu_test. */
#ifndef PEGEN_TESTS_GPU_CASE_H
#define PEGEN_TESTS_GPU_CASE_H

#include "pegen/pegen.h"
#include "verify/trial.h"

enum { OPERAND_TYPES = 4 };

typedef struct gpu_case {
  arena *memory;
  spec *spec;
  const pegen_kernel *kernel;
  trial_operands operands[OPERAND_TYPES]; /* in each number type, the calls take turns */
  const DLTensor **device_operands[OPERAND_TYPES];
  uint64_t random;
  int calls, failed, other_bits;
} gpu_case;

/* Random coordinates in [-reach, reach]: [tokens, axes], or, with a batch, [batch, tokens, axes]. */
DLTensor *gpu_positions(gpu_case *c, int64_t batch, int64_t tokens, number_type type, double reach, double **values);
/* pegen_launch; says why it was refused. */
int gpu_launch(gpu_case *c, const char *entry, const pegen_args *args);

/* Calls of NAME_attention: every number type, memory order and position type, causal or not, grouped heads, odd sizes;
 * of a polynomial's gradients those of one memory order. */
void gpu_attention(gpu_case *c);
/* Calls of an encode that widens: every number type, memory order and type of inputs, q and k together and apart; of
 * its gradients those of one memory order. */
void gpu_widen(gpu_case *c);

#endif
