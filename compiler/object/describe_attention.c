/* object/describe_attention: pegen_attention, what the driver of kernel/attention.h is told; see
 * object/describe_form.h. */
#include "cpu/attention/attention.h"
#include "cpu/rotors.h"
#include "object/describe_attention_few.h"
#include "object/describe_form.h"

#include "kernel/attention.h"

static int64_t strip_axes(const attention_plan *p) {
  int64_t bits = 0;
  for (int i = 0; i < p->n_strips; i++)
    if (p->strip[i].axis != ATTENTION_OF_DISPLACEMENT) bits |= (int64_t)1 << p->strip[i].axis;
  return bits;
}

static void add_plan(digest *h, const void *of) {
  const attention_plan *p = of;
  const spec *s = p->spec;
  digest_bytes(h, &p->value_dim, sizeof p->value_dim);
  if (s->pairwise->scale > 0) digest_bytes(h, &s->pairwise->scale, sizeof s->pairwise->scale);
  if (p->turns_values) digest_bytes(h, &p->turns_values, sizeof p->turns_values);
  if (p->columns) digest_expr(h, s->polynomial->value);
  if (p->bias) digest_expr(h, p->bias);
  if (p->score) digest_expr(h, p->score);
  if (p->sink) digest_expr(h, p->sink);
  for (int i = 0; i < p->n_numbers; i++) {
    const pegen_attention_number *n = &p->number[i];
    digest_bytes(h, &n->kind, sizeof n->kind);
    digest_bytes(h, &n->of_key, sizeof n->of_key);
    if (n->input < 0) continue;
    digest_bytes(h, &n->input, sizeof n->input);
    digest_bytes(h, &n->element, sizeof n->element);
  }
  for (int i = 0; p->matrix && i < s->n_components * s->n_components; i++) digest_expr(h, p->matrix[i]);
}

/* An operand's elements are gathered by the driver; numbers, and where an indexed operand's rows begin, stand here. */
static LLVMValueRef leaf(describer *d, const attention_plan *p, const expr *x) {
  int count = x->n_heads * expr_pool_blocks(p->spec->pool);
  bool gathered = x->op == EXPR_OPERAND;
  LLVMValueRef *values = arena_array(d->request->memory, LLVMValueRef, count);
  for (int j = 0; j < count; j++)
    values[j] = gathered ? describe_i32(d, x->offsets[j])
                         : describe_f64(d, x->op == EXPR_ELEMENT ? x->offsets[j] : x->table[j]);
  return describe_leaf(d, "leaf", gathered ? x->index : -1, x->n_heads, values, count);
}

static LLVMValueRef leaves(describer *d, const attention_plan *p) {
  LLVMValueRef *rows = arena_array(d->request->memory, LLVMValueRef, p->n_leaves + 1);
  for (int i = 0; i < p->n_leaves; i++) rows[i] = leaf(d, p, p->leaf[i]);
  return describe_rows(d, "leaves", rows, p->n_leaves);
}

/* A function of each number type; those that are not compiled in are null, and all where `what` is NULL. */
static LLVMValueRef by_type(describer *d, const cpu_target *target, const char *what) {
  LLVMValueRef functions[NUMBER_CHANNEL_TYPES];
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    functions[dtype] = describe_function(d, what ? attention_name(d->request->memory, target, what, dtype) : NULL);
  return LLVMConstArray2(d->ptr, functions, NUMBER_CHANNEL_TYPES);
}

static LLVMValueRef target_rows(describer *d, const attention_plan *p, const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  for (int i = 0; i < count; i++) {
    const attention_plan *forward = attention_plan_forward(a, p, targets[i]);
    attention_shape shape = attention_shape_of(forward, targets[i]);
    rows[i] = DESCRIBE(
        d, pegen_attention_code, F(lanes, shape.lanes), F(vectors, shape.vectors), F(heads, shape.heads),
        F(by_rows, attention_plan_on(a, p, targets[i])->by_rows), F(asks, attention_asks(forward, &shape)),
        F(block, attention_block(&shape)), F(attend, by_type(d, targets[i], "attend")),
        CODE(attend_dots, emit_attend_dots_name(a, targets[i])), F(look, by_type(d, targets[i], "look")),
        CODE(prepare, p->columns ? emit_prepare_name(a, targets[i]) : NULL), F(weigh, by_type(d, targets[i], "weigh")),
        F(read, by_type(d, targets[i], p->turned || p->matrix ? "read" : NULL)),
        F(write, by_type(d, targets[i], p->turns_values ? "write" : NULL)),
        CODE(narrow, p->turned ? attention_narrow_name(a, targets[i]) : NULL));
  }
  return describe_rows(d, "targets", rows, count);
}

/* Null where rows are not turned. */
static LLVMValueRef turned_rows(describer *d, const attention_plan *p, const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  if (!p->turned) return describe_null(d);
  describe_request request = *d->request;
  describer of_rows = *d;
  request.form = &form_blades;
  request.entries = ENTRY_ALWAYS; /* those of pairs have what is turned */
  of_rows.request = &request;
  LLVMValueRef turned = describe_blades.describe(&of_rows, p->turned, targets, count);
  for (int i = 0; i < count; i++) {
    const attention_plan *on = attention_plan_forward(a, p, targets[i]);
    attention_shape shape = attention_shape_of(on, targets[i]);
    turned_shape of = turned_shape_of(on, &shape);
    rows[i] = DESCRIBE(d, pegen_attention_turned, F(tiles, of.tiles), F(keys, of.keys),
                       F(state_numbers, of.state_numbers), F(values, p->turns_values), F(rows, turned));
  }
  return describe_rows(d, "turned", rows, count);
}

/* Describes gradients of rows that come rotated; null where none do. */
static LLVMValueRef turned_gradient(describer *d, const attention_plan *p, const cpu_target *target) {
  arena *a = d->request->memory;
  const attention_plan *on = attention_plan_turned_gradient(a, p, target);
  turned_shape of = {.tiles = 0};
  attention_shape shape = {.keys = 0};
  if (on) shape = attention_shape_of(on, target);
  if (on) of = turned_gradient_shape_of(on, &shape);
  LLVMValueRef attend = by_type(d, target, attention_gradients[ATTEND_GRADIENT_OF_TURNED]);
  const char *dots = attention_name(a, target, attention_gradients[ATTEND_GRADIENT_OF_TURNED_DOTS], NUMBER_BF16);
  return DESCRIBE(d, pegen_attention_turned_gradient, F(attend, attend), CODE(attend_dots, dots), F(tiles, of.tiles),
                  F(keys, of.keys), F(step, shape.keys), F(stretches, p->spec->amplitude != 1),
                  F(of_operands, !p->torques || !p->torques->n_scatters));
}

/* Null where rows have no gradients. */
static LLVMValueRef gradient_rows(describer *d, const attention_plan *p, const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  if (!describe_gains(d)) return describe_null(d);
  for (int i = 0; i < count; i++) {
    const attention_plan *on = attention_plan_gradient(a, p, targets[i]);
    attention_shape shape = attention_shape_of(on, targets[i]);
    LLVMValueRef attend[ATTEND_GRADIENTS], dots[2];
    for (int kind = 0; kind < ATTEND_GRADIENTS; kind++)
      attend[kind] = by_type(d, targets[i], attention_gradients[kind]);
    for (int narrow = 0; narrow < 2; narrow++) {
      const char *what = attention_gradients[ATTEND_GRADIENT_DOTS + narrow];
      dots[narrow] = describe_function(d, attention_name(a, targets[i], what, NUMBER_BF16));
    }
    rows[i] = DESCRIBE(
        d, pegen_attention_gradient_code, F(attend, attend[ATTEND_GRADIENT]),
        F(attend_narrow, attend[ATTEND_GRADIENT_NARROW]), F(attend_dots, dots[0]), F(attend_narrow_dots, dots[1]),
        F(store_keys, by_type(d, targets[i], "store_keys")), F(store_values, by_type(d, targets[i], "store_values")),
        F(attend_operands, attend[ATTEND_GRADIENT_OF_OPERANDS]), F(step, attention_key_step(on, &shape)),
        F(turned, turned_gradient(d, p, targets[i])), F(tangent, attend[ATTEND_TANGENT + (p->turned != NULL)]));
  }
  return describe_rows(d, "gradients", rows, count);
}

/* The number of scatters: those of a bias, and behind them those of rotations and of a sink. */
static int scatter_count(const attention_plan *p) { return p->first_sink + p->n_sinks; }

static const expr *scatter_leaf(const attention_plan *p, int i) {
  if (i >= p->first_sink) return p->of_sink[i - p->first_sink].leaf;
  return i < p->n_scatters ? p->scatter[i].leaf : p->torques->scatter[i - p->n_scatters].leaf;
}

/* Where a sum of scatters goes; of elements at computed places nowhere, they are in their tables. */
static LLVMValueRef scatters(describer *d, const attention_plan *p) {
  int n = scatter_count(p);
  LLVMValueRef *rows = arena_array(d->request->memory, LLVMValueRef, n + 1);
  for (int i = 0; i < n; i++) {
    const expr *x = scatter_leaf(p, i);
    int count = x->n_heads * expr_pool_blocks(p->spec->pool);
    LLVMValueRef *offsets = arena_array(d->request->memory, LLVMValueRef, count);
    for (int j = 0; j < count; j++) offsets[j] = describe_i32(d, x->offsets[j]);
    int operand = x->op == EXPR_OPERAND ? x->index : -1;
    rows[i] = describe_leaf(d, "scatter", operand, x->n_heads, offsets, count);
  }
  return describe_rows(d, "scatters", rows, n);
}

static int64_t gaining(const attention_plan *p) {
  int64_t bits = 0;
  for (int i = 0; p->weights && i < p->weights->n_scatters; i++)
    bits |= (int64_t)1 << p->weights->scatter[i].leaf->index;
  for (int i = 0; i < scatter_count(p); i++) bits |= (int64_t)1 << scatter_leaf(p, i)->index;
  return bits;
}

/* On a grid it depends on the target whether its rows are tabulated. */
static bool keeps_pairs(describer *d, const attention_plan *p, const cpu_target *const *targets, int count) {
  bool keeps = false;
  for (int i = 0; i < count && describe_gains(d); i++)
    keeps = keeps || attention_keeps_pairs(attention_plan_gradient(d->request->memory, p, targets[i]));
  return keeps;
}

static LLVMValueRef numbers(describer *d, const attention_plan *p) {
  LLVMValueRef rows[SPEC_MAX_AXES];
  for (int i = 0; i < p->n_numbers; i++) {
    const pegen_attention_number *n = &p->number[i];
    rows[i] = DESCRIBE(d, pegen_attention_number, F(kind, n->kind), F(of_key, n->of_key), F(input, n->input),
                       F(element, n->element));
  }
  return describe_rows(d, "numbers", rows, p->n_numbers);
}

static LLVMValueRef describe(describer *d, const void *of, const cpu_target *const *targets, int n_targets) {
  const attention_plan *p = of;
  const plan *values = p->columns ? p->columns->values : NULL;
  int blocks = expr_pool_blocks(p->spec->pool);
  return describe_global(
      d, "attention",
      DESCRIBE(d, pegen_attention, F(value_dim, p->value_dim), F(paired, attention_has_pairs(p)),
               F(n_numbers, p->n_numbers), F(numbers, numbers(d, p)), F(strips, strip_axes(p)),
               F(placed, attention_is_placed(p)), F(hides, p->hides), F(tells, attention_tells(p)),
               F(skips, p->mask != NULL), F(bounded, p->mask ? p->mask->reads : 0), F(by_rows, p->by_rows),
               F(n_blocks, blocks), F(n_leaves, values ? values->n_leaves : p->n_leaves),
               F(leaves, values ? describe_leaves(d, values) : leaves(d, p)), F(indexed, p->indexed),
               F(lanes, values ? values->lanes : blocks), F(n_weights, values ? p->columns->p->n_weights : 0),
               F(prepared_bytes, values ? emit_prepared_bytes(values) : 0),
               F(targets, target_rows(d, p, targets, n_targets)), F(gradients, gradient_rows(d, p, targets, n_targets)),
               F(few, describe_attention_few(d, p, targets, n_targets)), F(n_scatters, scatter_count(p)),
               F(scatters, scatters(d, p)), F(has_places, p->has_places), F(n_sums, describe_gains(d) ? p->n_sums : 0),
               F(gaining, gaining(p)), F(keeps_biases, attention_keeps_biases(p)),
               F(keeps, keeps_pairs(d, p, targets, n_targets)),
               F(weights, describe_gradient(d, describe_gains(d) ? p->weights : NULL, targets, n_targets)),
               F(turned, turned_rows(d, p, targets, n_targets))),
      true);
}

const describe_form describe_attention = {describe, add_plan};
