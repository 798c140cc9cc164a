/* cpu/forms: the functions of one processor's target, of each form's plan. */
#pragma once

#include "forms/form.h"
#include "mlir/ir.h"
#include "target/processor.h"

/* Declarations of what the driver provides; once a module, before emit_form. */
void emit_form_imports(ir *b, const form *f);

typedef struct form_emission {
  ir *b;
  arena *a;
  const form *f;
  const void *plan; /* the form's */
  const cpu_target *target;
  unsigned dtypes; /* PEGEN_DTYPE_ bits and pairs of types (base/number.h) */
} form_emission;

/* The functions of the forward entries; after them those of gradients, and then of tangents where a form has any. */
void emit_form(const form_emission *e);
void emit_form_gradients(const form_emission *e);
void emit_form_tangents(const form_emission *e);
