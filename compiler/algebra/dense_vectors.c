/* algebra/dense_vectors: small dense blocks as blades; see algebra/dense_vectors.h. */
#include "algebra/dense_vectors.h"

bool dense_is_vectors(const spec *s) {
  return s->dense && s->dense->map != DENSE_SCHUR && !s->basis && s->n_components <= 3;
}

/* The raw element (row, column) of each block's matrix. */
static const expr *raw_element(arena *a, const spec *s, const spec_skew *m, int row, int column) {
  int count = m->n_heads * s->n_blocks;
  int32_t *offset = arena_array(a, int32_t, count);
  for (int i = 0; i < count; i++) offset[i] = m->offset[i] + row * s->n_components + column;
  return expr_operand(s->pool, m->operand, m->n_heads, offset);
}

/* exp(theta/2 e_ij) acts on vectors as exp of theta times the matrix with 1 at (i, j) and -1 at (j, i). */
static spec_bivector bivector_of(arena *a, const spec *s, const spec_skew *m) {
  spec_bivector b = {0};
  for (int j = 1; j < s->n_components; j++)
    for (int i = 0; i < j; i++) { /* blades ascend: e12, e13, e23 */
      const expr *x = raw_element(a, s, m, i, j);
      if (m->rule == SKEW_DIFFERENCE) x = expr_sub(s->pool, x, raw_element(a, s, m, j, i));
      b.blade[b.count] = 1u << i | 1u << j;
      b.coefficient[b.count++] = x;
    }
  return b;
}

const spec *dense_as_vectors(arena *a, const spec *s) {
  spec *vectors = arena_new(a, spec);
  *vectors = *s;
  vectors->dense = NULL;
  vectors->exact = s->dense->is_f64;
  vectors->algebra = (spec_algebra){s->n_components, 0, 0};
  for (int i = 0; i < s->n_components; i++) vectors->component[i] = (spec_component){1u << i, 1};
  for (int axis = 0; axis < s->n_axes; axis++) vectors->generator[axis] = bivector_of(a, s, &s->dense->generator[axis]);
  return vectors;
}
