/* gpu/attention_rows: rows of a tile that are turned where they stand in shared memory; see gpu/attention.h.
 *
 * Where R(s - r) = R(r)^-1 R(s) (algebra/relative.h) a row of queries, keys or values is turned once in a tile, by the
 * rotation of its own place, and pairs need none. A thread has a block of a row at a time; neighbours have neighbouring
 * blocks.
 */
#include "gpu/attention.h"
#include "gpu/index.h"

#include "kernel/launch.h"

bool attend_turns_rows(const attention_plan *p) { return p->matrix && !p->stays && p->spec->skip_tokens == 0; }

const attention_plan *attend_plan_of_turned(arena *a, const attention_plan *p) {
  attention_plan *of = arena_new(a, attention_plan);
  *of = *p;
  of->matrix = NULL;
  of->n_shared = 0;
  of->operations = p->own_operations;
  return of;
}

const attention_plan *attend_plan_of_products(arena *a, const attention_plan *p) {
  if (!attend_turns_rows(p)) return p;
  attention_plan *of = arena_new(a, attention_plan);
  *of = *attend_plan_of_turned(a, p);
  of->turns_values = false;
  of->torques = NULL;
  if (!of->bias && !of->score && !of->columns) of->n_places = 0;
  return of;
}

bool attend_turns_by_head(const attention_plan *p) { return attend_turns_rows(p) && p->per_head; }

/* The block at the emitter's unit of a row, whose place positions are of. */
static void turn_block(attend *t, const attend_turning *of, ir_value row) {
  ir *b = t->b;
  const spec *s = t->p->spec;
  thread_emitter *e = &t->exprs;
  ir_value at[SPEC_MAX_BLADES], x[SPEC_MAX_BLADES], turned[SPEC_MAX_BLADES], entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES],
      base = attend_row_at(t, of->memory, row, of->pitch);
  emit_thread_operands(e, t->p->entry, t->p->n_entries);
  for (int i = 0; i < t->p->n_entries; i++) entry[i] = emit_thread_f32(e, t->p->entry[i], 0);
  for (int i = 0; i < s->n_components; i++) {
    ir_value channel = emit_thread_index(e, s->channel + (int64_t)i * s->n_blocks);
    at[i] = ir_offset(b, base, wide(b, scaled(b, channel, 4)));
    x[i] = ir_load(b, b->f32, at[i], 4);
  }
  attend_turn_block(t, entry, of->back, x, turned);
  if (of->watched) attend_watch(t, s->n_components, turned);
  for (int i = 0; i < s->n_components; i++) ir_store(b, turned[i], at[i], 4, false);
}

void attend_turn_rows(attend *t, const attend_turning *of) {
  ir *b = t->b;
  const spec *s = t->p->spec;
  thread_emitter *e = &t->exprs;
  int all = of->count * s->n_blocks, steps = (all + PEGEN_PTX_BLOCK - 1) / PEGEN_PTX_BLOCK;
  ir_branch branch;
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, steps));
  ir_value index = add(b, t->thread, scaled(b, narrow(b, loop.index), PEGEN_PTX_BLOCK)), unit = e->unit;
  if (all % PEGEN_PTX_BLOCK) branch = ir_if(b, below(b, index, i32(b, all)));
  two_float *remembered = emit_thread_remember(e);
  ir_value row = quotient(b, index, s->n_blocks);
  e->unit = rest(b, index, s->n_blocks);
  for (int axis = 0; axis < s->n_axes; axis++) e->positions[axis] = attend_coordinate(t, of->places, row, axis);
  turn_block(t, of, row);
  emit_thread_forget(e, remembered);
  e->unit = unit;
  if (all % PEGEN_PTX_BLOCK) ir_end_if(b, branch);
  ir_end_for(b, loop);
}
