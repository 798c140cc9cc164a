/* gpu/forms: what each form makes for GPUs. */
#pragma once

#include "forms/form.h"
#include "gpu/entries.h"
#include "gpu/vendor.h"

/* plan: the form's; target: the entries are those that it can run. gradients: also entries of gradients of rows, where
 * the form has them on GPUs. NULL after a diag_error where it is too large for a GPU, or asks for what none computes.
 */
const gpu_program *gpu_program_of(arena *a, const gpu_target *target, const form *f, const void *plan, unsigned dtypes,
                                  bool gradients);
