/* gpu/mma_turned: the entry that turns rows before others read them, once each; see gpu/mma.h and PEGEN_PTX_TURN_FROM
 * in kernel/launch.h.
 *
 * Where R(s - r) = R(r)^-1 R(s) (algebra/relative.h) products of turned rows are scores, and what turned rows gain is
 * turned back by the transpose. A row is read by as many blocks as there are tiles of the other side, and its angles
 * are dear beside its products. So rows are turned before those entries run, and rounded to their type. A thread makes
 * a block's matrix once, for some heads. A pair's amplitude is with keys and values alone.
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
  ir_value shared_by; /* i32: heads that are written for one that is read */
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

/* The address of the token's row of a head (i32). rows: PEGEN_PTX_TURN_FROM or PEGEN_PTX_TURN_TO. Where heads of q turn
 * those of k in their own ways, all of them have rows of k to write, which come from the one that they share. */
static ir_value row_at(turner *u, int rows, ir_value head) {
  ir *b = u->t.b;
  const ir_value *of = u->own + rows;
  if (rows == PEGEN_PTX_TURN_FROM && attend_turns_by_head(u->t.p)) head = ir_op2(b, "arith.divui", head, u->shared_by);
  ir_value at = add(b, of[PEGEN_PTX_ROWS_ADDRESS], mul(b, wide(b, u->t.batch), of[PEGEN_PTX_ROWS_BATCH]));
  at = add(b, at, mul(b, wide(b, u->token), of[PEGEN_PTX_ROWS_TOKEN]));
  return ir_pointer(b, add(b, at, mul(b, wide(b, head), of[PEGEN_PTX_ROWS_HEAD])));
}

static ir_value channel_at(turner *u, ir_value row, ir_value channel) {
  return ir_offset(u->t.b, row, wide(u->t.b, scaled(u->t.b, channel, u->t.entry->tile->element)));
}

static void turn_block(turner *u, const ir_value *entry, ir_value from, ir_value to) {
  attend *t = &u->t;
  ir *b = t->b;
  const spec *s = t->p->spec;
  int n = s->n_components, dtype = t->entry->dtype, bytes = t->entry->tile->element;
  ir_value channel[SPEC_MAX_BLADES], x[SPEC_MAX_BLADES], turned[SPEC_MAX_BLADES], other[SPEC_MAX_BLADES];
  MlirType types[SPEC_MAX_BLADES], stored = dtype == NUMBER_F32 ? b->f32 : number_bits(b, dtype);
  for (int i = 0; i < n; i++) {
    types[i] = b->f32;
    channel[i] = emit_thread_index(&t->exprs, s->channel + (int64_t)i * s->n_blocks);
    ir_value bits = ir_load(b, stored, channel_at(u, from, channel[i]), bytes);
    x[i] = emit_number_value(b, t->exprs.native, dtype, bits);
  }
  ir_choice back = ir_choose(b, u->back, n, types);
  attend_turn_block(t, entry, true, x, turned);
  ir_choose_else(b, &back, n, turned);
  attend_turn_block(t, entry, false, x, other);
  ir_end_choose(b, back, n, other, turned);
  ir_value one = ir_float(b, b->f32, 1), inverse = ir_float(b, b->f32, 1 / s->amplitude),
           factor = ir_select(b, u->of_keys, one, inverse);
  for (int i = 0; i < n; i++) {
    if (s->amplitude != 1) turned[i] = mul(b, turned[i], factor);
    ir_store(b, emit_number_bits(b, t->exprs.native, dtype, turned[i]), channel_at(u, to, channel[i]), bytes, false);
  }
}

/* Channels that no rotation turns, dealt out to the blocks' threads. */
static void copy_plain(turner *u, ir_value from, ir_value to) {
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
    ir_value bits = ir_load(b, number_bits(b, t->entry->dtype), channel_at(u, from, channel), bytes);
    ir_store(b, bits, channel_at(u, to, channel), bytes, false);
    if (has.ptr) ir_end_if(b, some);
  }
}

static void turn_heads(turner *u) {
  attend *t = &u->t;
  ir *b = t->b;
  thread_emitter *e = &t->exprs;
  ir_value entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  e->head = u->first; /* of the only one, where rotations differ from head to head */
  set_positions(u);
  emit_thread_operands(e, t->p->entry, t->p->n_entries);
  for (int i = 0; i < t->p->n_entries; i++) entry[i] = emit_thread_f32(e, t->p->entry[i], 0);
  ir_loop heads = ir_for(b, wide(b, u->first), wide(b, u->end));
  two_float *remembered = emit_thread_remember(e);
  ir_value from = row_at(u, PEGEN_PTX_TURN_FROM, narrow(b, heads.index)),
           to = row_at(u, PEGEN_PTX_TURN_TO, narrow(b, heads.index));
  turn_block(u, entry, from, to);
  copy_plain(u, from, to);
  emit_thread_forget(e, remembered);
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
  ir_value tokens = ir_select(b, u.of_keys, t->keys, t->tokens), heads = of_q, one = i32(b, 1);
  if (attend_turns_by_head(t->p)) u.shared_by = ir_select(b, u.of_keys, group, one);
  else heads = ir_select(b, u.of_keys, of_k, of_q);
  ir_value each = narrow(b, u.own[PEGEN_PTX_TURN_HEADS]), sets = narrow(b, u.own[PEGEN_PTX_TURN_SETS]);
  ir_value line = add(b, scaled(b, t->block, PEGEN_PTX_BLOCK), t->thread),
           row = quotient(b, line, t->p->spec->n_blocks);
  ir_branch inside = ir_if(b, below(b, row, sets));
  attend_set_emitters(t, native);
  t->exprs.unit = rest(b, line, t->p->spec->n_blocks);
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
