/* gpu/entries: indices, positions and rows of one thread; see gpu/entries.h. */
#include "gpu/entries.h"
#include "mlir/arith.h"

#include "base/diag.h"
#include "base/number.h"
#include "gpu/body.h"
#include "gpu/schedule.h"

#include "kernel/launch.h"
#include "kernel/loop.h"
#include "pegen/pegen.h"

/* Bytes of rows a thread has under way, and how many rows at most; bytes of shared memory that leave a
 * multiprocessor of any chip (64 KiB) busy. */
enum { FLIGHT_BYTES = 96, FLIGHT_ROWS = 4, WARP = 32, WARPS = PEGEN_PTX_BLOCK / WARP, STAGE_BYTES = 12 << 10 };

/* Rows of a thread whose loads are under way together. */
static int direct_flight(const thread_tile *t) {
  int flight = FLIGHT_BYTES / (t->n_accesses * t->access);
  return flight < 1 ? 1 : flight > FLIGHT_ROWS ? FLIGHT_ROWS : flight;
}

/* The best way to rows whose addresses and strides are multiples of 16. */
static gpu_entry best_entry(arena *a, const plan *p, int element) {
  const thread_tile *direct = thread_tile_widest(a, p, element), *staged = NULL;
  if (direct->access < THREAD_PIECE || !thread_tile_fills_sectors(direct, p->spec->head_dim))
    staged = thread_tile_staged(a, p, element);
  if (staged && stage_bytes(p, staged, THREAD_PIECE, WARPS) <= STAGE_BYTES)
    return (gpu_entry){.access = THREAD_PIECE, .tile = staged, .flight = stage_flight(p, staged, THREAD_PIECE)};
  return (gpu_entry){.access = direct->access, .tile = direct, .flight = direct_flight(direct)};
}

/* Entries of rows that are written in another type: every thread its own, for in shared memory a row would have to be
 * rounded twice. */
static int make_converting(arena *a, const plan *p, int in, int out, gpu_entry *entries) {
  int element = number_bytes(in), count = 0;
  const thread_tile *tiles[] = {thread_tile_widest(a, p, element), thread_tile_build(a, p, element, element)};
  for (int i = 0; i < 2; i++) {
    if (!tiles[i] || (i && tiles[0]->access == element)) continue;
    entries[count++] = (gpu_entry){.name = arena_printf(a, "%s_encode_%s_%s%s", p->spec->name, number_name(in),
                                                        number_name(out), i ? "_narrow" : ""),
                                   .dtype = in,
                                   .other = out,
                                   .access = tiles[i]->access,
                                   .tile = tiles[i],
                                   .flight = direct_flight(tiles[i])};
  }
  return count;
}

/* Entries that write the type that they read, under the word of what they are. */
static int make_entries(arena *a, const plan *p, const char *word, unsigned dtypes, gpu_entry *entries) {
  int count = 0;
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    int element = number_bytes(dtype);
    const char *name = arena_printf(a, "%s_%s_%s", p->spec->name, word, number_name(dtype));
    gpu_entry *wide = &entries[count++];
    *wide = best_entry(a, p, element);
    wide->name = name;
    wide->dtype = dtype;
    const thread_tile *narrow = wide->access > element ? thread_tile_build(a, p, element, element) : NULL;
    if (narrow)
      entries[count++] = (gpu_entry){.name = arena_printf(a, "%s_narrow", name),
                                     .dtype = dtype,
                                     .access = element,
                                     .tile = narrow,
                                     .flight = direct_flight(narrow)};
  }
  return count;
}

static int make_all_converting(arena *a, const plan *p, unsigned dtypes, gpu_entry *entries) {
  int count = 0;
  for (int in = 0; in < NUMBER_CHANNEL_TYPES; in++)
    for (int out = NUMBER_CHANNEL_TYPES; out < NUMBER_OUT_TYPES; out++)
      if (dtypes & number_pair(in, out)) count += make_converting(a, p, in, out, entries + count);
  return count;
}

/* ---- a thread ---- */

static ir_value short_parameter(gpu_body *t, int index) {
  return ir_cast(t->b, "arith.trunci", t->parameter[index], t->b->i32);
}

void gpu_load_positions(gpu_body *t) {
  gpu_coordinates(t->b, t->p->spec, t->parameter + PEGEN_PTX_POSITIONS, t->owner.batch, t->owner.token,
                  t->exprs.positions);
}

/* ---- indices ---- */

/* Columns are tokens of all batches, or of all heads where rotors differ by head, heads fastest. Threads lie in
 * one line, an owner's units side by side; of a staged tile every warp has whole owners. The launcher keeps
 * their number below 2^31. */
ir_value gpu_owners(gpu_body *t) {
  ir *b = t->b;
  ir_value others = t->per_head ? i32(b, t->p->spec->heads) : short_parameter(t, PEGEN_PTX_BATCHES);
  return mul(b, short_parameter(t, PEGEN_PTX_TOKENS), others);
}

row_owner gpu_owner_of(void *context, ir_value index) {
  gpu_body *t = context;
  ir *b = t->b;
  if (!t->per_head) {
    ir_value tokens = short_parameter(t, PEGEN_PTX_TOKENS);
    return (row_owner){.token = ir_op2(b, "arith.remui", index, tokens),
                       .batch = ir_op2(b, "arith.divui", index, tokens)};
  }
  ir_value heads = i32(b, t->p->spec->heads);
  return (row_owner){.token = ir_op2(b, "arith.divui", index, heads),
                     .head = ir_op2(b, "arith.remui", index, heads),
                     .batch = ir_op2(b, "arith.divui", t->begin, row_streams(b, t->parameter))};
}

void gpu_range(gpu_body *t) {
  ir *b = t->b;
  ir_value rows = short_parameter(t, PEGEN_PTX_ROWS), total;
  const int heads = PEGEN_PTX_TENSOR_HEADS;
  t->begin = mul(b, t->grid_row, rows);
  if (t->per_head) total = mul(b, short_parameter(t, PEGEN_PTX_BATCHES), row_streams(b, t->parameter));
  else total = add(b, short_parameter(t, PEGEN_PTX_Q + heads), short_parameter(t, PEGEN_PTX_K + heads));
  ir_value end = add(b, t->begin, rows);
  t->end = ir_select(b, ir_compare_int(b, "ult", end, total), end, total);
}

void gpu_set_owner(gpu_body *t, ir_value unit, ir_value owner) {
  t->owner = gpu_owner_of(t, owner);
  t->exprs.unit = unit;
  t->exprs.head = t->owner.head;
}

/* ---- rows ---- */

static void emit_coefficients(gpu_body *t) {
  int n = t->p->spec->n_components, size = n * n;
  emit_thread_operands(&t->exprs, t->p->program->matrix.entry, size);
  for (int slot = 0; slot < t->entry->tile->n_blocks; slot++)
    for (int i = 0; i < size; i++) {
      const expr *x = t->p->program->matrix.entry[i];
      if (!expr_is_const(x, 0)) t->rows.coefficient[slot * size + i] = emit_thread_f32(&t->exprs, x, slot);
    }
}

/* The thread's rows, `flight` at a time; first: the number of the first. */
ir_loop gpu_begin_rows(gpu_body *t, ir_value *first) {
  ir *b = t->b;
  int flight = t->entry->flight;
  ir_value span = ir_op2(b, "arith.subi", t->end, t->begin);
  ir_value steps = ir_op2(b, "arith.divsi", add(b, span, i32(b, flight - 1)), i32(b, flight));
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_cast(b, "arith.extsi", steps, b->i64));
  *first = add(b, t->begin, mul(b, ir_cast(b, "arith.trunci", loop.index, b->i32), i32(b, flight)));
  return loop;
}

/* Loads of rows first, so that all are under way together. Past the end the last row is loaded again and not stored. */
static void emit_loop(gpu_body *t, const row_origin *origin) {
  ir *b = t->b;
  int flight = t->entry->flight;
  row_place *place = arena_array(t->rows.memory, row_place, flight);
  ir_value *valid = arena_array(t->rows.memory, ir_value, flight);
  ir_value last = ir_op2(b, "arith.subi", t->end, i32(b, 1)), first;
  ir_loop loop = gpu_begin_rows(t, &first);
  for (int i = 0; i < flight; i++) {
    ir_value row = i ? add(b, first, i32(b, i)) : first;
    valid[i] = i ? ir_compare_int(b, "slt", row, t->end) : (ir_value){NULL};
    if (i) row = ir_select(b, valid[i], row, last);
    place[i] = emit_row_place(&t->rows, origin, row);
    emit_row_load(&t->rows, &place[i]);
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
  emit_coefficients(t);
}

/* Whether the call is in place and the thread's unit has no block: then its channels are where they belong. */
static ir_value is_idle(gpu_body *t) {
  ir *b = t->b;
  const thread_tile *tile = t->entry->tile;
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

static bool is_of_token(const program_op *op) { return op->kind == OP_EVAL || op->kind == OP_MATRIX; }

void gpu_walk_owner(const gpu_body *t, const gpu_owner_walk *walk, const program_op *list) {
  unsigned threads = IN(TOKENS) | (t->per_head ? IN(HEADS) : IN(BATCHES));
  for (const program_op *op = list; op; op = op->next) {
    bool last = !op->next || !is_of_token(op->next);
    if (op->kind == OP_FOR && threads & 1u << op->space) gpu_walk_owner(t, walk, op->body);
    else if (op->kind == OP_FOR) {
      const program_op *row = op;
      while (row->kind == OP_FOR) row = row->body;
      walk->rows(walk->context, row);
    } else if (!is_of_token(op)) diag_bug("gpu/entries", "'%s' of a token", program_op_word(op->kind));
    else if (last) walk->matrix(walk->context, op);
  }
}

const program_op *gpu_tokens(const program *p, program_part part) {
  for (const program_op *op = p->body; op; op = op->next)
    if (op->kind == OP_FOR && op->space == SPACE_TOKENS && op->part & part) return op;
  return NULL;
}

ir_value gpu_is_encoded(gpu_body *t) {
  if (gpu_tokens(t->program, PART_ENCODED)->part == PART_ALL) return (ir_value){NULL};
  return ir_compare_int(t->b, "sge", t->owner.token, i32(t->b, t->program->spec->skip_tokens));
}

static void emit_rows(void *context, const program_op *ops) {
  const owner_rows *rows = context;
  gpu_body *t = rows->body;
  for (const program_op *op = ops; op; op = op->next)
    if (op->kind == OP_APPLY && op->transposed != t->p->is_transposed)
      diag_bug("gpu/entries", "the plan's matrices are not those of the program");
  t->rows.ops = ops;
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

static void emit_direct(gpu_body *t) {
  ir *b = t->b;
  ir_value line = add(b, mul(b, t->block, i32(b, PEGEN_PTX_BLOCK)), t->thread), units = i32(b, t->entry->tile->n_units);
  ir_branch inside = ir_if(b, ir_compare_int(b, "ult", line, mul(b, gpu_owners(t), units)));
  gpu_range(t);
  gpu_set_owner(t, ir_op2(b, "arith.remui", line, units), ir_op2(b, "arith.divui", line, units));
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
  const thread_tile *tile = t->entry->tile;
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
  gpu_set_owner(t, ir_op2(b, "arith.remui", s.lane, units), ir_select(b, exists, own, first));
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

int gpu_entry_units(const gpu_entry *entry) { return entry->units ? entry->units : entry->tile->n_units; }

bool gpu_entry_waits(const gpu_entry *entry) { return entry->units || entry->tile->owners; }

int gpu_parameters(const spec *s) {
  return PEGEN_PTX_OPERANDS + s->n_operands * PEGEN_PTX_OPERAND_COUNT + s->n_inputs * PEGEN_PTX_INPUT_COUNT;
}

gpu_function gpu_open_function(ir *b, arena *a, const char *name, int count, int blocks, bool host) {
  if (count > PEGEN_PTX_MAX_PARAMETERS) diag_bug("gpu", "%d parameters", count);
  ir_value *parameter = arena_array(a, ir_value, count + 1), arguments[4];
  gpu_function f = {.parameter = parameter};
  if (host) {
    MlirType types[] = {b->i32, b->i32, b->i32, b->ptr};
    ir_function(b, name, false, (MlirType){NULL}, 4, types, arguments);
    f.block = arguments[0], f.grid_row = arguments[1], f.thread = arguments[2];
    for (int i = 0; i < count; i++) parameter[i] = ir_load(b, b->i64, ir_offset_const(b, arguments[3], i * 8), 8);
    return f;
  }
  MlirType types[PEGEN_PTX_MAX_PARAMETERS];
  for (int i = 0; i < count; i++) types[i] = b->i64;
  ir_kernel(b, name, PEGEN_PTX_BLOCK, blocks, count, types, parameter);
  f.block = ir_gpu_index(b, "gpu.block_id", "x");
  f.grid_row = ir_gpu_index(b, "gpu.block_id", "y");
  f.thread = ir_gpu_index(b, "gpu.thread_id", "x");
  return f;
}

gpu_body gpu_open(ir *b, arena *a, const plan *p, bool per_head, const gpu_entry *entry, unsigned native, bool host) {
  int common = gpu_parameters(p->spec), count = common + (entry->other ? PEGEN_PTX_SCALE_COUNT : 0);
  gpu_function f = gpu_open_function(b, a, entry->name, count, entry->blocks, host);
  gpu_body t = {.b = b,
                .p = p,
                .per_head = per_head,
                .entry = entry,
                .parameter = f.parameter,
                .block = f.block,
                .grid_row = f.grid_row,
                .thread = f.thread};
  t.exprs = thread_emitter_create(b, a, p->spec, entry->tile, entry->name);
  t.exprs.native = native;
  t.exprs.operands = f.parameter + PEGEN_PTX_OPERANDS;
  t.rows = (row_thread){.b = b,
                        .memory = a,
                        .p = p,
                        .per_head = per_head,
                        .t = entry->tile,
                        .dtype = entry->dtype,
                        .other = entry->other,
                        .native = native,
                        .parameter = f.parameter};
  return t;
}

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  const plan *p = entry->is_backward ? program->transposed : program_plan(program->encode);
  gpu_body t = gpu_open(b, a, p, p->per_head, entry, native, host);
  t.rows.exprs = &t.exprs;
  t.rows.coefficient =
      arena_array(a, ir_value, entry->tile->n_blocks * p->spec->n_components * p->spec->n_components + 1);
  t.program = gpu_schedule(a, entry->is_backward ? program->backward : program->encode);
  if (entry->tile->owners) emit_staged(&t);
  else emit_direct(&t);
  ir_return(b);
}

const gpu_program *gpu_rotor_program(arena *a, const program *encode, const program *backward, unsigned dtypes) {
  const plan *p = program_plan(encode);
  gpu_program *program = arena_new(a, gpu_program);
  *program = (gpu_program){
      .spec = p->spec, .encode = encode, .per_head = p->per_head, .operations = p->token_operations, .emit = emit};
  program->n_entries = make_entries(a, p, "encode", dtypes, program->entry);
  program->n_entries += make_all_converting(a, p, dtypes, program->entry + program->n_entries);
  if (!backward) return program;
  gpu_entry *gradients = program->entry + program->n_entries;
  program->backward = backward;
  program->transposed = plan_transpose(a, p);
  program->n_backward = make_entries(a, program->transposed, "encode_backward", dtypes, gradients);
  for (int i = 0; i < program->n_backward; i++) gradients[i].is_backward = true;
  program->n_entries += program->n_backward;
  return program;
}
