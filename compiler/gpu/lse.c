/* gpu/lse: the log-sum-exp of queries on a GPU, where the caller wants it; see gpu/attention.h, cpu/attention/queries.
 */
#include "gpu/attention.h"
#include "gpu/index.h"
#include "mlir/two_float.h"

#include "kernel/launch.h"

#include <math.h>

static const double LN_2 = 0.69314718055994530942, LOG2_E = 1.44269504088896340736;

/* The first of lse's. */
static int lse_parameter(const spec *s) {
  return pegen_ptx_behind_inputs(PEGEN_PTX_ATTENTION_OPERANDS, s->n_operands, s->n_inputs);
}

int attend_parameters(const spec *s) {
  bool of_pairs = false;
  for (int i = 0; i < s->n_inputs; i++) of_pairs = of_pairs || spec_input_is_of_pairs(s, i);
  return pegen_ptx_behind_lse(s->n_operands, s->n_inputs) + (of_pairs ? s->n_inputs : 0);
}

ir_value attend_lse_is_wanted(attend *t) {
  ir *b = t->b;
  return ir_compare_int(b, "ne", t->parameter[lse_parameter(t->p->spec) + PEGEN_PTX_ROWS_ADDRESS], i64(b, 0));
}

/* In two-float arithmetic, rounded once: beside a maximum of some hundreds the logarithm has no digits to lose. */
static ir_value lse_of(attend *t, ir_value query, ir_value maximum, ir_value sum) {
  ir *b = t->b;
  two_float most = {.hi = maximum};
  if (attend_has_constant(t->p)) {
    ir_value constant = ir_load(b, b->f32, attend_constant_at(t, query), 4);
    most = two_float_add(b, most, (two_float){.hi = constant});
  }
  two_float log = two_float_log(b, (two_float){.hi = sum});
  two_float lse = two_float_add(b, two_float_mul(b, most, two_float_const(b, LN_2)), log);
  ir_value seen = ir_compare_float(b, "une", sum, ir_float(b, b->f32, 0));
  return ir_select(b, seen, two_float_narrow(b, lse), ir_float(b, b->f32, -INFINITY));
}

void attend_store_lse(attend *t, ir_value has, ir_value query, ir_value maximum, ir_value sum) {
  ir *b = t->b;
  ir_value token = add(b, t->first, query), given = ir_op2(b, "arith.andi", has, less(b, token, t->tokens));
  ir_branch one = ir_if(b, ir_op2(b, "arith.andi", given, attend_lse_is_wanted(t)));
  attend_rows rows = attend_rows_of(t, lse_parameter(t->p->spec), t->head, 1);
  ir_value at = ir_pointer(b, add(b, rows.base, mul(b, wide(b, token), rows.stride)));
  ir_store(b, lse_of(t, query, maximum, sum), at, 4, false);
  ir_end_if(b, one);
}

/* ---- gradients ---- */

/* A float32 of a query; parameter: of rows of one number. */
static ir_value load_number(attend *t, int parameter, ir_value token) {
  ir *b = t->b;
  attend_rows rows = attend_rows_of(t, parameter, t->head, 1);
  return ir_load(b, b->f32, ir_pointer(b, add(b, rows.base, mul(b, wide(b, token), rows.stride))), 4);
}

ir_value attend_load_lse(attend *t, ir_value token) {
  ir *b = t->b;
  ir_value lse = load_number(t, lse_parameter(t->p->spec), token);
  ir_value none = ir_compare_float(b, "oeq", lse, ir_float(b, b->f32, -INFINITY));
  return ir_select(b, none, ir_float(b, b->f32, INFINITY), mul(b, lse, ir_float(b, b->f32, LOG2_E)));
}

ir_value attend_load_g_lse(attend *t, const ir_value *gradient, ir_value token) {
  ir *b = t->b;
  int parameter = (int)(gradient - t->parameter) + PEGEN_PTX_ATTENTION_G_LSE;
  ir_value given = ir_compare_int(b, "ne", t->parameter[parameter + PEGEN_PTX_ROWS_ADDRESS], i64(b, 0)), x, none;
  ir_choice choice = ir_choose(b, given, 1, &b->f32);
  x = load_number(t, parameter, token);
  ir_choose_else(b, &choice, 1, &x);
  none = ir_float(b, b->f32, 0);
  ir_end_choose(b, choice, 1, &none, &x);
  return x;
}

ir_value attend_delta_at(attend *t, const ir_value *gradient, ir_value token) {
  ir *b = t->b;
  ir_value row = mul(b, wide(b, t->batch), t->parameter[PEGEN_PTX_ATTENTION_HEADS]);
  row = mul(b, add(b, row, wide(b, t->head)), t->parameter[PEGEN_PTX_ATTENTION_TOKENS]);
  ir_value at = mul(b, add(b, row, wide(b, token)), i64(b, 4));
  return ir_pointer(b, add(b, gradient[PEGEN_PTX_ATTENTION_LESS], at));
}
