/* forms/parts: a head whose channels are shared by blocks of several kinds; see forms/form.h.
 *
 * Each part goes to a plan by itself, as a description that has all the head does. What is one is the program: a
 * token's numbers and matrices are those of all parts, and a row passes through the parts' matrices one after the
 * other, each of which leaves the others' channels as they are.
 */
#include "algebra/block.h"
#include "forms/form.h"
#include "plan/plan.h"
#include "program/encode.h"

#include "kernel/loop.h"

static bool takes(const spec *s) { return s->n_parts > 0; }

/* For threads, or, where that is another closed form, as processors have it. */
static plan *build_part(arena *a, const spec_part *part, bool for_threads) {
  block_program *program = arena_new(a, block_program);
  if (!block_build(a, part->of, program)) return NULL;
  if (!for_threads) block_build_quaternions(a, part->of, program);
  plan *p = plan_build(a, program);
  p->part = part;
  return p;
}

/* Channels of no part go with the part behind them, the last ones with the last. */
static void share_channels(plan_row *row) {
  int begin = 0;
  for (int i = 0; i < row->n_parts; i++) {
    const spec_part *part = &row->spec->part[i];
    row->part[i]->begin = begin;
    begin = row->part[i]->end = i + 1 < row->n_parts ? part->first + part->count : row->spec->head_dim;
  }
}

static plan_row *build_row(arena *a, const spec *s, bool for_threads) {
  plan_row *row = arena_new(a, plan_row);
  *row = (plan_row){.spec = s, .n_parts = s->n_parts};
  int lanes = 0;
  bool per_head = false;
  for (int i = 0; i < s->n_parts; i++) {
    const plan *p = row->part[i] = build_part(a, &s->part[i], for_threads);
    if (!p) return NULL;
    if (p->lanes > lanes) lanes = p->lanes;
    per_head = per_head || p->per_head;
  }
  for (int i = 0; i < s->n_parts; i++) {
    row->part[i]->lanes = lanes;
    row->part[i]->per_head = per_head;
  }
  share_channels(row);
  return row;
}

static void *build(arena *a, const spec *s) {
  plan_row *row = build_row(a, s, false);
  if (row) row->for_threads = build_row(a, s, true);
  return row;
}

/* ---- programs ---- */

static const program *encode_program(arena *a, const void *of) {
  const plan_row *row = of;
  int prepared[SPEC_MAX_PARTS], values[SPEC_MAX_PARTS], matrix[SPEC_MAX_PARTS];
  program_builder begun = program_begin(a, row->spec, "encode"), *b = &begun;
  int x = program_stream_in(b, "x", row->spec->head_dim), y = program_stream_out(b, "y", row->spec->head_dim, x);
  for (int i = 0; i < row->n_parts; i++) prepared[i] = encode_prepared(b, row->part[i]);
  encode_copy_skipped(b, x, y);
  encode_for_tokens(b, row->part[0]->per_head);
  for (int i = 0; i < row->n_parts; i++) {
    values[i] = encode_values(b, row->part[i], prepared[i]);
    if (values[i] >= 0) program_set_tabled(b, values[i]);
  }
  for (int i = 0; i < row->n_parts; i++) {
    const plan *p = row->part[i];
    const expr *const *entries = (const expr *const *)p->program->matrix.entry;
    matrix[i] = program_matrix(b, p, encode_blocks(p), entries, &values[i], values[i] >= 0);
  }
  program_for_rows(b);
  int turned = program_load(b, x);
  for (int i = 0; i < row->n_parts; i++) turned = encode_mapped(b, row->part[i], turned);
  for (int i = 0; i < row->n_parts; i++) turned = program_apply(b, matrix[i], turned, false);
  program_store(b, y, turned);
  program_end_for(b, 0);
  return b->p;
}

/* A table has a row of each part's numbers. */
static const program *prepare_program(arena *a, const void *of) {
  const plan_row *row = of;
  int prepared[SPEC_MAX_PARTS], table[SPEC_MAX_PARTS];
  bool per_head = row->part[0]->per_head, some = false;
  program_builder b = program_begin(a, row->spec, "prepare");
  for (int i = 0; i < row->n_parts; i++) {
    if (row->part[i]->n_values == 0) continue;
    some = true;
    const char *name = arena_printf(a, "table_%d", i + 1);
    table[i] = program_array_out(&b, name, per_head ? IN(TOKENS) | IN(HEADS) : IN(TOKENS));
    prepared[i] = encode_prepared(&b, row->part[i]);
  }
  if (!some) return NULL;
  encode_for_tokens(&b, per_head);
  for (int i = 0; i < row->n_parts; i++)
    if (row->part[i]->n_values > 0) program_write(&b, table[i], encode_values(&b, row->part[i], prepared[i]));
  program_end_for(&b, 0);
  return b.p;
}

static const program *rows_backward(arena *a, const void *of) { return backward_build_rows(a, encode_program(a, of)); }

/* NULL: nothing but rows has a gradient, or, where what was read is needed, none in this frame. */
static const program *backward_program(arena *a, const void *of, torque_frame frame, backward_way way) {
  const plan_row *row = of;
  const plan *const *plans = (const plan *const *)row->part;
  const plan_gradient_row *g = plan_gradient_build_row(a, plans, row->n_parts);
  if (frame == TORQUE_OF_Y && spec_needs_input(row->spec)) return NULL;
  return g ? backward_build_row(a, row->spec, plans, g, frame, way) : NULL;
}

static void print(FILE *out, const void *of) {
  const plan_row *row = of;
  for (int i = 0; i < row->n_parts; i++) {
    if (i) fputc('\n', out);
    plan_print(out, row->part[i]);
  }
}

static int per_head(const void *of) {
  const plan_row *row = of;
  return row->part[0]->per_head ? PEGEN_PER_HEAD_ALL : PEGEN_PER_HEAD_NONE;
}

const form form_parts = {
    .kind = FORM_PARTS,
    .name = "blades",
    .entries = {FORM_BLADES_ENTRIES, FORM_TABLE_ENTRIES},
    .takes = takes,
    .plan = build,
    .print = print,
    .programs = {FORM_ROTOR_PROGRAMS(encode_program, prepare_program, rows_backward, backward_program)},
    .per_head = per_head,
    .converts = true,
};
