/* cpu/forms: the functions of one processor's target, of each form's plan. */
#pragma once

#include "forms/form.h"
#include "mlir/ir.h"
#include "target/processor.h"

/* Declarations of what the driver provides; once a module, before emit_form. */
void emit_form_imports(ir *b, const form *f);
/* plan: the form's. dtypes: PEGEN_DTYPE_ bits and pairs of types (base/number.h). */
void emit_form(ir *b, arena *a, const form *f, const void *plan, const cpu_target *target, unsigned dtypes);
/* The functions of gradients, where the form has any; after emit_form. */
void emit_form_gradients(ir *b, arena *a, const form *f, const void *plan, const cpu_target *target, unsigned dtypes);
