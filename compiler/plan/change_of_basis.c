/* plan/change_of_basis: see plan/change_of_basis.h. */
#include "plan/change_of_basis.h"

#include "algebra/block_of_four.h"
#include "algebra/dense_vectors.h"
#include "base/diag.h"

enum { MOST_VECTOR = 3, MOST_DENSE = 4 };

bool plan_basis_takes(const spec *s) {
  return s->basis && (!s->dense || (s->dense->map != DENSE_SCHUR && s->n_components <= MOST_DENSE));
}

static bool build_program(arena *a, const spec *s, block_program *out) {
  if (s->dense && s->n_components > MOST_VECTOR) {
    block_four_build(a, s, out);
    return true;
  }
  return block_build(a, s->dense ? dense_as_vectors(a, s) : s, out);
}

static void transpose(arena *a, expr_matrix *m, int n) {
  const expr **from = (const expr **)m->entry, **to = arena_array(a, const expr *, n *n);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) to[i * n + j] = from[j * n + i];
  m->entry = to;
}

/* The inverse of what leaves no length alone; NULL: the transpose is one, but for a factor. What an amplitude of 0
 * leaves is 0 whatever is made of it. */
static block_program *build_inverse(arena *a, const spec *s) {
  if (s->inverse || s->dense || (s->algebra.q == 0 && s->algebra.r == 0)) return NULL;
  spec *back = arena_new(a, spec);
  block_program *program = arena_new(a, block_program);
  *back = *s;
  back->inverse = true;
  if (s->amplitude == 0) back->amplitude = 1;
  if (!build_program(a, back, program)) diag_bug("plan/change_of_basis", "turns without an inverse");
  return program;
}

plan_basis *plan_basis_build(arena *a, const spec *s) {
  if (s->head_dim > PLAN_BASIS_MOST) {
    diag_error(s->file, s->line,
               "a change of basis of %d channels in the kernel, at most %d were expected; pegen_fold_basis multiplies "
               "larger ones into the weights",
               s->head_dim, PLAN_BASIS_MOST);
    return NULL;
  }
  block_program *program = arena_new(a, block_program);
  if (!build_program(a, s, program)) return NULL;
  if (s->inverse) transpose(a, &program->matrix, s->n_components);
  plan_basis *p = arena_new(a, plan_basis);
  p->spec = s;
  const block_program *inverse = build_inverse(a, s);
  p->turns = inverse ? plan_build_with_inverse(a, program, inverse) : plan_build(a, program);
  p->per_head = p->turns->per_head || s->basis->matrix.n_heads > 1;
  return p;
}

void plan_basis_print(FILE *out, const plan_basis *p) {
  int n = p->spec->head_dim;
  fprintf(out, "; a change of basis of the head's %d channels, C = (I - S)(I + S)^-1 once a call, %s\n", n,
          p->spec->inverse ? "is taken back after all turns" : "comes before all turns");
  fprintf(out,
          "; the rows below, of every column of C, are the matrix of a token%s; %d multiply-adds a row to apply it\n",
          p->per_head ? " and head" : ", shared by all heads", n * n);
  if (p->spec->inverse) fprintf(out, "; formed transposed: entries below are those of the transposed inverse\n");
  plan_print(out, p->turns);
}
