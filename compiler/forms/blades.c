/* forms/blades: rotors on blades of Cl(p,q,r), in closed form; see forms/form.h.
 *
 *   spec -> group (block program) -> plan -> program
 */
#include "algebra/block_of_four.h"
#include "algebra/dense_vectors.h"
#include "base/diag.h"
#include "forms/form.h"
#include "plan/gradient.h"
#include "plan/plan.h"
#include "program/encode.h"

#include "kernel/loop.h"

static bool is_plain(const spec *s) { return !s->basis && !s->polynomial && !s->pairwise && !s->additive; }

static bool takes(const spec *s) { return dense_is_vectors(s) || (is_plain(s) && !s->dense); }

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

/* A token's numbers, which a table may hold; -1: there are none. */
static int eval_values(program_builder *b, const plan *p, int prepared) {
  if (p->n_values == 0) return -1;
  return program_eval(b, p, p->value, p->n_values, &prepared, prepared >= 0);
}

static const program *prepare_program(arena *a, const void *of) {
  const plan *p = of;
  if (p->n_values == 0) return NULL;
  program_builder b = program_begin(a, p->spec, "prepare");
  int table = program_array_out(&b, "table", p->per_head ? IN(TOKENS) | IN(HEADS) : IN(TOKENS));
  int prepared = encode_prepared(&b, p);
  encode_for_tokens(&b, p->per_head);
  program_write(&b, table, eval_values(&b, p, prepared));
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
  encode_for_tokens(b, p->per_head);
  e.values = eval_values(b, p, prepared);
  if (e.values >= 0) program_set_tabled(b, e.values);
  return e;
}

static const program *encode_program(arena *a, const void *of) {
  const plan *p = of;
  encode_rows e = begin_encode(a, p);
  program_builder *b = &e.b;
  int matrix = program_matrix(b, p, e.blocks, e.entries, &e.values, e.values >= 0);
  program_for_rows(b);
  program_store(b, e.y, program_apply(b, matrix, program_load(b, e.x), false));
  program_end_for(b, 0);
  return b->p;
}

/* What operands gain, element by element of each leaf; it is the driver that adds it to where the leaf was read. */
static void write_operands(program_builder *b, const plan *p, const plan_gradient *g, int token, int array) {
  int depth = b->depth;
  const expr **gained = arena_array(b->memory, const expr *, g->n_scatters + 1);
  for (int i = 0; i < g->n_scatters; i++) gained[i] = g->scatter[i].gradient;
  if (p->per_head) program_for(b, SPACE_HEADS, PART_ALL);
  int sums = program_reduce(b, token, IN(TOKENS), false, g->sum);
  program_write(b, array, program_eval(b, g->leaves, gained, g->n_scatters, &sums, 1));
  program_end_for(b, depth);
}

static void write_positions(program_builder *b, const plan *p, int token, int array) {
  program_for(b, SPACE_TOKENS, p->spec->skip_tokens ? PART_ENCODED : PART_ALL);
  program_write(b, array, program_reduce(b, token, p->per_head ? IN(HEADS) : 0, true, NULL));
  program_end_for(b, 0);
}

/* Gradients of rows, operands and positions from what was written (y) or read (x): the rows of the transposed program,
 * and beside them the torques, which their token's expressions take. */
static const program *backward_program(arena *a, const plan *p, const plan_gradient *g, torque_frame frame) {
  const spec *s = p->spec;
  const expr *const *entries = (const expr *const *)p->program->matrix.entry;
  program_blocks blocks = {s->n_components, s->n_blocks, s->channel};
  program_builder b = program_begin(a, s, frame == TORQUE_OF_Y ? "encode_backward" : "encode_backward_from_x");
  int in = program_stream_in(&b, "y'", s->head_dim), out = program_stream_out(&b, "x'", s->head_dim, in);
  int kept = program_stream_in(&b, frame == TORQUE_OF_Y ? "y" : "x", s->head_dim), matrix = -1;
  unsigned of_token = p->per_head ? IN(TOKENS) | IN(HEADS) : IN(TOKENS);
  int operands = g->n_boundaries ? program_array_out(&b, "operands'", of_token & IN(HEADS)) : -1;
  int positions = g->has_positions ? program_array_out(&b, "positions'", IN(TOKENS)) : -1;
  int prepared = plan_is_sum(p) ? -1 : encode_prepared(&b, p), of_operands = -1, of_positions = -1;
  encode_copy_skipped(&b, in, out);
  encode_for_tokens(&b, p->per_head);
  int depth = b.depth;
  if (!plan_is_sum(p)) {
    int values = eval_values(&b, p, prepared);
    matrix = program_matrix(&b, p, blocks, entries, &values, values >= 0);
  }
  program_for_rows(&b);
  int gradient = program_load(&b, in), row = plan_is_sum(p) ? -1 : program_load(&b, kept), turned = gradient;
  if (!plan_is_sum(p)) turned = program_apply(&b, matrix, gradient, true);
  program_store(&b, out, turned);
  int tau = program_wedge(&b, plan_is_sum(p) ? NULL : &g->basis, blocks, g->tau, g->n_torques,
                          frame == TORQUE_OF_Y ? gradient : turned, row);
  unsigned of_rows = b.spaces & SPACES_OF_ROW & ~of_token;
  program_end_for(&b, depth);
  tau = program_reduce(&b, tau, of_rows, false, g->tau);
  if (operands >= 0) of_operands = program_eval(&b, g->token, g->of_boundary[frame], g->n_boundaries, &tau, 1);
  if (positions >= 0) of_positions = program_eval(&b, g->token, g->of_position[frame], s->n_axes, &tau, 1);
  program_end_for(&b, 0);
  if (operands >= 0) write_operands(&b, p, g, of_operands, operands);
  if (positions >= 0) write_positions(&b, p, of_positions, positions);
  return b.p;
}

/* NULL: nothing but rows has a gradient, or in this frame it is that of the other. */
static const program *backward_program_of(arena *a, const plan *p, torque_frame frame) {
  const plan_gradient *g = plan_gradient_build(a, p);
  return g && (frame == TORQUE_OF_Y || !plan_is_sum(p)) ? backward_program(a, p, g, frame) : NULL;
}

static const program *backward_of_y(arena *a, const void *of) { return backward_program_of(a, of, TORQUE_OF_Y); }

static const program *backward_of_x(arena *a, const void *of) { return backward_program_of(a, of, TORQUE_OF_X); }

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

#define GRADIENT_ENTRIES \
  .encode_backward = "pegen_driver_encode_backward", .encode_backward_finish = "pegen_driver_encode_backward_finish", \
  .encode_backward_workspace = "pegen_driver_encode_backward_workspace"

#define TABLE_ENTRIES \
  .prepare = "pegen_driver_prepare", .table_bytes = "pegen_driver_table_bytes", \
  .prepare_backward = "pegen_driver_prepare_backward", \
  .prepare_backward_finish = "pegen_driver_prepare_backward_finish", \
  .prepare_backward_workspace = "pegen_driver_prepare_backward_workspace", \
  .gradient_table_bytes = "pegen_driver_gradient_table_bytes"

#define BACKWARD_PROGRAMS \
  {"encode_backward", backward_of_y}, { "encode_backward_from_x", backward_of_x }
#define ROTOR_PROGRAMS \
  {{"encode", encode_program}, \
   {"prepare", prepare_program}, \
   {"encode_transposed", encode_program, "transpose"}, \
   BACKWARD_PROGRAMS}

const form form_additive = {
    .kind = FORM_ADDITIVE,
    .name = "additive",
    .entries = {.encode = "pegen_driver_encode", .workspace = "pegen_driver_workspace", GRADIENT_ENTRIES},
    .takes = takes_sum,
    .plan = build_sum,
    .print = print,
    .programs = {{"encode", sum_program}, {"encode_transposed", sum_program, "transpose"}, BACKWARD_PROGRAMS},
    .per_head = per_head,
    .converts = true,
};

const form form_blades = {
    .kind = FORM_BLADES,
    .name = "blades",
    .entries = {.encode = "pegen_driver_encode",
                .workspace = "pegen_driver_workspace",
                TABLE_ENTRIES,
                GRADIENT_ENTRIES},
    .takes = takes,
    .plan = build,
    .print = print,
    .programs = ROTOR_PROGRAMS,
    .per_head = per_head,
    .converts = true,
};

const form form_dense_four = {
    .kind = FORM_DENSE_FOUR,
    .name = "blades",
    .entries = {.encode = "pegen_driver_encode",
                .workspace = "pegen_driver_workspace",
                TABLE_ENTRIES,
                GRADIENT_ENTRIES},
    .takes = takes_four,
    .plan = build_four,
    .print = print,
    .programs = ROTOR_PROGRAMS,
    .per_head = per_head,
    .converts = true,
};
