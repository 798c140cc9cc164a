/* gpu/body: see gpu/body.h. */
#include "gpu/body.h"

#include "base/diag.h"
#include "mlir/arith.h"

#include "kernel/launch.h"

/* ---- functions ---- */

int gpu_parameters(const spec *s) { return pegen_ptx_behind_inputs(PEGEN_PTX_OPERANDS, s->n_operands, s->n_inputs); }

int gpu_origin_parameters(const spec *s) {
  return s->polynomial && !s->pairwise && s->polynomial->has_call_origin ? PEGEN_PTX_ORIGIN_COUNT : 0;
}

gpu_function gpu_open_function(ir *b, arena *a, const char *name, int count, int blocks, bool host) {
  if (count > PEGEN_PTX_MAX_PARAMETERS) diag_bug("gpu", "%d parameters", count);
  ir_value *parameter = arena_array(a, ir_value, count + 1), arguments[4];
  gpu_function f = {.parameter = parameter};
  if (host) {
    MlirType types[] = {b->i32, b->i32, b->i32, b->ptr};
    ir_function(b, name, false, (MlirType){NULL}, 4, types, arguments);
    b->host_words = ir_alloca(b, IR_WARP_WORDS * 4, 16);
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
  int more = entry->kind == GPU_GRADIENT ? (p->of_rows ? PEGEN_PTX_ROW_GRADIENT_COUNT : PEGEN_PTX_GRADIENT_COUNT)
             : entry->kind == GPU_MATRIX_GRADIENT ? PEGEN_PTX_MATRIX_GRADIENT_COUNT
             : entry->kind == GPU_COLUMN_GRADIENT || entry->kind == GPU_ATTENTION_WEIGHTS
                 ? pegen_ptx_behind_inputs(PEGEN_PTX_COLUMN_INPUTS, 0, p->spec->n_inputs)
             : entry->other      ? PEGEN_PTX_SCALE_COUNT
             : entry->reads_kept ? 2 * PEGEN_PTX_KEPT_COUNT
                                 : 0;
  int count = gpu_parameters(p->spec) + more + gpu_origin_parameters(p->spec);
  gpu_function f = gpu_open_function(b, a, entry->name, count, entry->blocks, host);
  gpu_body t = {.b = b,
                .p = p,
                .per_head = per_head || p->of_rows,
                .of_rows = p->of_rows,
                .entry = entry,
                .tile = entry->tile,
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
                        .per_head = t.per_head,
                        .t = entry->tile,
                        .dtype = entry->dtype,
                        .other = entry->other,
                        .native = native,
                        .parameter = f.parameter};
  return t;
}

gpu_body gpu_of_part(const gpu_body *last, int index, const plan *p) {
  gpu_body t = *last;
  arena *a = t.rows.memory;
  t.p = t.rows.p = p;
  t.tile = t.rows.t = last->tile->next;
  t.owner = (row_owner){{NULL}, {NULL}, {NULL}};
  t.exprs = thread_emitter_create(t.b, a, p->spec, t.tile, arena_printf(a, "%s_part_%d", t.entry->name, index + 1));
  t.exprs.native = last->exprs.native;
  t.exprs.operands = last->exprs.operands;
  return t;
}

/* ---- owners and rows ---- */

static ir_value short_parameter(gpu_body *t, int index) {
  return ir_cast(t->b, "arith.trunci", t->parameter[index], t->b->i32);
}

void gpu_load_positions(gpu_body *t) {
  const spec_part *part = t->p->part;
  two_float all[SPEC_MAX_AXES], *own = part ? all : t->exprs.positions;
  gpu_coordinates(t->b, part ? t->program->spec : t->p->spec, t->parameter + PEGEN_PTX_POSITIONS, t->owner.batch,
                  t->owner.token, own);
  for (int axis = 0; part && axis < part->of->n_axes; axis++) t->exprs.positions[axis] = all[part->axis[axis]];
  ir *b = t->b;
  if (t->of_rows) {
    const ir_value *inputs = t->parameter + pegen_ptx_inputs(PEGEN_PTX_OPERANDS, t->p->spec->n_operands);
    emit_thread_inputs(&t->exprs, inputs, t->owner.batch, t->owner.token, t->owner.head, NUMBER_F32);
  }
  if (!spec_has_sides(t->p->spec)) return;
  ir_value side = ir_cast(b, "arith.sitofp", short_parameter(t, PEGEN_PTX_SIDE), b->f32);
  t->exprs.positions[t->p->spec->n_axes] = two_float_f32(side);
}

ir_value gpu_heads(gpu_body *t) {
  if (!t->per_head) return i32(t->b, 1);
  return t->of_rows ? short_parameter(t, PEGEN_PTX_Q + PEGEN_PTX_TENSOR_HEADS) : i32(t->b, t->p->spec->heads);
}

/* Columns are tokens of all batches, or of all heads where rotors differ by head, heads fastest. Threads lie in
 * one line, an owner's units side by side; of a staged tile every warp has whole owners. The launcher keeps
 * their number below 2^31. */
ir_value gpu_owners(gpu_body *t) {
  ir *b = t->b;
  ir_value others = t->per_head ? gpu_heads(t) : short_parameter(t, PEGEN_PTX_BATCHES);
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
  ir_value heads = gpu_heads(t);
  return (row_owner){.token = ir_op2(b, "arith.divui", index, heads),
                     .head = ir_op2(b, "arith.remui", index, heads),
                     .batch = ir_op2(b, "arith.divui", t->begin, row_streams(b, t->parameter))};
}

const ir_value *gpu_kept_parameters(const gpu_body *t, const ir_value *own) {
  static const int strides[] = {PEGEN_PTX_TENSOR_IN_BATCH, PEGEN_PTX_TENSOR_IN_TOKEN, PEGEN_PTX_TENSOR_IN_HEAD};
  ir_value *parameter = arena_array(t->rows.memory, ir_value, PEGEN_PTX_OPERANDS);
  for (int i = 0; i < PEGEN_PTX_OPERANDS; i++) parameter[i] = t->parameter[i];
  for (int k = 0; k < 2; k++) {
    ir_value *of = parameter + (k ? PEGEN_PTX_K : PEGEN_PTX_Q);
    const ir_value *kept = own + (k ? PEGEN_PTX_KEPT_K : PEGEN_PTX_KEPT_Q);
    of[PEGEN_PTX_TENSOR_IN] = kept[PEGEN_PTX_KEPT_ADDRESS];
    for (int i = 0; i < 3; i++) of[strides[i]] = kept[PEGEN_PTX_KEPT_BATCH + i];
  }
  return parameter;
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

void gpu_make_coefficients(gpu_body *t) {
  int n = t->p->spec->n_components, size = n * n;
  for (int slot = 0; slot < t->tile->n_blocks; slot++)
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

/* ---- the program ---- */

int gpu_passing_table(ir *b, arena *a, const program_blocks *blocks, int head_dim, const char *name) {
  int32_t *channels = arena_array(a, int32_t, head_dim + 1);
  bool *is_of_block = arena_array(a, bool, head_dim);
  int count = 0;
  for (int i = 0; i < blocks->count * blocks->size; i++) is_of_block[blocks->channel[i]] = true;
  for (int i = 0; i < head_dim; i++)
    if (!is_of_block[i]) channels[count++] = i;
  if (count) ir_table(b, name, count, NULL, channels);
  return count;
}

void gpu_generators(const program *of, const program_skew *skew, const expr **generator) {
  for (int k = 0; k < skew->count; k++)
    generator[k] = expr_operand(of->spec->pool, skew->of[k].operand, skew->of[k].n_heads, skew->of[k].offset);
}

static bool is_of_token(const program_op *op) { return op->kind == OP_EVAL || op->kind == OP_MATRIX; }

const program_op *gpu_row_ops(const program_op *loop) {
  while (loop->kind == OP_FOR) loop = loop->body;
  return loop;
}

/* Numbers and matrices are those of the part that they are made by, maps say whose they are. */
static const program_op *maker_of(const gpu_body *t, const program_op *op) {
  return op->kind == OP_MAP ? op : t->program->value[op->argument[0]].maker;
}

void gpu_set_row_ops(gpu_body *t, const program_op *ops) {
  t->rows.turn = t->rows.map = t->rows.map_back = NULL;
  for (const program_op *op = ops; op; op = op->next) {
    if (op->kind == OP_LOAD || op->kind == OP_STORE || op->kind == OP_WEDGE) continue; /* torques: gpu/gradient */
    if (op->kind == OP_REDUCE) return; /* what follows is made of a row's own torques: gpu/gradient, too */
    if (op->kind != OP_ADD && op->kind != OP_APPLY && op->kind != OP_MAP)
      diag_bug("gpu/body", "'%s' in a row", program_op_word(op->kind));
    if (program_part_of(maker_of(t, op)) != t->p->part) continue;
    const program_op **of = op->kind != OP_MAP     ? &t->rows.turn
                            : op->n_arguments == 1 ? &t->rows.map
                                                   : &t->rows.map_back;
    if (*of) diag_bug("gpu/body", "a row is turned twice");
    *of = op;
  }
}

void gpu_walk_owner(const gpu_body *t, const gpu_owner_walk *walk, const program_op *list) {
  unsigned threads = IN(TOKENS) | (t->of_rows ? (unsigned)SPACES_OF_ROW : t->per_head ? IN(HEADS) : IN(BATCHES));
  for (const program_op *op = list; op; op = op->next) {
    bool last = !op->next || !is_of_token(op->next);
    if (op->kind == OP_FOR && threads & 1u << op->space) gpu_walk_owner(t, walk, op->body);
    else if (op->kind == OP_FOR) walk->rows(walk->context, gpu_row_ops(op));
    else if (op->kind == OP_LOAD) { /* and all that follows it is of a row that is the thread's own */
      walk->rows(walk->context, op);
      return;
    } else if (!is_of_token(op)) diag_bug("gpu/body", "'%s' of a token", program_op_word(op->kind));
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
