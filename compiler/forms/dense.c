/* forms/dense: blocks that turn by exponentials of learned skew matrices; see forms/form.h.
 *
 *   spec -> plan/dense
 */
#include "plan/dense.h"
#include "forms/form.h"

#include "kernel/dense.h"

static bool takes(const spec *s) {
  return s->dense && (s->dense->schur || s->n_components > 4) && !s->basis && !s->polynomial && !s->pairwise &&
         !s->additive;
}

static void *build(arena *a, const spec *s) { return plan_dense_build(a, s); }

static void print(FILE *out, const void *plan) { plan_dense_print(out, plan); }

static int per_head(const void *of) {
  const plan_dense *p = of;
  return p->per_head ? PEGEN_PER_HEAD_ALL : PEGEN_PER_HEAD_NONE;
}

const form form_dense = {
    .kind = FORM_DENSE,
    .name = "dense",
    .entries = {.encode = "pegen_dense_encode",
                .prepare = "pegen_dense_prepare",
                .workspace = "pegen_driver_workspace",
                .table_bytes = "pegen_dense_table_bytes"},
    .takes = takes,
    .plan = build,
    .print = print,
    .per_head = per_head,
};
