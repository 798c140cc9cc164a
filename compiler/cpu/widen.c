/* cpu/widen: rows with their columns; see cpu/widen.h.
 *
 * A token's keys and gains lie in scratch memory in the order of the appended lanes (cpu/widen_columns). Then every row
 * is moved and its lanes follow: those of k are the token's keys; those of q the sum over weights of weight times gain,
 * with the weights' sums over terms as vectors of terms that are folded at the end.
 */
#include "cpu/widen.h"
#include "mlir/arith.h"
#include "mlir/number.h"

#include "base/diag.h"
#include "cpu/place.h"
#include "cpu/product.h"
#include "cpu/rotors.h"
#include "cpu/rows.h"
#include "cpu/weights.h"
#include "cpu/widen_columns.h"

#include "kernel/loop.h"

#include <stddef.h>

enum { CACHE_LINE = 64 };

typedef struct widen_emitter {
  ir *b;
  arena *memory;
  const program *encode;
  const plan_widen *p;
  const widen_layout *layout;
  const cpu_target *target;
  int dtype;
  bool can_stream;
  weight_emitter weights;
  widen_vectors tail;        /* the appended lanes */
  ir_value loop;             /* const pegen_widen_loop * */
  ir_value streaming;        /* i1: stores go past the caches; where they can */
  prefetch_ahead ahead;
  ir_value positions;        /* scratch: float64 [axes] */
  ir_value keys;             /* scratch: [lanes] as they are stored */
  ir_value gains;            /* scratch: float32 [weights][lanes] */
} widen_emitter;

static ir_value field(widen_emitter *e, size_t offset, MlirType type) {
  return ir_load(e->b, type, ir_offset_const(e->b, e->loop, (int64_t)offset), 8);
}

#define LOOP_I64(e, name) field((e), offsetof(pegen_widen_loop, name), (e)->b->i64)
#define LOOP_PTR(e, name) field((e), offsetof(pegen_widen_loop, name), (e)->b->ptr)

const char *emit_widen_name(arena *a, const cpu_target *target, int dtype, bool wide_inputs, bool streaming) {
  return arena_printf(a, "widen_%s_%s_%s_%s", target->suffix, number_name(dtype),
                      number_name(wide_inputs ? NUMBER_F32 : dtype), streaming ? "streaming" : "cached");
}

static ir_value gains_of(widen_emitter *e, int weight) {
  return ir_offset_const(e->b, e->gains, (int64_t)weight * e->layout->n_lanes * 4);
}

/* ---- rows ---- */

static int dtype_bytes(const widen_emitter *e) { return number_bytes(e->dtype); }

/* Lanes of the widest move of a row. */
static int most_lanes(const widen_emitter *e, bool streaming) {
  int bytes = dtype_bytes(e), lanes = e->target->lanes * (4 / bytes);
  if (lanes > CACHE_LINE / bytes) lanes = CACHE_LINE / bytes;
  while (streaming && lanes > 1 && e->layout->out_dim % lanes) lanes /= 2;
  return lanes;
}

/* Moves bits, so that no NaN changes. */
static void emit_move(widen_emitter *e, ir_value in, ir_value out, bool streaming) {
  ir *b = e->b;
  int element = dtype_bytes(e), channels = e->p->spec->head_dim;
  MlirType type = number_bits(b, e->dtype);
  for (int at = 0, lanes = most_lanes(e, streaming); at < channels; at += lanes) {
    while (at + lanes > channels) lanes /= 2;
    ir_value v = ir_load(b, ir_vector(b, lanes, type), ir_offset_const(b, in, at * element), element);
    ir_store(b, v, ir_offset_const(b, out, at * element), streaming ? lanes * element : element, streaming);
  }
}

/* Lanes of the appended ones that are stored together: streaming stores are aligned. */
static int most_tail_lanes(const widen_emitter *e, bool streaming) {
  int lanes = e->target->lanes;
  while (streaming && (e->p->spec->head_dim % lanes || e->layout->out_dim % lanes)) lanes /= 2;
  return lanes;
}

static void emit_store_tail(widen_emitter *e, ir_value row, const ir_value *tail, bool streaming) {
  ir *b = e->b;
  int element = dtype_bytes(e), most = most_tail_lanes(e, streaming);
  for (int j = 0; j < e->tail.count; j++) {
    int width = e->tail.width[j], piece = width < most ? width : most;
    for (int first = 0; first < width; first += piece) {
      int64_t mask[64];
      for (int i = 0; i < piece; i++) mask[i] = first + i;
      ir_value v = piece < width ? ir_shuffle(b, tail[j], tail[j], piece, mask) : tail[j];
      ir_value at = ir_offset_const(b, row, (int64_t)(e->p->spec->head_dim + e->tail.start[j] + first) * element);
      ir_store(b, v, at, streaming ? piece * element : element, streaming);
    }
  }
}

/* A row's channels from `in` to `out`, its appended lanes (vectors of what is stored), or both; NULL: not these. */
static void emit_stores(widen_emitter *e, const ir_value *in, ir_value out, const ir_value *tail) {
  ir_branch streams = {{NULL}, {NULL}};
  if (e->can_stream) streams = ir_if(e->b, e->streaming);
  for (int streaming = e->can_stream; streaming >= 0; streaming--) {
    if (in) emit_move(e, *in, out, streaming);
    if (tail) emit_store_tail(e, out, tail, streaming);
    if (streaming) ir_else(e->b, &streams);
  }
  if (e->can_stream) ir_end_if(e->b, (ir_branch){streams.outer, {NULL}});
}

/* The appended lanes of a query: the sum over weights of weight times gain. */
static void emit_query_tail(widen_emitter *e, const ir_value *weight, ir_value *tail) {
  ir *b = e->b;
  for (int j = 0; j < e->tail.count; j++) {
    MlirType type = ir_vector(b, e->tail.width[j], b->f32);
    ir_value v = {NULL};
    for (int w = 0; w < e->p->p->n_weights; w++) {
      if (!plan_widen_has_gain(e->p, e->layout, w, e->tail.start[j], e->tail.width[j])) continue;
      ir_value gain = ir_load(b, type, ir_offset_const(b, gains_of(e, w), e->tail.start[j] * 4), 4);
      v = emit_multiply_add(b, e->target, ir_broadcast(b, type, weight[w]), gain, v);
    }
    v = v.ptr ? emit_lane_parts(b, e->target, e->layout, e->dtype, v, e->tail.start[j], true) : ir_float(b, type, 0);
    tail[j] = emit_number_bits(b, e->target->native, e->dtype, v);
  }
}

static void emit_key_tail(widen_emitter *e, ir_value *tail) {
  ir *b = e->b;
  for (int j = 0; j < e->tail.count; j++) {
    int element = dtype_bytes(e);
    MlirType type = ir_vector(b, e->tail.width[j], e->dtype == NUMBER_F32 ? b->f32 : number_bits(b, e->dtype));
    tail[j] = ir_load(b, type, ir_offset_const(b, e->keys, (int64_t)e->tail.start[j] * element), element);
  }
}

/* ---- the walk ---- */

static ir_value rows_at(widen_emitter *e, int which, size_t base, size_t of_batch, size_t of_token, ir_value batch,
                        ir_value token) {
  ir *b = e->b;
  size_t rows = offsetof(pegen_widen_loop, loop.rows) + (size_t)which * sizeof(pegen_rows);
  ir_value at =
      add(b, mul(b, batch, field(e, rows + of_batch, b->i64)), mul(b, token, field(e, rows + of_token, b->i64)));
  return add(b, field(e, rows + base, b->i64), at);
}

/* Rows of q (which 0) or k (1) of one token: where those of head 0 are, and what lies from head to head. */
typedef struct token_rows {
  ir_value in, out, in_head, out_head, heads; /* i64 */
} token_rows;

static token_rows rows_of(widen_emitter *e, int which, ir_value batch, ir_value token) {
  MlirType i64_type = e->b->i64;
  size_t rows = offsetof(pegen_widen_loop, loop.rows) + (size_t)which * sizeof(pegen_rows);
  return (token_rows){.in = rows_at(e, which, offsetof(pegen_rows, in), offsetof(pegen_rows, in_batch),
                                    offsetof(pegen_rows, in_token), batch, token),
                      .out = rows_at(e, which, offsetof(pegen_rows, out), offsetof(pegen_rows, out_batch),
                                     offsetof(pegen_rows, out_token), batch, token),
                      .in_head = field(e, rows + offsetof(pegen_rows, in_head), i64_type),
                      .out_head = field(e, rows + offsetof(pegen_rows, out_head), i64_type),
                      .heads = field(e, rows + offsetof(pegen_rows, heads), i64_type)};
}

static ir_value row_at(widen_emitter *e, ir_value first, ir_value head, ir_value stride) {
  return ir_pointer(e->b, add(e->b, first, mul(e->b, head, stride)));
}

/* Where a token's rows of an input begin, and the bytes from head to head. */
typedef struct token_input {
  ir_value at, head;
} token_input;

static token_input input_of(widen_emitter *e, int i, ir_value batch, ir_value token) {
  ir *b = e->b;
  size_t of = offsetof(pegen_widen_loop, input) + (size_t)i * sizeof(pegen_input_rows);
  ir_value at = add(b, mul(b, batch, field(e, of + offsetof(pegen_input_rows, batch), b->i64)),
                    mul(b, token, field(e, of + offsetof(pegen_input_rows, token), b->i64)));
  return (token_input){add(b, field(e, of + offsetof(pegen_input_rows, data), b->i64), at),
                       field(e, of + offsetof(pegen_input_rows, head), b->i64)};
}

/* The ops of a row at `from`, whose channels are moved as they are. query: of rows of q. */
static void emit_row_ops(widen_emitter *e, const program_op *ops, ir_value from, ir_value to, const query_row *query) {
  ir_value *weight = arena_array(e->memory, ir_value, e->p->p->n_weights + 1),
           *tail = arena_array(e->memory, ir_value, e->tail.count + 1);
  for (const program_op *op = ops; op; op = op->next) switch (op->kind) {
    case OP_LOAD:
      if (query) emit_stores(e, &from, to, NULL); /* before the arithmetic */
      break;
    case OP_EVAL: break; /* summed as it is computed */
    case OP_SUM: emit_weights(&e->weights, query, weight); break;
    case OP_COLUMNS:
      if (op->n_arguments > 2) emit_query_tail(e, weight, tail);
      else emit_key_tail(e, tail);
      break;
    case OP_STORE: emit_stores(e, query ? NULL : &from, to, tail); break;
    default: diag_bug("cpu/widen", "'%s' in a row", program_op_word(op->kind));
    }
}

static void emit_key_row(widen_emitter *e, const token_rows *rows, ir_value head) {
  ir_value from = row_at(e, rows->in, head, rows->in_head), to = row_at(e, rows->out, head, rows->out_head);
  emit_prefetch(e->b, e->ahead, from, e->p->spec->head_dim * dtype_bytes(e));
  emit_row_ops(e, program_row_ops(e->encode, PART_K), from, to, NULL);
}

static void emit_query_row(widen_emitter *e, const token_rows *rows, const token_input *inputs, ir_value head) {
  ir *b = e->b;
  const plan_widen *p = e->p;
  ir_value from = row_at(e, rows->in, head, rows->in_head), to = row_at(e, rows->out, head, rows->out_head);
  query_row row = {.prepared =
                       ir_offset(b, LOOP_PTR(e, loop.prepared), mul(b, head, LOOP_I64(e, loop.prepared_stride)))};
  int input_bytes = number_bytes(e->weights.input_dtype);
  emit_prefetch(e->b, e->ahead, from, p->spec->head_dim * dtype_bytes(e));
  for (int i = 0; i < p->spec->n_inputs; i++) {
    row.input[i] = row_at(e, inputs[i].at, head, inputs[i].head);
    emit_prefetch(e->b, e->ahead, row.input[i],
                  (int)(p->spec->input[i].size ? p->spec->input[i].size : 1) * input_bytes);
  }
  emit_row_ops(e, program_row_ops(e->encode, PART_Q), from, to, &row);
}

/* Rows of a token, those of k between those of q: a row of q is arithmetic, one of k nothing but memory. */
static void emit_rows(widen_emitter *e, ir_value batch, ir_value token) {
  ir *b = e->b;
  token_rows q = rows_of(e, 0, batch, token), k = rows_of(e, 1, batch, token);
  token_input inputs[SPEC_MAX_INPUTS];
  for (int i = 0; i < e->p->spec->n_inputs; i++) inputs[i] = input_of(e, i, batch, token);
  ir_loop heads = ir_for(b, i64(b, 0), larger(b, q.heads, k.heads));
  ir_branch has_query = ir_if(b, ir_compare_int(b, "slt", heads.index, q.heads));
  emit_query_row(e, &q, inputs, heads.index);
  ir_end_if(b, has_query);
  ir_branch has_key = ir_if(b, ir_compare_int(b, "slt", heads.index, k.heads));
  emit_key_row(e, &k, heads.index);
  ir_end_if(b, has_key);
  ir_end_for(b, heads);
}

/* widen_T_DTYPE_INPUTS(loop, streaming), and the entries that call it: one code for both ways to store. */
static const char *shared_name(widen_emitter *e, bool wide_inputs) {
  return arena_printf(e->memory, "widen_%s_%s_%s", e->target->suffix, number_name(e->dtype),
                      number_name(wide_inputs ? NUMBER_F32 : e->dtype));
}

static void emit_entries(widen_emitter *e, bool wide_inputs) {
  ir *b = e->b;
  for (int streaming = 0; streaming < 2; streaming++) {
    ir_value arguments[2];
    ir_open(b, emit_widen_name(e->memory, e->target, e->dtype, wide_inputs, streaming), "p", arguments);
    arguments[1] = i64(b, streaming);
    ir_call(b, shared_name(e, wide_inputs), 2, arguments);
    ir_return(b);
  }
}

static void emit_begin(widen_emitter *e, bool wide_inputs) {
  ir *b = e->b;
  ir_value arguments[2];
  const char *name =
      e->can_stream ? shared_name(e, wide_inputs) : emit_widen_name(e->memory, e->target, e->dtype, wide_inputs, false);
  ir_open(b, name, e->can_stream ? "pi" : "p", arguments);
  e->loop = arguments[0];
  if (e->can_stream) e->streaming = ir_compare_int(b, "ne", arguments[1], i64(b, 0));
}

static void emit_function(widen_emitter *e, bool wide_inputs) {
  ir *b = e->b;
  const plan_widen *p = e->p;
  int64_t floats = (int64_t)p->p->n_weights * e->layout->n_lanes;
  e->tail = widen_vectors_of(e->memory, e->layout, e->target->lanes);
  emit_begin(e, wide_inputs);
  e->ahead = emit_load_ahead(b, ir_offset_const(b, e->loop, offsetof(pegen_widen_loop, loop)));
  e->positions = ir_alloca(b, p->spec->n_axes * 8, 8);
  e->keys = ir_alloca(b, e->layout->n_lanes * 4 + CACHE_LINE, CACHE_LINE);
  e->gains = ir_alloca(b, floats * 4 + CACHE_LINE, CACHE_LINE);
  emit_call_gains(b, e->memory, e->target, e->dtype, e->gains);
  ir_loop batches = ir_for(b, LOOP_I64(e, loop.batch_begin), LOOP_I64(e, loop.batch_end));
  ir_loop tokens = ir_for(b, LOOP_I64(e, loop.token_begin), LOOP_I64(e, loop.token_end));
  emit_centred_position(b, p->spec, e->loop, tokens.index, e->positions);
  emit_call_columns(b, e->memory, e->target, e->dtype, e->positions, e->keys, e->gains);
  emit_rows(e, batches.index, tokens.index);
  ir_end_for(b, tokens);
  ir_end_for(b, batches);
  ir_return(b);
  if (e->can_stream) emit_entries(e, wide_inputs);
}

/* Streaming stores are of 16 bytes at least, and a row and its columns begin at multiples of what they are. */
static bool can_stream(const plan_widen *p, const cpu_target *target, int dtype) {
  int lanes = dtype == NUMBER_F32 ? 4 : 8;
  return target->has_streaming && p->spec->head_dim % lanes == 0 && p->layout[dtype].out_dim % lanes == 0;
}

void emit_widen(ir *b, arena *a, const program *encode, const cpu_target *target, unsigned dtypes) {
  const plan_widen *p = program_widen_plan(encode);
  chunk_walk walk = emit_chunks_of(b, a, p->values, plan_tile_build(a, p->values, target->lanes), target);
  if (p->values->n_leaves > 0) emit_prepare(&walk);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    if (dtypes & 1u << dtype) emit_widen_columns(b, a, p, target, dtype);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    for (int wide = 0; wide < (dtype == NUMBER_F32 || p->spec->n_inputs == 0 ? 1 : 2); wide++) {
      if (!(dtypes & 1u << dtype)) continue;
      widen_emitter e = {.b = b,
                         .memory = a,
                         .encode = encode,
                         .p = p,
                         .layout = &p->layout[dtype],
                         .target = target,
                         .dtype = dtype,
                         .can_stream = can_stream(p, target, dtype)};
      e.weights = (weight_emitter){.b = b,
                                   .memory = a,
                                   .p = p,
                                   .target = target,
                                   .input_dtype = wide ? NUMBER_F32 : dtype,
                                   .has_table = walk.has_table};
      emit_function(&e, wide);
    }
}
