/* gpu/staged_rows: in by pieces, encoded by units, out by pieces; see gpu/staged_rows.h. */
#include "gpu/staged_rows.h"

#include "gpu/index.h"

enum { WARP = 32, FLIGHT_PIECES = 3 * WARP, MOST_FLIGHT = 4 };

/* Pieces of one row of every owner. */
static int pieces_of_row(const plan *p, const thread_tile *t, int piece) {
  return t->owners * (p->spec->head_dim * t->element / piece);
}

int stage_flight(const plan *p, const thread_tile *t, int piece) {
  int flight = FLIGHT_PIECES / pieces_of_row(p, t, piece);
  return flight < 1 ? 1 : flight > MOST_FLIGHT ? MOST_FLIGHT : flight;
}

static int64_t warp_bytes(const thread_tile *t, int flight) { return (int64_t)flight * t->owners * t->pitch; }

int64_t stage_bytes(const plan *p, const thread_tile *t, int piece, int warps) {
  return warps * warp_bytes(t, stage_flight(p, t, piece));
}

ir_value stage_address(stage *s, ir_value local) {
  ir *b = s->rows->b;
  ir_value warp = scaled(b, s->warp, warp_bytes(s->rows->t, s->flight));
  return ir_offset(b, ir_shared_address(b, s->memory), wide(b, add(b, warp, local)));
}

void stage_begin(stage *s, ir_value first_owner, ir_value owners, stage_owner *owner_of, void *context) {
  ir *b = s->rows->b;
  const thread_tile *t = s->rows->t;
  int row_pieces = pieces_of_row(s->rows->p, t, s->piece), pieces = row_pieces / t->owners,
      all = s->flight * row_pieces;
  s->n_pieces = (all + WARP - 1) / WARP;
  s->row = arena_array(s->rows->memory, ir_value, s->n_pieces);
  s->local = arena_array(s->rows->memory, ir_value, s->n_pieces);
  s->exists = arena_array(s->rows->memory, ir_value, s->n_pieces);
  s->present = arena_array(s->rows->memory, ir_value, s->n_pieces);
  s->origin = arena_array(s->rows->memory, row_origin, s->n_pieces);
  for (int i = 0; i < s->n_pieces; i++) {
    ir_value index = add(b, s->lane, i32(b, i * WARP));
    if ((i + 1) * WARP > all) s->exists[i] = below(b, index, i32(b, all));
    ir_value piece = clamped(b, index, i32(b, all)), of_row = rest(b, piece, row_pieces),
             owner = quotient(b, of_row, pieces);
    ir_value global = add(b, first_owner, owner), at = scaled(b, rest(b, of_row, pieces), s->piece);
    row_owner where = owner_of(context, clamped(b, global, owners));
    s->row[i] = quotient(b, piece, row_pieces);
    s->local[i] = add(b, at, scaled(b, add(b, scaled(b, s->row[i], t->owners), owner), t->pitch));
    s->present[i] = below(b, global, owners);
    if (s->exists[i].ptr) s->present[i] = both(b, s->exists[i], s->present[i]);
    s->origin[i] = emit_row_origin(s->rows, &where, wide(b, at));
  }
}

static MlirType piece_type(const stage *s) {
  ir *b = s->rows->b;
  return s->piece == THREAD_PIECE ? ir_vector(b, THREAD_PIECE / 4, b->i32) : s->piece == 4 ? b->i32 : b->i16;
}

/* Every lane's unit of every row: what is in shared memory now is its own. */
void stage_units(stage *s, void *context) {
  (void)context;
  ir *b = s->rows->b;
  const thread_tile *t = s->rows->t;
  ir_value owner = quotient(b, s->lane, t->n_units),
           at = add(b, scaled(b, owner, t->pitch), ir_cast(b, "arith.trunci", s->rows->delta[0], b->i32));
  ir_branch branch = ir_if(b, s->valid);
  row_place *place = arena_array(s->rows->memory, row_place, s->flight);
  for (int row = 0; row < s->flight; row++) {
    place[row].in = place[row].out = stage_address(s, add(b, at, i32(b, (int64_t)row * t->owners * t->pitch)));
    place[row].raw = arena_array(s->rows->memory, ir_value, t->n_accesses);
    emit_row_load(s->rows, &place[row]);
  }
  for (int row = 0; row < s->flight; row++) emit_row_store(s->rows, &place[row], (ir_value){NULL});
  ir_end_if(b, branch);
}

void stage_rows(stage *s, ir_value first, ir_value end) {
  ir *b = s->rows->b;
  row_place *place = arena_array(s->rows->memory, row_place, s->n_pieces);
  ir_value *raw = arena_array(s->rows->memory, ir_value, s->n_pieces),
           *valid = arena_array(s->rows->memory, ir_value, s->n_pieces);
  for (int i = 0; i < s->n_pieces; i++) { /* all are under way before the first is waited for */
    ir_value row = add(b, first, s->row[i]);
    valid[i] = both(b, s->present[i], below(b, row, end));
    place[i] = emit_row_place(s->rows, &s->origin[i], clamped(b, row, end));
    raw[i] = ir_load(b, piece_type(s), place[i].in, s->piece);
  }
  for (int i = 0; i < s->n_pieces; i++) {
    ir_branch branch;
    if (s->exists[i].ptr) branch = ir_if(b, s->exists[i]);
    ir_store(b, raw[i], stage_address(s, s->local[i]), s->piece, false);
    if (s->exists[i].ptr) ir_end_if(b, branch);
  }
  ir_wait(b, IR_BARRIER_WARP);
  s->encode(s, s->context);
  ir_wait(b, IR_BARRIER_WARP);
  /* A lane takes out the pieces that it put in: no barrier before the next rows. */
  for (int i = 0; i < s->n_pieces; i++) {
    ir_value piece = ir_load(b, piece_type(s), stage_address(s, s->local[i]), s->piece);
    ir_branch branch = ir_if(b, valid[i]);
    ir_store(b, piece, place[i].out, s->piece, false);
    ir_end_if(b, branch);
  }
}
