/* gpu/matrix_gradient: see gpu/matrix_gradient.h. */
#include "gpu/matrix_gradient.h"

#include "gpu/exponential_adjoint.h"
#include "gpu/gains.h"
#include "gpu/gradient.h"
#include "gpu/index.h"
#include "gpu/schedule.h"
#include "gpu/team_sums.h"

#include "kernel/launch.h"

enum { QUAD = TEAM_QUAD, SIDES = TEAM_SIDES, TILE = TEAM_TILE, NUMBER = TWO_FLOAT_BYTES };

/* Blocks of threads that a multiprocessor is to have: the assembler, left alone, spills a register or two to have one
 * more. */
enum { BLOCKS = 1 };

typedef struct matrix_gradient {
  team_rows rows;
  row_thread kept; /* rows that encode wrote or read */
  const program_op *matrix, *angles, *apply;
  const expr *generator[SPEC_MAX_AXES]; /* where raw matrices begin */
  gpu_gains gains;
  team_torque torque;
  ir_value first[SPEC_MAX_AXES]; /* i32 */
  two_float angle[SPEC_MAX_AXES], gained[SPEC_MAX_AXES];
  ir_value valid, encoded; /* i1; encoded null: all are */
  int passing; /* channels of no block */
} matrix_gradient;

static int count_of(const matrix_gradient *m) { return m->matrix->skew.count; }

/* ---- what rows make ---- */

/* To the torque's tile in memory. */
static void sum_rows(matrix_gradient *m, const row_origin *origin) {
  ir_value sum[TILE];
  team_sum_rows(&m->rows, &m->kept, origin, sum);
  team_torque_store(&m->torque, sum);
}

/* ---- rows ---- */

/* The left matrix is what they are turned by. */
static void turn_rows(matrix_gradient *m, const row_origin *origin) {
  team_rows *r = &m->rows;
  team_rows_clear(r);
  team_rows_turn(r, origin, m->passing, m->matrix->skew.factor, m->encoded);
  ir_wait(r->b, IR_BARRIER_BLOCK);
}

/* ---- a matrix ---- */

/* The exponential, and in the last round what it gains. */
static void run_round(matrix_gradient *m, ir_value is_first, const row_origin *origin) {
  team_rows *r = &m->rows;
  ir *b = r->b;
  ir_wait(b, IR_BARRIER_BLOCK);
  ir_branch last = ir_if(b, m->torque.wanted);
  team_torque_skew(&m->torque);
  ir_end_if(b, last);
  team_skew(r, count_of(m), m->matrix->skew.of, m->first, m->angle, m->apply->transposed);
  team_torque_exponential(&m->torque);
  ir_branch turned = ir_if(b, is_first);
  turn_rows(m, origin);
  ir_end_if(b, turned);
  ir_branch again = ir_if(b, ir_op2(b, "arith.xori", m->torque.wanted, ir_int(b, b->i1, 1)));
  team_torque_turn(&m->torque, m->matrix->skew.factor);
  ir_end_if(b, again);
}

/* ---- what matrices and angles gain ---- */

/* Where the sums of element (row, column) of generator k are. */
static ir_value sum_at(matrix_gradient *m, int k, ir_value row, ir_value column) {
  ir *b = m->rows.b;
  ir_value at = wide(b, add(b, scaled(b, row, m->rows.team->padded), column));
  return ir_offset(b, gpu_matrix_sums(&m->gains, m->matrix, k, m->rows.unit), mul(b, at, i64(b, NUMBER)));
}

/* Calls for every four elements of the thread's tile, in a loop that carries a number a generator. */
typedef void visit_quad(matrix_gradient *m, ir_value quad, ir_value row, ir_value column, ir_value *carried);
static void each_quad(matrix_gradient *m, visit_quad *visit, ir_value *carried) {
  ir *b = m->rows.b;
  const matrix_team *g = m->rows.team;
  int count = count_of(m), rows = QUAD * SIDES;
  ir_value current[SPEC_MAX_AXES];
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, rows), count, carried, current);
  ir_value quad = narrow(b, loop.index), row = add(b, scaled(b, g->row, QUAD), quotient(b, quad, SIDES));
  ir_value side = scaled(b, rest(b, quad, SIDES), g->padded / (SIDES * QUAD));
  visit(m, quad, row, add(b, g->column, side), current);
  ir_end_for_with(b, loop, count, current, carried);
}

static void clear_quad(matrix_gradient *m, ir_value quad, ir_value row, ir_value column, ir_value *carried) {
  ir *b = m->rows.b;
  (void)quad;
  (void)carried;
  for (int k = 0; k < count_of(m); k++)
    for (int j = 0; j < QUAD; j++)
      two_float_store(b, two_float_const(b, 0), sum_at(m, k, row, add(b, scaled(b, column, QUAD), i32(b, j))));
}

/* carried: the products with generators, over all entries where pairs are meant. */
static void gain_quad(matrix_gradient *m, ir_value quad, ir_value row, ir_value column, ir_value *carried) {
  team_rows *r = &m->rows;
  ir *b = r->b;
  two_float one = {.hi = ir_float(b, b->f32, 1), .lo = {NULL}};
  ir_value gained[QUAD];
  for (int j = 0; j < QUAD; j++) gained[j] = team_torque_element(&m->torque, add(b, scaled(b, quad, QUAD), i32(b, j)));
  for (int k = 0; k < count_of(m); k++) {
    ir_value of = team_skew_quad(r, 1, &m->matrix->skew.of[k], &m->first[k], &one, m->apply->transposed, row, column);
    for (int j = 0; j < QUAD; j++) carried[k] = ir_fma(b, ir_extract(b, of, j), gained[j], carried[k]);
  }
  ir_branch wanted = gpu_if_matrices_wanted(&m->gains, m->valid);
  for (int k = 0; k < count_of(m); k++)
    for (int j = 0; j < QUAD; j++) {
      ir_value at = sum_at(m, k, row, add(b, scaled(b, column, QUAD), i32(b, j)));
      two_float more = two_float_mul(b, m->angle[k], two_float_f32(gained[j]));
      two_float_store(b, two_float_add(b, two_float_load(b, at), more), at);
    }
  ir_end_if(b, wanted);
}

static void zeros(matrix_gradient *m, ir_value *values) {
  for (int k = 0; k < count_of(m); k++) values[k] = ir_float(m->rows.b, m->rows.b->f32, 0);
}

static void add_gains(matrix_gradient *m) {
  ir *b = m->rows.b;
  ir_value of_angle[SPEC_MAX_AXES];
  zeros(m, of_angle);
  each_quad(m, gain_quad, of_angle);
  for (int k = 0; k < count_of(m); k++) { /* of -A, where A is: what is turned back by is exp of the other sign */
    ir_value sum = mul(b, team_sum(m->rows.team, of_angle[k]), ir_float(b, b->f32, -0.5));
    m->gained[k] = two_float_f32(sum);
  }
  m->gains.stores = both(b, m->valid, ir_compare_int(b, "eq", m->rows.team->lane, i32(b, 0)));
  if (m->gains.of) gpu_add_gains(&m->gains);
}

/* ---- an item ---- */

static void run_item(matrix_gradient *m, ir_value item, ir_value end) {
  team_rows *r = &m->rows;
  gpu_body *t = r->body;
  ir *b = r->b;
  r->exists = less(b, item, end);
  gpu_set_item(&m->gains, ir_select(b, r->exists, item, i32(b, 0)));
  m->encoded = gpu_is_encoded(t);
  m->valid = m->encoded.ptr ? both(b, r->exists, m->encoded) : r->exists;
  gpu_load_positions(t);
  for (int k = 0; k < count_of(m); k++) m->angle[k] = emit_thread_value(&t->exprs, m->angles->expr[k], 0);
  row_origin origin = emit_row_origin(&t->rows, &t->owner, i64(b, 0));
  sum_rows(m, &origin);
  ir_value begin = ir_select(b, m->gains.from_input, i64(b, 0), i64(b, 1));
  ir_loop loop = ir_for(b, begin, i64(b, 2));
  m->torque.wanted = ir_compare_int(b, "eq", loop.index, i64(b, 1));
  run_round(m, ir_compare_int(b, "eq", loop.index, begin), &origin);
  ir_end_for(b, loop);
  add_gains(m);
  ir_wait(b, IR_BARRIER_BLOCK);
}

/* ---- the entry ---- */

static void load_operands(matrix_gradient *m) {
  gpu_body *t = m->rows.body;
  int most = SPEC_MAX_AXES + (m->gains.of ? m->gains.of->n_boundaries + SPEC_MAX_AXES : 0), count = 0;
  const expr **roots = arena_array(m->rows.memory, const expr *, most);
  for (int k = 0; k < count_of(m); k++) roots[count++] = m->angles->expr[k];
  if (m->gains.of) count += gpu_gain_roots(&m->gains, roots + count);
  emit_thread_operands(&t->exprs, roots, count);
  for (int k = 0; k < count_of(m); k++) m->first[k] = emit_thread_offset(&t->exprs, m->generator[k], 0);
}

static void begin_chunk(matrix_gradient *m, ir_value stores) {
  ir *b = m->rows.b;
  ir_value none[SPEC_MAX_AXES];
  zeros(m, none);
  m->gains.stores = both(b, stores, ir_compare_int(b, "eq", m->rows.team->lane, i32(b, 0)));
  if (m->gains.of) gpu_clear_sums(&m->gains);
  ir_branch wanted = gpu_if_matrices_wanted(&m->gains, stores);
  each_quad(m, clear_quad, none);
  ir_end_if(b, wanted);
}

static matrix_gradient gradient_of(const program *backward) {
  matrix_gradient m = {.apply = program_encoded_apply(backward)};
  m.matrix = backward->value[m.apply->argument[0]].maker;
  m.angles = backward->value[m.matrix->argument[0]].maker;
  gpu_generators(backward, &m.matrix->skew, m.generator);
  return m;
}

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  matrix_gradient m = gradient_of(program->backward);
  const program_blocks *blocks = &m.matrix->blocks;
  gpu_body t = gpu_open(b, a, m.matrix->plan, program->per_head, entry, native, host);
  t.program = gpu_schedule(a, program->backward);
  gpu_open_gains(&m.gains, &t, program, &m.kept);
  matrix_team team = team_open(b, entry->name, blocks->size, t.thread);
  t.exprs.walker.turns_narrow = true;
  t.exprs.cotangents = m.gained;
  t.exprs.n_cotangents = count_of(&m);
  /* Teams behind the last chunk do as those of item 0 do and store nothing: barriers are the whole block's. */
  ir_value line = add(b, scaled(b, t.block, PEGEN_PTX_BLOCK / team.threads), team.index),
           owner = quotient(b, line, blocks->count);
  int heads = program->per_head ? program->spec->heads : 1;
  t.exprs.unit = rest(b, line, blocks->count);
  t.exprs.head = t.owner.head = rest(b, owner, heads);
  m.rows = (team_rows){.b = b,
                       .memory = a,
                       .blocks = blocks,
                       .body = &t,
                       .team = &team,
                       .unit = t.exprs.unit,
                       .is_written = gpu_is_written};
  ir_value room = mul(b, wide(b, line), i64(b, (int64_t)team.threads * TORQUE_THREAD_BYTES));
  m.torque = (team_torque){.team = &team, .memory = ir_pointer(b, add(b, m.gains.own[PEGEN_PTX_MATRIX_ROOM], room))};
  gpu_chunk chunk = gpu_open_chunk(&m.gains, quotient(b, owner, heads));
  load_operands(&m);
  begin_chunk(&m, chunk.exists);
  team_rows_begin(&m.rows);
  m.passing = team_rows_passing(&m.rows);
  ir_loop loop = ir_for(b, i64(b, 0), wide(b, chunk.size));
  run_item(&m, add(b, chunk.begin, narrow(b, loop.index)), chunk.end);
  ir_end_for(b, loop);
  ir_return(b);
}

/* ---- entries ---- */

void gpu_add_matrix_gradients(arena *a, gpu_program *program, unsigned dtypes) {
  if (!program->backward) return;
  const matrix_gradient m = gradient_of(program->backward);
  program->of = plan_gradient_row_of(
      a, plan_gradient_of_values(a, m.angles->plan, program->per_head, m.angles->expr, m.angles->n_exprs));
  if (m.matrix->skew.in_f64) {
    gpu_add_dense_gradients(a, program, dtypes);
    gpu_keep_matrices(a, program, 0);
    gpu_add_finishing(a, program);
    return;
  }
  gpu_entry of = {.of = PEGEN_LAUNCH_encode_backward,
                  .word = PEGEN_PTX_WORD_GRADIENT,
                  .kind = GPU_MATRIX_GRADIENT,
                  .emit = emit,
                  .units = m.matrix->blocks.count * team_threads(m.matrix->blocks.size),
                  .blocks = BLOCKS};
  gpu_add_team_entries(a, program, &m.matrix->blocks, of, dtypes);
  gpu_keep_matrices(a, program, TORQUE_THREAD_BYTES);
  gpu_add_finishing(a, program);
}
