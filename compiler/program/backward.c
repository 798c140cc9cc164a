/* program/backward: see program/backward.h. */
#include "program/backward.h"

#include "program/encode.h"
#include "program/passes.h"

/* One of the row's kinds of blocks. */
typedef struct backward_part {
  const plan *plan;
  const plan_gradient *of; /* NULL: it gives gradients of rows alone */
  int operands, positions, inputs, torques; /* arrays; -1: none */
  int prepared, matrix, tau; /* values; -1: none */
  int of_operands, of_positions;
} backward_part;

/* A program under way. */
typedef struct backward {
  program_builder b;
  int n_parts;
  backward_part part[SPEC_MAX_PARTS];
  torque_frame frame;
  backward_way way;
  bool per_head;
  unsigned of_token; /* the spaces of what tokens have */
} backward;

/* Names of entries [way][frame]. */
static const char *const words[][2] = {{"encode_backward", "encode_backward_from_x"},
                                       {"encode_backward_by_table", "encode_backward_by_table_from_x"},
                                       {"prepare_backward", "prepare_backward_from_x"},
                                       {"encode_transposed", "encode_transposed"}};

static void make_matrix(backward *w, backward_part *part) {
  program_builder *b = &w->b;
  const plan *p = part->plan;
  int values = encode_values(b, p, part->prepared);
  bool is_tabled = w->way == BACKWARD_TO_TABLE || (w->way == BACKWARD_ROWS && !p->of_rows);
  if (is_tabled && values >= 0) program_set_tabled(b, values);
  const expr *const *entries = (const expr *const *)p->program->matrix.entry;
  part->matrix = program_matrix(b, p, encode_blocks(p), entries, &values, values >= 0);
}

/* The rows of the token at hand; its torques, those of all of them. Where channels are mapped what turned was their
 * map, and the gradient of that goes on to what was read. */
static void turn_rows(backward *w, int in, int kept, int out) {
  program_builder *b = &w->b;
  bool is_sum = plan_is_sum(w->part[0].plan);
  int depth = b->depth;
  for (int i = 0; i < w->n_parts && !is_sum; i++) make_matrix(w, &w->part[i]);
  program_for_rows(b);
  int gradient = program_load(b, in), x = is_sum ? -1 : program_load(b, kept), row = x, turned = gradient;
  for (int i = 0; i < w->n_parts && w->way != BACKWARD_ROWS; i++) row = encode_mapped(b, w->part[i].plan, row);
  for (int i = 0; i < w->n_parts && !is_sum; i++) turned = program_apply(b, w->part[i].matrix, turned, true);
  int gained = turned;
  for (int i = 0; i < w->n_parts; i++) gained = encode_mapped_back(b, w->part[i].plan, x, gained);
  program_store(b, out, gained);
  for (int i = 0; i < w->n_parts; i++) {
    backward_part *part = &w->part[i];
    const plan *p = part->plan;
    if (!part->of) continue;
    int with = w->frame == TORQUE_OF_Y || torque_is_of_entries(p->spec) ? gradient : turned;
    part->tau = program_wedge(b, p->part ? p : NULL, is_sum ? NULL : &part->of->basis, encode_blocks(p), part->of->tau,
                              part->of->n_torques, with, row);
  }
  unsigned of_rows = b->spaces & SPACES_OF_ROW & ~w->of_token;
  program_end_for(b, depth);
  for (int i = 0; i < w->n_parts; i++)
    if (w->part[i].of) w->part[i].tau = program_reduce(b, w->part[i].tau, of_rows, false, w->part[i].of->tau);
}

/* What operands gain, element by element of each leaf; it is the driver that adds it to where the leaf was read. */
static void write_operands(backward *w, const backward_part *part) {
  program_builder *b = &w->b;
  const plan_gradient *g = part->of;
  int depth = b->depth;
  const expr **gained = arena_array(b->memory, const expr *, g->n_scatters + 1);
  for (int i = 0; i < g->n_scatters; i++) gained[i] = g->scatter[i].gradient;
  if (w->per_head) program_for(b, SPACE_HEADS, PART_ALL);
  unsigned of_heads = w->per_head ? IN(HEADS) : 0;
  int sums = program_reduce(b, part->of_operands, w->of_token & ~of_heads, false, g->sum);
  program_write(b, part->operands, program_eval(b, g->leaves, gained, g->n_scatters, &sums, 1));
  program_end_for(b, depth);
}

/* Writes gradients by a part's own axes; the driver adds those of all parts. */
static void write_positions(backward *w, const backward_part *part) {
  program_for(&w->b, SPACE_TOKENS, part->plan->spec->skip_tokens ? PART_ENCODED : PART_ALL);
  int gained = program_reduce(&w->b, part->of_positions, w->of_token & ~IN(TOKENS), true, NULL);
  program_write(&w->b, part->positions, gained);
  program_end_for(&w->b, 0);
}

/* What elements of a row's inputs gain, leaf by leaf; it is the driver that adds it to where the leaf was read. */
static void write_inputs(backward *w, const backward_part *part) {
  program_builder *b = &w->b;
  const plan_gradient *g = part->of;
  int count = g->n_row_inputs[w->frame];
  const expr **gained = arena_array(b->memory, const expr *, count + 1);
  for (int i = 0; i < count; i++) gained[i] = g->of_row_input[w->frame][i].gradient;
  program_write(b, part->inputs, program_eval(b, g->token, gained, count, &part->tau, 1));
}

/* What a token's torques give. */
static void write_gains(backward *w) {
  program_builder *b = &w->b;
  for (int i = 0; i < w->n_parts; i++) {
    backward_part *part = &w->part[i];
    const plan_gradient *g = part->of;
    if (part->operands >= 0)
      part->of_operands = program_eval(b, g->token, g->of_boundary[w->frame], g->n_boundaries, &part->tau, 1);
    if (part->positions >= 0)
      part->of_positions = program_eval(b, g->token, g->of_position[w->frame], part->plan->spec->n_axes, &part->tau, 1);
    if (part->inputs >= 0) write_inputs(w, part);
  }
  program_end_for(b, 0);
  for (int i = 0; i < w->n_parts; i++) {
    if (w->part[i].operands >= 0) write_operands(w, &w->part[i]);
    if (w->part[i].positions >= 0) write_positions(w, &w->part[i]);
  }
}

/* A part's own is numbered. */
static const char *name_of(const backward *w, int i, const char *name) {
  return w->part[i].plan->part ? arena_printf(w->b.memory, "%s_%d", name, i + 1) : name;
}

static int add_gain(backward *w, int i, const char *name, unsigned spaces) {
  return program_array_out(&w->b, arena_printf(w->b.memory, "%s'", name_of(w, i, name)), spaces);
}

static void add_gains(backward *w) {
  for (int i = 0; i < w->n_parts; i++) {
    backward_part *part = &w->part[i];
    const plan_gradient *g = part->of;
    if (!g) continue;
    if (g->n_boundaries) part->operands = add_gain(w, i, "operands", w->per_head ? IN(HEADS) : 0);
    if (g->has_positions) part->positions = add_gain(w, i, "positions", IN(TOKENS));
    if (g->n_row_inputs[w->frame]) part->inputs = add_gain(w, i, "inputs", w->of_token);
  }
}

static backward begin(arena *a, const spec *s, const plan *const *plans, const plan_gradient_row *of,
                      torque_frame frame, backward_way way) {
  const plan *first = plans[0];
  backward w = {.b = program_begin(a, s, words[way][frame == TORQUE_OF_X]),
                .n_parts = of->n_parts,
                .frame = frame,
                .way = way,
                .per_head = first->per_head,
                .of_token = first->of_rows    ? SPACES_OF_ROW
                            : first->per_head ? IN(TOKENS) | IN(HEADS)
                                              : IN(TOKENS)};
  for (int i = 0; i < of->n_parts; i++)
    w.part[i] = (backward_part){.plan = plans[i],
                                .of = of->part[i],
                                .operands = -1,
                                .positions = -1,
                                .inputs = -1,
                                .torques = -1,
                                .prepared = -1,
                                .matrix = -1,
                                .tau = -1};
  return w;
}

static const program *from_table(backward *w) {
  program_builder *b = &w->b;
  for (int i = 0; i < w->n_parts; i++)
    if (w->part[i].of) w->part[i].torques = program_array_in(b, name_of(w, i, "torques"), w->of_token);
  add_gains(w);
  encode_for_tokens(b, w->per_head);
  for (int i = 0; i < w->n_parts; i++) {
    backward_part *part = &w->part[i];
    const plan *p = part->plan;
    if (!part->of) continue;
    part->tau = program_read(b, p->part ? p : NULL, part->torques, p->spec->n_blocks, part->of->tau,
                             part->of->n_torques, NUMBER_F64);
  }
  write_gains(w);
  return b->p;
}

static void add_torques(backward *w) {
  for (int i = 0; i < w->n_parts; i++)
    if (w->part[i].of) w->part[i].torques = program_array_out(&w->b, name_of(w, i, "torques"), w->of_token);
}

const program *backward_build_row(arena *a, const spec *s, const plan *const *plans, const plan_gradient_row *of,
                                  torque_frame frame, backward_way way) {
  backward w = begin(a, s, plans, of, frame, way);
  program_builder *b = &w.b;
  if (way == BACKWARD_FROM_TABLE) return from_table(&w);
  int in = program_stream_in(b, "y'", s->head_dim), out = program_stream_out(b, "x'", s->head_dim, in);
  int kept = program_stream_in(b, frame == TORQUE_OF_Y ? "y" : "x", s->head_dim);
  if (way == BACKWARD_TO_TABLE) add_torques(&w);
  else add_gains(&w);
  for (int i = 0; i < w.n_parts && !plan_is_sum(plans[0]); i++) w.part[i].prepared = encode_prepared(b, plans[i]);
  encode_copy_skipped(b, in, out);
  encode_for_tokens_of(b, plans[0]);
  turn_rows(&w, in, kept, out);
  if (way == BACKWARD_AT_ONCE) write_gains(&w);
  else if (way == BACKWARD_TO_TABLE)
    for (int i = 0; i < w.n_parts; i++)
      if (w.part[i].of) program_write(b, w.part[i].torques, w.part[i].tau);
  program_end_for(b, 0);
  return b->p;
}

const program *backward_build_rows(arena *a, const program *encode) {
  const plan *plans[SPEC_MAX_PARTS];
  plan_gradient_row none = {.n_parts = program_plans(encode, plans)};
  if (!spec_maps_channels(encode->spec)) return program_run(a, encode, "transpose");
  return backward_build_row(a, encode->spec, plans, &none, TORQUE_OF_X, BACKWARD_ROWS);
}

const program *backward_build(arena *a, const plan *p, const plan_gradient *g, torque_frame frame, backward_way way) {
  return backward_build_row(a, p->spec, &p, &(plan_gradient_row){1, {g}}, frame, way);
}
