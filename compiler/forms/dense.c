/* forms/dense: blocks that turn by exponentials of learned skew matrices; see forms/form.h.
 *
 *   spec -> plan/dense -> program
 */
#include "plan/dense.h"
#include "forms/form.h"
#include "program/encode.h"

#include "kernel/loop.h"

static bool is_plain(const spec *s) { return s->dense && !s->basis && !s->polynomial && !s->pairwise && !s->additive; }

static bool takes_schur(const spec *s) { return is_plain(s) && s->dense->map == DENSE_SCHUR; }

static bool takes(const spec *s) { return is_plain(s) && s->dense->map != DENSE_SCHUR && s->n_components > 4; }

static void *build(arena *a, const spec *s) { return plan_dense_build(a, s); }

static void print(FILE *out, const void *plan) { plan_dense_print(out, plan); }

static int per_head(const void *of) {
  const plan_dense *p = of;
  return p->per_head ? PEGEN_PER_HEAD_ALL : PEGEN_PER_HEAD_NONE;
}

/* ---- programs ---- */

/* Skipped tokens have angles -1, and are in the basis that the others are in. */
static int matrix(program_builder *b, const plan_dense *p, int angles) {
  const spec *s = p->spec;
  program_skew skew = {.source = (program_source)(SOURCE_EXP + (int)s->dense->map),
                       .count = p->n_generators,
                       .of = p->generator,
                       .factor = angles < 0   ? 1
                                 : s->inverse ? 1 / s->amplitude
                                              : s->amplitude,
                       .in_f64 = p->is_f64,
                       .may_act = p->acts};
  return program_skew_matrix(b, p->angles, (program_blocks){s->n_components, s->n_blocks, s->channel}, skew, angles);
}

static int of_token(program_builder *b, const plan_dense *p, int prepared) {
  return matrix(b, p, program_eval(b, p->angles, p->angle, p->n_generators, &prepared, prepared >= 0));
}

static void store_applied(program_builder *b, int x, int y, int matrix) {
  program_store(b, y, program_apply(b, matrix, program_load(b, x), b->p->spec->inverse));
}

/* Where the output is in another basis than the input, that is every token's. -1: there is no such basis. */
static int of_skipped(program_builder *b, const plan_dense *p) {
  if (!p->spec->skip_tokens || p->spec->dense->map != DENSE_SCHUR) return -1;
  int depth = b->depth;
  if (p->per_head) program_for(b, SPACE_HEADS, PART_ALL);
  int made = matrix(b, p, -1);
  program_end_for(b, depth);
  return made;
}

static const program *prepare_program(arena *a, const void *of) {
  const plan_dense *p = of;
  program_builder b = program_begin(a, p->spec, "prepare");
  int table = program_array_out(&b, "table", p->per_head ? IN(TOKENS) | IN(HEADS) : IN(TOKENS));
  int prepared = encode_prepared(&b, p->angles), skipped = of_skipped(&b, p);
  if (skipped >= 0) {
    program_for(&b, SPACE_TOKENS, PART_SKIPPED);
    if (p->per_head) program_for(&b, SPACE_HEADS, PART_ALL);
    program_write(&b, table, skipped);
    program_end_for(&b, 0);
  }
  encode_for_tokens(&b, p->per_head);
  program_write(&b, table, of_token(&b, p, prepared));
  program_end_for(&b, 0);
  return b.p;
}

static const program *encode_program(arena *a, const void *of) {
  const plan_dense *p = of;
  const spec *s = p->spec;
  program_builder b = program_begin(a, s, "encode");
  int x = program_stream_in(&b, "x", s->head_dim), y = program_stream_out(&b, "y", s->head_dim, x);
  int prepared = encode_prepared(&b, p->angles), skipped = of_skipped(&b, p);
  if (skipped < 0) encode_copy_skipped(&b, x, y);
  else if (encode_for_skipped(&b)) store_applied(&b, x, y, skipped);
  program_end_for(&b, 0);
  encode_for_tokens(&b, p->per_head);
  int turned = of_token(&b, p, prepared);
  program_set_tabled(&b, turned);
  program_for_rows(&b);
  store_applied(&b, x, y, turned);
  program_end_for(&b, 0);
  return b.p;
}

#define DENSE_FORM(is, accepts) \
  {.kind = is, \
   .name = "dense", \
   .entries = {FORM_DENSE_ENTRIES}, \
   .takes = accepts, \
   .plan = build, \
   .print = print, \
   .programs = FORM_DENSE_PROGRAMS(encode_program, prepare_program), \
   .per_head = per_head}
const form form_schur = DENSE_FORM(FORM_SCHUR, takes_schur);
const form form_dense = DENSE_FORM(FORM_DENSE, takes);
