/* gpu/forms: the table of what forms make for GPUs; see gpu/forms.h. */
#include "gpu/forms.h"

#include "gpu/attention.h"
#include "gpu/programs.h"

typedef const gpu_program *program_function(arena *a, const form *f, const void *plan, unsigned dtypes, bool gradients);

/* Returns the program of rows' gradients; NULL where none are wanted. */
static const program *transposed(arena *a, const form *f, const void *plan, bool gradients) {
  return gradients ? form_program(a, f, plan, "encode_transposed") : NULL;
}

static const gpu_program *widen(arena *a, const form *f, const void *plan, unsigned dtypes, bool gradients) {
  return gpu_widen_program(a, form_program(a, f, plan, "encode"), dtypes, gradients);
}

static const gpu_program *rotors(arena *a, const form *f, const void *plan, unsigned dtypes, bool gradients) {
  const program *backward = transposed(a, f, plan, gradients), *gradient = NULL;
  const program *encode = form_program(a, f, plan, "encode");
  if (gradients) gradient = form_program(a, f, plan, "encode_backward");
  if (gradients && !gradient) gradient = form_program(a, f, plan, "encode_backward_from_x"); /* channels are mapped */
  return gpu_rotor_program(a, encode, backward, gradient, dtypes);
}

static const gpu_program *encode(arena *a, const form *f, const void *of, unsigned dtypes, bool gradients) {
  const plan *p = of;
  return rotors(a, f, p->for_threads ? p->for_threads : p, dtypes, gradients);
}

static const gpu_program *parts(arena *a, const form *f, const void *of, unsigned dtypes, bool gradients) {
  const plan_row *row = of;
  return rotors(a, f, row->for_threads ? row->for_threads : row, dtypes, gradients);
}

static const gpu_program *dense(arena *a, const form *f, const void *plan, unsigned dtypes, bool gradients) {
  const program *encode = form_program(a, f, plan, "encode"), *backward = transposed(a, f, plan, gradients);
  return gpu_dense_fits(a, encode) ? gpu_dense_program(a, encode, backward, dtypes)
                                   : gpu_matrix_program(a, encode, backward, dtypes);
}

static const gpu_program *basis(arena *a, const form *f, const void *plan, unsigned dtypes, bool gradients) {
  const program *encode = form_program(a, f, plan, "encode");
  return gpu_basis_program(a, encode, transposed(a, f, plan, gradients), dtypes);
}

static program_function *const programs[FORM_COUNT] = {
    [FORM_POLYNOMIAL] = widen, [FORM_ADDITIVE] = encode,   [FORM_PARTS] = parts,
    [FORM_BLADES] = encode,    [FORM_ROW_BLADES] = encode, [FORM_DENSE_FOUR] = encode,
    [FORM_SCHUR] = dense,      [FORM_DENSE] = dense,       [FORM_CHANGE_OF_BASIS] = basis,
};

const gpu_program *gpu_program_of(arena *a, const gpu_target *target, const form *f, const void *plan, unsigned dtypes,
                                  bool gradients) {
  if (f->kind == FORM_ATTENTION) return gpu_attention_program(a, target, plan, dtypes, gradients);
  return programs[f->kind](a, f, plan, dtypes, gradients);
}
