/* explain/map: see explain/map.h. */
#include "explain/map.h"

enum { MOST_OPERATIONS = 24, SUM = 1, PRODUCT = 2, FACTOR = 3 }; /* how tightly a node's parts hang together */

static const char *text(arena *a, const expr *x, int around);

static const char *infix(arena *a, const expr *x, int own, int around) {
  /* a - (b + c), a / (b c): what stands on the right hangs together more tightly. */
  int right = x->op == EXPR_SUB || x->op == EXPR_DIV ? own + 1 : own;
  const char *whole =
      arena_printf(a, "%s %s %s", text(a, x->arg[0], own), expr_op_name(x->op), text(a, x->arg[1], right));
  return own < around ? arena_printf(a, "(%s)", whole) : whole;
}

static const char *text(arena *a, const expr *x, int around) {
  switch (x->op) {
  case EXPR_CONST: return arena_printf(a, x->value < 0 && around > SUM ? "(%.6g)" : "%.6g", x->value);
  case EXPR_CHANNEL: return "x";
  case EXPR_ADD:
  case EXPR_SUB: return infix(a, x, SUM, around);
  case EXPR_MUL:
  case EXPR_DIV: return infix(a, x, PRODUCT, around);
  case EXPR_NEG: return arena_printf(a, around > SUM ? "(-%s)" : "-%s", text(a, x->arg[0], FACTOR));
  case EXPR_ABS: return arena_printf(a, "|%s|", text(a, x->arg[0], 0));
  case EXPR_SINQ: return arena_printf(a, "sin(pi/2 %s)", text(a, x->arg[0], FACTOR));
  case EXPR_COSQ: return arena_printf(a, "cos(pi/2 %s)", text(a, x->arg[0], FACTOR));
  case EXPR_LESS: return arena_printf(a, "[%s < %s]", text(a, x->arg[0], 0), text(a, x->arg[1], 0));
  case EXPR_SELECT:
    return arena_printf(a, "where(%s, %s, %s)", text(a, x->arg[0], 0), text(a, x->arg[1], 0), text(a, x->arg[2], 0));
  default: break;
  }
  const char *inner = text(a, x->arg[0], 0);
  for (int i = 1; i < expr_op_arity(x->op); i++) inner = arena_printf(a, "%s, %s", inner, text(a, x->arg[i], 0));
  return arena_printf(a, "%s(%s)", expr_op_name(x->op), inner);
}

/* Written out an expression is a tree, which may be far larger than what it shares. */
static int written(const expr *x, int most) {
  int count = 1;
  for (int i = 0; i < expr_op_arity(x->op) && count <= most; i++) count += written(x->arg[i], most - count);
  return count;
}

const char *explain_map_text(arena *a, const spec *s) {
  if (written(s->pre, 2 * MOST_OPERATIONS) <= 2 * MOST_OPERATIONS) return text(a, s->pre, 0);
  operation_count count = explain_map_cost(a, s);
  return arena_printf(a, "a function of %d operations", operation_count_all(&count));
}
