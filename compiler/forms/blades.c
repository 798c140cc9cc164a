/* forms/blades: rotors on blades of Cl(p,q,r), in closed form; see forms/form.h.
 *
 *   spec -> group (block program) -> plan -> program
 */
#include "algebra/block_of_four.h"
#include "algebra/dense_vectors.h"
#include "base/diag.h"
#include "forms/form.h"
#include "plan/plan.h"
#include "program/encode.h"

#include "kernel/loop.h"

static bool is_plain(const spec *s) { return !s->basis && !s->polynomial && !s->pairwise && !s->additive; }

static bool takes(const spec *s) { return !s->n_inputs && (dense_is_vectors(s) || (is_plain(s) && !s->dense)); }

static bool takes_inputs(const spec *s) { return spec_turns_rows(s) && is_plain(s) && !s->dense; }

static bool takes_four(const spec *s) {
  return is_plain(s) && s->dense && s->dense->map != DENSE_SCHUR && s->n_components == 4;
}

/* Processors have vectors of float64, threads of a GPU only sums of two float32, whose sines are no better than
 * float32.
 */
static void *build(arena *a, const spec *s) {
  block_program *program = arena_new(a, block_program), *quaternions = arena_new(a, block_program);
  if (s->dense) s = dense_as_vectors(a, s);
  if (!block_build(a, s, program)) return NULL;
  plan *p = plan_build(a, program);
  if (!block_build_quaternions(a, s, quaternions)) return p;
  plan *halved = plan_build(a, quaternions);
  halved->for_threads = p;
  return halved;
}

static void *build_four(arena *a, const spec *s) {
  block_program *program = arena_new(a, block_program);
  block_four_build(a, s, program);
  return plan_build(a, program);
}

/* ---- programs ---- */

static const program *prepare_program(arena *a, const void *of) {
  const plan *p = of;
  if (p->n_values == 0) return NULL;
  program_builder b = program_begin(a, p->spec, "prepare");
  int table = program_array_out(&b, "table", p->per_head ? IN(TOKENS) | IN(HEADS) : IN(TOKENS));
  int prepared = encode_prepared(&b, p);
  encode_for_tokens_of(&b, p);
  program_write(&b, table, encode_values(&b, p, prepared));
  program_end_for(&b, 0);
  return b.p;
}

/* An encode program up to the rows of tokens that are encoded. */
typedef struct encode_rows {
  program_builder b;
  int x, y, values;
  program_blocks blocks;
  const expr *const *entries;
} encode_rows;

static encode_rows begin_encode(arena *a, const plan *p) {
  const spec *s = p->spec;
  encode_rows e = {.b = program_begin(a, s, "encode"),
                   .blocks = {s->n_components, s->n_blocks, s->channel},
                   .entries = (const expr *const *)p->program->matrix.entry};
  program_builder *b = &e.b;
  e.x = program_stream_in(b, "x", s->head_dim);
  e.y = program_stream_out(b, "y", s->head_dim, e.x);
  int prepared = encode_prepared(b, p);
  encode_copy_skipped(b, e.x, e.y);
  encode_for_tokens_of(b, p);
  e.values = encode_values(b, p, prepared);
  if (e.values >= 0 && !p->of_rows) program_set_tabled(b, e.values);
  return e;
}

static const program *encode_program(arena *a, const void *of) {
  const plan *p = of;
  encode_rows e = begin_encode(a, p);
  program_builder *b = &e.b;
  int matrix = program_matrix(b, p, e.blocks, e.entries, &e.values, e.values >= 0);
  program_for_rows(b);
  program_store(b, e.y, program_apply(b, matrix, encode_mapped(b, p, program_load(b, e.x)), false));
  program_end_for(b, 0);
  return b->p;
}

static const program *rows_backward(arena *a, const void *of) { return backward_build_rows(a, encode_program(a, of)); }

/* NULL: nothing but rows has a gradient, or in this frame it is that of the other, or there is no table. */
static const program *backward_program(arena *a, const void *of, torque_frame frame, backward_way way) {
  const plan *p = of;
  const plan_gradient *g = plan_gradient_build(a, p);
  if (spec_needs_input(p->spec) && frame == TORQUE_OF_Y) return NULL;
  if (!g || (plan_is_sum(p) && (frame == TORQUE_OF_X || way != BACKWARD_AT_ONCE))) return NULL;
  return backward_build(a, p, g, frame, way);
}

static void print(FILE *out, const void *plan) { plan_print(out, plan); }

static int per_head(const void *of) {
  const plan *p = of;
  return p->per_head ? PEGEN_PER_HEAD_ALL : PEGEN_PER_HEAD_NONE;
}

/* ---- sums: blocks of one channel, whose coefficients are added ---- */

static bool takes_sum(const spec *s) { return s->additive != NULL; }

static void *build_sum(arena *a, const spec *s) {
  const expr *value = s->additive->value;
  if (!(value->depends & DEPENDS_POSITION)) {
    diag_error(s->file, s->line, "what is added does not depend on the position");
    return NULL;
  }
  spec *channels = arena_new(a, spec);
  int *channel = arena_array(a, int, s->head_dim);
  for (int i = 0; i < s->head_dim; i++) channel[i] = i;
  *channels = *s;
  channels->n_components = 1;
  channels->channel = channel;
  block_program *program = arena_new(a, block_program);
  program->spec = channels;
  program->matrix.entry = arena_array(a, const expr *, 1);
  program->matrix.entry[0] = expr_unary(s->pool, EXPR_NARROW, s->inverse ? expr_neg(s->pool, value) : value);
  return plan_build(a, program);
}

static const program *sum_program(arena *a, const void *of) {
  encode_rows e = begin_encode(a, of);
  program_builder *b = &e.b;
  int number = e.values;
  if (b->p->value[number].maker->expr[0] != e.entries[0]) /* turned back: less it */
    number = program_eval(b, of, e.entries, 1, &e.values, 1);
  program_for_rows(b);
  program_store(b, e.y, program_add(b, number, program_load(b, e.x), e.blocks));
  program_end_for(b, 0);
  return b->p;
}

const form form_additive = {
    .kind = FORM_ADDITIVE,
    .name = "additive",
    .entries = {FORM_BLADES_ENTRIES},
    .takes = takes_sum,
    .plan = build_sum,
    .print = print,
    .programs = {{"encode", sum_program},
                 {"encode_transposed", sum_program, "transpose"},
                 FORM_BACKWARD_PROGRAMS(backward_program, "encode_backward", BACKWARD_AT_ONCE)},
    .per_head = per_head,
    .converts = true,
};

#define ROTOR_FORM(is, accepts, make) \
  {.kind = is, \
   .name = "blades", \
   .entries = {FORM_BLADES_ENTRIES, FORM_TABLE_ENTRIES}, \
   .takes = accepts, \
   .plan = make, \
   .print = print, \
   .programs = {FORM_ROTOR_PROGRAMS(encode_program, prepare_program, rows_backward, backward_program)}, \
   .per_head = per_head, \
   .converts = true}
const form form_blades = ROTOR_FORM(FORM_BLADES, takes, build);
const form form_dense_four = ROTOR_FORM(FORM_DENSE_FOUR, takes_four, build_four);

/* Matrices of rows are made where rows are: there is nothing that a table could hold. */
const form form_row_blades = {
    .kind = FORM_ROW_BLADES,
    .name = "blades",
    .entries = {FORM_BLADES_ENTRIES},
    .takes = takes_inputs,
    .plan = build,
    .print = print,
    .programs = {{"encode", encode_program},
                 {"encode_transposed", rows_backward},
                 FORM_BACKWARD_PROGRAMS(backward_program, "encode_backward", BACKWARD_AT_ONCE)},
    .per_head = per_head,
    .converts = true,
};
