/* verify/trial_sums: what an additive description's kernel wrote beside the description's own expression. */
#pragma once

#include "verify/oracle.h"
#include "verify/trial.h"

/* values: coordinates [tokens][axes], by_batch [batches][tokens][axes]; NULL: those of the built-in grid. Errors are in
 * units of the larger of 1 and what is added, beyond half a unit in the last place of 16-bit types, and are added to
 * *worst. Where rows were made of the numbers of `in`, which are float64 then, errors are in units of those, too. */
void trial_compare_sums(const spec *s, const double *values, bool by_batch, const trial_operands *operands,
                        const DLTensor *in, const DLTensor *out, trial_error *worst);
