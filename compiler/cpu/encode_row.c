/* cpu/encode_row: what a program says of one row, in the number types and with the normalisation of the call; see
 * cpu/encode_emitter.h. */
#include "base/diag.h"
#include "cpu/encode_emitter.h"
#include "mlir/expr.h"

/* The part's, if it has gradients. */
static void emit_wedge(encode_emitter *e, int part, int group, const program_op *list, const program_op *op,
                       const row_vectors *value) {
  const row_vectors *turned = NULL;
  const gradient_code *g = e->gradient;
  ir_value *held = e->held, of_rows = e->gained.of_rows;
  if (program_part_of(op) != e->row->part[part].p->part) return;
  for (; g->part != part; g = g->next) {
    const plan_tile *t = e->part[g->part].t;
    if (held) held += emit_torque_slots(g, t);
    of_rows = ir_offset_const(e->b, of_rows, emit_torque_bytes(g, t));
  }
  for (const program_op *other = list; other; other = other->next)
    if (other->kind == OP_APPLY) turned = &value[other->result];
  emit_row_torques(g, &e->part[part], group, &e->gained, of_rows, &value[op->argument[0]], turned,
                   op->n_arguments > 1 ? &value[op->argument[1]] : NULL, held);
}

bool encode_is_of_part(const encode_emitter *e, const program_op *op, int part) {
  return program_part_of(e->program->value[op->argument[0]].maker) == e->row->part[part].p->part;
}

/* What is made of the vectors of one group by a function of channels. These lie in the lanes as they do in memory: an
 * expression of a channel is the same of all lanes, in float32 as all arithmetic on rows is, and lanes whose channels
 * are in no block keep what they had. rows: the arguments of the op. */
static row_vectors map_vectors(row_emitter *r, int group, const program_op *op, const row_vectors *const *rows) {
  const plan_tile *t = r->t;
  row_vectors y = emit_vectors_new(r);
  const row_vectors *last = rows[op->n_arguments - 1];
  for (int j = 0; j < t->n_vectors; j++) {
    if (t->group[j] != group) continue;
    ir_value channels[PROGRAM_MAX_ARGUMENTS];
    bool mask[GATHER_MAX_LANES], some = false, all = true;
    for (int i = 0; i < t->width; i++) {
      mask[i] = r->p->block_of[plan_tile_channel(t, j, i)] >= 0;
      some = some || mask[i];
      all = all && mask[i];
    }
    y.lanes[j] = last->lanes[j];
    y.kept[j] = last->kept[j] && !some;
    if (!some) continue;
    for (int k = 0; k < op->n_arguments; k++) channels[k] = rows[k]->lanes[j];
    y.lanes[j] = emit_expr_map(r->memory, &expr_of_processors, (arithmetic_context){r->b, r->target->has_fma}, t->width,
                               r->p->spec->pool, op->expr[0], channels);
    if (!all) y.lanes[j] = ir_select(r->b, ir_bools(r->b, t->width, mask), y.lanes[j], last->lanes[j]);
  }
  return y;
}

/* The part's, if it is its channels that are mapped; else the last row as it is. */
static row_vectors emit_mapped(encode_emitter *e, int part, int group, const program_op *op, const row_vectors *value) {
  const row_vectors *rows[PROGRAM_MAX_ARGUMENTS];
  for (int i = 0; i < op->n_arguments; i++) rows[i] = &value[op->argument[i]];
  if (program_part_of(op) != e->row->part[part].p->part) return *rows[op->n_arguments - 1];
  return map_vectors(&e->part[part], group, op, rows);
}

static void emit_group_ops(encode_emitter *e, const program_op *list, int part, int group) {
  row_emitter *r = &e->part[part];
  row_vectors value[PROGRAM_MAX_VALUES];
  for (const program_op *op = list; op; op = op->next) switch (op->kind) {
    case OP_LOAD:
      value[op->result] =
          emit_vectors_load(r, group, program_stream_is_kept(e->program, op->stream) ? e->row_kept : e->row_in);
      break;
    case OP_WEDGE: emit_wedge(e, part, group, list, op, value); break;
    case OP_MAP: value[op->result] = emit_mapped(e, part, group, op, value); break;
    case OP_ADD: value[op->result] = emit_vectors_add(r, group, &value[op->argument[1]]); break;
    case OP_APPLY:
      value[op->result] = encode_is_of_part(e, op, part) ? emit_vectors_apply(r, group, &value[op->argument[1]])
                                                         : value[op->argument[1]];
      break;
    case OP_STORE: emit_vectors_store(r, group, &value[op->argument[0]], e->row_out, e->in_place); break;
    default: diag_bug("cpu/encode", "'%s' in a row", program_op_word(op->kind));
    }
}

/* Groups of vectors of looped chunk `chunk`, or (chunk < 0) of none. */
static void emit_groups(encode_emitter *e, const program_op *list, int part, int chunk) {
  const plan_tile *t = e->part[part].t;
  for (int j = 0; j < t->n_vectors; j++) {
    int of = t->vector_chunk[j] < t->n_looped ? t->vector_chunk[j] : -1;
    if (t->group[j] == j && of == chunk) emit_group_ops(e, list, part, j);
  }
}

static ir_value channels_on(ir *b, ir_value row, ir_value channels, int bytes) {
  return row.ptr ? ir_offset(b, row, mul(b, channels, i64(b, bytes))) : row;
}

/* The looped chunks of a row, one code for all of them. */
static void emit_chunks(encode_emitter *e, const program_op *list, int part) {
  ir *b = e->b;
  row_emitter *r = &e->part[part], whole = *r;
  ir_value in = e->row_in, out = e->row_out, kept = e->row_kept;
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, r->t->n_looped));
  ir_value channels = mul(b, loop.index, i64(b, r->t->row_step));
  emit_load_chunk(r, loop.index);
  e->row_in = channels_on(b, in, channels, number_bytes(r->dtype));
  e->row_out = channels_on(b, out, channels, number_bytes(r->out));
  e->row_kept = channels_on(b, kept, channels, number_bytes(r->dtype));
  r->weights = channels_on(b, whole.weights, channels, 4);
  emit_groups(e, list, part, 0);
  ir_end_for(b, loop);
  e->row_in = in;
  e->row_out = out;
  e->row_kept = kept;
  *r = whole;
}

/* The ops of a row on a part's channels, one group of its vectors after the other. */
static void emit_part_ops(encode_emitter *e, const program_op *list, int part) {
  const row_emitter *r = &e->part[part];
  if (r->by_chunks) {
    emit_chunks(e, list, part);
    emit_groups(e, list, part, -1);
    return;
  }
  for (int group = 0; group < r->t->n_vectors; group++) emit_group_ops(e, list, part, group);
}

/* Parts share no channel: each is stored before the next one is loaded, in place, too. */
static void emit_row_ops(encode_emitter *e, const program_op *list) {
  for (const program_op *op = list; op; op = op->next)
    if (op->kind == OP_APPLY && op->transposed != e->p->is_transposed)
      diag_bug("cpu/encode", "the plan's matrices are not those of the program");
  for (int part = 0; part < e->row->n_parts; part++) emit_part_ops(e, list, part);
}

/* A row, written as the function's one type, or as either of two. */
static void emit_converted_row(encode_emitter *e, const program_op *list) {
  int own = e->part[0].dtype, other = e->part[0].out;
  if (!e->kind.is_other.ptr) {
    emit_row_ops(e, list);
    return;
  }
  ir_branch branch = ir_if(e->b, e->kind.is_other);
  for (int i = 0; i < e->row->n_parts; i++) e->part[i].gain = e->kind.gain;
  emit_row_ops(e, list);
  ir_else(e->b, &branch);
  for (int i = 0; i < e->row->n_parts; i++) e->part[i].out = own;
  emit_row_ops(e, list);
  for (int i = 0; i < e->row->n_parts; i++) e->part[i].out = other;
  ir_end_if(e->b, branch);
}

static int row_bytes(const encode_emitter *e) { return e->row->spec->head_dim * number_bytes(e->part[0].dtype); }

static void set_norm(encode_emitter *e, ir_value weights, ir_value factor) {
  for (int i = 0; i < e->row->n_parts; i++) {
    e->part[i].weights = weights;
    e->part[i].factor = factor;
  }
}

/* Where one body serves all rows those that are not normalised are multiplied by 1. */
static void find_factors(encode_emitter *e, const normalisation *norm, const factor_rows *rows) {
  ir *b = e->b;
  ir_branch branch;
  if (e->target->is_compact) branch = ir_if(b, norm->is_wanted);
  emit_find_factors(b, e->memory, e->target, e->part[0].dtype, rows);
  if (!e->target->is_compact) return;
  ir_else(b, &branch);
  ir_loop loop = ir_for(b, i64(b, 0), rows->count);
  ir_value at = ir_offset(b, rows->factors, mul(b, loop.index, i64(b, 4)));
  ir_store(b, ir_float(b, b->f32, 1), at, 4, false);
  ir_end_for(b, loop);
  ir_end_if(b, branch);
}

static void emit_normalised_row(encode_emitter *e, const program_op *list) {
  ir *b = e->b;
  ir_value one = i64(b, 1);
  factor_rows row = {e->row_in, one, one, e->norm.epsilon, e->factors, e->ahead};
  if (!e->norm.factor.ptr) find_factors(e, &e->norm, &row);
  set_norm(e, e->norm.weights, ir_load(b, b->f32, e->norm.factor.ptr ? e->norm.factor : e->factors, 4));
  emit_converted_row(e, list);
  set_norm(e, (ir_value){NULL}, (ir_value){NULL});
}

void encode_find_factors(encode_emitter *e, const token_rows *t, ir_value first, ir_value last, ir_value factors) {
  ir_value row = ir_pointer(e->b, add(e->b, t->in, mul(e->b, first, t->in_step)));
  factor_rows rows = {row, t->in_step, sub(e->b, last, first), t->norm.epsilon, factors, e->ahead};
  find_factors(e, &t->norm, &rows);
}

void encode_row(encode_emitter *e, const program_op *list) {
  ir *b = e->b;
  if (!e->norm.is_certain || e->target->is_compact) emit_prefetch(b, e->ahead, e->row_in, row_bytes(e));
  if (e->keeps) emit_prefetch(b, e->ahead, e->row_kept, row_bytes(e));
  if (!e->normalises || e->is_plain) {
    emit_converted_row(e, list);
    return;
  }
  if (e->norm.is_certain || e->target->is_compact) {
    emit_normalised_row(e, list);
    return;
  }
  ir_branch branch = ir_if(b, e->norm.is_wanted);
  emit_normalised_row(e, list);
  ir_else(b, &branch);
  emit_converted_row(e, list);
  ir_end_if(b, branch);
}
