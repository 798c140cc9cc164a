/* plan_dense: see plan_dense.h. */
#include "plan_dense.h"

#include "emit_exponential.h"
#include "torus.h"

#include <math.h>

enum { NARROWEST_UNIT = 4, WIDEST_UNIT = 16 };

static bool heads_differ(const plan_dense *p) {
  for (int i = 0; i < p->n_generators; i++)
    if (p->generator[i].n_heads > 1) return true;
  return false;
}

/* One generator with the sum of all angles where that is the same; else one an axis. */
static void choose_generators(arena *a, plan_dense *p) {
  const spec *s = p->spec;
  torus found;
  torus_find(a, s, &found);
  p->why_not = found.why_not;
  p->n_generators = found.why_not ? s->n_axes : 1;
  for (int i = 0; i < p->n_generators; i++) {
    p->angle[i] = found.why_not ? s->angle[i] : found.angle;
    p->generator[i] = found.why_not ? s->dense->generator[i] : found.generator;
  }
}

plan_dense *plan_dense_build(arena *a, const spec *s) {
  plan_dense *p = arena_new(a, plan_dense);
  p->spec = s;
  p->is_f64 = s->dense->is_f64 && !s->dense->schur; /* planes turn by phases in float64 anyway */
  choose_generators(a, p);
  p->angles = plan_of_expressions(a, s, p->angle, p->n_generators);
  p->per_head = p->angles->per_head || heads_differ(p);
  return p;
}

int plan_dense_unit(const plan_dense *p, const cpu_target *target) {
  if (p->spec->dense->schur || p->spec->n_components > DENSE_IN_LANES) return 1;
  int unit = NARROWEST_UNIT, lanes = p->is_f64 ? target->lanes / 2 : target->lanes;
  while (unit < lanes && unit < p->spec->n_blocks) unit *= 2;
  return unit;
}

matrix_layout plan_dense_layout(const plan_dense *p) {
  return p->spec->n_components == DENSE_IN_LANES && !p->spec->dense->schur ? MATRIX_DIAGONALS : MATRIX_COLUMNS;
}

int plan_dense_angle_lanes(const plan_dense *p) {
  int blocks = (p->spec->n_blocks + WIDEST_UNIT - 1) / WIDEST_UNIT * WIDEST_UNIT;
  return blocks > p->angles->lanes ? blocks : p->angles->lanes;
}

/* ---- text ---- */

/* Multiply-adds of the action exp(M) v by its Taylor series in steps of norm 1 with `terms` terms each, per row. */
static double action_cost(int size, double norm) {
  const double terms = 10; /* 1/11! is 2^-25 */
  return ceil(norm < 1 ? 1 : norm) * terms * size * size;
}

static void print_choice(FILE *out, const plan_dense *p, double norm) {
  int b = p->spec->n_components;
  double products = exponential_products(norm, p->is_f64), form = products * b * b * b;
  /* rows share a matrix; action: each row pays for itself, forming: once, then b^2 a row */
  double rows = form / (action_cost(b, norm) - (double)b * b);
  fprintf(out, ";   |M| = %-4g %4.1f products, %.3g multiply-adds to form; the action costs %.3g a row: forming is cheaper from %.0f row%s a token on\n",
          norm, products, form, action_cost(b, norm), ceil(rows), ceil(rows) > 1 ? "s" : "");
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
  fprintf(out, "; %s: %d blocks of %d channels, %d channels passed through\n", s->name, s->n_blocks, b, s->head_dim - b * s->n_blocks);
  const char *shared = p->per_head ? "per token and head" : "per token, shared by all heads";
  if (p->why_not) fprintf(out, "; exp(M), M = sum of angle times generator over %d axes, %s\n; not seen to commute: %s\n", s->n_axes, shared, p->why_not);
  else fprintf(out, "; one matrix acts on each block, so its turns commute: angles add, %s\n", shared);
  if (s->dense->schur) {
    fprintf(out, "; real Schur form A = S (+ lambda J) S^T once per head and block; the output stays in that basis: plane rotations of S^T x\n");
    print_angles(out, p);
    return;
  }
  fprintf(out, "; formed in %s by scaling and squaring, %s; %d multiply-adds a block and row to apply\n",
          p->is_f64 ? "float64 (within 2^-22)" : "float32 (within 2^-22 max(1, |M|))",
          b <= DENSE_IN_LANES ? "a block in each lane" : "a block at a time", b * b);
  for (double norm = 1; norm <= 256; norm *= 4) print_choice(out, p, norm);
  fprintf(out, "; a matrix serves q and k and every batch with shared positions, and a table every call: formed\n");
  print_angles(out, p);
}
