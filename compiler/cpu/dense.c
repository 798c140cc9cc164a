/* cpu/dense: the ops of a program whose rows are multiplied with matrices; see cpu/dense.h.
 *
 * Each op of the call or a token is a function, and so is all that happens to a row. The driver (kernel/dense.c) walks
 * tokens, heads and blocks between them, for it makes matrices into tables as well; and the loops of `apply` are
 * cpu/apply's, because blocks are one of them.
 */
#include "cpu/dense.h"

#include "base/diag.h"
#include "cpu/exponential.h"
#include "cpu/rotors.h"
#include "cpu/schedule.h"
#include "cpu/torus.h"
#include "mlir/expr.h"
#include "plan/dense.h"

enum { NARROWEST_UNIT = 4, WIDEST_UNIT = 16 };

/* ---- what a program asks for ---- */

static int unit_of(const program_op *matrix, const cpu_target *target) {
  int unit = NARROWEST_UNIT, lanes = matrix->skew.in_f64 ? target->lanes / 2 : target->lanes;
  while (unit < lanes && unit < matrix->blocks.count) unit *= 2;
  return unit;
}

/* Rows of angles: whole units. */
static int64_t angle_lanes(const program_op *matrix) {
  int blocks = (matrix->blocks.count + WIDEST_UNIT - 1) / WIDEST_UNIT * WIDEST_UNIT;
  return blocks > matrix->plan->lanes ? blocks : matrix->plan->lanes;
}

dense_shape dense_shape_of(arena *a, const program *encode, const cpu_target *target) {
  dense_shape s = {.apply = program_encoded_apply(encode), .layout = MATRIX_COLUMNS, .unit = 1};
  const program_value *matrix = &encode->value[s.apply->argument[0]];
  s.matrix = matrix->maker;
  s.per_head = matrix->spaces & IN(HEADS);
  s.in_lanes = s.matrix->skew.source == SOURCE_EXP && s.matrix->blocks.size <= DENSE_IN_LANES;
  if (s.in_lanes && s.matrix->blocks.size == DENSE_IN_LANES) s.layout = MATRIX_DIAGONALS;
  if (s.in_lanes) s.unit = unit_of(s.matrix, target);
  s.angle_bytes = s.matrix->skew.source == SOURCE_PRODUCT ? emit_coefficient_bytes(a, program_plan(encode), target)
                                                          : angle_lanes(s.matrix) * 8;
  return s;
}

/* ---- names ---- */

const char *emit_angles_name(arena *a, const dense_shape *shape, const cpu_target *target) {
  return shape->matrix->skew.source == SOURCE_PRODUCT ? emit_rotor_name(a, target)
                                                      : arena_printf(a, "angles_%s", target->suffix);
}

const char *emit_matrix_name(arena *a, const cpu_target *target, bool rest) {
  return arena_printf(a, "%s_%s", rest ? "matrix_rest" : "matrix", target->suffix);
}

typedef struct dense {
  ir *b;
  arena *memory;
  const program *program;
  const cpu_target *target;
  unsigned dtypes;
  dense_shape shape;
  chunk_walk walk;
} dense;

/* ---- ops of a token ---- */

/* angles_T(position, prepared, out): float64 [numbers][angle lanes]. */
static void emit_angles(dense *d, const program_op *eval) {
  ir *b = d->b;
  const chunk_walk *w = &d->walk;
  ir_value arguments[3], positions[SPEC_MAX_AXES];
  ir_open(b, emit_angles_name(d->memory, &d->shape, d->target), "ppp", arguments);
  for (int axis = 0; axis < d->program->spec->n_axes; axis++)
    positions[axis] = ir_load(b, b->f64, ir_offset_const(b, arguments[0], axis * 8), 8);
  for (int chunk = 0; chunk < w->t->n_chunks; chunk++) {
    chunk_emitter e = emit_chunk(w, chunk);
    e.prepared = arguments[1];
    e.positions = positions;
    for (int i = 0; i < eval->n_exprs; i++) {
      int64_t at = i * d->shape.angle_bytes + (int64_t)e.begin * 8;
      ir_store(b, emit_expr_lanes(&e.walker, eval->expr[i]), ir_offset_const(b, arguments[2], at), 8, false);
    }
  }
  ir_return(b);
}

static void emit_exp(dense *d, const program_op *op, const char *name) {
  const program_skew *skew = &op->skew;
  int size = op->blocks.size, unit = d->shape.unit, rest = op->blocks.count % unit;
  if (!d->shape.in_lanes) {
    matrix_shape m = matrix_shape_of(d->b, d->target, size, skew->in_f64);
    emit_exponential(d->b, &m, name, skew->count, d->shape.angle_bytes, skew->factor);
    if (skew->may_act) emit_exponential_sum(d->b, &m, name, skew->count, d->shape.angle_bytes);
    return;
  }
  for (int i = 0; i < 2; i++) { /* whole units, and what is left of the last one */
    int used = i ? rest : op->blocks.count >= unit ? unit : 0;
    if (used)
      emit_exponential_lanes(d->b, d->target, skew->in_f64, size, d->shape.layout, unit, used,
                             emit_matrix_name(d->memory, d->target, i), skew->count, d->shape.angle_bytes,
                             skew->factor);
  }
}

static void emit_schur(dense *d, const program_op *op, const char *name) {
  emit_turns(d->b, d->target, op->blocks.size, name, op->skew.factor);
}

static void emit_rotors(dense *d, const program_op *op, const char *name) {
  (void)op, (void)name;
  emit_rotor(&d->walk);
}

static void emit_turned(dense *d, const program_op *op, const char *name) {
  int size = op->blocks.size;
  emit_turned_columns(&d->walk, size, matrix_shape_of(d->b, d->target, size, false).padded, size, name);
}

/* What makes a token's matrices, by their source; NULL: the driver does, once a call (and head). */
typedef void maker(dense *d, const program_op *op, const char *name);
static maker *const makers[SOURCE_COUNT] = {[SOURCE_ENTRIES] = emit_rotors,
                                            [SOURCE_EXP] = emit_exp,
                                            [SOURCE_SCHUR] = emit_schur,
                                            [SOURCE_PRODUCT] = emit_turned};

static void emit_matrix(dense *d, const program_op *op) {
  if (makers[op->skew.source]) makers[op->skew.source](d, op, emit_matrix_name(d->memory, d->target, false));
}

/* ---- rows ---- */

/* Rows in bfloat16 once more, for processors that round it by an instruction. */
static void emit_rounding_apply(dense *d, apply_request r) {
  cpu_target rounds = *d->target;
  r.dtype = NUMBER_BF16;
  rounds.native |= NUMBER_BIT(NUMBER_BF16);
  d->b->target_features = target_dot_features(d->memory, d->target);
  emit_apply(d->b, d->memory, &r, &rounds, emit_rounding_apply_name(d->memory, d->target));
  d->b->target_features = d->target->features;
}

static void emit_rows(dense *d, const program_op *op) {
  const program_value *row = &d->program->value[op->argument[1]];
  const dense_shape *shape = &d->shape;
  apply_request r = {shape->matrix->blocks, row->count, shape->per_head, shape->layout, 0, false, 1};
  for (r.dtype = 0; r.dtype < NUMBER_CHANNEL_TYPES; r.dtype++) {
    if (!(d->dtypes & 1u << r.dtype)) continue;
    emit_apply(d->b, d->memory, &r, d->target, emit_apply_name(d->memory, d->target, r.dtype));
    if (!shape->matrix->skew.may_act) continue;
    apply_request acting = r;
    acting.layout = MATRIX_EXPONENT;
    acting.factor = shape->matrix->skew.factor;
    emit_apply(d->b, d->memory, &acting, d->target, emit_act_name(d->memory, d->target, r.dtype));
  }
  if (d->dtypes & NUMBER_BIT(NUMBER_BF16) && d->target->dots) emit_rounding_apply(d, r);
  /* Where blocks of 8 are stored as lines: of larger ones the arithmetic is what takes time. */
  r.dtype = NUMBER_F32;
  r.streaming = true;
  if (d->dtypes & 1u << NUMBER_F32 && d->target->has_streaming && r.layout == MATRIX_DIAGONALS &&
      emit_apply_in_lines(&r.blocks, r.channels))
    emit_apply(d->b, d->memory, &r, d->target, emit_stream_name(d->memory, d->target));
}

/* ---- the walk ---- */

static void emit_ops(dense *d, const program_op *list, unsigned around) {
  for (const program_op *op = list; op; op = op->next) switch (op->kind) {
    case OP_FOR: /* rows of skipped tokens are the driver's */
      if (op->space != SPACE_TOKENS || op->part & PART_ENCODED) emit_ops(d, op->body, around | 1u << op->space);
      break;
    case OP_EVAL:
      if (around & IN(TOKENS)) emit_angles(d, op);
      else if (op->plan->n_leaves > 0) emit_prepare(&d->walk);
      break;
    case OP_MATRIX:
      if (around & IN(TOKENS)) emit_matrix(d, op);
      break;
    case OP_APPLY: emit_rows(d, op); break;
    case OP_LOAD:
    case OP_STORE:
    case OP_HOLD: break; /* apply's */
    default: diag_bug("cpu/dense", "'%s'", program_op_word(op->kind));
    }
}

void emit_dense(ir *b, arena *a, const program *encode, const cpu_target *target, unsigned dtypes) {
  const plan *p = program_plan(encode);
  plan_tile *t = plan_tile_build(a, p, target->lanes);
  dense d = {.b = b, .memory = a, .program = cpu_schedule(a, encode), .target = target, .dtypes = dtypes};
  d.shape = dense_shape_of(a, d.program, target);
  if (d.shape.matrix->skew.source != SOURCE_PRODUCT) t->n_looped = 0; /* angles are short */
  d.walk = emit_chunks_of(b, a, p, t, target);
  emit_ops(&d, d.program->body, 0);
}
