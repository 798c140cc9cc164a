/* gpu/mma_turned: entries that turn or copy rows before others read them, once each; see gpu/mma.h and
 * PEGEN_PTX_TURN_FROM in kernel/launch.h.
 *
 * Where R(s - r) = R(r)^-1 R(s) (algebra/relative.h) products of turned rows are scores, and what turned rows gain is
 * turned back by the transpose. A row is read by as many blocks as there are tiles of the other side, and its angles
 * are dear beside its products. So rows are turned before those entries run, and rounded to their type. A thread makes
 * a block's matrix once, for some heads. A pair's amplitude is with keys and values alone.
 *
 * Where heads of q turn the rows of k that they share in their own ways, each of them has its rows of k and of what
 * these gain, and those of k gain the sum over the heads, in order.
 *
 * Tile programs move 16 bytes at a time. Rows at other addresses, strides or widths are few, and a driver would compile
 * entries of their own for everybody. So such rows are copied, with zeros behind them up to a whole access.
 */
#include "gpu/index.h"
#include "gpu/mma.h"
#include "mlir/number.h"

#include "kernel/launch.h"

typedef struct turner {
  attend t;
  const ir_value *own; /* parameters from PEGEN_PTX_TURN_FROM on */
  ir_value of_keys, back; /* i1 */
  ir_value token; /* i32 */
  ir_value first, end; /* i32: heads of the thread */
  bool copies; /* rows as they are */
  bool by_head; /* rotations differ from head to head */
  ir_value shared_by; /* i32: heads that are written for one that is read */
  ir_value sums, summed; /* by head, i1: one is written for all heads that share it; i32: as many, or 1 */
} turner;

static ir_value is_set(turner *u, int parameter) {
  return ir_compare_int(u->t.b, "ne", u->own[parameter], i64(u->t.b, 0));
}

/* Coordinates of the thread's token. All rows of a batch count from the place of one of its queries. */
static void set_positions(turner *u) {
  attend *t = &u->t;
  ir *b = t->b;
  enum { COUNT = PEGEN_PTX_ATTENTION_KEY_POSITIONS - PEGEN_PTX_ATTENTION_POSITIONS };
  ir_value origin[SPEC_MAX_AXES], from[COUNT];
  gpu_place place[SPEC_MAX_AXES];
  attend_find_origin(t, PEGEN_PTX_ATTENTION_POSITIONS, i32(b, 0), PEGEN_PTX_BLOCK, origin);
  for (int i = 0; i < COUNT; i++)
    from[i] = ir_select(b, u->of_keys, t->parameter[PEGEN_PTX_ATTENTION_KEY_POSITIONS + i],
                        t->parameter[PEGEN_PTX_ATTENTION_POSITIONS + i]);
  gpu_places(b, t->p->spec, from, t->batch, u->token, origin, place);
  for (int axis = 0; axis < t->p->spec->n_axes; axis++) t->exprs.positions[axis] = gpu_place_value(b, &place[axis]);
}

/* The address of the token's row of a head (i32). rows: PEGEN_PTX_TURN_FROM or PEGEN_PTX_TURN_TO. */
static ir_value row_at(turner *u, int rows, ir_value head) {
  ir *b = u->t.b;
  const ir_value *of = u->own + rows;
  ir_value at = add(b, of[PEGEN_PTX_ROWS_ADDRESS], mul(b, wide(b, u->t.batch), of[PEGEN_PTX_ROWS_BATCH]));
  at = add(b, at, mul(b, wide(b, u->token), of[PEGEN_PTX_ROWS_TOKEN]));
  return ir_pointer(b, add(b, at, mul(b, wide(b, head), of[PEGEN_PTX_ROWS_HEAD])));
}

static ir_value channel_at(turner *u, ir_value row, ir_value channel) {
  return ir_offset(u->t.b, row, wide(u->t.b, scaled(u->t.b, channel, u->t.entry->tile->element)));
}

static ir_value load_channel(turner *u, ir_value row, ir_value channel) {
  int dtype = u->t.entry->dtype;
  MlirType stored = dtype == NUMBER_F32 ? u->t.b->f32 : number_bits(u->t.b, dtype);
  ir_value bits = ir_load(u->t.b, stored, channel_at(u, row, channel), u->t.entry->tile->element);
  return emit_number_value(u->t.b, u->t.exprs.native, dtype, bits);
}

static void store_channel(turner *u, ir_value row, ir_value channel, ir_value x) {
  ir_value bits = emit_number_bits(u->t.b, u->t.exprs.native, u->t.entry->dtype, x);
  ir_store(u->t.b, bits, channel_at(u, row, channel), u->t.entry->tile->element, false);
}

static void find_matrix(turner *u, ir_value head, ir_value *entry) {
  thread_emitter *e = &u->t.exprs;
  e->head = head;
  set_positions(u);
  emit_thread_operands(e, u->t.p->entry, u->t.p->n_entries);
  for (int i = 0; i < u->t.p->n_entries; i++) entry[i] = emit_thread_f32(e, u->t.p->entry[i], 0);
}

static void turn_block(turner *u, const ir_value *entry, ir_value from, ir_value *turned) {
  attend *t = &u->t;
  ir *b = t->b;
  const spec *s = t->p->spec;
  int n = s->n_components;
  ir_value x[SPEC_MAX_BLADES], other[SPEC_MAX_BLADES];
  MlirType types[SPEC_MAX_BLADES];
  for (int i = 0; i < n; i++) {
    types[i] = b->f32;
    x[i] = load_channel(u, from, emit_thread_index(&t->exprs, s->channel + (int64_t)i * s->n_blocks));
  }
  ir_choice back = ir_choose(b, u->back, n, types);
  attend_turn_block(t, entry, true, x, turned);
  ir_choose_else(b, &back, n, turned);
  attend_turn_block(t, entry, false, x, other);
  ir_end_choose(b, back, n, other, turned);
  ir_value one = ir_float(b, b->f32, 1), inverse = ir_float(b, b->f32, 1 / s->amplitude),
           factor = ir_select(b, u->of_keys, one, inverse);
  for (int i = 0; i < n && s->amplitude != 1; i++) turned[i] = mul(b, turned[i], factor);
}

/* ---- heads that turn what they share in their own ways ---- */

/* Channels of head `head` (i32) of those that are written: some numbers of each row that it comes from, added up. */
typedef void visit_source(turner *u, ir_value from, ir_value head, const ir_value *channel, ir_value *x);

static void add_sources(turner *u, ir_value head, int n, const ir_value *channel, visit_source *visit) {
  ir *b = u->t.b;
  ir_value sum[SPEC_MAX_BLADES], now[SPEC_MAX_BLADES], x[SPEC_MAX_BLADES], to = row_at(u, PEGEN_PTX_TURN_TO, head);
  ir_value shared = ir_op2(b, "arith.divui", head, u->shared_by), first = mul(b, head, u->summed);
  for (int i = 0; i < n; i++) sum[i] = ir_float(b, b->f32, 0);
  ir_loop loop = ir_for_with(b, i64(b, 0), wide(b, u->summed), n, sum, now);
  two_float *remembered = emit_thread_remember(&u->t.exprs);
  ir_value source = add(b, first, narrow(b, loop.index));
  visit(u, row_at(u, PEGEN_PTX_TURN_FROM, ir_select(b, u->sums, source, shared)), source, channel, x);
  for (int i = 0; i < n; i++) now[i] = add(b, now[i], x[i]);
  emit_thread_forget(&u->t.exprs, remembered);
  ir_end_for_with(b, loop, n, now, sum);
  for (int i = 0; i < n; i++) store_channel(u, to, channel[i], sum[i]);
}

static void turn_source(turner *u, ir_value from, ir_value head, const ir_value *channel, ir_value *x) {
  ir_value entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  (void)channel;
  find_matrix(u, head, entry);
  turn_block(u, entry, from, x);
}

static void copy_source(turner *u, ir_value from, ir_value head, const ir_value *channel, ir_value *x) {
  (void)head;
  x[0] = load_channel(u, from, channel[0]);
}

/* Values that are not turned: threads of a row deal out its channels. */
static void sum_values(turner *u, ir_value head) {
  ir *b = u->t.b;
  int units = u->t.p->spec->n_blocks, width = u->t.p->value_dim;
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, (width + units - 1) / units));
  ir_value channel = add(b, scaled(b, narrow(b, loop.index), units), u->t.exprs.unit);
  ir_branch has = ir_if(b, less(b, channel, i32(b, width)));
  add_sources(u, head, 1, &channel, copy_source);
  ir_end_if(b, has);
  ir_end_for(b, loop);
}

/* Channels that no rotation turns, dealt out to the blocks' threads. */
static void copy_plain(turner *u, ir_value head) {
  attend *t = &u->t;
  ir *b = t->b;
  int plain[SPEC_MAX_HEAD_DIM], count = 0, units = t->p->spec->n_blocks, bytes = t->entry->tile->element;
  bool turned[SPEC_MAX_HEAD_DIM] = {false};
  for (int i = 0; i < t->p->spec->n_components * units; i++) turned[t->p->spec->channel[i]] = true;
  for (int i = 0; i < t->p->head_dim; i++)
    if (!turned[i]) plain[count++] = i;
  for (int first = 0; first < count; first += units) {
    int *values = arena_array(t->memory, int, units);
    for (int i = 0; i < units; i++) values[i] = first + i < count ? plain[first + i] : -1;
    ir_value has = emit_thread_present(&t->exprs, values), channel = emit_thread_index(&t->exprs, values);
    ir_branch some;
    if (has.ptr) some = ir_if(b, has);
    if (u->by_head) add_sources(u, head, 1, &channel, copy_source);
    else {
      ir_value from = row_at(u, PEGEN_PTX_TURN_FROM, head), to = row_at(u, PEGEN_PTX_TURN_TO, head);
      ir_value bits = ir_load(b, number_bits(b, t->entry->dtype), channel_at(u, from, channel), bytes);
      ir_store(b, bits, channel_at(u, to, channel), bytes, false);
    }
    if (has.ptr) ir_end_if(b, some);
  }
}

/* Channels [first, end) of a row are 0, where entries read it in whole accesses: not where the row is the caller's. */
static void clear_channels(turner *u, ir_value head, ir_value first, ir_value end) {
  ir *b = u->t.b;
  int dtype = u->t.entry->dtype;
  ir_branch clears = ir_if(b, ir_compare_int(b, "eq", u->own[PEGEN_PTX_TURN_BACK], i64(b, 0)));
  ir_loop loop = ir_for(b, wide(b, first), wide(b, end));
  ir_value to = row_at(u, PEGEN_PTX_TURN_TO, head), zero = ir_int(b, number_bits(b, dtype), 0);
  ir_store(b, zero, channel_at(u, to, narrow(b, loop.index)), number_bytes(dtype), false);
  ir_end_for(b, loop);
  ir_end_if(b, clears);
}

/* The thread's piece of a row, as it is. */
static void copy_piece(turner *u, ir_value head) {
  ir *b = u->t.b;
  int dtype = u->t.entry->dtype, bytes = number_bytes(dtype), lanes = THREAD_PIECE / bytes;
  ir_value from = row_at(u, PEGEN_PTX_TURN_FROM, head), to = row_at(u, PEGEN_PTX_TURN_TO, head);
  ir_value width = narrow(b, u->own[PEGEN_PTX_TURN_WIDTH]), first = scaled(b, u->t.exprs.unit, lanes),
           end = add(b, first, i32(b, lanes)), last = smaller(b, end, width);
  ir_branch some = ir_if(b, less(b, first, width));
  ir_loop loop = ir_for(b, wide(b, first), wide(b, last));
  ir_value channel = narrow(b, loop.index), x = ir_load(b, number_bits(b, dtype), channel_at(u, from, channel), bytes);
  ir_store(b, x, channel_at(u, to, channel), bytes, false);
  ir_end_for(b, loop);
  clear_channels(u, head, last, end);
  ir_end_if(b, some);
}

static void turn_head(turner *u, const ir_value *entry, ir_value head) {
  attend *t = &u->t;
  const spec *s = t->p->spec;
  ir_value channel[SPEC_MAX_BLADES], x[SPEC_MAX_BLADES];
  for (int i = 0; i < s->n_components; i++)
    channel[i] = emit_thread_index(&t->exprs, s->channel + (int64_t)i * s->n_blocks);
  if (u->by_head) add_sources(u, head, s->n_components, channel, turn_source);
  else {
    ir_value to = row_at(u, PEGEN_PTX_TURN_TO, head);
    turn_block(u, entry, row_at(u, PEGEN_PTX_TURN_FROM, head), x);
    for (int i = 0; i < s->n_components; i++) store_channel(u, to, channel[i], x[i]);
  }
  copy_plain(u, head);
  int padded = mma_padded(t, t->p->head_dim);
  ir_value end = i32(t->b, t->p->head_dim);
  if (t->p->head_dim < padded) clear_channels(u, head, end, i32(t->b, padded)); /* every thread does */
}

static void turn_heads(turner *u) {
  ir *b = u->t.b;
  ir_value entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  bool sums_values = u->by_head && !u->t.p->turns_values;
  ir_branch plain = {{NULL}, {NULL}};
  if (!u->by_head && !u->copies) find_matrix(u, u->first, entry);
  ir_loop heads = ir_for(b, wide(b, u->first), wide(b, u->end));
  two_float *remembered = emit_thread_remember(&u->t.exprs);
  ir_value head = narrow(b, heads.index);
  if (sums_values) {
    plain = ir_if(b, ir_compare_int(b, "eq", u->own[PEGEN_PTX_TURN_BACK], i64(b, 2)));
    sum_values(u, head);
    ir_else(b, &plain);
  }
  if (u->copies) copy_piece(u, head);
  else turn_head(u, entry, head);
  if (sums_values) ir_end_if(b, plain);
  emit_thread_forget(&u->t.exprs, remembered);
  ir_end_for(b, heads);
}

void gpu_emit_mma_turn(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native,
                       bool host) {
  const attend_design *design = program->plan;
  turner u = {.t = {.b = b, .memory = a, .p = design->p, .entry = entry}};
  attend *t = &u.t;
  int count = program->attention->n_parameters;
  gpu_function f = gpu_open_function(b, a, entry->name, count + PEGEN_PTX_TURN_COUNT, 0, host);
  t->parameter = f.parameter;
  t->block = f.block;
  t->thread = f.thread;
  u.own = f.parameter + count;
  u.of_keys = is_set(&u, PEGEN_PTX_TURN_OF_KEYS);
  u.back = is_set(&u, PEGEN_PTX_TURN_BACK);
  t->tokens = attend_short_parameter(t, PEGEN_PTX_ATTENTION_TOKENS);
  t->keys = attend_short_parameter(t, PEGEN_PTX_ATTENTION_KEYS);
  ir_value of_q = attend_short_parameter(t, PEGEN_PTX_ATTENTION_HEADS),
           group = attend_short_parameter(t, PEGEN_PTX_ATTENTION_GROUP), of_k = ir_op2(b, "arith.divui", of_q, group);
  ir_value tokens = ir_select(b, u.of_keys, t->keys, t->tokens), one = i32(b, 1);
  u.copies = entry->kind == GPU_MMA_COPY;
  u.by_head = !u.copies && attend_turns_by_head(t->p);
  u.sums = u.by_head ? both(b, u.of_keys, u.back) : u.of_keys;
  u.shared_by = ir_select(b, u.of_keys, group, one);
  u.summed = ir_select(b, u.sums, group, one);
  ir_value heads = ir_select(b, u.sums, of_k, of_q); /* that are written */
  ir_value each = narrow(b, u.own[PEGEN_PTX_TURN_HEADS]), sets = narrow(b, u.own[PEGEN_PTX_TURN_SETS]);
  ir_value line = add(b, scaled(b, t->block, PEGEN_PTX_BLOCK), t->thread),
           row = quotient(b, line, entry->tile->n_units);
  ir_branch inside = ir_if(b, below(b, row, sets));
  attend_set_emitters(t, native);
  t->exprs.unit = rest(b, line, entry->tile->n_units);
  ir_value set = ir_op2(b, "arith.divui", row, tokens),
           of_batch = ir_op2(b, "arith.divui", sub(b, add(b, heads, each), i32(b, 1)), each);
  u.token = ir_op2(b, "arith.remui", row, tokens);
  t->batch = ir_op2(b, "arith.divui", set, of_batch);
  u.first = mul(b, ir_op2(b, "arith.remui", set, of_batch), each);
  u.end = smaller(b, add(b, u.first, each), heads);
  turn_heads(&u);
  ir_end_if(b, inside);
  ir_return(b);
}
