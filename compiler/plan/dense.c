/* plan/dense: see plan/dense.h. */
#include "plan/dense.h"

#include "algebra/exponential.h"
#include "algebra/torus.h"
#include "base/diag.h"

#include "kernel/dense.h"

static bool heads_differ(const plan_dense *p) {
  for (int i = 0; i < p->n_generators; i++)
    if (p->generator[i].n_heads > 1) return true;
  return false;
}

/* One generator with the sum of all angles where that is the same; else one an axis. False after a diag_error. */
static bool choose_generators(arena *a, plan_dense *p) {
  const spec *s = p->spec;
  torus found;
  torus_find(a, s, &found);
  p->why_not = found.why_not;
  if (s->dense->map == DENSE_SCHUR && found.why_not) {
    diag_error(s->file, s->line, "pe.schur needs generators that commute, but %s; expected one matrix for each block",
               found.why_not);
    return false;
  }
  p->n_generators = found.why_not ? s->n_axes : 1;
  for (int i = 0; i < p->n_generators; i++) {
    p->angle[i] = found.why_not ? s->angle[i] : found.angle;
    p->generator[i] = found.why_not ? s->dense->generator[i] : found.generator;
  }
  return true;
}

plan_dense *plan_dense_build(arena *a, const spec *s) {
  plan_dense *p = arena_new(a, plan_dense);
  p->spec = s;
  p->is_f64 = s->dense->is_f64 && s->dense->map != DENSE_SCHUR; /* planes turn by phases in float64 anyway */
  if (!choose_generators(a, p)) return NULL;
  p->angles = plan_of_expressions(a, s, p->angle, p->n_generators);
  p->per_head = p->angles->per_head || heads_differ(p);
  /* Heads that share a matrix are rows enough to form it, small ones are formed together, and float64 is to hold its
   * bound whatever the norm. */
  p->acts = p->per_head && !p->is_f64 && s->dense->map == DENSE_EXP && s->n_components > DENSE_IN_LANES;
  return p;
}

/* ---- text ---- */

/* One row of the cost model that encode decides by. */
static void print_choice(FILE *out, const plan_dense *p, double norm) {
  int b = p->spec->n_components;
  double form = exponential_products(norm, p->is_f64) * b * b * b, act = pegen_action_terms(norm) * b * b;
  fprintf(out, ";   |M| = %-4g forming %.3g multiply-adds, its action %.3g a row: ", norm, form, act);
  int rows = 0;
  while (p->acts && pegen_acts(norm, rows + 1, b)) rows++;
  if (rows) fprintf(out, "the action up to %d row%s a matrix\n", rows, rows > 1 ? "s" : "");
  else fprintf(out, "formed\n");
}

static const char *why_made(const plan_dense *p) {
  if (!p->per_head) return "the heads of q and k share a matrix";
  if (p->is_f64) return "float64 holds its bound whatever the norm";
  return "blocks are formed several together";
}

static void print_angles(FILE *out, const plan_dense *p) {
  const char *names[SPEC_MAX_AXES] = {"angle"};
  for (int i = 0; i < p->n_generators && p->n_generators > 1; i++) names[i] = p->spec->axis[i];
  fprintf(out, "angles:\n");
  expr_print_roots(out, p->angle, names, p->n_generators);
}

void plan_dense_print(FILE *out, const plan_dense *p) {
  const spec *s = p->spec;
  int b = s->n_components;
  fprintf(out, "; %s: %d blocks of %d channels, %d channels passed through\n", s->name, s->n_blocks, b,
          s->head_dim - b * s->n_blocks);
  const char *shared = p->per_head ? "per token and head" : "per token, shared by all heads";
  if (p->why_not)
    fprintf(out, "; exp(M), M = sum of angle times generator over %d axes, %s\n; not seen to commute: %s\n", s->n_axes,
            shared, p->why_not);
  else fprintf(out, "; one matrix acts on each block, so its turns commute: angles add, %s\n", shared);
  if (s->dense->map == DENSE_SCHUR) {
    fprintf(out, "; real Schur form A = S (+ lambda J) S^T once per head and block; the output stays in that basis: "
                 "plane rotations of S^T x\n");
    print_angles(out, p);
    return;
  }
  fprintf(out, "; formed in %s by scaling and squaring, %s; %d multiply-adds a block and row to apply\n",
          p->is_f64 ? "float64 (within 2^-22)" : "float32 (within 2^-22 max(1, |M|))",
          b <= DENSE_IN_LANES ? "a block in each lane" : "a block at a time", b * b);
  fprintf(out, "; a table's matrices are formed; encode without one, where a matrix serves q and k of every batch with "
               "shared positions:\n");
  for (double norm = 1; norm <= 256; norm *= 4) print_choice(out, p, norm);
  if (p->acts)
    fprintf(out, "; the action is Chebyshev's series of a skew matrix; the norm, bounded by those of the generators, "
                 "decides when encode runs\n");
  else fprintf(out, "; always formed: %s\n", why_made(p));
  print_angles(out, p);
}
