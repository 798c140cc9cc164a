/* fixture: see fixture.h. */
#include "fixture.h"

#include "variants.h"

DLTensor *rows_of(fixture *f, int tensor, row_order order) {
  int64_t heads = f->spec->heads > 1 ? f->spec->heads : tensor ? ANY_K_HEADS : ANY_HEADS;
  DLTensor *t = tensor_rows(f->memory, f->type, order, BATCH, heads, TOKENS, f->spec->head_dim);
  tensor_randomize(t, &f->random);
  return t;
}

fixture open_fixture(const spec *s, const pegen_kernel *kernel, number_type type) {
  fixture f = {.memory = arena_create(), .spec = s, .kernel = kernel, .random = 42, .type = type};
  double *values = arena_array(f.memory, double, BATCH * TOKENS * s->n_axes), reach = s->dense || s->algebra.q ? 4 : 60;
  for (int i = 0; i < BATCH * TOKENS * s->n_axes; i++) values[i] = random_uniform(&f.random, -reach, reach);
  f.position_values = values;
  f.positions = tensor_contiguous(f.memory, NUMBER_F64, 3, (int64_t[]){BATCH, TOKENS, s->n_axes}, values);
  f.operands = trial_random_operands(f.memory, s, NUMBER_F32, &f.random);
  for (int i = 0; i < 2; i++) {
    f.x[i] = rows_of(&f, i, ROWS_BHND);
    f.y[i] = rows_of(&f, i, ROWS_BHND);
    f.g[i] = rows_of(&f, i, ROWS_BHND);
    f.back[i] = rows_of(&f, i, ROWS_BHND);
  }
  return f;
}

DLTensor *full_of(arena *a, number_type type, const DLTensor *like, double value) {
  int64_t count = 1;
  for (int i = 0; i < like->ndim; i++) count *= like->shape[i];
  double *values = arena_array(a, double, count + 1);
  for (int64_t i = 0; i < count; i++) values[i] = value;
  return tensor_contiguous(a, type, like->ndim, like->shape, values);
}

double element(const DLTensor *t, int64_t i) {
  number_type type = number_type_of(t->dtype);
  return number_load(type, (const char *)t->data + i * number_bytes(type));
}

const pegen_kernel *load(arena *a, const spec *s, const char *target, unsigned dtypes, loaded_kernel **loaded) {
  *loaded = trial_load_gradients(a, s, target, dtypes, VARIANT_OPTIMIZE);
  assert_non_null(*loaded);
  return run_kernel(*loaded);
}
