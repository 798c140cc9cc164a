/* cpu/attention/turned_torques: see cpu/attention/turned_torques.h.
 *
 * A pair's torque in the frame of what was turned (algebra/torque.h), and from there expressions of its displacement,
 * in float64: a rotation of a pair has no other to share it with but those of other heads.
 */
#include "cpu/attention/turned_torques.h"

static int64_t block_bytes(const turned_torques *s) { return (int64_t)s->pairs->e->shape.lanes * 8; }

static int64_t scatter_bytes(const turned_torques *s) { return s->pairs->e->p->spec->n_blocks * block_bytes(s); }

turned_torques emit_turned_torques_begin(const place_sums *places, ir_value factor) {
  const attention_emitter *e = places->pairs->e;
  ir *b = e->b;
  turned_torques s = {.pairs = places->pairs, .places = places, .factor = factor};
  s.wants_operands = attention_is_given(e, GRADIENT_TILE(e, operand_sums, b->ptr));
  s.is_wanted = ir_op2(b, "arith.ori", s.wants_operands, places->is_wanted);
  s.sums = ir_alloca(b, (e->p->torques->n_scatters + 1) * scatter_bytes(&s), CACHE_LINE);
  emit_zeros(e, s.sums, e->p->torques->n_scatters * scatter_bytes(&s) / 4);
  return s;
}

void emit_turned_torques_fixed(const turned_torques *s, delta_emitter *d) {
  const attention_torques *t = s->pairs->e->p->torques;
  for (int i = 0; i < t->n_scatters; i++) emit_expr_fixed(&d->walker, t->scatter[i].gradient);
  for (int axis = 0; axis < s->pairs->e->p->spec->n_axes; axis++)
    if (t->place[axis]) emit_expr_fixed(&d->walker, t->place[axis]);
}

/* g^T E y. */
static ir_value emit_torque(const turned_torques *s, const torque_element *element, const ir_value *g,
                            const ir_value *y) {
  ir *b = s->pairs->e->b;
  ir_value sum = {NULL};
  for (int i = 0; i < element->n_entries; i++) {
    const torque_entry *at = &element->entry[i];
    ir_value product = mul(b, g[at->row], y[at->column]);
    if (sum.ptr) sum = at->sign < 0 ? sub(b, sum, product) : add(b, sum, product);
    else sum = at->sign < 0 ? ir_op1(b, "arith.negf", product) : product;
  }
  return mul(b, sum, s->factor);
}

/* Lanes of float64, 0 where the pair does not count. */
static ir_value emit_gain(const turned_torques *s, delta_emitter *d, const expr *gradient, ir_value counts) {
  ir *b = s->pairs->e->b;
  ir_value gain = emit_expr_lanes(&d->walker, gradient);
  if (gradient->is_f32) gain = ir_cast(b, "arith.extf", gain, b->f64);
  return ir_select(b, counts, gain, ir_float(b, ir_type(gain), 0));
}

void emit_turned_torques(const turned_torques *s, delta_emitter *d, const ir_value *g, const ir_value *y,
                         ir_value counts, ir_value key, int vector) {
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  const attention_torques *t = e->p->torques;
  ir_value torques[SPEC_MAX_BIVECTORS];
  ir_branch wanted = ir_if(b, s->is_wanted);
  for (int k = 0; k < t->basis.count; k++) torques[k] = emit_torque(s, &t->basis.element[k], g, y);
  d->torques = torques;
  for (int axis = 0; axis < e->p->spec->n_axes; axis++) {
    if (!t->place[axis]) continue;
    ir_value gain = emit_gain(s, d, t->place[axis], counts);
    emit_place_gain(s->places, axis, key, i64(b, vector), gain);
  }
  for (int i = 0; i < t->n_scatters; i++) {
    ir_value gain = emit_gain(s, d, t->scatter[i].gradient, counts),
             at = nth(b, ir_offset_const(b, s->sums, i * scatter_bytes(s)), d->block, block_bytes(s));
    ir_store(b, add(b, ir_load(b, ir_type(gain), at, 8), gain), at, 8, false);
  }
  d->torques = NULL;
  ir_end_if(b, wanted);
}

void emit_turned_torques_end(const turned_torques *s) {
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  int blocks = e->p->spec->n_blocks, before = e->p->n_scatters * blocks, count = e->p->torques->n_scatters * blocks;
  ir_branch wanted = ir_if(b, s->wants_operands);
  ir_loop sums = ir_for(b, e->zero, i64(b, count));
  ir_value to = nth(b, ir_offset_const(b, GRADIENT_TILE(e, operand_sums, b->ptr), (int64_t)before * 8), sums.index, 8),
           from = nth(b, s->sums, sums.index, block_bytes(s));
  emit_add_lanes(e, from, to);
  ir_end_for(b, sums);
  ir_end_if(b, wanted);
}
