/* gpu/basis_gradient: gradients of operands and positions behind a change of basis of the head, on GPUs.
 *
 * A team of threads (gpu/exponential) has a chunk of items (and one head, where heads differ), and C of it. It sums the
 * head's torque, G = g y^T, over the rows of an item, which are y = R C x. Gradients of turns come from G's entries
 * within blocks, a block a thread, as expressions (gpu/gains). The gradient of C comes from R^T G R^-T, whose lines are
 * turned in shared memory in closed form. Rotations have R^-1 in R^T; boosts and translations turn by a third operator
 * (plan.inverse). Then rows are turned back. Where encode turns back, y = C^T R^-1 x, gradients of turns come from
 * C G C^T, and that of C from G itself.
 *
 * From what encode read (x), G is g x^T C^T R^T, to turn back g x^T R^-T C.
 *
 * What C = (I - A)(I + A)^-1 gains is linear in a chunk's sum P: with K, C or to turn back its transpose, A gains
 * -1/2 (I + K)^T (P - P^T) (I + K), and so a chunk's numbers are those of the generator, as dense blocks' are, and are
 * finished by the same entries (gpu/finish).
 *
 * G lies in the team's right matrix line by line (gpu/team_sums) while its lines are turned, and in the thread's tile
 * where it is multiplied. The left matrix is C, to turn back its transpose: that rows of gradients are multiplied by
 * the transpose of.
 */

#include "gpu/basis.h"
#include "gpu/gains.h"
#include "gpu/gradient.h"
#include "gpu/index.h"
#include "gpu/matrix_gradient.h"
#include "gpu/schedule.h"
#include "gpu/team_sums.h"

#include "kernel/launch.h"

enum { QUAD = TEAM_QUAD, SIDES = TEAM_SIDES, TILE = TEAM_TILE, NUMBER = TWO_FLOAT_BYTES, COMPONENTS = SPEC_MAX_BLADES };

/* Blocks of threads that a multiprocessor is to have: eliminating takes some 200 registers a thread. */
enum { BLOCKS = 1 };

typedef struct basis_gradient {
  basis back;      /* by which rows of gradients are turned */
  row_thread kept; /* rows that encode wrote or read */
  gpu_gains gains;
  ir_value room; /* pointer: memory of the team, where the threads' coefficients wait */
  bool is_zero[2 * COMPONENTS * COMPONENTS]; /* of those */
  two_float tau[TORQUE_MOST];
  ir_value exists, valid, encoded; /* i1; exists: the chunk; encoded null: all are */
} basis_gradient;

static bool turns_back(const basis_gradient *m) { return m->gains.body->p->spec->inverse; }
static int size_of(const basis_gradient *m) { return m->back.blocks->size; }

/* ---- coefficients ---- */

/* Returns the entries of the inverse, whose expressions have operands of their own; NULL: R^T gives the inverse. */
static const expr *const *inverse_entries(const basis_gradient *m) {
  const plan *turns = m->back.turn->plan;
  return turns->inverse ? (const expr *const *)turns->inverse->program->matrix.entry : NULL;
}

/* Where number i of the thread's own memory is, lane by lane: the coefficients by which rows of gradients are turned,
 * and behind them those of R^-1. */
static ir_value place_of(basis_gradient *m, int i) {
  ir *b = m->back.rows.b;
  const matrix_team *g = m->back.rows.team;
  return ir_offset_const(b, ir_offset(b, m->room, wide(b, scaled(b, g->lane, 4))), 4LL * g->threads * i);
}

/* y = R u is turned back by R^-1, where R^T is at hand: the amplitude's square times that. */
static ir_value inverse_of(basis_gradient *m, int i) {
  ir *b = m->back.rows.b;
  double a = m->gains.body->p->spec->amplitude, factor = a == 0 ? 1 : 1 / (a * a);
  const expr *const *inverse = inverse_entries(m);
  ir_value x = m->back.coefficient[i];
  if (inverse)
    return expr_is_const(inverse[i], 0) ? (ir_value){NULL} : emit_thread_f32(&m->gains.body->exprs, inverse[i], 0);
  return factor != 1 && x.ptr ? mul(b, x, ir_float(b, b->f32, factor)) : x;
}

/* To memory: expressions, sums of rows and what blocks gain are each as much as there are registers for. */
static void make_coefficients(basis_gradient *m) {
  thread_emitter *e = &m->gains.body->exprs;
  int count = size_of(m) * size_of(m);
  two_float *before = emit_thread_remember(e);
  gpu_load_positions(m->gains.body);
  basis_make_coefficients(&m->back);
  for (int i = 0; i < count; i++) {
    ir_value x[] = {m->back.coefficient[i], turns_back(m) ? (ir_value){NULL} : inverse_of(m, i)};
    for (int k = 0; k < 2; k++) {
      m->is_zero[k * count + i] = !x[k].ptr;
      if (x[k].ptr) ir_store(m->back.rows.b, x[k], place_of(m, k * count + i), 4, false);
    }
  }
  emit_thread_forget(e, before);
}

typedef enum turning { BACKWARD, FORWARD, INVERSE } turning; /* of rows of gradients; encode's own; R^-1 */

static void load_coefficients(basis_gradient *m, turning of, ir_value *coefficient) {
  ir *b = m->back.rows.b;
  int n = size_of(m);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      int at = of == INVERSE ? n * n + i * n + j : of == FORWARD ? j * n + i : i * n + j;
      coefficient[i * n + j] = m->is_zero[at] ? (ir_value){NULL} : ir_load(b, b->f32, place_of(m, at), 4);
    }
}

/* ---- the head's torque ---- */

/* Every row of G, or every column, by the blocks' matrices, of a token that is turned; barriers before and after. */
static void turn_lines(basis_gradient *m, turning of, bool of_columns) {
  basis *t = &m->back;
  ir *b = t->rows.b;
  int all = t->rows.blocks->size;
  ir_value coefficient[COMPONENTS * COMPONENTS];
  ir_wait(b, IR_BARRIER_BLOCK);
  load_coefficients(m, of, coefficient);
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, (all + t->lanes - 1) / t->lanes));
  ir_value line = add(b, t->lane, scaled(b, narrow(b, loop.index), t->lanes)), at[COMPONENTS];
  ir_value turned = below(b, line, i32(b, all));
  ir_branch branch = ir_if(b, t->turns.ptr ? both(b, turned, t->turns) : turned);
  for (int j = 0; j < size_of(m); j++) {
    ir_value channel = basis_channel(t, j);
    at[j] = of_columns ? team_row_address(&t->rows, channel, line) : team_row_address(&t->rows, line, channel);
  }
  basis_turn(t, coefficient, at);
  ir_end_if(b, branch);
  ir_end_for(b, loop);
  ir_wait(b, IR_BARRIER_BLOCK);
}

typedef void write_tile(matrix_team *g, int matrix, const ir_value *tile);

/* G, written to the right matrix by `write`, becomes the transpose of `left` times `right`. A barrier behind it. */
static void make_product(basis_gradient *m, write_tile *write, int left, int right) {
  team_rows *r = &m->back.rows;
  ir *b = r->b;
  ir_value tile[TILE];
  team_load_lines(r, tile);
  ir_wait(b, IR_BARRIER_BLOCK);
  write(r->team, TEAM_RIGHT, tile);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_product(r->team, left, right, tile);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_store_lines(r, tile);
  ir_wait(b, IR_BARRIER_BLOCK);
}

/* G times the transpose of the matrix that the left one is the transpose of; complete. */
static void multiply_lines(basis_gradient *m) {
  ir_wait(m->back.rows.b, IR_BARRIER_BLOCK);
  make_product(m, team_write_transposed, TEAM_RIGHT, TEAM_LEFT);
}

static void transpose_left(basis_gradient *m) {
  matrix_team *g = m->back.rows.team;
  ir_value tile[TILE];
  ir_wait(g->b, IR_BARRIER_BLOCK);
  team_read(g, TEAM_LEFT, tile);
  ir_wait(g->b, IR_BARRIER_BLOCK);
  team_write_transposed(g, TEAM_LEFT, tile);
  ir_wait(g->b, IR_BARRIER_BLOCK);
}

/* Turns the sums of g x^T, where encode's input was kept, into those of g y^T. */
static void from_input(basis_gradient *m) {
  ir *b = m->back.rows.b;
  ir_branch read = ir_if(b, m->gains.from_input);
  if (turns_back(m)) turn_lines(m, FORWARD, false);
  transpose_left(m);
  multiply_lines(m);
  transpose_left(m);
  if (!turns_back(m)) turn_lines(m, FORWARD, false);
  ir_end_if(b, read);
}

/* C G C^T, the left matrix being the transpose of C. */
static void change_back(basis_gradient *m) {
  multiply_lines(m);
  make_product(m, team_write, TEAM_LEFT, TEAM_RIGHT);
}

/* What the thread's block gives to operands and positions. */
static void add_gains(basis_gradient *m) {
  team_rows *r = &m->back.rows;
  ir *b = r->b;
  const plan_gradient *of = m->gains.of;
  ir_value channel[COMPONENTS];
  if (!of) return;
  for (int i = 0; i < size_of(m); i++) channel[i] = basis_channel(&m->back, i);
  for (int k = 0; k < of->n_torques; k++) {
    const torque_element *e = &of->basis.element[k];
    ir_value sum = {NULL};
    for (int i = 0; i < e->n_entries; i++) {
      ir_value x = ir_load(b, b->f32, team_row_address(r, channel[e->entry[i].row], channel[e->entry[i].column]), 4);
      if (e->entry[i].sign < 0) x = ir_op1(b, "arith.negf", x);
      sum = sum.ptr ? add(b, sum, x) : x;
    }
    m->tau[k] = two_float_f32(sum);
  }
  m->gains.stores = both(b, m->valid, below(b, r->team->lane, i32(b, m->back.blocks->count)));
  if (m->encoded.ptr) m->gains.stores = both(b, m->gains.stores, m->encoded);
  two_float *before = emit_thread_remember(&m->gains.body->exprs);
  gpu_load_positions(m->gains.body); /* once more, behind barriers: coefficients' sines need not wait in registers */
  gpu_add_gains(&m->gains);
  emit_thread_forget(&m->gains.body->exprs, before);
}

/* ---- a chunk's sums ---- */

/* Where the sums of quad `column` (i32) of a row are. */
static ir_value sums_of_quad(basis_gradient *m, ir_value row, ir_value column) {
  ir *b = m->back.rows.b;
  ir_value at = wide(b, add(b, scaled(b, row, m->back.rows.team->padded), scaled(b, column, QUAD)));
  return ir_offset(b, gpu_matrix_sums(&m->gains, m->back.change, 0, i32(b, 0)), mul(b, at, i64(b, NUMBER)));
}

/* Calls for every four numbers of the thread's tile, in a loop. at: where their sums are; line: they themselves, in the
 * right matrix. */
typedef void visit_quad(basis_gradient *m, ir_value at, ir_value line);
static void each_quad(basis_gradient *m, visit_quad *visit) {
  team_rows *r = &m->back.rows;
  ir *b = r->b;
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, QUAD * SIDES));
  ir_value quad = narrow(b, loop.index), row = add(b, scaled(b, r->team->row, QUAD), quotient(b, quad, SIDES));
  ir_value column = add(b, r->team->column, scaled(b, rest(b, quad, SIDES), r->team->padded / (SIDES * QUAD)));
  ir_value line = team_row_address(r, row, scaled(b, column, QUAD));
  visit(m, sums_of_quad(m, row, column), line);
  ir_end_for(b, loop);
}

static void clear_quad(basis_gradient *m, ir_value at, ir_value line) {
  ir *b = m->back.rows.b;
  (void)line;
  for (int j = 0; j < QUAD; j++) two_float_store(b, two_float_const(b, 0), ir_offset_const(b, at, (int64_t)j * NUMBER));
}

static void add_quad(basis_gradient *m, ir_value at, ir_value line) {
  ir *b = m->back.rows.b;
  ir_value x = ir_load(b, ir_vector(b, QUAD, b->f32), line, 4 * QUAD);
  for (int j = 0; j < QUAD; j++) {
    ir_value own = ir_offset_const(b, at, (int64_t)j * NUMBER);
    two_float_store(b, two_float_add(b, two_float_load(b, own), two_float_f32(ir_extract(b, x, j))), own);
  }
}

static void load_quad(basis_gradient *m, ir_value at, ir_value line) {
  ir *b = m->back.rows.b;
  ir_value x[QUAD];
  for (int j = 0; j < QUAD; j++)
    x[j] = two_float_narrow(b, two_float_load(b, ir_offset_const(b, at, (int64_t)j * NUMBER)));
  ir_store(b, ir_elements(b, ir_vector(b, QUAD, b->f32), QUAD, x), line, 4 * QUAD, false);
}

static void store_quad(basis_gradient *m, ir_value at, ir_value line) {
  ir *b = m->back.rows.b;
  ir_value x = ir_load(b, ir_vector(b, QUAD, b->f32), line, 4 * QUAD);
  two_float number = {.hi = {NULL}, .lo = ir_float(b, b->f32, 0)};
  for (int j = 0; j < QUAD; j++) {
    number.hi = ir_extract(b, x, j);
    two_float_store(b, number, ir_offset_const(b, at, (int64_t)j * NUMBER));
  }
}

static void each_quad_where(basis_gradient *m, ir_value stores, visit_quad *visit) {
  ir *b = m->back.rows.b;
  ir_branch wanted = gpu_if_matrices_wanted(&m->gains, stores);
  each_quad(m, visit);
  ir_end_if(b, wanted);
}

/* What the generator gains of the chunk's sum, in its place: -1/2 (I + K)^T (P - P^T) (I + K), K the left matrix. */
static void through_cayley(basis_gradient *m) {
  team_rows *r = &m->back.rows;
  matrix_team *g = r->team;
  ir *b = r->b;
  ir_value tile[TILE], other[TILE], half = ir_float(b, b->f32, 0.5);
  ir_branch wanted = gpu_if_matrices_wanted(&m->gains, ir_int(b, b->i1, 1));
  ir_wait(b, IR_BARRIER_BLOCK);
  each_quad_where(m, m->exists, load_quad);
  team_load_lines(r, tile); /* what the thread alone has stored */
  ir_wait(b, IR_BARRIER_BLOCK);
  team_write_transposed(g, TEAM_RIGHT, tile);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_read(g, TEAM_RIGHT, other);
  for (int i = 0; i < TILE; i++) tile[i] = sub(b, tile[i], other[i]);
  team_write(g, TEAM_RIGHT, tile); /* what the thread alone has read since the barrier */
  team_read(g, TEAM_LEFT, other);
  for (int i = 0; i < TILE; i++) other[i] = team_plus_diagonal(g, i, other[i], ir_float(b, b->f32, 1));
  team_write(g, TEAM_LEFT, other);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_product(g, TEAM_RIGHT, TEAM_LEFT, tile); /* of the opposite sign, P - P^T being skew */
  ir_wait(b, IR_BARRIER_BLOCK);
  team_write(g, TEAM_RIGHT, tile);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_product(g, TEAM_LEFT, TEAM_RIGHT, tile);
  for (int i = 0; i < TILE; i++) tile[i] = mul(b, half, tile[i]);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_store_lines(r, tile);
  each_quad_where(m, m->exists, store_quad);
  ir_end_if(b, wanted);
}

/* ---- an item ---- */

static void run_item(basis_gradient *m, ir_value item, ir_value end) {
  basis *of = &m->back;
  team_rows *r = &of->rows;
  gpu_body *t = r->body;
  ir *b = r->b;
  ir_value threads_turn = of->turns, sum[TILE];
  r->exists = m->valid = less(b, item, end);
  gpu_set_item(&m->gains, ir_select(b, m->valid, item, i32(b, 0)));
  m->encoded = gpu_is_encoded(t);
  if (m->encoded.ptr) of->turns = of->turns.ptr ? both(b, of->turns, m->encoded) : m->encoded;
  make_coefficients(m);
  row_origin origin = emit_row_origin(&t->rows, &t->owner, i64(b, 0));
  team_sum_rows(r, &m->kept, &origin, sum);
  team_store_lines(r, sum);
  from_input(m);
  if (turns_back(m)) {
    ir_wait(b, IR_BARRIER_BLOCK);
    each_quad_where(m, m->valid, add_quad);
    if (m->gains.of) change_back(m);
    add_gains(m);
  } else {
    ir_wait(b, IR_BARRIER_BLOCK);
    add_gains(m);
    turn_lines(m, BACKWARD, true);
    turn_lines(m, INVERSE, false);
    each_quad_where(m, m->valid, add_quad);
  }
  ir_wait(b, IR_BARRIER_BLOCK);
  team_rows_clear(r);
  load_coefficients(m, BACKWARD, of->coefficient);
  basis_turn_rows(of, program_row_ops(t->program, PART_ALL));
  ir_wait(b, IR_BARRIER_BLOCK);
  of->turns = threads_turn;
}

/* ---- the entry ---- */

static void load_operands(basis_gradient *m) {
  int n = size_of(m), count = 0, most = 2 * n * n;
  const expr *const *inverse = inverse_entries(m);
  if (m->gains.of) most += m->gains.of->n_boundaries + SPEC_MAX_AXES;
  const expr **roots = arena_array(m->back.rows.memory, const expr *, most);
  for (int i = 0; i < n * n; i++) roots[count++] = m->back.turn->expr[i];
  for (int i = 0; inverse && i < n * n; i++) roots[count++] = inverse[i];
  if (m->gains.of) count += gpu_gain_roots(&m->gains, roots + count);
  emit_thread_operands(&m->gains.body->exprs, roots, count);
}

static void begin_chunk(basis_gradient *m) {
  ir *b = m->back.rows.b;
  m->gains.stores = both(b, m->exists, below(b, m->back.rows.team->lane, i32(b, m->back.blocks->count)));
  if (m->gains.of) gpu_clear_sums(&m->gains);
  each_quad_where(m, m->exists, clear_quad);
  m->back.rows.exists = ir_int(b, b->i1, 1);
  basis_make_matrix(&m->back);
  team_rows_begin(&m->back.rows);
}

/* Returns the bytes of a thread's own memory, which holds its coefficients and those of R^-1. */
static int thread_bytes(const basis *m) { return 2 * 4 * m->blocks->size * m->blocks->size; }

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  basis_gradient m = {.back = basis_of(program->backward)};
  const program_blocks *whole = &m.back.change->blocks;
  int heads = program->per_head ? program->spec->heads : 1;
  gpu_body t = gpu_open(b, a, m.back.turn->plan, program->per_head, entry, native, host);
  t.program = gpu_schedule(a, program->backward);
  gpu_open_gains(&m.gains, &t, program, &m.kept);
  matrix_team team = team_open(b, entry->name, whole->size, t.thread);
  t.exprs.walker.turns_narrow = !t.p->spec->function;
  t.exprs.cotangents = m.tau;
  t.exprs.n_cotangents = program->of ? gpu_gains_of(program)->n_torques : 0;
  m.back.rows = (team_rows){
      .b = b, .memory = a, .blocks = whole, .body = &t, .team = &team, .unit = i32(b, 0), .is_written = gpu_is_written};
  /* Teams behind the last chunk do as those of item 0 do and store nothing: barriers are the whole block's. */
  ir_value line = add(b, scaled(b, t.block, PEGEN_PTX_BLOCK / team.threads), team.index);
  t.exprs.unit = rest(b, team.lane, m.back.blocks->count);
  t.exprs.head = t.owner.head = rest(b, line, heads);
  ir_value room = mul(b, wide(b, line), i64(b, (int64_t)team.threads * thread_bytes(&m.back)));
  m.room = ir_pointer(b, add(b, m.gains.own[PEGEN_PTX_MATRIX_ROOM], room));
  gpu_chunk chunk = gpu_open_chunk(&m.gains, quotient(b, line, heads));
  m.exists = chunk.exists;
  basis_deal_out(&m.back);
  load_operands(&m);
  begin_chunk(&m);
  ir_loop loop = ir_for(b, i64(b, 0), wide(b, chunk.size));
  run_item(&m, add(b, chunk.begin, narrow(b, loop.index)), chunk.end);
  ir_end_for(b, loop);
  through_cayley(&m);
  ir_return(b);
}

void gpu_add_basis_gradients(arena *a, gpu_program *program, unsigned dtypes) {
  if (!program->backward) return;
  const basis back = basis_of(program->backward);
  program->of = plan_gradient_row_of(a, plan_gradient_build(a, back.turn->plan));
  gpu_entry of = {.of = PEGEN_LAUNCH_encode_backward,
                  .word = PEGEN_PTX_WORD_GRADIENT,
                  .kind = GPU_MATRIX_GRADIENT,
                  .emit = emit,
                  .units = team_threads(back.change->blocks.size),
                  .blocks = BLOCKS};
  gpu_add_team_entries(a, program, &back.change->blocks, of, dtypes);
  gpu_keep_matrices(a, program, thread_bytes(&back));
  gpu_add_finishing(a, program);
}
