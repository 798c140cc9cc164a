/* forms/change_of_basis: a change of basis of the whole head before its blocks turn; see forms/form.h.
 *
 *   spec -> plan_basis (a block program) -> program; driver: kernel/dense.c
 */
#include "plan/change_of_basis.h"
#include "forms/form.h"
#include "program/encode.h"

#include "kernel/loop.h"

static bool takes(const spec *s) { return plan_basis_takes(s) && !s->polynomial && !s->pairwise && !s->additive; }

static void *build(arena *a, const spec *s) { return plan_basis_build(a, s); }

static void print(FILE *out, const void *plan) { plan_basis_print(out, plan); }

static int per_head(const void *of) {
  const plan_basis *p = of;
  return p->per_head ? PEGEN_PER_HEAD_ALL : PEGEN_PER_HEAD_NONE;
}

/* ---- programs ---- */

static bool heads_change(const plan_basis *p) { return p->spec->basis->matrix.n_heads > 1; }

/* The change of basis itself, once a call (and head). */
static int change(program_builder *b, const plan_basis *p) {
  program_skew skew = {.source = SOURCE_CAYLEY, .count = 1, .of = &p->spec->basis->matrix, .factor = 1};
  int depth = b->depth, n = p->spec->head_dim, *channel = arena_array(b->memory, int, n);
  for (int i = 0; i < n; i++) channel[i] = i;
  if (heads_change(p)) program_for(b, SPACE_HEADS, PART_ALL);
  int made = program_skew_matrix(b, p->turns, (program_blocks){n, 1, channel}, skew, -1);
  program_end_for(b, depth);
  return made;
}

static int turns(program_builder *b, const plan_basis *p, int prepared) {
  const spec *s = p->spec;
  const expr *const *entries = (const expr *const *)p->turns->program->matrix.entry;
  return program_matrix(b, p->turns, (program_blocks){s->n_components, s->n_blocks, s->channel}, entries, &prepared,
                        prepared >= 0);
}

/* A row through C and then R, or through their transposes to turn back: the plan's R is then the inverse's transpose.
 * turns -1: of a token that is skipped, which has C alone. */
static void store_applied(program_builder *b, int x, int y, int change, int turns) {
  int row = program_load(b, x);
  bool back = b->p->spec->inverse;
  if (!back) row = program_apply(b, change, row, false);
  if (turns >= 0) row = program_apply(b, turns, row, back);
  if (back) row = program_apply(b, change, row, true);
  program_store(b, y, row);
}

static const program *prepare_program(arena *a, const void *of) {
  const plan_basis *p = of;
  program_builder b = program_begin(a, p->spec, "prepare");
  int table = program_array_out(&b, "table", p->per_head ? IN(TOKENS) | IN(HEADS) : IN(TOKENS));
  int prepared = encode_prepared(&b, p->turns), changed = change(&b, p);
  if (p->spec->skip_tokens > 0) {
    program_for(&b, SPACE_TOKENS, PART_SKIPPED);
    if (p->per_head) program_for(&b, SPACE_HEADS, PART_ALL);
    program_write(&b, table, changed);
    program_end_for(&b, 0);
  }
  encode_for_tokens(&b, p->per_head);
  program_write(&b, table, program_product(&b, turns(&b, p, prepared), changed));
  program_end_for(&b, 0);
  return b.p;
}

static const program *encode_program(arena *a, const void *of) {
  const plan_basis *p = of;
  const spec *s = p->spec;
  program_builder b = program_begin(a, s, "encode");
  int x = program_stream_in(&b, "x", s->head_dim), y = program_stream_out(&b, "y", s->head_dim, x);
  int prepared = encode_prepared(&b, p->turns), changed = change(&b, p);
  if (encode_for_skipped(&b)) store_applied(&b, x, y, changed, -1);
  program_end_for(&b, 0);
  encode_for_tokens(&b, p->per_head);
  int turned = turns(&b, p, prepared);
  program_for_rows(&b);
  store_applied(&b, x, y, changed, turned);
  program_end_for(&b, 0);
  return b.p;
}

const form form_change_of_basis = {
    .kind = FORM_CHANGE_OF_BASIS,
    .name = "dense",
    .entries = {FORM_DENSE_ENTRIES},
    .takes = takes,
    .plan = build,
    .print = print,
    .programs = FORM_DENSE_PROGRAMS(encode_program, prepare_program),
    .per_head = per_head,
};
