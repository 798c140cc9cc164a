/* verify/reference_map: see verify/reference_map.h. */
#include "verify/reference_map.h"

#include "spec/adjoint.h"
#include "verify/dual.h"

#include <math.h>

/* How far roundings take a node, whose own counts as its size. */
static long double rounding(const dual_place *p, const expr *x, long double *known) {
  int arity = expr_op_arity(x->op);
  if (arity == 0) return x->op == EXPR_CONST ? fabs(x->value) : 0;
  if (known[x->id] >= 0) return known[x->id];
  dual argument[3] = {{0}};
  for (int i = 0; i < arity; i++) argument[i].value = p->by.known[x->arg[i]->id].value;
  long double sum = fabsl(p->by.known[x->id].value);
  for (int i = 0; i < arity; i++) {
    bool is_other = x->op == EXPR_SELECT && i != (argument[0].value != 0 ? 1 : 2);
    if (is_other || p->by.when[x->arg[i]->id] != p->by.now) continue;
    long double own = rounding(p, x->arg[i], known);
    if (own == 0) continue;
    argument[i].tangent = 1;
    sum += own * fabsl(dual_operation(x->op, argument).tangent);
    argument[i].tangent = 0;
  }
  return known[x->id] = sum;
}

/* What an expression of channel[0] is, how it varies with it, and how far roundings take it. */
static dual evaluate(arena *a, const spec *s, const expr *x, const double *channels, long double *rounded) {
  expr_environment env = {.blocks = s->n_blocks, .channels = channels};
  dual_place place = dual_at(a, s->pool, &env);
  dual y;
  dual_eval(&place, &(dual_variable){DUAL_CHANNEL, 0, 0}, &x, 1, &y);
  long double *known = arena_array(a, long double, place.nodes + 1);
  for (int i = 0; i < place.nodes; i++) known[i] = -1;
  *rounded = rounding(&place, x, known);
  return y;
}

reference_mapped reference_map(const spec *s, double x) {
  if (!s->pre) return (reference_mapped){x, fabs(x), 1, 1};
  arena *a = arena_create();
  /* The gradient as kernels have it is asked for its roundings alone. */
  const expr *channel = expr_channel(s->pool, 0), *gained;
  adjoint_output output = {s->pre, expr_channel(s->pool, 1)};
  adjoint_of(a, s->pool, &output, 1, &channel, 1, &gained);
  reference_mapped m;
  const double channels[] = {x, 1};
  dual y = evaluate(a, s, s->pre, channels, &m.value_rounding);
  evaluate(a, s, gained, channels, &m.slope_rounding);
  m.value = y.value;
  m.slope = y.tangent;
  m.slope_rounding = fmaxl(m.slope_rounding, fabsl(m.slope)); /* also where nothing is computed of it */
  arena_destroy(a);
  return m;
}
