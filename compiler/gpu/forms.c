/* gpu/forms: the table of what forms make for GPUs; see gpu/forms.h. */
#include "gpu/forms.h"

#include "gpu/attention.h"
#include "gpu/change_of_basis.h"
#include "gpu/dense.h"
#include "gpu/matrix.h"
#include "gpu/widen.h"

typedef const gpu_program *program_function(arena *a, const form *f, const void *plan, unsigned dtypes, bool gradients);

static const gpu_program *attention(arena *a, const form *f, const void *plan, unsigned dtypes, bool gradients) {
  (void)gradients;
  (void)f;
  return gpu_attention_program(a, plan, dtypes);
}

static const gpu_program *widen(arena *a, const form *f, const void *plan, unsigned dtypes, bool gradients) {
  (void)gradients;
  return gpu_widen_program(a, form_program(a, f, plan, "encode"), dtypes);
}

static const gpu_program *encode(arena *a, const form *f, const void *of, unsigned dtypes, bool gradients) {
  const plan *p = of;
  if (p->for_threads) p = p->for_threads;
  const program *backward = gradients ? form_program(a, f, p, "encode_transposed") : NULL;
  return gpu_rotor_program(a, form_program(a, f, p, "encode"), backward, dtypes);
}

static const gpu_program *dense(arena *a, const form *f, const void *plan, unsigned dtypes, bool gradients) {
  (void)gradients;
  const program *encode = form_program(a, f, plan, "encode");
  return gpu_dense_fits(a, encode) ? gpu_dense_program(a, encode, dtypes) : gpu_matrix_program(a, encode, dtypes);
}

static const gpu_program *basis(arena *a, const form *f, const void *plan, unsigned dtypes, bool gradients) {
  (void)gradients;
  return gpu_basis_program(a, form_program(a, f, plan, "encode"), dtypes);
}

static program_function *const programs[FORM_COUNT] = {
    [FORM_ATTENTION] = attention, [FORM_POLYNOMIAL] = widen, [FORM_ADDITIVE] = encode,       [FORM_BLADES] = encode,
    [FORM_DENSE_FOUR] = encode,   [FORM_DENSE] = dense,      [FORM_CHANGE_OF_BASIS] = basis,
};

const gpu_program *gpu_program_of(arena *a, const form *f, const void *plan, unsigned dtypes, bool gradients) {
  return programs[f->kind](a, f, plan, dtypes, gradients);
}
