/* gpu/mma_gradient: ops that gradients alone have, on tensor cores; see gpu/mma.h and tile/reverse.c.
 *
 * With D = <dout, out> - dlse of a query, P = 2^(T - lse) and dS = P (dP - D) times the derivative of the score. A pair
 * that is not seen has P = 0 and dS = 0, whatever its numbers are.
 */
#include "gpu/give.h"
#include "gpu/index.h"
#include "gpu/mma.h"

#include "kernel/launch.h"

enum { FACT_BYTES = 8 };

int64_t mma_fact_bytes(const mma *m) {
  return m->gradient && m->p->owns_keys ? (int64_t)FACT_BYTES * m->shape.tile.streamed : 0;
}

/* ---- what is known of queries ---- */

static ir_value fact_at(mma *m, ir_value stage, ir_value index) {
  ir *b = m->b;
  ir_value row = add(b, scaled(b, stage, m->shape.tile.streamed), index);
  return ir_offset(b, m->facts_of, wide(b, scaled(b, row, FACT_BYTES)));
}

/* What columns leave out of the products of own query `row`. */
static ir_value without_constant(mma *m, ir_value lse, ir_value row) {
  if (!m->t->constants.ptr) return lse;
  return sub(m->b, lse, ir_load(m->b, m->b->f32, attend_constant_at(m->t, row), 4));
}

ir_value mma_product_lse(mma *m, ir_value row, ir_value token) {
  if (!m->p->owns_keys) return without_constant(m, attend_load_lse(m->t, token), row);
  return ir_load(m->b, m->b->f32, fact_at(m, m->stage, row), 4);
}

ir_value mma_load_delta(mma *m, ir_value token) {
  return ir_load(m->b, m->b->f32, attend_delta_at(m->t, m->gradient, token), 4);
}

/* The sum over an access's numbers of both rows; 0 where it is not one of theirs (i1; null: it is). */
static ir_value access_gain(mma *m, const ir_value *at, ir_value inside) {
  ir *b = m->b;
  ir_value sum = ir_float(b, b->f32, 0), x[2][MMA_MOST_NUMBERS], none;
  ir_choice choice;
  if (inside.ptr) choice = ir_choose(b, inside, 1, &b->f32);
  for (int i = 0; i < 2; i++) mma_load_numbers(m, at[i], x[i]);
  for (int i = 0; i < mma_access_numbers(m); i++) sum = ir_fma(b, x[0][i], x[1][i], sum);
  if (!inside.ptr) return sum;
  ir_choose_else(b, &choice, 1, &sum);
  none = ir_float(b, b->f32, 0);
  ir_end_choose(b, choice, 1, &none, &sum);
  return sum;
}

/* <dout, out> of a query, of the accesses that the thread's lane of the four of a row has. Rows of 16 bits have so few
 * accesses that all are under way together. */
static ir_value outputs_gain(mma *m, ir_value token) {
  enum { LANES = 4 };
  ir *b = m->b;
  int access = m->t->entry->access;
  ir_value at[2], sum = ir_float(b, b->f32, 0), inside = {NULL}, now;
  attend_rows rows[2] = {mma_rows_of(m, TILE_OUT), mma_rows_of(m, TILE_G_OUT)};
  for (int i = 0; i < 2; i++) {
    ir_value row = add(b, rows[i].base, mul(b, wide(b, token), rows[i].stride));
    at[i] = ir_pointer(b, add(b, row, wide(b, scaled(b, m->quad, access))));
  }
  int accesses = rows[0].width / mma_access_numbers(m);
  for (int first = 0; m->machine->rounds && first < accesses; first += LANES) {
    ir_value here[2];
    for (int i = 0; i < 2; i++) here[i] = ir_offset_const(b, at[i], (int64_t)first * access);
    if (first + LANES > accesses) inside = less(b, m->quad, i32(b, accesses - first));
    sum = add(b, sum, access_gain(m, here, inside));
  }
  if (m->machine->rounds) return sum;
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, (accesses + LANES - 1) / LANES), 1, &sum, &now);
  ir_value here[2], offset = mul(b, loop.index, i64(b, (int64_t)LANES * access)),
                    first = scaled(b, narrow(b, loop.index), LANES);
  for (int i = 0; i < 2; i++) here[i] = ir_offset(b, at[i], offset);
  if (accesses % LANES) inside = less(b, add(b, first, m->quad), i32(b, accesses));
  now = add(b, now, access_gain(m, here, inside));
  ir_end_for_with(b, loop, 1, &now, &sum);
  return sum;
}

void mma_own_facts(mma *m) {
  ir *b = m->b;
  for (int h = 0; h < m->shape.halves; h++) {
    ir_value row = add(b, m->own_first, mma_row_of(m, h)), token = clamped(b, row, m->t->tokens);
    m->lse[h] = mma_product_lse(m, mma_row_of(m, h), token);
    ir_value sum = mma_row_sum(m, outputs_gain(m, token));
    m->delta[h] = sub(b, sum, attend_load_g_lse(m->t, m->gradient, token));
    ir_value writes = both(b, ir_compare_int(b, "eq", m->quad, i32(b, 0)), less(b, row, m->t->tokens));
    ir_branch one = ir_if(b, writes);
    ir_store(b, m->delta[h], attend_delta_at(m->t, m->gradient, token), 4, false);
    ir_end_if(b, one);
  }
}

void mma_store_facts(mma *m, ir_value token, ir_value stage, ir_value constant) {
  ir *b = m->b;
  ir_value at = fact_at(m, stage, m->t->thread);
  token = clamped(b, token, m->t->tokens);
  ir_value lse = attend_load_lse(m->t, token);
  ir_store(b, constant.ptr ? sub(b, lse, constant) : lse, at, 4, false);
  ir_store(b, mma_load_delta(m, token), ir_offset_const(b, at, 4), 4, false);
}

void mma_lay_facts(mma *m, ir_value first, ir_value stage) {
  ir *b = m->b;
  if (!mma_fact_bytes(m) || m->shape.tile.parts) return; /* with columns */
  ir_branch some = ir_if(b, less(b, m->t->thread, i32(b, m->shape.tile.streamed)));
  mma_store_facts(m, add(b, first, m->t->thread), stage, (ir_value){NULL});
  ir_end_if(b, some);
}

/* lse (0) or delta (1) of register i's query. */
static ir_value fact_of(mma *m, int value, int i, int which) {
  ir *b = m->b;
  if (!m->p->owns_keys) return which ? m->delta[mma_half(m, value, i)] : m->lse[mma_half(m, value, i)];
  return ir_load(b, b->f32, ir_offset_const(b, fact_at(m, m->stage, mma_column(m, value, i)), 4LL * which), 4);
}

ir_value mma_delta_of(mma *m, int value, int i) { return fact_of(m, value, i, 1); }

/* ---- ops ---- */

void mma_weight(mma *m, const tile_op *op) {
  int registers = mma_registers(m, op->value);
  ir_value *weight = m->sum[op->value] = arena_array(m->memory, ir_value, registers);
  for (int i = 0; i < registers; i++) weight[i] = mma_power(m, m->sum[op->arg[0]][i], fact_of(m, op->value, i, 0));
}

ir_value mma_score_gain(mma *m, ir_value weight, ir_value coming, ir_value delta) {
  ir *b = m->b;
  ir_value zero = ir_float(b, b->f32, 0), gained = mul(b, weight, sub(b, coming, delta));
  return ir_select(b, ir_compare_float(b, "oeq", weight, zero), zero, gained);
}

ir_value mma_gain_of(mma *m, ir_value weight, ir_value coming, ir_value delta, ir_value product,
                     const attend_pair_of *of) {
  ir_value gained = mma_score_gain(m, weight, coming, delta);
  if (!m->t->p->score) return gained;
  return attend_product_gain(m->t, gained, mul(m->b, product, m->scale), of);
}

void mma_gain(mma *m, const tile_op *op) {
  int registers = mma_registers(m, op->value);
  const ir_value *weight = m->sum[op->arg[0]], *coming = m->sum[op->arg[1]], *product = m->sum[op->arg[2]];
  ir_value *gain = m->sum[op->value] = arena_array(m->memory, ir_value, registers);
  for (int i = 0; i < registers; i++) {
    attend_pair_of of = mma_pair_of(m, op->value, i);
    gain[i] = mma_gain_of(m, weight[i], coming[i], fact_of(m, op->value, i, 1), product[i], &of);
  }
}

/* ---- rows that are stored ---- */

void mma_store_gradient(mma *m, const tile_op *op) {
  ir *b = m->b;
  ir_value scale = op->scales ? attend_natural_scale(m->t) : ir_float(b, b->f32, 1), factor[MMA_MOST_HALVES];
  for (int h = 0; h < m->shape.halves; h++) factor[h] = scale;
  ir_branch wanted = ir_if(b, ir_compare_int(b, "ne", mma_address_of(m, op->tensor), i64(b, 0)));
  mma_store_rows(m, op, factor);
  ir_end_if(b, wanted);
}
