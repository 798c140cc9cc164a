/* program/backward: see program/backward.h. */
#include "program/backward.h"

#include "program/encode.h"

/* A program under way. */
typedef struct backward {
  program_builder b;
  const plan *plan;
  const plan_gradient *of;
  torque_frame frame;
  backward_way way;
  unsigned of_token; /* the spaces of what tokens have */
  int operands, positions, torques; /* arrays; -1: none */
} backward;

/* Names of entries [way][frame]. */
static const char *const words[][2] = {{"encode_backward", "encode_backward_from_x"},
                                       {"encode_backward_by_table", "encode_backward_by_table_from_x"},
                                       {"prepare_backward", "prepare_backward_from_x"}};

/* The rows of the token at hand; its torques, those of all of them. */
static int turn_rows(backward *w, int in, int kept, int out, int prepared) {
  program_builder *b = &w->b;
  const plan *p = w->plan;
  const spec *s = p->spec;
  program_blocks blocks = {s->n_components, s->n_blocks, s->channel};
  bool is_sum = plan_is_sum(p);
  int depth = b->depth, matrix = -1;
  if (!is_sum) {
    int values = encode_values(b, p, prepared);
    if (w->way == BACKWARD_TO_TABLE && values >= 0) program_set_tabled(b, values);
    matrix = program_matrix(b, p, blocks, (const expr *const *)p->program->matrix.entry, &values, values >= 0);
  }
  program_for_rows(b);
  int gradient = program_load(b, in), row = is_sum ? -1 : program_load(b, kept), turned = gradient;
  if (!is_sum) turned = program_apply(b, matrix, gradient, true);
  program_store(b, out, turned);
  int tau = program_wedge(b, is_sum ? NULL : &w->of->basis, blocks, w->of->tau, w->of->n_torques,
                          w->frame == TORQUE_OF_Y ? gradient : turned, row);
  unsigned of_rows = b->spaces & SPACES_OF_ROW & ~w->of_token;
  program_end_for(b, depth);
  return program_reduce(b, tau, of_rows, false, w->of->tau);
}

/* What operands gain, element by element of each leaf; it is the driver that adds it to where the leaf was read. */
static void write_operands(backward *w, int token) {
  program_builder *b = &w->b;
  const plan_gradient *g = w->of;
  int depth = b->depth;
  const expr **gained = arena_array(b->memory, const expr *, g->n_scatters + 1);
  for (int i = 0; i < g->n_scatters; i++) gained[i] = g->scatter[i].gradient;
  if (w->plan->per_head) program_for(b, SPACE_HEADS, PART_ALL);
  int sums = program_reduce(b, token, IN(TOKENS), false, g->sum);
  program_write(b, w->operands, program_eval(b, g->leaves, gained, g->n_scatters, &sums, 1));
  program_end_for(b, depth);
}

static void write_positions(backward *w, int token) {
  program_for(&w->b, SPACE_TOKENS, w->plan->spec->skip_tokens ? PART_ENCODED : PART_ALL);
  program_write(&w->b, w->positions, program_reduce(&w->b, token, w->plan->per_head ? IN(HEADS) : 0, true, NULL));
  program_end_for(&w->b, 0);
}

static backward begin(arena *a, const plan *p, const plan_gradient *g, torque_frame frame, backward_way way) {
  return (backward){.b = program_begin(a, p->spec, words[way][frame == TORQUE_OF_X]),
                    .plan = p,
                    .of = g,
                    .frame = frame,
                    .way = way,
                    .of_token = p->per_head ? IN(TOKENS) | IN(HEADS) : IN(TOKENS),
                    .operands = -1,
                    .positions = -1,
                    .torques = -1};
}

/* What a token's torques give. */
static void write_gains(backward *w, int tau) {
  program_builder *b = &w->b;
  const plan_gradient *g = w->of;
  int of_operands = -1, of_positions = -1;
  if (w->operands >= 0) of_operands = program_eval(b, g->token, g->of_boundary[w->frame], g->n_boundaries, &tau, 1);
  if (w->positions >= 0)
    of_positions = program_eval(b, g->token, g->of_position[w->frame], w->plan->spec->n_axes, &tau, 1);
  program_end_for(b, 0);
  if (w->operands >= 0) write_operands(w, of_operands);
  if (w->positions >= 0) write_positions(w, of_positions);
}

static void add_gains(backward *w) {
  if (w->of->n_boundaries) w->operands = program_array_out(&w->b, "operands'", w->of_token & IN(HEADS));
  if (w->of->has_positions) w->positions = program_array_out(&w->b, "positions'", IN(TOKENS));
}

static const program *from_table(backward *w) {
  program_builder *b = &w->b;
  w->torques = program_array_in(b, "torques", w->of_token);
  add_gains(w);
  encode_for_tokens(b, w->plan->per_head);
  write_gains(w, program_read(b, w->torques, w->plan->spec->n_blocks, w->of->tau, w->of->n_torques, NUMBER_F64));
  return b->p;
}

const program *backward_build(arena *a, const plan *p, const plan_gradient *g, torque_frame frame, backward_way way) {
  backward w = begin(a, p, g, frame, way);
  program_builder *b = &w.b;
  if (way == BACKWARD_FROM_TABLE) return from_table(&w);
  int in = program_stream_in(b, "y'", p->spec->head_dim), out = program_stream_out(b, "x'", p->spec->head_dim, in);
  int kept = program_stream_in(b, frame == TORQUE_OF_Y ? "y" : "x", p->spec->head_dim);
  if (way == BACKWARD_TO_TABLE) w.torques = program_array_out(b, "torques", w.of_token);
  else add_gains(&w);
  int prepared = plan_is_sum(p) ? -1 : encode_prepared(b, p);
  encode_copy_skipped(b, in, out);
  encode_for_tokens(b, p->per_head);
  int tau = turn_rows(&w, in, kept, out, prepared);
  if (way == BACKWARD_AT_ONCE) write_gains(&w, tau);
  else program_write(b, w.torques, tau);
  program_end_for(b, 0);
  return b->p;
}
