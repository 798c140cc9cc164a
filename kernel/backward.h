/* backward.h: gradients of encodings whose rows are turned by rotors or added to; see backward.c. */
#ifndef PEGEN_KERNEL_BACKWARD_H
#define PEGEN_KERNEL_BACKWARD_H

#include "driver.h"

/* A backward call, checked: a forward call whose rows are gradients, coming in and going out. */
typedef struct pegen_backward_call {
  pegen_call rows;
  pegen_args args; /* of that forward call */
} pegen_backward_call;

/* Checks everything in the order that check_backward.c states; fills *call where it returns 0. */
PEGEN_INTERNAL int pegen_check_backward(const pegen_driver *driver, const pegen_args *args, int part, int parts,
                                        int64_t row_bytes, pegen_backward_call *call);

/* What encode does once its call is checked, with the functions of `target`. */
PEGEN_INTERNAL int pegen_encode_checked(const pegen_driver *driver, const pegen_args *args, pegen_call *call,
                                        const pegen_target_code *target, const pegen_tuning *tuning, int part,
                                        int parts);

#endif
