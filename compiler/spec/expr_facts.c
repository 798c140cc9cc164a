/* spec/expr_facts: structural proofs about expressions; see spec/expr_facts.h. */
#include "spec/expr_facts.h"

static bool depends_on_position(const expr *x) { return x->depends & DEPENDS_POSITION; }

bool expr_is_zero_in(const expr *x, int head, int block, int blocks) {
  const expr *const *a = x->arg;
  switch (x->op) {
  case EXPR_CONST: return x->value == 0;
  case EXPR_TABLE: return x->table[(x->n_heads > 1 ? head : 0) * blocks + block] == 0;
  case EXPR_MUL: return expr_is_zero_in(a[0], head, block, blocks) || expr_is_zero_in(a[1], head, block, blocks);
  case EXPR_DIV:
  case EXPR_NEG:
  case EXPR_ABS:
  case EXPR_SQRT:
  case EXPR_FLOOR:
  case EXPR_TANH:
  case EXPR_ROUND32:
  case EXPR_SINQ:
  case EXPR_NARROW:
  case EXPR_WIDEN: return expr_is_zero_in(a[0], head, block, blocks);
  case EXPR_ADD:
  case EXPR_SUB:
  case EXPR_MIN:
  case EXPR_MAX: return expr_is_zero_in(a[0], head, block, blocks) && expr_is_zero_in(a[1], head, block, blocks);
  default: return false;
  }
}

/* homogeneous: without a constant part. */
static bool is_affine(const expr *x, bool homogeneous) {
  const expr *const *a = x->arg;
  if (!depends_on_position(x)) return !homogeneous || expr_is_const(x, 0);
  switch (x->op) {
  case EXPR_POSITION: return true;
  case EXPR_NEG:
  case EXPR_NARROW:
  case EXPR_WIDEN: return is_affine(a[0], homogeneous);
  case EXPR_ADD:
  case EXPR_SUB: return is_affine(a[0], homogeneous) && is_affine(a[1], homogeneous);
  case EXPR_MUL:
    if (depends_on_position(a[0]) && depends_on_position(a[1])) return false;
    return is_affine(depends_on_position(a[0]) ? a[0] : a[1], homogeneous);
  case EXPR_DIV: return !depends_on_position(a[1]) && is_affine(a[0], homogeneous);
  default: return false;
  }
}

bool expr_is_affine(const expr *x) { return is_affine(x, false); }
bool expr_is_linear(const expr *x) { return is_affine(x, true); }

void expr_mark_operands(const expr *x, bool *operand_read) {
  if (!(x->depends & DEPENDS_OPERAND)) return;
  if (x->op == EXPR_OPERAND || x->op == EXPR_ELEMENT) operand_read[x->index] = true;
  for (int i = 0; i < expr_op_arity(x->op); i++) expr_mark_operands(x->arg[i], operand_read);
}

bool expr_reads_input(const expr *x, int input) {
  if (expr_op_is_input(x->op) && x->index == input) return true;
  if (!(x->depends & DEPENDS_QUERY)) return false;
  for (int i = 0; i < expr_op_arity(x->op); i++)
    if (expr_reads_input(x->arg[i], input)) return true;
  return false;
}

bool expr_reads_places(const expr *x, int first, int end) {
  if (x->op == EXPR_POSITION) return x->index >= first && x->index < end;
  if (!(x->depends & DEPENDS_POSITION)) return false;
  for (int i = 0; i < expr_op_arity(x->op); i++)
    if (expr_reads_places(x->arg[i], first, end)) return true;
  return false;
}
