/* forms/polynomial: a bias polynomial in the displacement, reproduced by columns that widen q and k; see forms/form.h.
 *
 *   spec -> polynomial (weights and shapes) -> plan/widen (columns)
 */
#include "forms/form.h"
#include "plan/widen.h"
#include "program/columns.h"
#include "program/encode.h"

#include "kernel/loop.h"

static bool takes(const spec *s) { return s->polynomial && !s->pairwise; }

static void *build(arena *a, const spec *s) { return plan_widen_build(a, s); }

static void print(FILE *out, const void *plan) { plan_widen_print(out, plan); }

/* ---- programs: of rows of float32, in which no column is split ---- */

static const expr **narrowed(const plan_widen *p, const expr **x, int count) {
  for (int i = 0; i < count; i++) x[i] = expr_unary(p->spec->pool, EXPR_NARROW, x[i]);
  return x;
}

/* A token's, which become channels of its keys. */
static int eval_keys(program_builder *b, const plan_widen *p) {
  return program_eval_once(b, p->values, narrowed(p, columns_of_keys(b->memory, p), p->n_columns), p->n_columns);
}

/* By which weights become channels of its queries: [weights][columns]. */
static int eval_gains(program_builder *b, const plan_widen *p) {
  int count = p->p->n_weights * p->n_columns;
  return program_eval_once(b, p->values, narrowed(p, columns_gains(b->memory, p), count), count);
}

static const program *encode_program(arena *a, const void *of) {
  const plan_widen *p = of;
  const spec *s = p->spec;
  const widen_layout *l = &p->layout[NUMBER_F32];
  const int *of_query = columns_of_lanes(a, l, true), *of_key = columns_of_lanes(a, l, false);
  program_builder b = program_begin(a, s, "encode");
  int x = program_stream_in(&b, "x", s->head_dim), y = program_stream_out(&b, "y", l->out_dim, -1);
  int prepared = encode_prepared(&b, p->values);
  if (encode_for_skipped(&b))
    program_store(&b, y, program_columns(&b, p, program_load(&b, x), -1, -1, of_key, l->n_lanes));
  program_end_for(&b, 0);
  encode_for_tokens(&b, false);
  int keys = eval_keys(&b, p), gains = eval_gains(&b, p), token = b.depth;
  for (int tensor = PART_Q; tensor <= PART_K; tensor++) {
    program_for(&b, SPACE_TENSORS, (program_part)tensor);
    program_for_rows(&b);
    int row = program_load(&b, x);
    if (tensor == PART_K) row = program_columns(&b, p, row, keys, -1, of_key, l->n_lanes);
    else row = program_columns(&b, p, row, columns_sum_weights(&b, p, prepared), gains, of_query, l->n_lanes);
    program_store(&b, y, row);
    program_end_for(&b, token);
  }
  program_end_for(&b, 0);
  return b.p;
}

static const program *backward_program(arena *a, const void *of) { return columns_backward(a, of); }

static int per_head(const void *of) {
  const plan_widen *p = of;
  return p->values->per_head ? PEGEN_PER_HEAD_QUERIES : PEGEN_PER_HEAD_NONE;
}

static int out_dim(arena *a, const void *of, int dtype, const char ***columns) {
  const plan_widen *p = of;
  const widen_layout *l = &p->layout[dtype];
  *columns = arena_array(a, const char *, l->n_lanes + 1);
  for (int i = 0; i < l->n_lanes; i++) (*columns)[i] = plan_widen_lane_text(a, p, l, i);
  return l->out_dim;
}

const form form_polynomial = {
    .kind = FORM_POLYNOMIAL,
    .name = "polynomial",
    .entries = {.encode = "pegen_driver_widen",
                .workspace = "pegen_driver_workspace",
                .encode_backward = "pegen_driver_widen_backward",
                .encode_backward_finish = "pegen_driver_widen_backward_finish",
                .encode_backward_workspace = "pegen_driver_widen_backward_workspace"},
    .takes = takes,
    .plan = build,
    .print = print,
    .programs = {{"encode", encode_program}, {"encode_backward", backward_program}},
    .per_head = per_head,
    .out_dim = out_dim,
};
