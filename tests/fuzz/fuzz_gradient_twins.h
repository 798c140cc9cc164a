/* fuzz_gradient_twins: kernels by hand that have gradients; see fuzz_gradient_twins.c. */
#ifndef PEGEN_TESTS_FUZZ_GRADIENT_TWINS_H
#define PEGEN_TESTS_FUZZ_GRADIENT_TWINS_H

#include "attention.h"

extern const pegen_kernel fuzz_turned_kernel; /* two heads, rates by axis, head and block; grid or positions */
extern const pegen_kernel fuzz_shared_kernel; /* any heads, which share rates by axis and block; one prefix token */
extern const pegen_kernel fuzz_widened_kernel; /* columns of two inputs and a rate by head; one prefix token */
extern const pegen_kernel fuzz_attended_kernel; /* slopes by head, numbers read by index; one prefix token */
extern const pegen_attention fuzz_attended_form;

#endif
