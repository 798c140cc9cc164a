/* object/describe_attention: pegen_attention, what the driver of kernel/attention.h is told; see
 * object/describe_form.h. */
#include "cpu/attention/attention.h"
#include "cpu/rotors.h"
#include "object/describe_attention_few.h"
#include "object/describe_form.h"

#include "kernel/attention.h"

static void add_plan(digest *h, const void *of) {
  const attention_plan *p = of;
  const spec *s = p->spec;
  digest_bytes(h, &p->value_dim, sizeof p->value_dim);
  if (s->pairwise->scale > 0) digest_bytes(h, &s->pairwise->scale, sizeof s->pairwise->scale);
  if (p->turns_values) digest_bytes(h, &p->turns_values, sizeof p->turns_values);
  if (p->columns) digest_expr(h, s->polynomial->value);
  if (p->bias) digest_expr(h, p->bias);
  if (p->score) digest_expr(h, p->score);
  for (int i = 0; i < p->n_numbers; i++) {
    const attention_number *n = &p->number[i];
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
  LLVMValueRef data = describe_array(d, "leaf", LLVMTypeOf(values[0]), values, count);
  describe_field fields[] = {FIELD(pegen_leaf, operand, describe_i32(d, gathered ? x->index : -1)),
                             FIELD(pegen_leaf, n_heads, describe_i32(d, x->n_heads)),
                             FIELD(pegen_leaf, offsets, gathered ? data : describe_null(d)),
                             FIELD(pegen_leaf, values, gathered ? describe_null(d) : data)};
  return DESCRIBE(d, pegen_leaf, fields);
}

static LLVMValueRef leaves(describer *d, const attention_plan *p) {
  LLVMValueRef *rows = arena_array(d->request->memory, LLVMValueRef, p->n_leaves + 1);
  for (int i = 0; i < p->n_leaves; i++) rows[i] = leaf(d, p, p->leaf[i]);
  return p->n_leaves ? describe_rows(d, "leaves", rows, p->n_leaves) : describe_null(d);
}

/* A function of each number type; those that are not compiled in are null, and all where `what` is NULL. */
static LLVMValueRef by_type(describer *d, const cpu_target *target, const char *what) {
  LLVMValueRef functions[NUMBER_CHANNEL_TYPES];
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    functions[dtype] =
        what ? describe_function(d, attention_name(d->request->memory, target, what, dtype)) : describe_null(d);
  return LLVMConstArray2(d->ptr, functions, NUMBER_CHANNEL_TYPES);
}

static LLVMValueRef target_rows(describer *d, const attention_plan *p, const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  for (int i = 0; i < count; i++) {
    const attention_plan *forward = attention_plan_forward(a, p, targets[i]);
    attention_shape shape = attention_shape_of(forward, targets[i]);
    describe_field fields[] = {
        FIELD(pegen_attention_code, lanes, describe_i64(d, shape.lanes)),
        FIELD(pegen_attention_code, vectors, describe_i64(d, shape.vectors)),
        FIELD(pegen_attention_code, heads, describe_i64(d, shape.heads)),
        FIELD(pegen_attention_code, by_rows, describe_i64(d, attention_plan_on(a, p, targets[i])->by_rows)),
        FIELD(pegen_attention_code, asks, describe_i64(d, attention_asks(forward, &shape))),
        FIELD(pegen_attention_code, block, describe_i64(d, attention_block(&shape))),
        FIELD(pegen_attention_code, attend, by_type(d, targets[i], "attend")),
        FIELD(pegen_attention_code, attend_dots, describe_function(d, emit_attend_dots_name(a, targets[i]))),
        FIELD(pegen_attention_code, look, by_type(d, targets[i], "look")),
        FIELD(pegen_attention_code, prepare,
              p->columns ? describe_function(d, emit_prepare_name(a, targets[i])) : describe_null(d)),
        FIELD(pegen_attention_code, weigh, by_type(d, targets[i], "weigh")),
        FIELD(pegen_attention_code, read, by_type(d, targets[i], p->turned ? "read" : NULL)),
        FIELD(pegen_attention_code, write, by_type(d, targets[i], p->turns_values ? "write" : NULL))};
    rows[i] = DESCRIBE(d, pegen_attention_code, fields);
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
  request.gradients = false; /* those of pairs have what is turned */
  of_rows.request = &request;
  LLVMValueRef turned = describe_blades.describe(&of_rows, p->turned, targets, count);
  for (int i = 0; i < count; i++) {
    const attention_plan *on = attention_plan_forward(a, p, targets[i]);
    attention_shape shape = attention_shape_of(on, targets[i]);
    turned_shape of = turned_shape_of(on, &shape);
    describe_field fields[] = {FIELD(pegen_attention_turned, tiles, describe_i64(d, of.tiles)),
                               FIELD(pegen_attention_turned, keys, describe_i64(d, of.keys)),
                               FIELD(pegen_attention_turned, state_numbers, describe_i64(d, of.state_numbers)),
                               FIELD(pegen_attention_turned, values, describe_i64(d, p->turns_values)),
                               FIELD(pegen_attention_turned, rows, turned)};
    rows[i] = DESCRIBE(d, pegen_attention_turned, fields);
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
  describe_field fields[] = {
      FIELD(pegen_attention_turned_gradient, attend,
            by_type(d, target, attention_gradients[ATTEND_GRADIENT_OF_TURNED])),
      FIELD(pegen_attention_turned_gradient, tiles, describe_i64(d, of.tiles)),
      FIELD(pegen_attention_turned_gradient, keys, describe_i64(d, of.keys)),
      FIELD(pegen_attention_turned_gradient, step, describe_i64(d, shape.keys)),
      FIELD(pegen_attention_turned_gradient, stretches, describe_i64(d, p->spec->amplitude != 1)),
      FIELD(pegen_attention_turned_gradient, of_operands, describe_i64(d, !p->torques || !p->torques->n_scatters))};
  return DESCRIBE(d, pegen_attention_turned_gradient, fields);
}

/* Null where rows have no gradients. */
static LLVMValueRef gradient_rows(describer *d, const attention_plan *p, const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  if (!d->request->gradients) return describe_null(d);
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
    describe_field fields[] = {
        FIELD(pegen_attention_gradient_code, attend, attend[ATTEND_GRADIENT]),
        FIELD(pegen_attention_gradient_code, attend_narrow, attend[ATTEND_GRADIENT_NARROW]),
        FIELD(pegen_attention_gradient_code, attend_dots, dots[0]),
        FIELD(pegen_attention_gradient_code, attend_narrow_dots, dots[1]),
        FIELD(pegen_attention_gradient_code, store_keys, by_type(d, targets[i], "store_keys")),
        FIELD(pegen_attention_gradient_code, store_values, by_type(d, targets[i], "store_values")),
        FIELD(pegen_attention_gradient_code, attend_operands, attend[ATTEND_GRADIENT_OF_OPERANDS]),
        FIELD(pegen_attention_gradient_code, step, describe_i64(d, attention_key_step(on, &shape))),
        FIELD(pegen_attention_gradient_code, turned, turned_gradient(d, p, targets[i]))};
    rows[i] = DESCRIBE(d, pegen_attention_gradient_code, fields);
  }
  return describe_rows(d, "gradients", rows, count);
}

/* The number of scatters: those of a bias, and behind them those of rotations. */
static int scatter_count(const attention_plan *p) { return p->n_scatters + (p->torques ? p->torques->n_scatters : 0); }

static const expr *scatter_leaf(const attention_plan *p, int i) {
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
    describe_field fields[] = {FIELD(pegen_leaf, operand, describe_i32(d, x->op == EXPR_OPERAND ? x->index : -1)),
                               FIELD(pegen_leaf, n_heads, describe_i32(d, x->n_heads)),
                               FIELD(pegen_leaf, offsets, describe_array(d, "scatter", d->i32, offsets, count)),
                               FIELD(pegen_leaf, values, describe_null(d))};
    rows[i] = DESCRIBE(d, pegen_leaf, fields);
  }
  return n ? describe_rows(d, "scatters", rows, n) : describe_null(d);
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
  for (int i = 0; i < count && d->request->gradients; i++)
    keeps = keeps || attention_keeps_pairs(attention_plan_gradient(d->request->memory, p, targets[i]));
  return keeps;
}

static LLVMValueRef numbers(describer *d, const attention_plan *p) {
  LLVMValueRef rows[SPEC_MAX_AXES];
  for (int i = 0; i < p->n_numbers; i++) {
    const attention_number *n = &p->number[i];
    describe_field fields[] = {FIELD(pegen_attention_number, of_key, describe_i64(d, n->of_key)),
                               FIELD(pegen_attention_number, input, describe_i64(d, n->input)),
                               FIELD(pegen_attention_number, element, describe_i64(d, n->element))};
    rows[i] = DESCRIBE(d, pegen_attention_number, fields);
  }
  return p->n_numbers ? describe_rows(d, "numbers", rows, p->n_numbers) : describe_null(d);
}

static LLVMValueRef describe(describer *d, const void *of, const cpu_target *const *targets, int n_targets) {
  const attention_plan *p = of;
  const plan *values = p->columns ? p->columns->values : NULL;
  int blocks = expr_pool_blocks(p->spec->pool);
  describe_field fields[] = {
      FIELD(pegen_attention, value_dim, describe_i64(d, p->value_dim)),
      FIELD(pegen_attention, paired, describe_i64(d, attention_has_pairs(p))),
      FIELD(pegen_attention, n_numbers, describe_i64(d, p->n_numbers)),
      FIELD(pegen_attention, numbers, numbers(d, p)),
      FIELD(pegen_attention, placed, describe_i64(d, attention_is_placed(p))),
      FIELD(pegen_attention, hides, describe_i64(d, p->hides)),
      FIELD(pegen_attention, tells, describe_i64(d, attention_tells(p))),
      FIELD(pegen_attention, skips, describe_i64(d, p->mask != NULL)),
      FIELD(pegen_attention, by_rows, describe_i64(d, p->by_rows)),
      FIELD(pegen_attention, n_blocks, describe_i64(d, blocks)),
      FIELD(pegen_attention, n_leaves, describe_i64(d, values ? values->n_leaves : p->n_leaves)),
      FIELD(pegen_attention, leaves, values ? describe_leaves(d, values) : leaves(d, p)),
      FIELD(pegen_attention, indexed, describe_i64(d, p->indexed)),
      FIELD(pegen_attention, lanes, describe_i64(d, values ? values->lanes : blocks)),
      FIELD(pegen_attention, n_weights, describe_i64(d, values ? p->columns->p->n_weights : 0)),
      FIELD(pegen_attention, prepared_bytes, describe_i64(d, values ? emit_prepared_bytes(values) : 0)),
      FIELD(pegen_attention, targets, target_rows(d, p, targets, n_targets)),
      FIELD(pegen_attention, gradients, gradient_rows(d, p, targets, n_targets)),
      FIELD(pegen_attention, few, describe_attention_few(d, p, targets, n_targets)),
      FIELD(pegen_attention, n_scatters, describe_i64(d, scatter_count(p))),
      FIELD(pegen_attention, scatters, scatters(d, p)),
      FIELD(pegen_attention, has_places, describe_i64(d, p->has_places)),
      FIELD(pegen_attention, n_sums, describe_i64(d, d->request->gradients ? p->n_sums : 0)),
      FIELD(pegen_attention, gaining, describe_i64(d, gaining(p))),
      FIELD(pegen_attention, keeps, describe_i64(d, keeps_pairs(d, p, targets, n_targets))),
      FIELD(pegen_attention, weights,
            describe_gradient(d, d->request->gradients ? p->weights : NULL, targets, n_targets)),
      FIELD(pegen_attention, turned, turned_rows(d, p, targets, n_targets))};
  return describe_global(d, "attention", DESCRIBE(d, pegen_attention, fields), true);
}

const describe_form describe_attention = {describe, add_plan};
