/* fuzz_twins: kernels by hand, of attention and of columns; see fuzz_twins.c. */
#ifndef PEGEN_TESTS_FUZZ_TWINS_H
#define PEGEN_TESTS_FUZZ_TWINS_H

#include "attention.h"

extern const pegen_kernel
    fuzz_learned_kernel; /* attention: slopes by head, numbers read by index; grid or positions, one prefix token */
extern const pegen_kernel fuzz_rows_kernel; /* attention by rows of the grid of 2 x 3; two prefix tokens */
extern const pegen_kernel fuzz_widen_twin_kernel; /* two columns; inputs of 3 numbers and of 1; two heads of q */
extern const pegen_attention fuzz_learned_form, fuzz_rows_form;

#endif
