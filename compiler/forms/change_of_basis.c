/* forms/change_of_basis: a change of basis of the whole head before its blocks turn; see forms/form.h.
 *
 *   spec -> plan_basis (a block program, and the head as one dense block); driver: kernel/dense.c
 */
#include "plan/change_of_basis.h"
#include "forms/form.h"

#include "kernel/dense.h"

static bool takes(const spec *s) { return plan_basis_takes(s) && !s->polynomial && !s->pairwise && !s->additive; }

static void *build(arena *a, const spec *s) { return plan_basis_build(a, s); }

static void print(FILE *out, const void *plan) { plan_basis_print(out, plan); }

static int per_head(const void *of) {
  const plan_basis *p = of;
  return p->per_head ? PEGEN_PER_HEAD_ALL : PEGEN_PER_HEAD_NONE;
}

const form form_change_of_basis = {
    .kind = FORM_CHANGE_OF_BASIS,
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
