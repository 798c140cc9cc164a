/* gpu/widen_rows: see gpu/widen_rows.h. */
#include "gpu/widen_rows.h"

#include "gpu/index.h"
#include "mlir/number.h"

enum { WARP = 32, PIECE = 16 };

const thread_tile *widen_tile(arena *a, const plan_widen *p, int element, int access, int lanes) {
  thread_tile *t = thread_tile_of_blocks(a, p->spec->n_blocks, element, access);
  t->owners = WARP / lanes;
  return t;
}

int widen_row_entries(arena *a, const plan_widen *p, const gpu_entry *like, int lanes, gpu_entry *entries) {
  int element = number_bytes(like->dtype), count = 0;
  bool whole = p->spec->head_dim * element % PIECE == 0 && p->layout[like->dtype].n_lanes * element % PIECE == 0;
  for (int narrow = !whole; narrow < 2; narrow++) {
    int access = narrow ? element : PIECE;
    gpu_entry *entry = &entries[count++];
    *entry = *like;
    entry->name = arena_printf(a, "%s_%s_%s%s", p->spec->name, gpu_entry_word(like), number_name(like->dtype),
                               narrow && whole ? "_narrow" : "");
    entry->access = access;
    entry->tile = widen_tile(a, p, element, access, lanes);
    entry->flight = entry->blocks = 1;
  }
  return count;
}

weight_lanes widen_lanes_of(const gpu_body *t, const plan_widen *p) {
  weight_lanes l = {
      .b = t->b, .memory = t->rows.memory, .p = p, .prefix = t->entry->name, .lanes = WARP / t->entry->tile->owners};
  l.lane = rest(t->b, t->thread, l.lanes);
  l.token = quotient(t->b, t->thread, l.lanes);
  return l;
}

ir_value widen_own(gpu_body *t, const weight_lanes *l) {
  ir *b = t->b;
  ir_value owners = gpu_owners(t), owner = add(b, scaled(b, t->block, PEGEN_PTX_BLOCK / l->lanes), l->token),
           valid = below(b, owner, owners);
  gpu_range(t);
  ir_value own = ir_select(b, valid, owner, sub(b, owners, i32(b, 1)));
  gpu_set_owner(t, i32(b, 0), own);
  t->rows.streams = row_streams(b, t->parameter);
  return valid;
}

void widen_load_place(gpu_body *t, const ir_value *origin, two_float *place) {
  two_float from[SPEC_MAX_AXES];
  gpu_load_positions(t);
  gpu_origin(t->b, t->p->spec, origin, t->owner.batch, from);
  for (int axis = 0; axis < t->p->spec->n_axes; axis++)
    place[axis] = two_float_sub(t->b, t->exprs.positions[axis], from[axis]);
}

MlirType widen_piece_type(const gpu_body *t) {
  return t->entry->access == PIECE ? ir_vector(t->b, 4, t->b->i32) : number_bits(t->b, t->rows.dtype);
}

void widen_move_row(gpu_body *t, weight_lanes *l, const row_place *place, ir_value valid) {
  ir *b = t->b;
  int access = t->entry->access;
  ir_branch exists = ir_if(b, valid);
  lane_turns turns = begin_turns(l, t->p->spec->head_dim * t->entry->tile->element / access);
  ir_value at = wide(b, scaled(b, turns.index, access));
  ir_store(b, ir_load(b, widen_piece_type(t), ir_offset(b, place->in, at), access), ir_offset(b, place->out, at),
           access, false);
  end_turns(l, turns);
  ir_end_if(b, exists);
}
