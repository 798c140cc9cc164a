/* prepare_backward.h: what backward.c and prepare_backward.c share. */
#pragma once

#include "finish.h"
#include "gradient_table.h"

PEGEN_INTERNAL void pegen_blades_facts(const pegen_driver *driver, pegen_backward_facts *facts);
/* From chunks' sums to operands. */
PEGEN_INTERNAL int pegen_blades_finish(const pegen_driver *driver, const pegen_args *args,
                                       const pegen_backward_call *call, int chosen, int part, int parts);
