/* verify/check_widen: scores of widened rows against the product plus the bias as it is written; see
 * verify/check_kind.h. */
#include "verify/check_kind.h"
#include "verify/trial_widen_backward.h"

#include <math.h>

enum { BATCH = 2, ANY_HEADS = 4, ANY_K_HEADS = 2, TOKENS = 21 };

/* Where tokens stand: about the description's origin, or anywhere at all where a call has its own. */
enum { NEAR, FAR, PLACES };
static const double FARTHEST = 1e5;

typedef struct sample {
  widen_shape shape;
  const double *positions[PLACES]; /* NULL: a grid; of FAR: these are not tried */
} sample;

static const double *random_positions(checker *c, int64_t tokens, double away) {
  const spec *s = c->spec;
  double *values = arena_array(c->memory, double, tokens * s->n_axes), about[SPEC_MAX_AXES];
  for (int axis = 0; axis < s->n_axes; axis++) {
    double distance = away > 0 ? random_uniform(&c->random, away / 2, away) : 0;
    about[axis] = s->polynomial->origin[axis] + (random_uniform(&c->random, -1, 1) < 0 ? -distance : distance);
  }
  for (int64_t i = 0; i < tokens * s->n_axes; i++)
    values[i] =
        about[i % s->n_axes] + (i & 1 ? random_uniform(&c->random, -7, 7) : rint(random_uniform(&c->random, -7, 7)));
  return values;
}

static const char *place_text(int place) { return place == FAR ? ", far" : ""; }

static const void *choose(checker *c) {
  const spec *s = c->spec;
  sample *t = arena_new(c->memory, sample);
  int64_t tokens = s->grid[0] ? spec_grid_tokens(s) : TOKENS + s->skip_tokens;
  t->shape =
      (widen_shape){BATCH, s->heads > 1 ? s->heads : ANY_HEADS, s->heads > 1 ? s->heads : ANY_K_HEADS, tokens, tokens};
  if (s->heads > 1 && s->heads % 2 == 0) t->shape.k_heads = s->heads / 2;
  if (!s->grid[0]) t->positions[NEAR] = random_positions(c, tokens, 0);
  if (s->polynomial->has_call_origin) t->positions[FAR] = random_positions(c, tokens, FARTHEST);
  return t;
}

static void check_scores(checker *c, number_type type, number_type input_type, int place) {
  arena *a = c->memory;
  const sample *s = c->sample;
  const char *name = number_type_info(type)->name;
  widen_trial t = widen_trial_create(a, c->spec, c->kernel, type, input_type, ROWS_BNHD, &s->shape, s->positions[place],
                                     NULL, &c->random);
  const char *what = arena_printf(a, "scores%s%s", type == input_type ? "" : ", inputs of f32", place_text(place));
  if (!check_called(c, name, what, widen_trial_call(c->kernel, &t, t.q_out, t.k_out, 3, 1))) return;
  trial_error worst = {0};
  widen_trial_compare(&t, t.q_out, t.k_out, &worst);
  check_report(c, name, what, widen_trial_bound(c->spec, type), &worst);

  DLTensor *q_out = tensor_copy(a, t.q_out), *k_out = tensor_copy(a, t.k_out);
  if (check_called(c, name, "parts", widen_trial_call(c->kernel, &t, q_out, k_out, 3, CHECK_PARTS)))
    check_report_bits(c, name, "in 3 parts and in one",
                      tensor_identical(q_out, t.q_out) && tensor_identical(k_out, t.k_out));
  for (int order = 0; order < ROW_ORDER_COUNT; order++) {
    DLTensor *q_other = tensor_like(a, t.q_out, type, (row_order)order);
    DLTensor *k_other = tensor_like(a, t.k_out, type, (row_order)order);
    widen_trial other = t;
    other.q = tensor_converted(a, t.q, type, (row_order)order, 1);
    int error = widen_trial_call(c->kernel, &other, q_other, NULL, 1, 1);
    if (!error) error = widen_trial_call(c->kernel, &other, NULL, k_other, 2, 2);
    if (!check_called(c, name, "memory orders", error)) return;
    if (!tensor_identical(q_other, t.q_out) || !tensor_identical(k_other, t.k_out)) {
      check_report_bits(c, name, "other strides, q and k apart", false);
      return;
    }
  }
  check_report_bits(c, name, "other strides, q and k apart", true);
}

/* ---- gradients ---- */

/* In parts, of each gradient alone, and added to what is there. */
static void check_gradient_bits(checker *c, const char *name, const widen_gradients *g) {
  const attention_gradients *all = &g->out;
  bool same = true, more = all->operands || all->inputs || all->positions;
  for (int alone = 0; alone < (more ? 4 : 1); alone++) {
    attention_gradients some = attention_gradients_room(c->memory, all);
    if (alone == 1) some.operands = some.inputs = NULL;
    if (alone == 2) some.positions = some.k_positions = NULL;
    if (alone == 3) some.q = some.k = NULL;
    if (!check_called(c, name, "gradients in parts", widen_gradients_call(c->kernel, g, &some, 0, CHECK_PARTS))) return;
    same = same && attention_gradients_same(all, &some);
  }
  check_report_bits(c, name, "gradients in 3 parts, and of some alone", same);
}

/* A call for all gradients that there are, or, of a GPU without, of rows alone: `explain` says so. */
static int call_for_most(checker *c, widen_gradients *g) {
  int error = widen_gradients_call(c->kernel, g, &g->out, 0, 1);
  if (error != PEGEN_ERROR_NO_GRADIENT || !c->kernel->ptx) return error;
  g->out.operands = g->out.inputs = NULL;
  g->out.positions = g->out.k_positions = NULL;
  return widen_gradients_call(c->kernel, g, &g->out, 0, 1);
}

static void check_gradients(checker *c, number_type type, number_type input_type, int place) {
  enum { SAMPLED = 3 };
  arena *a = c->memory;
  const sample *s = c->sample;
  const char *name = number_type_info(type)->name,
             *of = arena_printf(a, "%s%s", type == input_type ? "" : ", inputs of f32", place_text(place));
  widen_trial t = widen_trial_create(a, c->spec, c->kernel, type, input_type, ROWS_GAPS, &s->shape, s->positions[place],
                                     NULL, &c->random);
  widen_gradients g;
  int error = widen_gradients_fill(a, &g, &t, c->kernel, s->shape.tokens / SAMPLED + 1, ROWS_BNHD, &c->random);
  if (!error) error = call_for_most(c, &g);
  if (!check_called(c, name, "gradients", error)) return;
  attention_answer exact = widen_gradients_answer(a, &g);
  trial_error rows = {0}, inputs = {0}, operands = {0}, positions = {0};
  attention_gradients_compare(g.out.q, exact.q, exact.score, &rows);
  attention_gradients_compare(g.out.k, exact.k, exact.score, &rows);
  if (g.out.inputs) attention_gradients_compare_inputs(&g.out, &exact, &inputs);
  if (g.out.operands) attention_gradients_compare_operands(&g.out, &exact, &operands);
  if (g.out.positions) attention_gradients_compare_positions(&g.out, &exact, &positions);
  long double bound = widen_gradients_bound(type);
  check_report(c, name, arena_printf(a, "gradients of rows%s", of), bound, &rows);
  if (g.out.inputs) check_report(c, name, arena_printf(a, "gradients of inputs%s", of), bound, &inputs);
  if (g.out.operands) check_report(c, name, arena_printf(a, "gradients of operands%s", of), bound, &operands);
  if (g.out.positions) check_report(c, name, arena_printf(a, "gradients of positions%s", of), bound, &positions);
  check_gradient_bits(c, name, &g);
}

static void check_both(checker *c, number_type type, number_type input_type, int place) {
  check_scores(c, type, input_type, place);
  if (c->kernel->encode_backward) check_gradients(c, type, input_type, place);
}

static void check_type(checker *c, number_type type) {
  const sample *s = c->sample;
  check_both(c, type, type, NEAR);
  if (s->positions[FAR]) check_both(c, type, type, FAR);
  if (type != NUMBER_F32 && c->spec->n_inputs > 0) check_both(c, type, NUMBER_F32, NEAR);
}

static void run(checker *c) { check_each_type(c, check_type); }

static const char *units(const spec *s) {
  (void)s;
  return "of scores are relative to the largest of the query";
}

const check_kind check_widen = {.units = units, .choose = choose, .run = run};
