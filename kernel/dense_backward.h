/* dense_backward.h: sizes of what dense_backward.c leaves to dense_finish.c. */
#pragma once

#include "dense_maker.h"
#include "finish.h"
#include "gradient_table.h"

/* Doubles that a generator of a unit gains, and bytes of a unit's torques. */
PEGEN_INTERNAL int64_t pegen_dense_gained(const pegen_dense *dense, const pegen_dense_code *code);
PEGEN_INTERNAL int64_t pegen_dense_outer_bytes(const pegen_dense *dense, const pegen_dense_code *code);
/* Doubles of a head's sums: what generators gain, and behind that what operands do that angles are made of; and of the
 * first alone. */
PEGEN_INTERNAL int64_t pegen_dense_head_sums(const pegen_dense *dense, const pegen_dense_code *code);
PEGEN_INTERNAL int64_t pegen_dense_generator_sums(const pegen_dense *dense, const pegen_dense_code *code);
/* Tables of gradients are of the functions of the target that is chosen: their rows are its units' torques. */
PEGEN_INTERNAL void pegen_dense_facts(const pegen_driver *driver, pegen_backward_facts *facts);
