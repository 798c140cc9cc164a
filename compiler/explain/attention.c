/* explain/attention: what is known of attention with a function of the displacement in it. */
#include "explain/explain.h"
#include "explain/mask.h"
#include "explain/pair_facts.h"
#include "explain/words.h"
#include "gpu/attention_backward.h"
#include "gpu/mma.h"
#include "gpu/target.h"
#include "spec/expr_facts.h"

static long double bias_of(const pair_facts *f, int head, const double *delta) {
  expr_environment env = {
      .head = head, .blocks = expr_pool_blocks(f->spec->pool), .positions = delta, .operands = f->operands.values};
  return expr_eval_long(f->spec->pairwise->bias, &env);
}

/* What a score adds to a product of 0, which is what there is of it that is a function of positions alone. */
static long double score_of(const pair_facts *f, int head, const double *delta) {
  double at[SPEC_MAX_PLACES] = {0};
  for (int axis = 0; axis < f->spec->n_axes; axis++) at[axis] = delta[axis];
  expr_environment env = {.head = head,
                          .blocks = expr_pool_blocks(f->spec->pool),
                          .positions = at,
                          .operands = f->operands.values,
                          .inputs = f->operands.values + f->spec->n_operands};
  return expr_eval_long(f->spec->pairwise->score, &env);
}

static const char *score_text(arena *a, const spec *s) {
  const expr *score = s->pairwise->score;
  const char *operands = explain_sources(a, s, &score, 1), *text = "";
  const struct {
    bool is_read;
    const char *name;
  } parts[] = {{expr_reads_places(score, SPEC_OF_SCORE, SPEC_OF_SCORE + 1),
                s->polynomial ? "scale (q . k + bias)" : "the product scale q . k"},
               {expr_reads_places(score, 0, s->n_axes), "the displacement"},
               {expr_reads_places(score, SPEC_OF_QUERY, SPEC_OF_QUERY + 1), "the query's index"},
               {expr_reads_places(score, SPEC_OF_KEY, SPEC_OF_KEY + 1), "the key's index"}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (parts[i].is_read) text = arena_printf(a, "%s%s%s", text, *text ? ", " : "", parts[i].name);
  return arena_printf(a, "a function of %s%s%s%s", *text ? text : "nothing",
                      score->depends & DEPENDS_HEAD ? ", another in each head" : "", operands ? ", from " : "",
                      operands ? operands : "");
}

static const char *bias_text(arena *a, const spec *s) {
  const expr *bias = s->pairwise->bias;
  const char *operands = explain_operands(a, s, &bias, 1);
  return arena_printf(a, "a function of the displacement%s%s%s",
                      bias->depends & DEPENDS_HEAD ? ", another in each head" : "", operands ? ", from " : "",
                      operands ? operands : "");
}

static const char *sink_text(arena *a, const spec *s) {
  const expr *sink = s->pairwise->sink;
  const char *operands = sink ? explain_operands(a, s, &sink, 1) : NULL;
  if (!sink) return "";
  return arena_printf(a, "; a sink, one score more in a row's softmax whose value is 0%s%s%s",
                      sink->depends & DEPENDS_HEAD ? ", another in each head" : "", operands ? ", from " : "",
                      operands ? operands : "");
}

/* Operations of all blocks: those that make their rotations, and those that rotate a row. */
static int entry_operations(arena *a, const attention_plan *p) {
  unsigned char *seen = arena_alloc(a, (size_t)expr_pool_count(p->spec->pool));
  operation_count count = {0};
  for (int i = 0; i < p->n_entries; i++) operation_count_add(&count, p->entry[i], p->spec->n_blocks, seen);
  return operation_count_all(&count);
}

static int turn_operations(const attention_plan *p) {
  return 2 * (p->mirror ? 2 * p->spec->n_components : p->n_coefficients) * p->spec->n_blocks;
}

/* Scores and sums of values, and what the description adds to them. */
static int pair_operations(arena *a, const attention_plan *p) {
  unsigned char *seen = arena_alloc(a, (size_t)expr_pool_count(p->spec->pool));
  operation_count count = {0};
  if (p->bias) operation_count_add(&count, p->bias, 1, seen);
  if (p->score) operation_count_add(&count, p->score, 1, seen);
  int rotations = p->rows ? 0 : turn_operations(p) + entry_operations(a, p);
  return 2 * p->spec->head_dim + 2 * p->value_dim + rotations + operation_count_all(&count);
}

/* Operations of bias channels: a key's channels times a query's, and then monomials of the displacement. */
static int column_operations(const attention_plan *p) {
  int count = p->columns ? 2 * p->columns->n_columns : 0;
  for (int w = 0; p->weights && w < p->columns->p->n_weights; w++)
    for (int i = 0; i < p->columns->p->weight[w].n_monomials; i++)
      count += 1 + monomial_degree(&p->columns->p->weight[w].monomial[i]);
  return count;
}

/* What GPUs with 64 KiB of shared memory have no code for; NULL: nothing. Others have more. */
static const char *on_gpus(arena *a, const attention_plan *p) {
  const mma_plan *plan[MMA_KIND_COUNT];
  for (int kind = 0; kind < MMA_KIND_COUNT; kind++)
    plan[kind] = mma_plan_of(a, p, gpu_target_find("sm_75"), &mma_simt, (mma_kind)kind);
  if (!plan[MMA_QUERIES] || !plan[MMA_KEYS])
    return "on GPUs with 64 KiB of shared memory: none; rows are too long for it";
  if ((p->n_sums || p->weights || attend_gaining_of_pairs(p)) && !plan[MMA_QUERIES_GAINS])
    return "on GPUs with 64 KiB of shared memory: of q, k and v alone; what else gains has no room in it";
  if (p->weights && !attend_weights_fit(p))
    return "on GPUs: none of inputs and operands; what a polynomial's weights gain does not fit in their shared memory";
  if (p->torques && p->torques->n_scatters && !attend_turning_operands(p))
    return "on GPUs: none of operands that rotate pairs; they are read at computed places";
  return NULL;
}

/* Scores are made again, and five products in place of two, each as wide as its rows; rotations, too, once more for
 * what queries and keys gain. */
static void explain_attention_gradients(arena *a, const spec *s, const attention_plan *p, explain_gradient *out) {
  out->has_rows = true;
  out->missing = on_gpus(a, p);
  operation_count count = {0};
  unsigned char *seen = arena_alloc(a, (size_t)expr_pool_count(s->pool));
  for (int i = 0; i < p->n_scatters; i++) operation_count_add(&count, p->scatter[i].gradient, 1, seen);
  out->of_operands = p->first_sink + p->n_sinks > 0 || (p->weights && p->weights->n_scatters > 0);
  if (p->gain) operation_count_add(&count, p->gain, 1, seen);
  out->of_positions = p->has_places;
  out->of_inputs = (p->weights && s->n_inputs > 0) || p->sums_inputs;
  out->pair_operations = pair_operations(a, p) + 2 * (2 * s->head_dim + p->value_dim) + operation_count_all(&count) +
                         p->n_scatters + column_operations(p);
  if (p->matrix)
    out->pair_operations += (p->rows ? 3 : 2) * turn_operations(p) + (p->rows ? 2 : 1) * entry_operations(a, p);
  out->key_bytes = (int)sizeof(float) * (attention_pitch(s->head_dim) + attention_pitch(p->value_dim));
}

/* What a kernel makes of pairs, and why no less. */
static const char *normal_form(arena *a, const attention_plan *p) {
  const char *rotations = "";
  if (p->rows)
    rotations = "; R(s - r) = R(r)^-1 R(s): processors turn rows of q and k once each, at their own positions";
  if (p->rows && !p->spec->skip_tokens) rotations = arena_printf(a, "%s, as GPUs do", rotations);
  if (p->turns_values)
    rotations = "; R(s - r) = R(r)^-1 R(s): rows of q, k and v are turned once each, at their own positions, and "
                "outputs back; what turns them has no gradient";
  if (p->stays) rotations = arena_printf(a, "; rotated pair by pair: %s", p->stays);
  const char *grid = "";
  if (p->by_rows && !p->rows) grid = "; pair functions tabulated along the grid's last axis";
  if (p->wants_grid) grid = "; on a grid of tokens that is built in (-D grid=14,14) pair functions would be tabulated";
  return arena_printf(a, "softmax in tiles of keys, scores never stored%s%s", grid, rotations);
}

/* Beside what is told of the bias: the score that is a function of it. */
static bool explain_score_of_columns(arena *a, const spec *s, const attention_plan *p, explanation *out) {
  operation_count count = {0};
  operation_count_add(&count, p->score, 1, arena_alloc(a, (size_t)expr_pool_count(s->pool)));
  out->score = score_text(a, s);
  out->group = arena_printf(a, "%s; and a score that is a function of the sum and of the pair", out->group);
  out->normal_form = arena_printf(a, "%s%s", out->normal_form, explain_mask(a, s, p));
  out->cost.pair_operations += operation_count_all(&count);
  return true;
}

bool explain_attention(arena *a, const spec *s, explanation *out) {
  if (s->polynomial) {
    const attention_plan *columns = attention_plan_build(a, s);
    if (!columns) return false;
    explain_attention_gradients(a, s, columns, &out->gradient);
    return explain_polynomial(a, s, out) && (!s->pairwise->score || explain_score_of_columns(a, s, columns, out));
  }
  pair_facts facts;
  const attention_plan *plan = attention_plan_build(a, s);
  if (!plan) return false;
  pair_facts_open(a, s, out, &facts);
  facts.rotates = s->pairwise->rotates;
  const expr *score = s->pairwise->score;
  facts.bias = s->pairwise->bias ? bias_of : score && expr_reads_places(score, 0, s->n_axes) ? score_of : NULL;
  pair_facts_fill(&facts, out->property);
  out->role = "pairwise";
  out->block = "none: queries and keys are left as they are";
  if (facts.rotates) {
    explain_blocks(a, s, out);
    out->block = explain_blades_text(a, s);
    for (int axis = 0; axis < s->n_axes; axis++) out->generator[axis] = explain_generator(a, s, axis);
  }
  if (score) out->score = score_text(a, s);
  if (s->pairwise->bias) out->bias = bias_text(a, s);
  out->group = !facts.rotates && score         ? "pairwise: a function of the product and of the pair"
               : !facts.rotates && !facts.bias ? "trivial: positions act on nothing"
               : facts.rotates                 ? "pairwise: a rotation of the key by its displacement"
                                               : "pairwise: a bias of the displacement";
  const char *form = normal_form(a, plan), *mask = explain_mask(a, s, plan);
  out->normal_form = arena_printf(a, "%s%s%s", form, mask, sink_text(a, s));
  out->cost.pair_operations = pair_operations(a, plan);
  explain_attention_gradients(a, s, plan, &out->gradient);
  out->rows_precision = "float32 scores within 2^-18 of the largest in their row";
  return true;
}
