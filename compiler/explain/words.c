/* explain/words: the parts of a description in words; see explain/words.h. */
#include "explain/words.h"

#include "spec/expr_facts.h"

#include <math.h>
#include <string.h>

const char *explain_blade(arena *a, unsigned blade) {
  if (!blade) return "1";
  const char *name = "e";
  for (int i = 0; i < SPEC_MAX_DIMENSIONS; i++)
    if (blade >> i & 1) name = arena_printf(a, "%s%d", name, i + 1);
  return name;
}

/* e31 for -e13: what a component is called where its sign is turned by swapping the last two digits. */
static const char *component_name(arena *a, const spec_component *c) {
  char *name = arena_strdup(a, explain_blade(a, c->blade));
  size_t length = strlen(name);
  if (c->sign > 0) return name;
  if (length < 3) return arena_printf(a, "-%s", name);
  char swap = name[length - 1];
  name[length - 1] = name[length - 2];
  name[length - 2] = swap;
  return name;
}

const char *explain_blades_text(arena *a, const spec *s) {
  const char *names = "";
  for (int i = 0; i < s->n_components; i++)
    names = arena_printf(a, "%s%s%s", names, i ? ", " : "", component_name(a, &s->component[i]));
  return arena_printf(a, "%s of Cl(%d,%d,%d)", names, s->algebra.p, s->algebra.q, s->algebra.r);
}

/* "operand a, b", of all operands that the expressions read. */
const char *explain_operands(arena *a, const spec *s, const expr *const *x, int count) {
  bool *read = arena_array(a, bool, s->n_operands + 1);
  for (int i = 0; i < count; i++) expr_mark_operands(x[i], read);
  const char *text = NULL;
  for (int i = 0; i < s->n_operands; i++)
    if (read[i]) text = text ? arena_printf(a, "%s, %s", text, s->operand[i].name) : s->operand[i].name;
  return text;
}

const char *explain_inputs(arena *a, const spec *s) {
  const char *text = NULL;
  for (int i = 0; i < s->n_inputs; i++)
    text = text ? arena_printf(a, "%s, %s", text, s->input[i].name) : s->input[i].name;
  return text;
}

/* Inputs that expressions read, by index. */
static void mark_inputs(const expr *x, bool *read) {
  if (!(x->depends & DEPENDS_QUERY)) return;
  if (expr_op_is_input(x->op)) read[x->index] = true;
  for (int i = 0; i < expr_op_arity(x->op); i++) mark_inputs(x->arg[i], read);
}

const char *explain_sources(arena *a, const spec *s, const expr *const *x, int count) {
  bool read[SPEC_MAX_INPUTS] = {false};
  for (int i = 0; i < count; i++) mark_inputs(x[i], read);
  const char *text = explain_operands(a, s, x, count);
  for (int i = 0; i < s->n_inputs; i++)
    if (read[i])
      text = text ? arena_printf(a, "%s, input %s", text, s->input[i].name)
                  : arena_printf(a, "input %s", s->input[i].name);
  return text;
}

static const char *coefficient_text(arena *a, const expr *x) {
  if (x->depends & DEPENDS_QUERY) return "given ";
  if (x->op != EXPR_CONST) return x->depends & DEPENDS_OPERAND ? "learned " : "(by block) ";
  return x->value == 1 ? "" : x->value == -1 ? "-" : arena_printf(a, "%.6g ", x->value);
}

const char *explain_generator(arena *a, const spec *s, int axis) {
  const spec_bivector *b = &s->generator[axis];
  const char *text = NULL;
  for (int i = 0; i < b->count; i++) {
    if (expr_is_const(b->coefficient[i], 0)) continue;
    const char *term = arena_printf(a, "%s%s", coefficient_text(a, b->coefficient[i]), explain_blade(a, b->blade[i]));
    text = text ? arena_printf(a, "%s + %s", text, term) : term;
  }
  const char *operands = explain_sources(a, s, b->coefficient, b->count);
  if (!text) return "0";
  return operands ? arena_printf(a, "%s, from %s", text, operands) : text;
}

/* Radians that one unit of position adds, over all heads and blocks. */
static const char *phase_text(arena *a, const spec *s, int axis) {
  const expr *angle = s->angle[axis];
  const char *operands = explain_sources(a, s, &angle, 1);
  if (!expr_is_affine(angle))
    return operands ? arena_printf(a, "nonlinear in the position, from %s", operands) : "nonlinear in the position";
  if (operands) return arena_printf(a, "from %s", operands);
  double least = INFINITY, most = 0, positions[SPEC_MAX_AXES] = {0};
  int listening = 0;
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++) {
      expr_environment env = {.head = head, .block = block, .blocks = s->n_blocks, .positions = positions};
      positions[axis] = 0;
      double at_zero = expr_eval(angle, &env);
      positions[axis] = 1;
      double speed = fabs(expr_eval(angle, &env) - at_zero);
      if (speed == 0) continue;
      listening++;
      least = fmin(least, speed);
      most = fmax(most, speed);
    }
  int all = s->heads * s->n_blocks;
  if (!listening) return "0: no block listens to it";
  const char *range = least == most ? arena_printf(a, "%.4g", most) : arena_printf(a, "%.4g to %.4g", least, most);
  const char *where = listening == all ? "" : arena_printf(a, ", in %d of %d blocks", listening, all);
  return arena_printf(a, "%s radians per unit of position%s", range, where);
}

static const char *combine_text(arena *a, const spec *s) {
  if (s->function) return s->function->text;
  if (s->n_axes == 1) return "one axis";
  if (s->combine == COMBINE_SUM) return "sum: the exponential of the sum of the axes' generators";
  if (s->combine == COMBINE_MEAN) return "mean: the exponential of the mean of the axes' generators";
  const char *order = "";
  for (int i = 0; i < s->n_axes; i++) order = arena_printf(a, "%s%s%s", order, i ? ", " : "", s->axis[s->order[i]]);
  return arena_printf(
      a, s->combine == COMBINE_PRODUCT ? "product, leftmost acts last: %s" : "symmetric product from outside in: %s",
      order);
}

void explain_blocks(arena *a, const spec *s, explanation *out) {
  out->block_size = s->n_components;
  out->n_blocks = s->n_blocks;
  out->leftover = s->head_dim - s->n_components * s->n_blocks;
  out->combine = combine_text(a, s);
  for (int axis = 0; axis < s->n_axes; axis++) out->phase[axis] = phase_text(a, s, axis);
}

void explain_program_cost(arena *a, const plan *p, explain_cost *cost) {
  const spec *s = p->spec;
  unsigned char *seen = arena_alloc(a, (size_t)expr_pool_count(s->pool));
  for (int i = 0; i < p->n_prepared; i++) operation_count_add(&cost->prepared, p->prepared[i], s->n_blocks, seen);
  int entries = 0;
  for (int i = 0; i < s->n_components * s->n_components; i++) {
    const expr *x = p->program->matrix.entry[i];
    operation_count_add(&cost->token, x, s->n_blocks, seen);
    bool kept = i % (s->n_components + 1) == 0 && expr_is_const(x, 1);
    if (!kept && !expr_is_const(x, 0)) entries++;
  }
  cost->per_head = p->per_head || p->of_rows;
  cost->per_row = p->of_rows;
  cost->row_operations = 2 * entries * s->n_blocks; /* each product is a multiplication and an addition */
  if (!s->pre) return;
  operation_count map = explain_map_cost(a, s);
  cost->row_operations += operation_count_all(&map) * s->n_components * s->n_blocks;
}

/* ---- counting ---- */

/* How often a node is computed: for each block only where blocks differ. */
void operation_count_add(operation_count *total, const expr *x, int blocks, unsigned char *seen) {
  if (seen[x->id]) return;
  seen[x->id] = 1;
  for (int i = 0; i < expr_op_arity(x->op); i++) operation_count_add(total, x->arg[i], blocks, seen);
  int times = x->depends & DEPENDS_BLOCK ? blocks : 1;
  if (x->terms || x->op == EXPR_SUM) times *= x->terms ? x->terms : x->index;
  if (expr_op_arity(x->op) == 0 || expr_is_fixed(x)) return;
  switch (x->op) {
  case EXPR_NARROW:
  case EXPR_ROUND32:
  case EXPR_WIDEN: return;
  case EXPR_DIV:
  case EXPR_SQRT: total->divisions += times; return;
  case EXPR_SINQ:
  case EXPR_COSQ:
  case EXPR_SIN_FOLDED:
  case EXPR_COS_FOLDED: total->sines += times; return;
  case EXPR_ATAN2:
  case EXPR_EXP:
  case EXPR_LOG1P:
  case EXPR_TANH:
  case EXPR_SIGMOID:
  case EXPR_SOFTPLUS:
  case EXPR_LOG: total->exponentials += times; return;
  default: total->arithmetic += times; return;
  }
}

operation_count explain_map_cost(arena *a, const spec *s) {
  operation_count count = {0};
  operation_count_add(&count, s->pre, 1, arena_alloc(a, (size_t)expr_pool_count(s->pool)));
  return count;
}

int operation_count_all(const operation_count *c) { return c->arithmetic + c->divisions + c->sines + c->exponentials; }
