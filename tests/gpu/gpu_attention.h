/* gpu_attention: shared by the files that call attention. */
#ifndef PEGEN_TESTS_GPU_ATTENTION_H
#define PEGEN_TESTS_GPU_ATTENTION_H

#include "gpu_case.h"
#include "verify/trial_attention.h"

/* All gradients of a call that forward is given: of a bias that is a polynomial. */
void gpu_attention_gains(gpu_case *c, const attention_trial *forward);

#endif
