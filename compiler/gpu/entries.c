/* gpu/entries: which entries there are, and the rows of one thread; see gpu/entries.h. */
#include "gpu/entries.h"
#include "mlir/arith.h"

#include "base/diag.h"
#include "base/number.h"
#include "gpu/body.h"
#include "gpu/schedule.h"

#include "kernel/launch.h"

/* Bytes of rows a thread has under way, and how many rows at most; bytes of shared memory that leave a
 * multiprocessor of any chip (64 KiB) busy. */
enum { FLIGHT_BYTES = 96, FLIGHT_ROWS = 4, WARP = 32, WARPS = PEGEN_PTX_BLOCK / WARP, STAGE_BYTES = 12 << 10 };

/* Rows of a thread whose loads are under way together, of the part with the widest units. */
static int direct_flight(const thread_tile *t) {
  int flight = FLIGHT_BYTES / thread_tile_unit_bytes(t);
  return flight < 1 ? 1 : flight > FLIGHT_ROWS ? FLIGHT_ROWS : flight;
}

/* Units over rows where they lie, as wide as they get, or a channel at a time. */
static const thread_tile *direct_tiles(arena *a, const gpu_plans *plans, int element, bool widest) {
  const thread_tile *next = NULL;
  for (int i = plans->count - 1; i >= 0; i--) {
    thread_tile *t =
        widest ? thread_tile_widest(a, plans->of[i], element) : thread_tile_build(a, plans->of[i], element, element);
    t->next = next;
    next = t;
  }
  return next;
}

static gpu_entry direct_entry(const thread_tile *t) {
  return (gpu_entry){.access = thread_tile_access(t), .tile = t, .flight = direct_flight(t)};
}

static bool maps_channels(const gpu_plans *plans) {
  bool some = false;
  for (int i = 0; i < plans->count; i++) some = some || plans->of[i]->spec->pre;
  return some;
}

/* The best way to rows whose addresses and strides are multiples of 16. Units of parts lie where their rows do,
 * and so do those that read two rows at a time (reads_kept). */
static gpu_entry best_entry(arena *a, const gpu_plans *plans, int element, bool reads_kept) {
  const plan *p = plans->of[0];
  const thread_tile *direct = direct_tiles(a, plans, element, true), *staged = NULL;
  if (!direct->next && !reads_kept &&
      (direct->access < THREAD_PIECE || !thread_tile_fills_sectors(direct, p->spec->head_dim)))
    staged = thread_tile_staged(a, p, element);
  if (staged && stage_bytes(p, staged, THREAD_PIECE, WARPS) <= STAGE_BYTES)
    return (gpu_entry){.access = THREAD_PIECE, .tile = staged, .flight = stage_flight(p, staged, THREAD_PIECE)};
  return direct_entry(direct);
}

/* Entries of rows that are written in another type: every thread its own, for in shared memory a row would have to be
 * rounded twice. */
static int make_converting(arena *a, const gpu_plans *plans, int in, int out, gpu_entry *entries) {
  int element = number_bytes(in), count = 0;
  for (int i = 0; i < 2; i++) {
    if (i && entries[0].access == element) continue;
    gpu_entry *entry = &entries[count++];
    *entry = direct_entry(direct_tiles(a, plans, element, i == 0));
    entry->name = arena_printf(a, "%s_encode_%s_%s%s", plans->of[0]->spec->name, number_name(in), number_name(out),
                               i ? "_narrow" : "");
    entry->dtype = in;
    entry->other = out;
  }
  return count;
}

/* Entries that write the type that they read. */
int gpu_row_entries(arena *a, const gpu_plans *plans, pegen_launch_entry of, unsigned dtypes, gpu_entry *entries) {
  int count = 0;
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    int element = number_bytes(dtype);
    const char *name = arena_printf(a, "%s_%s_%s", plans->of[0]->spec->name, pegen_launch_word(of), number_name(dtype));
    bool reads_kept = of == PEGEN_LAUNCH_encode_backward && maps_channels(plans);
    gpu_entry entry = best_entry(a, plans, element, reads_kept);
    for (int narrow = 0; narrow < 2; narrow++) {
      if (narrow && entry.access == element) continue;
      if (narrow) entry = direct_entry(direct_tiles(a, plans, element, false));
      entry.name = narrow ? arena_printf(a, "%s_narrow", name) : name;
      entry.dtype = dtype;
      entry.of = of;
      entry.reads_kept = reads_kept;
      entries[count++] = entry;
    }
  }
  return count;
}

int gpu_converting_entries(arena *a, const gpu_plans *plans, unsigned dtypes, gpu_entry *entries) {
  int count = 0;
  for (int in = 0; in < NUMBER_CHANNEL_TYPES; in++)
    for (int out = NUMBER_CHANNEL_TYPES; out < NUMBER_OUT_TYPES; out++)
      if (dtypes & number_pair(in, out)) count += make_converting(a, plans, in, out, entries + count);
  return count;
}

/* ---- rows ---- */

/* Loads of rows first, so that all are under way together. Past the end the last row is loaded again and not stored. */
static void emit_loop(gpu_body *t, const row_origin *origin) {
  ir *b = t->b;
  int flight = t->entry->flight;
  row_place *place = arena_array(t->rows.memory, row_place, 2 * flight), *kept = place + flight;
  row_thread of_kept = t->rows;
  row_origin kept_origin;
  if (t->rows.map_back) {
    of_kept.parameter = gpu_kept_parameters(t, t->parameter + gpu_parameters(t->p->spec));
    kept_origin = emit_row_origin(&of_kept, &t->owner, t->rows.delta[0]);
  }
  ir_value *valid = arena_array(t->rows.memory, ir_value, flight);
  ir_value last = ir_op2(b, "arith.subi", t->end, i32(b, 1)), first;
  ir_loop loop = gpu_begin_rows(t, &first);
  for (int i = 0; i < flight; i++) {
    ir_value row = i ? add(b, first, i32(b, i)) : first;
    valid[i] = i ? ir_compare_int(b, "slt", row, t->end) : (ir_value){NULL};
    if (i) row = ir_select(b, valid[i], row, last);
    place[i] = emit_row_place(&t->rows, origin, row);
    emit_row_load(&t->rows, &place[i]);
    if (!t->rows.map_back) continue;
    kept[i] = emit_row_place(&of_kept, &kept_origin, row);
    emit_row_load(&of_kept, &kept[i]);
    place[i].kept = &kept[i];
  }
  for (int i = 0; i < flight; i++) emit_row_store(&t->rows, &place[i], valid[i]);
  ir_end_for(b, loop);
}

/* Rows of an owner: where they lie, or through shared memory. */
typedef struct owner_rows {
  gpu_body *body;
  const row_origin *origin; /* NULL: staged */
  stage *stage;
  ir_value first, owners; /* i32: of the warp, of the launch */
} owner_rows;

static ir_value is_in_place(gpu_body *t, int tensor) {
  return ir_compare_int(t->b, "eq", t->parameter[tensor + PEGEN_PTX_TENSOR_IN],
                        t->parameter[tensor + PEGEN_PTX_TENSOR_OUT]);
}

static void emit_rotor(void *context, const program_op *op) {
  const owner_rows *rows = context;
  gpu_body *t = rows->body;
  (void)op; /* evals and the matrix in one */
  emit_row_blocks(&t->rows);
  gpu_load_positions(t);
  emit_thread_operands(&t->exprs, t->p->program->matrix.entry, t->p->spec->n_components * t->p->spec->n_components);
  gpu_make_coefficients(t);
}

/* Whether the call is in place and the thread's unit has no block: then its channels are where they belong. */
static ir_value is_idle(gpu_body *t) {
  ir *b = t->b;
  const thread_tile *tile = t->tile;
  int *blocks = arena_array(t->rows.memory, int, tile->n_units);
  for (int u = 0; u < tile->n_units; u++) {
    blocks[u] = -1;
    for (int slot = 0; slot < tile->n_blocks; slot++)
      if (tile->block_at[slot * tile->n_units + u] >= 0) blocks[u] = 0;
  }
  ir_value busy = emit_thread_present(&t->exprs, blocks);
  if (!busy.ptr) return busy;
  ir_value in_place = ir_op2(b, "arith.andi", is_in_place(t, PEGEN_PTX_Q), is_in_place(t, PEGEN_PTX_K));
  return ir_op2(b, "arith.andi", in_place, ir_op2(b, "arith.xori", busy, ir_int(b, b->i1, 1)));
}

/* ---- the program ---- */

static void emit_rows(void *context, const program_op *ops) {
  const owner_rows *rows = context;
  gpu_body *t = rows->body;
  gpu_set_row_ops(t, ops);
  if (t->rows.turn && t->rows.turn->transposed != t->p->is_transposed)
    diag_bug("gpu/entries", "the plan's matrices are not those of the program");
  if (rows->origin) {
    emit_loop(t, rows->origin);
    return;
  }
  ir_value row;
  stage_begin(rows->stage, rows->first, rows->owners, gpu_owner_of, t);
  ir_loop loop = gpu_begin_rows(t, &row);
  stage_rows(rows->stage, row, t->end);
  ir_end_for(t->b, loop);
}

static void emit_tokens(gpu_body *t, const owner_rows *rows) {
  ir *b = t->b;
  owner_rows context = *rows;
  gpu_owner_walk walk = {emit_rotor, emit_rows, &context};
  const program_op *encoded = gpu_tokens(t->program, PART_ENCODED), *skipped = gpu_tokens(t->program, PART_SKIPPED);
  if (skipped == encoded || !skipped || !rows->origin) { /* a stage leaves skipped tokens as they came */
    gpu_walk_owner(t, &walk, encoded->body);
    return;
  }
  ir_branch branch = ir_if(b, ir_compare_int(b, "slt", t->owner.token, i32(b, t->p->spec->skip_tokens)));
  gpu_walk_owner(t, &walk, skipped->body);
  ir_else(b, &branch);
  gpu_walk_owner(t, &walk, encoded->body);
  ir_end_if(b, branch);
}

/* line: of the threads of the body's part, those of others counted as none. */
static void emit_direct(gpu_body *t, ir_value line) {
  ir *b = t->b;
  ir_value units = i32(b, t->tile->n_units);
  ir_branch inside = ir_if(b, ir_compare_int(b, "ult", line, mul(b, gpu_owners(t), units)));
  gpu_range(t);
  ir_value owner = ir_op2(b, "arith.divui", line, units);
  gpu_set_owner(t, ir_op2(b, "arith.remui", line, units), owner);
  ir_value idle = is_idle(t), never = ir_int(b, b->i1, 0);
  ir_branch awake = ir_if(b, ir_compare_int(b, "eq", idle.ptr ? idle : never, never));
  emit_row_accesses(&t->rows);
  if (t->rows.other) emit_row_gains(&t->rows, t->parameter + gpu_parameters(t->p->spec));
  row_origin origin = emit_row_origin(&t->rows, &t->owner, t->rows.delta[0]);
  emit_tokens(t, &(owner_rows){.body = t, .origin = &origin});
  ir_end_if(b, awake);
  ir_end_if(b, inside);
}

/* A lane without a unit, or of an owner past the last, computes the rotor of another and moves its pieces. */
static void emit_staged(gpu_body *t) {
  ir *b = t->b;
  const thread_tile *tile = t->tile;
  stage s = {.rows = &t->rows,
             .encode = stage_units,
             .piece = t->entry->access,
             .memory = arena_printf(t->rows.memory, "%s_rows", t->entry->name),
             .flight = t->entry->flight};
  ir_shared(b, s.memory, stage_bytes(t->p, tile, s.piece, WARPS));
  s.warp = ir_op2(b, "arith.divui", t->thread, i32(b, WARP));
  s.lane = ir_op2(b, "arith.remui", t->thread, i32(b, WARP));
  ir_value owners = gpu_owners(t), warp = add(b, mul(b, t->block, i32(b, WARPS)), s.warp),
           first = mul(b, warp, i32(b, tile->owners));
  ir_branch inside = ir_if(b, ir_compare_int(b, "ult", first, owners));
  gpu_range(t);
  ir_value units = i32(b, tile->n_units), own = add(b, first, ir_op2(b, "arith.divui", s.lane, units));
  ir_value exists = ir_compare_int(b, "ult", own, owners);
  own = ir_select(b, exists, own, first);
  gpu_set_owner(t, ir_op2(b, "arith.remui", s.lane, units), own);
  s.valid = ir_op2(b, "arith.andi", exists, ir_compare_int(b, "ult", s.lane, i32(b, tile->owners * tile->n_units)));
  ir_value encoded = gpu_is_encoded(t);
  if (encoded.ptr) s.valid = ir_op2(b, "arith.andi", s.valid, encoded);
  emit_row_accesses(&t->rows);
  emit_tokens(t, &(owner_rows){.body = t, .stage = &s, .first = first, .owners = owners});
  ir_end_if(b, inside);
}

/* ---- entries ---- */

bool gpu_has_neighbours(const program_blocks *blocks) {
  for (int i = 0; i < blocks->count; i++)
    for (int j = 0; j < blocks->size; j++)
      if (blocks->channel[j * blocks->count + i] != blocks->channel[0] + i * blocks->size + j) return false;
  return true;
}

int gpu_entry_units(const gpu_entry *entry) {
  return entry->units ? entry->units : entry->tile ? thread_tile_units(entry->tile) : 1;
}

bool gpu_entry_waits(const gpu_entry *entry) { return entry->units || (entry->tile && entry->tile->owners); }

const char *gpu_entry_word(const gpu_entry *entry) { return entry->word ? entry->word : pegen_launch_word(entry->of); }

const program *gpu_entry_program(const gpu_program *program, const gpu_entry *entry) {
  return entry->of == PEGEN_LAUNCH_encode_backward ? program->backward : program->encode;
}

static void begin_rows(gpu_body *t) {
  int n = t->p->spec->n_components;
  t->rows.exprs = &t->exprs;
  t->rows.coefficient = arena_array(t->rows.memory, ir_value, t->tile->n_blocks * n * n + 1);
}

void gpu_emit_rows(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  const gpu_plans *plans = entry->of == PEGEN_LAUNCH_encode_backward ? &program->transposed : &program->rows;
  gpu_body t = gpu_open(b, a, plans->of[0], plans->of[0]->per_head, entry, native, host);
  t.program = gpu_schedule(a, gpu_entry_program(program, entry));
  begin_rows(&t);
  if (entry->tile->owners) emit_staged(&t);
  else {
    ir_value line = add(b, mul(b, t.block, i32(b, PEGEN_PTX_BLOCK)), t.thread);
    emit_direct(&t, line);
    for (int i = 1; i < plans->count; i++) { /* threads of parts one part after the other, so that warps have one */
      line = sub(b, line, mul(b, gpu_owners(&t), i32(b, t.tile->n_units)));
      t = gpu_of_part(&t, i, plans->of[i]);
      begin_rows(&t);
      emit_direct(&t, line);
    }
  }
  ir_return(b);
}
