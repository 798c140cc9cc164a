/* check_attention: what check_spec does where the description is one of attention. */
#ifndef PEGEN_CHECK_ATTENTION_H
#define PEGEN_CHECK_ATTENTION_H

#include "check.h"

/* As check_spec. outputs: 2^-18 of the row's largest score times the largest value, f32; half a unit in the last
 * place beside it, bf16 and f16. To the bit: parts and strides. */
int check_attention(arena *a, const spec *s, const check_options *options);

#endif
