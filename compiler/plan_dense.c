/* plan_dense: see plan_dense.h. */
#include "plan_dense.h"

#include "emit_exponential.h"

#include <math.h>

enum { NARROWEST_UNIT = 4, WIDEST_UNIT = 16 };

static bool heads_differ(const spec *s) {
  for (int axis = 0; axis < s->n_axes; axis++)
    if (s->dense->generator[axis].n_heads > 1) return true;
  return false;
}

plan_dense *plan_dense_build(arena *a, const spec *s) {
  plan_dense *p = arena_new(a, plan_dense);
  p->spec = s;
  p->angles = plan_of_expressions(a, s, s->angle, s->n_axes);
  p->per_head = p->angles->per_head || heads_differ(s);
  return p;
}

int plan_dense_unit(const plan_dense *p, const cpu_target *target) {
  if (p->spec->n_components > DENSE_IN_LANES) return 1;
  int unit = NARROWEST_UNIT;
  while (unit < target->lanes && unit < p->spec->n_blocks) unit *= 2;
  return unit;
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

void plan_dense_print(FILE *out, const plan_dense *p) {
  const spec *s = p->spec;
  int b = s->n_components;
  fprintf(out, "; %s: %d blocks of %d channels, %d channels passed through\n", s->name, s->n_blocks, b, s->head_dim - b * s->n_blocks);
  fprintf(out, "; exp(M), M = sum of angle times generator over %d ax%s, %s\n", s->n_axes, s->n_axes > 1 ? "es" : "is",
          p->per_head ? "per token and head" : "per token, shared by all heads");
  fprintf(out, "; formed in %s by scaling and squaring, %s; %d multiply-adds a block and row to apply\n", p->is_f64 ? "float64" : "float32",
          b <= DENSE_IN_LANES ? "a block in each lane" : "a block at a time", b * b);
  for (double norm = 1; norm <= 256; norm *= 4) print_choice(out, p, norm);
  fprintf(out, "; a matrix serves q and k and every batch with shared positions, and a table every call: formed\n");
  const char *names[SPEC_MAX_AXES];
  for (int axis = 0; axis < s->n_axes; axis++) names[axis] = s->axis[axis];
  fprintf(out, "angles:\n");
  expr_print_roots(out, s->angle, names, s->n_axes);
}
