/* object/describe_form: what an object says of one form's kernels. A form's file has a row; object/describe.c has the
 * table by kind. */
#pragma once

#include "object/describer.h"
#include "object/digest.h"

typedef struct describe_form {
  /* The constant behind pegen_driver.form, with the targets' functions in it. */
  LLVMValueRef (*describe)(describer *d, const void *plan, const cpu_target *const *targets, int n_targets);
  /* Adds whatever of the description's mathematics is in no field that object/describe.c adds itself. */
  void (*digest)(digest *d, const void *plan);
} describe_form;

/* A pegen_gradient; null of NULL. */
struct plan_gradient;
struct plan_gradient_row;
LLVMValueRef describe_gradient(describer *d, const struct plan_gradient *g, const cpu_target *const *targets,
                               int n_targets);
/* A pegen_gradient of a head's parts, the largest of which has so many blocks. */
LLVMValueRef describe_gradient_row(describer *d, const spec *s, const struct plan_gradient_row *of, int blocks,
                                   const cpu_target *const *targets, int n_targets);

extern const describe_form describe_attention, describe_polynomial, describe_additive, describe_blades, describe_parts,
    describe_dense, describe_change_of_basis;
