/* cpu/attention/operand_sums: see cpu/attention/operand_sums.h.
 *
 * Where an element stands by itself (a slope), what pairs give is summed in the lanes, in float64. Where a place is
 * computed (a table of displacements), lanes are added one after the other to the place in the chunk's own table: no
 * two threads write there. On a grid both are asked of displacements, of which there are fewer than pairs.
 */
#include "cpu/attention/operand_sums.h"

#include "mlir/arith.h"

static ir_value wide_lanes(const operand_sums *s, ir_value x) {
  return ir_cast(s->pairs->e->b, "arith.extf", x, s->pairs->e->b->f64);
}

static ir_value sum_at(const operand_sums *s, int scatter) {
  return ir_offset_const(s->pairs->e->b, s->sums, (int64_t)scatter * s->pairs->e->shape.lanes * 8);
}

operand_sums emit_operand_sums_begin(const pair_emitter *pairs) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  const attention_plan *p = e->p;
  MlirType type = ir_vector(b, e->shape.lanes, b->f64);
  operand_sums s = {.pairs = pairs};
  s.is_wanted = attention_is_given(e, GRADIENT_TILE(e, operand_sums, b->ptr));
  s.sums = ir_alloca(b, (int64_t)p->n_scatters * e->shape.lanes * 8, CACHE_LINE);
  if (p->by_rows) s.room = emit_grid_sums_room(&pairs->grid);
  delta_emitter d = delta_emitter_create(e, pairs->fixed);
  for (int i = 0; i < p->n_scatters; i++) {
    ir_store(b, ir_float(b, type, 0), sum_at(&s, i), 8, false);
    emit_expr_fixed(&d.walker, p->scatter[i].gradient);
    if (p->scatter[i].leaf->op == EXPR_ELEMENT) emit_expr_fixed(&d.walker, p->scatter[i].leaf->arg[0]);
  }
  return s;
}

/* table[place of the lane] += the lane, one after the other. */
static void add_to_places(const operand_sums *s, ir_value table, ir_value place, ir_value gain) {
  ir *b = s->pairs->e->b;
  for (int lane = 0; lane < s->pairs->e->shape.lanes; lane++) {
    ir_value index = ir_cast(b, "arith.extsi", ir_lanes(place) ? ir_extract(b, place, lane) : place, b->i64),
             at = nth(b, table, index, 8), more = ir_cast(b, "arith.extf", ir_extract(b, gain, lane), b->f64);
    ir_store(b, add(b, ir_load(b, b->f64, at, 8), more), at, 8, false);
  }
}

/* Of a pair that is not seen nothing, whatever its bias is. */
static void visit(void *context, delta_emitter *d) {
  const operand_sums *s = context;
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  MlirType type = ir_vector(b, e->shape.lanes, b->f64);
  ir_value zero = ir_float(b, e->lanes, 0), counts = ir_compare_float(b, "une", d->cotangent, zero);
  for (int i = 0; i < e->p->n_scatters; i++) {
    const adjoint_scatter *scatter = &e->p->scatter[i];
    ir_value gain = ir_select(b, counts, emit_expr_f32(&d->walker, scatter->gradient), zero);
    if (scatter->leaf->op == EXPR_ELEMENT) {
      ir_value place = emit_element_place(d, scatter->leaf);
      ir_value table =
          ir_load(b, b->ptr, ir_offset_const(b, GRADIENT_TILE(e, tables, b->ptr), scatter->leaf->index * 8), 8);
      add_to_places(s, table, place, gain);
    } else ir_store(b, add(b, ir_load(b, type, sum_at(s, i), 8), wide_lanes(s, gain)), sum_at(s, i), 8, false);
  }
}

/* Gains of pairs that are alike in some batches are summed there; gives where the sums stand. */
static ir_value emit_kept_sums(const operand_sums *s, const key_tile *t, ir_value gains) {
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  ir_value room = GRADIENT_TILE(e, pair_sums, b->ptr), is_kept = attention_is_given(e, room),
           is_first = ir_compare_int(b, "ne", GRADIENT_TILE(e, is_first, b->i64), e->zero),
           zero = ir_float(b, e->lanes, 0);
  ir_value at = nth(b, room, t->first, (int64_t)e->shape.queries * 4);
  ir_branch kept = ir_if(b, is_kept);
  ir_loop keys = ir_for(b, e->zero, t->count);
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value to = attention_at(e, at, keys.index, x), before = ir_select(b, is_first, zero, load(e, to));
    store(e, add(b, before, load(e, attention_at(e, gains, keys.index, x))), to);
  }
  ir_end_for(b, keys);
  ir_end_if(b, kept);
  return ir_select(b, is_kept, at, gains);
}

void emit_operand_sums(const operand_sums *s, const key_tile *t, ir_value gains) {
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  ir_branch wanted = ir_if(b, s->is_wanted);
  if (attention_keeps_pairs(e->p)) {
    ir_value sums = emit_kept_sums(s, t, gains);
    ir_branch last = ir_if(b, ir_compare_int(b, "ne", GRADIENT_TILE(e, is_last, b->i64), e->zero));
    emit_pair_gains(s->pairs, t, sums, s->room, visit, (void *)s);
    ir_end_if(b, last);
  } else emit_pair_gains(s->pairs, t, gains, s->room, visit, (void *)s);
  ir_end_if(b, wanted);
}

void emit_operand_sums_end(const operand_sums *s) {
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  ir_branch wanted = ir_if(b, s->is_wanted);
  for (int i = 0; i < e->p->n_scatters; i++) {
    if (e->p->scatter[i].leaf->op == EXPR_ELEMENT) continue;
    int64_t block_0 = (int64_t)i * expr_pool_blocks(e->p->spec->pool) * 8; /* a bias has no blocks */
    ir_value to = ir_offset_const(b, GRADIENT_TILE(e, operand_sums, b->ptr), block_0);
    emit_add_lanes(e, sum_at(s, i), to);
  }
  ir_end_if(b, wanted);
}
