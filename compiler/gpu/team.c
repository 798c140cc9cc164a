/* gpu/team: see gpu/team.h. */
#include "gpu/team.h"

#include "base/number.h"
#include "gpu/index.h"
#include "mlir/number.h"

enum { QUAD = TEAM_QUAD, QUAD_BYTES = 4 * QUAD, ROWS_OF_THREAD = 2, MOST_UNROLLED = 2 };

/* Rows that a team has in shared memory together: two for each thread of those that share four channels. */
int team_flight(int size) { return ROWS_OF_THREAD * team_padded(size) / (2 * QUAD); }

/* Returns bytes of the widest accesses to rows of numbers of `element` bytes. */
static int team_access(const program_blocks *s, int channels, int element) {
  enum { WIDEST = 16 };
  bool is_wide = gpu_has_neighbours(s) && (s->channel[0] | s->size | channels) * element % WIDEST == 0;
  return is_wide ? WIDEST : element;
}

/* ---- channels ---- */

/* Channel `component` (i32) of the thread's block. */
static ir_value channel_of(team_rows *r, ir_value component) {
  ir *b = r->b;
  if (r->first_channel.ptr) return add(b, r->first_channel, component);
  const program_blocks *s = r->blocks;
  const char *name = arena_printf(r->memory, "%s_channels", r->body->entry->name);
  ir_value index = add(b, scaled(b, r->unit, s->size), component);
  return table_i32(b, name, index);
}

static void make_channels(team_rows *r) {
  const program_blocks *s = r->blocks;
  if (gpu_has_neighbours(s)) {
    r->first_channel = add(r->b, i32(r->b, s->channel[0]), scaled(r->b, r->unit, s->size));
    return;
  }
  int32_t *channels = arena_array(r->memory, int32_t, s->count * s->size);
  for (int i = 0; i < s->count; i++)
    for (int j = 0; j < s->size; j++) channels[i * s->size + j] = s->channel[(int64_t)j * s->count + i];
  ir_table(r->b, arena_printf(r->memory, "%s_channels", r->body->entry->name), s->count * s->size, NULL, channels);
}

/* ---- elements ---- */

/* Element (row, column) of a generator, from the raw matrix at `first`. */
static ir_value skew_element(team_rows *r, const spec_skew *g, ir_value first, bool is_transposed, ir_value row,
                             ir_value column) {
  ir *b = r->b;
  int size = r->blocks->size;
  ir_value lower = ir_compare_int(b, "ugt", row, column), offset[2];
  two_float raw[2];
  offset[0] = add(b, scaled(b, row, size), column), offset[1] = add(b, scaled(b, column, size), row);
  bool one = g->rule == SKEW_UPPER;
  if (one) offset[0] = ir_select(b, lower, offset[1], offset[0]);
  for (int i = 0; i < 2 - one; i++) offset[i] = add(b, first, offset[i]);
  emit_thread_elements(&r->body->exprs, g->operand, 2 - one, offset, raw);
  if (!one) return two_float_narrow(b, two_float_sub(b, raw[is_transposed], raw[!is_transposed]));
  ir_value upper = raw[0].hi, turned = ir_op1(b, "arith.negf", upper);
  return is_transposed ? ir_select(b, lower, upper, turned) : ir_select(b, lower, turned, upper);
}

ir_value team_skew_quad(team_rows *r, int count, const spec_skew *generator, const ir_value *first,
                        const two_float *factor, bool is_transposed, ir_value row, ir_value quad) {
  ir *b = r->b;
  ir_value size = i32(b, r->blocks->size), element[QUAD], zero = ir_float(b, b->f32, 0);
  for (int j = 0; j < QUAD; j++) {
    ir_value column = add(b, scaled(b, quad, QUAD), i32(b, j)), sum = {NULL};
    ir_value is_there =
        both(b, ir_compare_int(b, "ne", row, column), both(b, below(b, row, size), below(b, column, size)));
    ir_value at_row = ir_select(b, is_there, row, i32(b, 0)), at_column = ir_select(b, is_there, column, i32(b, 1));
    for (int k = 0; k < count; k++) {
      ir_value value = skew_element(r, &generator[k], first[k], is_transposed, at_row, at_column);
      sum = sum.ptr ? ir_fma(b, factor[k].hi, value, sum) : mul(b, factor[k].hi, value);
      if (factor[k].lo.ptr) sum = ir_fma(b, factor[k].lo, value, sum);
    }
    element[j] = ir_select(b, is_there, sum, zero);
  }
  return ir_elements(b, ir_vector(b, QUAD, b->f32), QUAD, element);
}

void team_skew(team_rows *r, int count, const spec_skew *generator, const ir_value *first, const two_float *factor,
               bool is_transposed) {
  ir *b = r->b;
  int quads = r->team->padded / QUAD, each = r->team->padded * quads / r->team->threads;
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, each));
  ir_value index = add(b, r->team->lane, scaled(b, narrow(b, loop.index), r->team->threads));
  ir_value row = quotient(b, index, quads), quad = rest(b, index, quads);
  ir_store(b, team_skew_quad(r, count, generator, first, factor, is_transposed, row, quad),
           team_quad(r->team, TEAM_LEFT, row, quad), QUAD_BYTES, false);
  ir_end_for(b, loop);
}

/* ---- rows: float32 in the team's right matrix, `padded` numbers each ---- */

static row_thread *rows_of(team_rows *r) { return r->source ? r->source : &r->body->rows; }

/* valid: the row (i32) is one. */
static ir_value is_stored(team_rows *r, ir_value valid, ir_value row) {
  return r->is_written ? both(r->b, r->is_written(r->body, row), valid) : valid;
}

ir_value team_row_address(team_rows *r, ir_value row, ir_value channel) {
  ir *b = r->b;
  ir_value at = add(b, scaled(b, row, 4LL * r->team->padded), scaled(b, channel, 4));
  return team_bytes(r->team, r->base ? add(b, at, i32(b, r->base)) : at);
}

void team_rows_clear(team_rows *r) {
  ir *b = r->b;
  int quads = team_flight(r->blocks->size) * r->team->padded / QUAD / r->team->threads;
  if (r->team->size == r->team->padded) return;
  for (int i = 0; i < quads; i++) {
    ir_value at = scaled(b, add(b, r->team->lane, i32(b, (int64_t)i * r->team->threads)), QUAD_BYTES);
    if (r->base) at = add(b, at, i32(b, r->base));
    ir_store(b, ir_float(b, ir_vector(b, QUAD, b->f32), 0), team_bytes(r->team, at), QUAD_BYTES, false);
  }
  ir_wait(b, IR_BARRIER_BLOCK);
}

/* A thread's piece of a row: row of the flight, channel of the block it begins with (i32), and whether there is one
 * (i1, null: there is). */
typedef struct row_piece {
  ir_value row, channel, exists;
} row_piece;

static row_piece piece_of(team_rows *r, ir_value i, bool is_whole) {
  ir *b = r->b;
  int of_row = r->blocks->size / r->body->entry->tile->lanes, all = team_flight(r->blocks->size) * of_row;
  ir_value index = add(b, r->team->lane, scaled(b, i, r->team->threads));
  row_piece piece = {.row = quotient(b, index, of_row),
                     .channel = scaled(b, rest(b, index, of_row), r->body->entry->tile->lanes)};
  if (!is_whole) piece.exists = below(b, index, i32(b, all));
  return piece;
}

static row_place place_of(team_rows *r, const row_origin *origin, ir_value first, const row_piece *piece) {
  ir *b = r->b;
  ir_value token = clamped(b, add(b, first, piece->row), r->body->end);
  row_place place = emit_row_place(rows_of(r), origin, token);
  ir_value at = wide(b, scaled(b, channel_of(r, piece->channel), r->body->entry->tile->element));
  place.in = ir_offset(b, place.in, at);
  place.out = ir_offset(b, place.out, at);
  return place;
}

static void piece_in(team_rows *r, const row_origin *origin, ir_value first, const row_piece *piece) {
  ir *b = r->b;
  const thread_tile *t = r->body->entry->tile;
  ir_value x[QUAD_BYTES / 2];
  ir_branch branch;
  if (piece->exists.ptr) branch = ir_if(b, piece->exists);
  row_place place = place_of(r, origin, first, piece);
  emit_row_load(rows_of(r), &place);
  emit_row_unpack(rows_of(r), &place, x);
  ir_value at = team_row_address(r, piece->row, piece->channel);
  if (t->lanes == 1) ir_store(b, x[0], at, 4, false);
  for (int k = 0; t->lanes > 1 && k < t->lanes; k += QUAD)
    ir_store(b, ir_elements(b, ir_vector(b, QUAD, b->f32), QUAD, x + k), ir_offset_const(b, at, 4LL * k), QUAD_BYTES,
             false);
  if (piece->exists.ptr) ir_end_if(b, branch);
}

static void piece_out(team_rows *r, const row_origin *origin, ir_value first, const row_piece *piece) {
  ir *b = r->b;
  const thread_tile *t = r->body->entry->tile;
  ir_value y[QUAD_BYTES / 2], stored = both(b, r->exists, below(b, add(b, first, piece->row), r->body->end));
  if (piece->exists.ptr) stored = both(b, piece->exists, stored);
  ir_branch branch = ir_if(b, is_stored(r, stored, add(b, first, piece->row)));
  row_place place = place_of(r, origin, first, piece);
  ir_value at = team_row_address(r, piece->row, piece->channel);
  if (t->lanes == 1) y[0] = ir_load(b, b->f32, at, 4);
  for (int k = 0; t->lanes > 1 && k < t->lanes; k += QUAD) {
    ir_value quad = ir_load(b, ir_vector(b, QUAD, b->f32), ir_offset_const(b, at, 4LL * k), QUAD_BYTES);
    for (int j = 0; j < QUAD; j++) y[k + j] = ir_extract(b, quad, j);
  }
  ir_store(b, emit_row_pack(&r->body->rows, y), place.out, t->access, false);
  ir_end_if(b, branch);
}

/* One or two 16-byte pieces a thread side by side; single channels in a loop, because the addresses of many take
 * registers. */
static void each_piece(team_rows *r, const row_origin *origin, ir_value first,
                       void (*visit)(team_rows *, const row_origin *, ir_value, const row_piece *)) {
  ir *b = r->b;
  int all = team_flight(r->blocks->size) * (r->blocks->size / r->body->entry->tile->lanes),
      count = (all + r->team->threads - 1) / r->team->threads;
  bool is_whole = all % r->team->threads == 0;
  if (count > MOST_UNROLLED) {
    ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, count));
    row_piece piece = piece_of(r, narrow(b, loop.index), is_whole);
    visit(r, origin, first, &piece);
    ir_end_for(b, loop);
    return;
  }
  for (int i = 0; i < count; i++) {
    row_piece piece = piece_of(r, i32(b, i), is_whole);
    visit(r, origin, first, &piece);
  }
}

void team_rows_in(team_rows *r, const row_origin *origin, ir_value first) { each_piece(r, origin, first, piece_in); }

void team_rows_out(team_rows *r, const row_origin *origin, ir_value first) { each_piece(r, origin, first, piece_out); }

/* ---- channels of no block, which pass through with the last one where the call is out of place ---- */

static const char *passing_table(team_rows *r) { return arena_printf(r->memory, "%s_passing", r->body->entry->name); }

int team_rows_passing(team_rows *r) {
  return gpu_passing_table(r->b, r->memory, r->blocks, r->body->p->spec->head_dim, passing_table(r));
}

void team_rows_pass(team_rows *r, const row_origin *origin, ir_value first, int count) {
  ir *b = r->b;
  int element = r->body->entry->tile->element, flight = team_flight(r->blocks->size);
  MlirType type = number_bits(b, r->body->rows.dtype);
  if (count == 0) return;
  ir_branch last = ir_if(b, both(b, r->exists, ir_compare_int(b, "eq", r->unit, i32(b, r->blocks->count - 1))));
  ir_loop loop =
      ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, (flight * count + r->team->threads - 1) / r->team->threads));
  ir_value index = add(b, r->team->lane, scaled(b, narrow(b, loop.index), r->team->threads)),
           row = add(b, first, quotient(b, index, count));
  ir_value is_there = both(b, below(b, index, i32(b, (int64_t)flight * count)), below(b, row, r->body->end));
  ir_branch branch = ir_if(b, is_stored(r, is_there, row));
  ir_value at = table_i32(b, passing_table(r), rest(b, index, count));
  row_place place = emit_row_place(&r->body->rows, origin, row);
  at = wide(b, scaled(b, at, element));
  ir_store(b, ir_load(b, type, ir_offset(b, place.in, at), element), ir_offset(b, place.out, at), element, false);
  ir_end_if(b, branch);
  ir_end_for(b, loop);
  ir_end_if(b, last);
}

/* ---- applying ---- */

/* Four channels of two rows a thread: y_i = sum_k E_ik x_k, the left matrix being E transposed. */
static void multiply_rows(team_rows *r, ir_value quad, const ir_value *row, ir_value *y) {
  ir *b = r->b;
  enum { COUNT = ROWS_OF_THREAD * QUAD };
  MlirType vector = ir_vector(b, QUAD, b->f32);
  ir_value zero[COUNT], sum[COUNT];
  for (int i = 0; i < COUNT; i++) zero[i] = ir_float(b, b->f32, 0);
  ir_loop loop = ir_for_with(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, r->team->padded / QUAD), COUNT, zero, sum);
  ir_value four = scaled(b, narrow(b, loop.index), QUAD), x[ROWS_OF_THREAD];
  ir_value matrix = team_quad(r->team, TEAM_LEFT, four, quad);
  for (int i = 0; i < ROWS_OF_THREAD; i++) x[i] = ir_load(b, vector, team_row_address(r, row[i], four), QUAD_BYTES);
  for (int k = 0; k < QUAD; k++) {
    ir_value e = ir_load(b, vector, ir_offset_const(b, matrix, 4LL * r->team->padded * k), QUAD_BYTES);
    for (int i = 0; i < COUNT; i++)
      sum[i] = ir_fma(b, ir_extract(b, e, i % QUAD), ir_extract(b, x[i / QUAD], k), sum[i]);
  }
  ir_end_for_with(b, loop, COUNT, sum, y);
}

void team_rows_multiply(team_rows *r, double amplitude, ir_value changed) {
  ir *b = r->b;
  const program_blocks *s = r->blocks;
  int quads = r->team->padded / QUAD;
  ir_value quad = rest(b, r->team->lane, quads), row[ROWS_OF_THREAD], y[ROWS_OF_THREAD * QUAD];
  row[0] = quotient(b, r->team->lane, quads);
  for (int i = 1; i < ROWS_OF_THREAD; i++) row[i] = add(b, row[0], i32(b, (int64_t)i * r->team->padded / (2 * QUAD)));
  multiply_rows(r, quad, row, y);
  for (int i = 0; i < ROWS_OF_THREAD * QUAD; i++) {
    if (amplitude != 1) y[i] = mul(b, y[i], ir_float(b, b->f32, amplitude));
    if (s->size == r->team->padded) continue;
    ir_value is_there = below(b, add(b, scaled(b, quad, QUAD), i32(b, i % QUAD)), i32(b, s->size));
    y[i] = ir_select(b, is_there, y[i], ir_float(b, b->f32, 0));
  }
  ir_wait(b, IR_BARRIER_BLOCK); /* all have read */
  ir_branch branch;
  if (changed.ptr) branch = ir_if(b, changed);
  for (int i = 0; i < ROWS_OF_THREAD; i++)
    ir_store(b, ir_elements(b, ir_vector(b, QUAD, b->f32), QUAD, y + i * QUAD),
             team_row_address(r, row[i], scaled(b, quad, QUAD)), QUAD_BYTES, false);
  if (changed.ptr) ir_end_if(b, branch);
  ir_wait(b, IR_BARRIER_BLOCK); /* all have written */
}

void team_rows_turn(team_rows *r, const row_origin *origin, int passing, double amplitude, ir_value changed) {
  ir *b = r->b;
  ir_value first;
  ir_loop loop = gpu_begin_rows(r->body, &first);
  team_rows_in(r, origin, first);
  team_rows_pass(r, origin, first, passing);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_rows_multiply(r, amplitude, changed);
  team_rows_out(r, origin, first);
  ir_end_for(b, loop);
}

void team_rows_begin(team_rows *r) {
  make_channels(r);
  team_rows_clear(r);
}

/* ---- entries ---- */

void gpu_add_team_entries(arena *a, gpu_program *program, const program_blocks *blocks, gpu_entry like,
                          unsigned dtypes) {
  const spec *s = program->spec;
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    int element = number_bytes(dtype);
    const char *name = arena_printf(a, "%s_%s_%s", s->name, gpu_entry_word(&like), number_name(dtype));
    for (int access = team_access(blocks, s->head_dim, element); access; access = access > element ? element : 0) {
      gpu_entry *entry = &program->entry[program->n_entries++];
      *entry = like;
      entry->name = name;
      entry->dtype = dtype;
      entry->access = access;
      entry->tile = thread_tile_of_blocks(a, s->n_blocks, element, access);
      entry->flight = team_flight(blocks->size);
      name = arena_printf(a, "%s_narrow", name);
    }
  }
}
