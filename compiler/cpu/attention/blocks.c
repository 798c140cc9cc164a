/* cpu/attention/blocks: see cpu/attention/blocks.h. */
#include "cpu/attention/blocks.h"

#include "mlir/arith.h"

static const char *channel_table(const attention_emitter *e) {
  return arena_printf(e->memory, "channels_%s", e->target->suffix);
}

void emit_block_channels(ir *b, arena *a, const attention_plan *p, const cpu_target *target) {
  const spec *s = p->spec;
  ir_table(b, arena_printf(a, "channels_%s", target->suffix), s->n_components * s->n_blocks, NULL,
           (const int32_t *)s->channel);
}

void emit_block_channel(const attention_emitter *e, ir_value index, ir_value *channel) {
  ir *b = e->b;
  const spec *s = e->p->spec;
  ir_value channels = nth(b, ir_table_address(b, channel_table(e)), index, 4);
  for (int i = 0; i < s->n_components; i++) {
    ir_value at = ir_offset_const(b, channels, (int64_t)i * s->n_blocks * 4);
    channel[i] = ir_cast(b, "arith.extsi", ir_load(b, b->i32, at, 4), b->i64);
  }
}

void emit_block_rows(const attention_emitter *e, ir_value index, block_rows *block) {
  emit_block_channel(e, index, block->channel);
  for (int i = 0; i < e->p->spec->n_components; i++)
    for (int x = 0; x < e->shape.vectors; x++)
      block->q[x][i] = ir_load(e->b, e->lanes, attention_at(e, e->queries, block->channel[i], x), 4);
}

void emit_components(const attention_emitter *e, ir_value row, const ir_value *channel, int n, ir_value *k) {
  ir *b = e->b;
  for (int i = 0; i < n; i++) k[i] = ir_broadcast(b, e->lanes, ir_load(b, b->f32, nth(b, row, channel[i], 4), 4));
}

void emit_key_components(const attention_emitter *e, ir_value row, const block_rows *block, ir_value *k) {
  emit_components(e, row, block->channel, e->p->spec->n_components, k);
}

/* sum + x y, or sum - x y; a sum that is null is 0. */
static ir_value emit_signed_product(ir *b, ir_value sum, bool negated, ir_value x, ir_value y) {
  ir_value product = mul(b, x, y);
  if (sum.ptr) return ir_op2(b, negated ? "arith.subf" : "arith.addf", sum, product);
  return negated ? ir_op1(b, "arith.negf", product) : product;
}

/* (I - t t^T) D x, or back: D (I - t t^T) x. */
static void emit_mirrored(const attention_emitter *e, const ir_value *entry, const ir_value *x, bool back,
                          ir_value *turned) {
  ir *b = e->b;
  const attention_plan *p = e->p;
  int n = p->spec->n_components;
  ir_value product = {NULL};
  for (int i = 0; i < n; i++) {
    bool flips = p->flipped[i] && !back;
    if (p->entry_of[i] >= 0)
      product = emit_signed_product(b, product, p->entry_negated[i] != flips, entry[p->entry_of[i]], x[i]);
  }
  for (int i = 0; i < n; i++) { /* D x and R x, or x and R^T x, up to the sign of D */
    bool flips = p->flipped[i] && !back;
    turned[i] = x[i];
    if (p->entry_of[i] >= 0)
      turned[i] = emit_signed_product(b, x[i], p->entry_negated[i] == flips, entry[p->entry_of[i]], product);
    if (p->flipped[i]) turned[i] = ir_op1(b, "arith.negf", turned[i]);
  }
}

/* A component that nothing gives stays null. */
static void emit_components_of(const attention_emitter *e, const ir_value *entry, const ir_value *x, bool back,
                               ir_value *turned) {
  const attention_plan *p = e->p;
  int n = p->spec->n_components;
  if (p->mirror) {
    emit_mirrored(e, entry, x, back, turned);
    return;
  }
  for (int i = 0; i < n; i++) {
    turned[i] = (ir_value){NULL};
    for (int j = 0; j < n; j++) {
      int at = back ? j * n + i : i * n + j;
      if (p->entry_of[at] >= 0)
        turned[i] = emit_signed_product(e->b, turned[i], p->entry_negated[at], entry[p->entry_of[at]], x[j]);
    }
  }
}

void emit_turned_components(const attention_emitter *e, const ir_value *entry, const ir_value *x, bool back,
                            ir_value *turned) {
  emit_components_of(e, entry, x, back, turned);
  for (int i = 0; i < e->p->spec->n_components; i++)
    if (!turned[i].ptr) turned[i] = ir_float(e->b, e->lanes, 0);
}

ir_value emit_turned_score(const attention_emitter *e, const ir_value *entry, const ir_value *q, const ir_value *k,
                           ir_value score) {
  ir_value turned[SPEC_MAX_BLADES];
  emit_components_of(e, entry, k, false, turned);
  for (int i = 0; i < e->p->spec->n_components; i++)
    if (turned[i].ptr) score = attention_multiply_add(e->b, q[i], turned[i], score);
  return score;
}
