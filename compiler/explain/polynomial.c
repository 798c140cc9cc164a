/* explain/polynomial: what is known of biases that are polynomials of the displacement, and widen queries and keys or
 * are attention's own. */
#include "base/number.h"
#include "explain/explain.h"
#include "explain/pair_facts.h"
#include "explain/words.h"
#include "plan/widen.h"
#include "spec/expr_facts.h"
#include "verify/reference.h"

static long double bias_of(const pair_facts *f, int head, const double *delta) {
  return reference_bias(f->spec, delta, f->operands.values, f->inputs, head);
}

/* Names of inputs of queries, or of keys, that the bias reads; NULL: none. */
static const char *names_of(arena *a, const spec *s, bool of_keys) {
  const char *names = NULL;
  for (int i = 0; i < s->n_inputs; i++)
    if (s->input[i].of_keys == of_keys && expr_reads_input(s->polynomial->value, i))
      names = names ? arena_printf(a, "%s, %s", names, s->input[i].name) : s->input[i].name;
  return names;
}

/* "a, b of the query's token and h of the key's"; NULL: no input. */
static const char *reads_text(arena *a, const spec *s) {
  const char *own = names_of(a, s, false), *of_key = names_of(a, s, true);
  if (own && of_key) return arena_printf(a, "%s of the query's token and %s of the key's", own, of_key);
  if (own) return arena_printf(a, "%s of the query's token", own);
  return of_key ? arena_printf(a, "%s of the key's token", of_key) : NULL;
}

/* A query's and a key's inputs, random. */
static const double **random_inputs(arena *a, const spec *s, uint64_t *random) {
  const double **inputs = arena_array(a, const double *, s->n_inputs + 1);
  for (int i = 0; i < s->n_inputs; i++) {
    int64_t size = s->input[i].size ? s->input[i].size : 1;
    double *row = arena_array(a, double, size);
    for (int64_t c = 0; c < size; c++) row[c] = random_uniform(random, -s->input[i].test_scale, s->input[i].test_scale);
    inputs[i] = row;
  }
  return inputs;
}

static const char *origin_text(arena *a, const spec *s) {
  const char *text = "";
  for (int axis = 0; axis < s->n_axes; axis++)
    text = arena_printf(a, "%s%s%s = %.9g", text, axis ? ", " : "", s->axis[axis], s->polynomial->origin[axis]);
  return text;
}

/* Columns of rows that are written. */
static void explain_widened(arena *a, const plan_widen *plan, explanation *out) {
  out->role = "separable";
  out->block = "none: columns are appended to queries and keys";
  out->normal_form = arena_printf(a, "%d column%s, monomials of the key's position times coefficients of the query's",
                                  plan->n_columns, plan->n_columns > 1 ? "s" : "");
  out->columns_added = plan->layout[0].n_lanes;
  out->columns_of_zeros = plan->layout[0].n_lanes - plan->n_columns;
  const spec *s = plan->spec;
  const char *from = "where columns count from the middle of the call's tokens, however far they are from 0";
  if (!s->polynomial->has_call_origin)
    from = arena_printf(a, "about %s, where columns count from; digits are lost with the %s of the distance from there",
                        origin_text(a, s), plan->p->degree == 1 ? "size" : "power");
  out->rows_precision = arena_printf(a,
                                     "scores in float32 within 2^-18 of the largest in their row, in 16 bits within "
                                     "2^-%d (columns split into two), %s",
                                     widen_split_bits(s), from);
}

/* Columns of a tile. */
static void explain_fused(arena *a, const plan_widen *plan, explanation *out) {
  const spec *s = plan->spec;
  out->role = "pairwise";
  out->block = "none: queries and keys are left as they are";
  out->normal_form =
      arena_printf(a,
                   "softmax in tiles of keys, scores never stored; the bias as %d column%s of a tile, "
                   "monomials of the key's position%s times coefficients of the query's",
                   plan->n_columns, plan->n_columns > 1 ? "s" : "", plan->p->n_keys ? " and inputs" : "");
  out->cost.pair_operations = 2 * (s->head_dim + s->pairwise->value_dim + plan->n_columns);
  out->rows_precision = "float32 scores within 2^-18 of the largest in their row";
}

bool explain_polynomial(arena *a, const spec *s, explanation *out) {
  pair_facts facts;
  const plan_widen *plan = plan_widen_build(a, s);
  if (!plan) return false;
  if (s->pairwise) explain_fused(a, plan, out);
  else explain_widened(a, plan, out);
  pair_facts_open(a, s, out, &facts);
  facts.bias = bias_of;
  facts.inputs = random_inputs(a, s, &facts.random);
  facts.reads = reads_text(a, s);
  facts.columns = out->columns_added;
  pair_facts_fill(&facts, out->property);
  const char *operands = explain_operands(a, s, &s->polynomial->value, 1);
  out->bias =
      arena_printf(a, "a polynomial of degree %d in the displacement, the sum of %d term%s%s%s%s%s", plan->p->degree,
                   s->polynomial->n_terms, s->polynomial->n_terms > 1 ? "s" : "", operands ? ", from " : "",
                   operands ? operands : "", facts.reads ? "; it reads " : "", facts.reads ? facts.reads : "");
  out->group = "unipotent: translations, on monomials of the position";
  out->cost.per_head = true;
  unsigned char *seen = arena_alloc(a, (size_t)expr_pool_count(s->pool));
  for (int i = 0; i < plan->values->n_prepared; i++)
    operation_count_add(&out->cost.prepared, plan->values->prepared[i], s->polynomial->n_terms, seen);
  for (int i = 0; i < plan->n_queries; i++)
    operation_count_add(&out->cost.token, plan->query[i], s->polynomial->n_terms, seen);
  out->cost.token.arithmetic +=
      2 * plan->first_product[plan->p->n_weights] * s->polynomial->n_terms + 2 * plan->n_gains;
  return true;
}
