/* verify/reference_gradient_sums: what gradients of expressions are added to; see verify/reference_gradient.h. */
#include "verify/reference_gradient.h"

#include "verify/reference_rotors.h"

#include <math.h>
#include <string.h>

gradient_sum **reference_operand_sums(arena *a, const spec *s) {
  gradient_sum **sums = arena_array(a, gradient_sum *, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++)
    sums[i] = arena_array(a, gradient_sum, spec_operand_elements(&s->operand[i]) + 1);
  return sums;
}

static gradient_sum *sum_of(const reference_gains *to, const dual_variable *v) {
  switch (v->kind) {
  case DUAL_OPERAND: return to->operand ? &to->operand[v->index][v->element] : NULL;
  case DUAL_INPUT: return to->input ? &to->input[v->index][v->element] : NULL;
  case DUAL_POSITION: return to->position ? &to->position[v->index] : NULL;
  case DUAL_CHANNEL: break; /* rows' gradients are not sums */
  }
  return NULL;
}

bool reference_is_asked(const reference_gains *to, const dual_variable *v) { return sum_of(to, v); }

long double reference_cancelled(dual *value, int count, reference_slope slope) {
  long double sum = 0;
  dual kept[REFERENCE_ROTORS_MOST];
  memcpy(kept, value, sizeof *value * (size_t)count);
  for (int k = 0; k < count; k++) {
    if (!(kept[k].size > 2 * fabsl(kept[k].tangent))) continue;
    for (int i = 0; i < count; i++) value[i].tangent = i == k ? kept[k].size : 0;
    sum += slope.norm(slope.of);
  }
  memcpy(value, kept, sizeof *value * (size_t)count);
  return sum;
}

void reference_gain(const reference_gains *to, const dual_variable *v, long double value, long double size) {
  gradient_sum *sum = sum_of(to, v);
  if (!sum || (value == 0 && size == 0)) return;
  sum->value += value;
  sum->size += size;
}

void reference_expr_backward(expr_pool *pool, const expr_environment *env, const expr *const *exprs, int count,
                             const gradient_sum *gradient, const reference_gains *to) {
  arena *scratch = arena_create();
  const expr **xs = arena_array(scratch, const expr *, count + 1);
  for (int i = 0; i < count; i++) xs[i] = expr_unrolled(pool, exprs[i]);
  dual_place place = dual_at(scratch, pool, env);
  const dual_variable *by;
  int n = dual_variables(&place, xs, count, &by);
  dual *x = arena_array(scratch, dual, count + 1);
  for (int i = 0; i < n; i++) {
    long double value = 0, size = 0;
    if (!sum_of(to, &by[i])) continue;
    dual_eval(&place, &by[i], xs, count, x);
    for (int k = 0; k < count; k++) {
      if (x[k].tangent != 0) value += gradient[k].value * x[k].tangent; /* else not of something infinite either */
      if (x[k].size != 0) size += gradient[k].size * x[k].size;
    }
    reference_gain(to, &by[i], value, size);
  }
  arena_destroy(scratch);
}
