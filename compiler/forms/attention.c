/* forms/attention: attention with a bias or a rotation of each pair; see forms/form.h.
 *
 *   spec -> plan/attention
 *
 * A bias that is a polynomial comes by way of plan_widen, and has leaves, prepared values and weights as where it
 * widens.
 */
#include "plan/attention.h"
#include "forms/form.h"

#include "kernel/attention.h"

static bool takes(const spec *s) { return s->pairwise && !s->dense && !s->basis && !s->additive; }

static void *build(arena *a, const spec *s) { return attention_plan_build(a, s); }

static void print(FILE *out, const void *plan) { attention_plan_print(out, plan); }

static int per_head(const void *of) {
  const attention_plan *p = of;
  return !p->per_head ? PEGEN_PER_HEAD_NONE : p->columns ? PEGEN_PER_HEAD_QUERIES : PEGEN_PER_HEAD_ALL;
}

const form form_attention = {
    .kind = FORM_ATTENTION,
    .name = "attention",
    .entries = {.attention = "pegen_driver_attention", .workspace = "pegen_driver_workspace"},
    .takes = takes,
    .plan = build,
    .print = print,
    .per_head = per_head,
};
