/* explain/attention: what is known of attention with a function of the displacement in it. */
#include "plan/attention.h"
#include "explain/explain.h"
#include "explain/pair_facts.h"
#include "explain/words.h"

static long double bias_of(const pair_facts *f, int head, const double *delta) {
  expr_environment env = {
      .head = head, .blocks = expr_pool_blocks(f->spec->pool), .positions = delta, .operands = f->operands.values};
  return expr_eval_long(f->spec->pairwise->bias, &env);
}

static const char *bias_text(arena *a, const spec *s) {
  const expr *bias = s->pairwise->bias;
  const char *operands = explain_operands(a, s, &bias, 1);
  return arena_printf(a, "a function of the displacement%s%s%s",
                      bias->depends & DEPENDS_HEAD ? ", another in each head" : "", operands ? ", from " : "",
                      operands ? operands : "");
}

/* Scores and sums of values, and what the description adds to them. */
static int pair_operations(arena *a, const attention_plan *p) {
  const spec *s = p->spec;
  unsigned char *seen = arena_alloc(a, (size_t)expr_pool_count(s->pool));
  operation_count count = {0};
  if (p->bias) operation_count_add(&count, p->bias, 1, seen);
  int products = p->mirror ? 2 * s->n_components : p->n_coefficients; /* of a block, beside the query's */
  for (int i = 0; i < p->n_entries; i++) operation_count_add(&count, p->entry[i], s->n_blocks, seen);
  return 2 * s->head_dim + 2 * p->value_dim + 2 * products * s->n_blocks + operation_count_all(&count);
}

bool explain_attention(arena *a, const spec *s, explanation *out) {
  if (s->polynomial) return explain_polynomial(a, s, out); /* the bias is all there is to tell */
  pair_facts facts;
  const attention_plan *plan = attention_plan_build(a, s);
  if (!plan) return false;
  pair_facts_open(a, s, &facts);
  facts.rotates = s->pairwise->rotates;
  facts.bias = s->pairwise->bias ? bias_of : NULL;
  pair_facts_fill(&facts, out->property);
  out->role = "pairwise";
  out->block = "none: queries and keys are left as they are";
  if (facts.rotates) {
    explain_blocks(a, s, out);
    out->block = explain_blades_text(a, s);
    for (int axis = 0; axis < s->n_axes; axis++) out->generator[axis] = explain_generator(a, s, axis);
  }
  if (facts.bias) out->bias = bias_text(a, s);
  out->group = !facts.rotates && !facts.bias ? "trivial: positions act on nothing"
               : facts.rotates               ? "pairwise: a rotation of the key by its displacement"
                                             : "pairwise: a bias of the displacement";
  out->normal_form = arena_printf(a, "softmax in tiles of keys, scores never stored%s",
                                  plan->by_rows ? "; pair functions tabulated along the grid's last axis" : "");
  out->cost.pair_operations = pair_operations(a, plan);
  out->rows_precision = "float32 scores within 2^-18 of the largest in their row";
  return true;
}
