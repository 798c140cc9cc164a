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

static void *build(arena *a, const spec *s) {
  attention_plan *p = attention_plan_build(a, s);
  if (p && p->rows && !(p->turned = form_blades.plan(a, p->rows))) return NULL;
  return p;
}

static void print(FILE *out, const void *plan) { attention_plan_print(out, plan); }

/* ---- programs: what is computed of pairs, whatever a tile makes of it ---- */

typedef struct attention_rows {
  int q, k, v, out;
} attention_rows;

/* A pair's bias as the description has it, of a polynomial the sum of its terms; -1: there is none. */
static int eval_bias(program_builder *b, const spec *s) {
  const expr **bias = arena_array(b->memory, const expr *, 1);
  const expr *value = s->polynomial ? s->polynomial->value : s->pairwise->bias;
  if (!value) return -1;
  bias[0] = expr_unary(s->pool, EXPR_NARROW, value);
  return s->polynomial ? program_sum(b, program_eval(b, NULL, bias, 1, NULL, 0)) : program_eval_once(b, NULL, bias, 1);
}

/* The score that is a function of the product. */
static int eval_score(program_builder *b, const spec *s, int product) {
  const expr **score = arena_array(b->memory, const expr *, 1);
  program_name_score(b, product, expr_position(s->pool, SPEC_OF_SCORE));
  score[0] = expr_unary(s->pool, EXPR_NARROW, s->pairwise->score);
  return program_eval_once_of(b, score, 1, &product, 1);
}

/* Scores and values of a part of the keys, with what the description says of pairs or without. */
static void for_keys(program_builder *b, const attention_plan *p, const attention_rows *rows, int query,
                     program_part part, bool placed, int *score_and_row) {
  const spec *s = p->spec;
  int depth = b->depth, key, bias = -1, matrix = -1;
  program_for(b, SPACE_KEYS, part);
  key = program_load(b, rows->k);
  if (placed && p->matrix) {
    program_blocks blocks = {s->n_components, s->n_blocks, s->channel};
    matrix = program_matrix(b, NULL, blocks, (const expr *const *)p->matrix, NULL, 0);
    key = program_apply(b, matrix, key, false);
  }
  if (placed) bias = eval_bias(b, s);
  score_and_row[0] = program_score(b, query, key, bias, s->polynomial);
  if (placed && s->pairwise->score) score_and_row[0] = eval_score(b, s, score_and_row[0]);
  score_and_row[1] = program_load(b, rows->v);
  if (placed && p->turns_values) score_and_row[1] = program_apply(b, matrix, score_and_row[1], false);
  program_end_for(b, depth);
}

/* Queries and keys at the front may be of no place: their scores are products alone. */
static const program *attention_program(arena *a, const void *of) {
  const attention_plan *p = of;
  const spec *s = p->spec;
  program_builder b = program_begin(a, s, "attention");
  attention_rows rows = {program_stream_of(&b, "q", s->head_dim, SPACES_OF_QUERY, false),
                         program_stream_of(&b, "k", s->head_dim, SPACES_OF_KEY, false),
                         program_stream_of(&b, "v", p->value_dim, SPACES_OF_KEY, false),
                         program_stream_of(&b, "out", p->value_dim, SPACES_OF_QUERY, true)};
  program_for(&b, SPACE_BATCHES, PART_ALL);
  program_for(&b, SPACE_HEADS, PART_ALL);
  for (int part = s->skip_tokens ? PART_SKIPPED : PART_ENCODED; part <= PART_ENCODED; part++) {
    int depth = b.depth, made[4];
    bool split = part == PART_ENCODED && s->skip_tokens;
    program_for(&b, SPACE_TOKENS, s->skip_tokens ? (program_part)part : PART_ALL);
    int query = program_load(&b, rows.q);
    if (split) for_keys(&b, p, &rows, query, PART_SKIPPED, false, made + 2);
    for_keys(&b, p, &rows, query, split ? PART_ENCODED : PART_ALL, part == PART_ENCODED, made);
    program_store(&b, rows.out, program_attend(&b, made, 1 + split));
    program_end_for(&b, depth);
  }
  program_end_for(&b, 0);
  return b.p;
}

static int per_head(const void *of) {
  const attention_plan *p = of;
  return !p->per_head ? PEGEN_PER_HEAD_NONE : p->columns ? PEGEN_PER_HEAD_QUERIES : PEGEN_PER_HEAD_ALL;
}

const form form_attention = {
    .kind = FORM_ATTENTION,
    .name = "attention",
    .entries = {.attention = "pegen_driver_attention",
                .workspace = "pegen_driver_workspace",
                .attention_finish = "pegen_driver_attention_finish",
                .attention_workspace = "pegen_driver_attention_workspace",
                .attention_backward = "pegen_driver_attention_backward",
                .attention_backward_finish = "pegen_driver_attention_backward_finish",
                .attention_backward_workspace = "pegen_driver_attention_backward_workspace",
                .attention_tangent = "pegen_driver_attention_tangent"},
    .takes = takes,
    .plan = build,
    .print = print,
    .programs = {{"attention", attention_program}},
    .per_head = per_head,
};
