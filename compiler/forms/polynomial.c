/* forms/polynomial: a bias polynomial in the displacement, reproduced by columns that widen q and k; see forms/form.h.
 *
 *   spec -> polynomial (weights and shapes) -> plan/widen (columns)
 */
#include "forms/form.h"
#include "plan/widen.h"

#include "kernel/loop.h"

static bool takes(const spec *s) { return s->polynomial && !s->pairwise; }

static void *build(arena *a, const spec *s) { return plan_widen_build(a, s); }

static void print(FILE *out, const void *plan) { plan_widen_print(out, plan); }

static int per_head(const void *of) {
  const plan_widen *p = of;
  return p->values->per_head ? PEGEN_PER_HEAD_QUERIES : PEGEN_PER_HEAD_NONE;
}

static int out_dim(arena *a, const void *of, int dtype, const char ***columns) {
  const plan_widen *p = of;
  const widen_layout *l = &p->layout[dtype];
  *columns = arena_array(a, const char *, l->n_lanes + 1);
  for (int i = 0; i < l->n_lanes; i++) (*columns)[i] = plan_widen_lane_text(a, p, l, i);
  return l->out_dim;
}

const form form_polynomial = {
    .kind = FORM_POLYNOMIAL,
    .name = "polynomial",
    .entries = {.encode = "pegen_driver_widen", .workspace = "pegen_driver_workspace"},
    .takes = takes,
    .plan = build,
    .print = print,
    .per_head = per_head,
    .out_dim = out_dim,
};
