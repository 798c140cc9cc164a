/* gpu/change_of_basis: one matrix, many tokens; see gpu/change_of_basis.h. */
#include "gpu/change_of_basis.h"

#include "base/diag.h"
#include "gpu/cayley.h"
#include "gpu/index.h"
#include "gpu/schedule.h"
#include "gpu/team.h"

#include "kernel/launch.h"

/* Tokens that share a C: what inverting costs is then as much as what multiplying some heads' rows does. */
enum {
  MOST_SIZE = 64,
  MOST_TOKENS = 32,
  BLOCKS = 2 /* of a multiprocessor: registers of eliminating, some 200 a thread */
};

typedef struct basis {
  const program_op *change, *turn; /* the matrices: of all channels, of blocks in closed form */
  const program_blocks *blocks;    /* that turn */
  bool is_transposed;              /* both are applied so */
  team_rows rows;
  int lanes;               /* of a block: rows are dealt out to them */
  ir_value lane;           /* i32: which of them the thread is */
  ir_value turns;          /* i1: the thread has a block, and the token is turned; null: always */
  ir_value coefficient[SPEC_MAX_BLADES * SPEC_MAX_BLADES]; /* null: 0 */
} basis;

/* Tokens that a team goes through, and the teams of a block together: what makes the number of threads a token whole.
 */
static int tokens_of(const program_op *change) {
  int threads = team_threads(change->blocks.size);
  if (change->skew.of->n_heads > 1) return 1; /* heads differ: so does C */
  return threads < MOST_TOKENS ? threads : MOST_TOKENS;
}

/* ---- forming ---- */

static void make_matrix(basis *m) {
  const spec_skew *g = m->change->skew.of;
  ir *b = m->rows.b;
  two_float one = {.hi = ir_float(b, b->f32, 1), .lo = {NULL}};
  ir_value first = i32(b, g->offset[0]);
  int step = g->n_heads > 1 ? g->offset[1] - g->offset[0] : 0;
  if (step) first = add(b, first, scaled(b, m->rows.body->owner.head, step));
  team_skew(&m->rows, 1, g, &first, &one, false);
  team_cayley(m->rows.team, !m->is_transposed);
}

/* ---- turning ---- */

/* Of the thread's block, as it is applied. */
static void make_coefficients(void *context, const program_op *op) {
  basis *m = context;
  thread_emitter *e = &m->rows.body->exprs;
  int n = op->blocks.size;
  gpu_load_positions(m->rows.body);
  emit_thread_operands(e, (const expr **)op->expr, n * n);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      const expr *x = op->expr[m->is_transposed ? j * n + i : i * n + j];
      m->coefficient[i * n + j] = expr_is_const(x, 0) ? (ir_value){NULL} : emit_thread_f32(e, x, 0);
    }
}

/* The block's channels of a row in shared memory, by its matrix. */
static void turn_row(basis *m, ir_value row) {
  ir *b = m->rows.b;
  const program_blocks *s = m->blocks;
  int n = s->size;
  ir_value at[SPEC_MAX_BLADES], x[SPEC_MAX_BLADES];
  for (int j = 0; j < n; j++) {
    at[j] =
        team_row_address(&m->rows, row, emit_thread_index(&m->rows.body->exprs, s->channel + (int64_t)j * s->count));
    x[j] = ir_load(b, b->f32, at[j], 4);
  }
  for (int i = 0; i < n; i++) {
    ir_value sum = {NULL};
    for (int j = 0; j < n; j++) {
      ir_value c = m->coefficient[i * n + j];
      if (c.ptr) sum = sum.ptr ? ir_fma(b, c, x[j], sum) : mul(b, c, x[j]);
    }
    ir_store(b, sum.ptr ? sum : ir_float(b, b->f32, 0), at[i], 4, false);
  }
}

/* All rows of the flight; barriers before and after. */
static void turn_rows(basis *m) {
  ir *b = m->rows.b;
  int flight = team_flight(m->rows.blocks->size);
  ir_wait(b, IR_BARRIER_BLOCK);
  ir_branch branch;
  if (m->turns.ptr) branch = ir_if(b, m->turns);
  for (int first = 0; first < flight; first += m->lanes) {
    ir_value row = add(b, m->lane, i32(b, first));
    ir_branch there;
    if (first + m->lanes > flight) there = ir_if(b, below(b, row, i32(b, flight)));
    turn_row(m, row);
    if (first + m->lanes > flight) ir_end_if(b, there);
  }
  if (m->turns.ptr) ir_end_if(b, branch);
  ir_wait(b, IR_BARRIER_BLOCK);
}

/* Which block the thread turns, and which of the rows. */
static void deal_out(basis *m) {
  ir *b = m->rows.b;
  const matrix_team *g = m->rows.team;
  int blocks = m->blocks->count;
  m->lanes = g->threads / blocks;
  m->lane = ir_op2(b, "arith.divui", g->lane, i32(b, blocks));
  m->turns = m->lanes * blocks < g->threads ? below(b, m->lane, i32(b, m->lanes)) : (ir_value){NULL};
}

/* ---- a token ---- */

/* Rows in shared memory by one matrix after the other. */
static void emit_rows(void *context, const program_op *ops) {
  basis *m = context;
  ir *b = m->rows.b;
  gpu_body *t = m->rows.body;
  ir_value first;
  row_origin origin = emit_row_origin(&t->rows, &t->owner, ir_int(b, b->i64, 0));
  ir_loop loop = gpu_begin_rows(t, &first);
  bool is_complete = false;
  for (const program_op *op = ops; op; op = op->next) switch (op->kind) {
    case OP_LOAD: team_rows_in(&m->rows, &origin, first); break;
    case OP_STORE: team_rows_out(&m->rows, &origin, first); break;
    case OP_APPLY:
      if (t->program->value[op->argument[0]].maker->skew.source == SOURCE_ENTRIES) turn_rows(m);
      else {
        if (!is_complete) ir_wait(b, IR_BARRIER_BLOCK);
        team_rows_multiply(&m->rows, 1, (ir_value){NULL});
      }
      is_complete = true;
      break;
    default: diag_bug("gpu/change_of_basis", "'%s' in a row", program_op_word(op->kind));
    }
  ir_end_for(b, loop);
}

static void emit_token(basis *m, ir_value index, ir_value all) {
  ir *b = m->rows.b;
  gpu_body *t = m->rows.body;
  ir_value threads_turn = m->turns;
  m->rows.exists = below(b, index, all);
  ir_value owner = ir_select(b, m->rows.exists, index, sub(b, all, i32(b, 1)));
  gpu_set_owner(t, ir_op2(b, "arith.remui", m->rows.team->lane, i32(b, m->blocks->count)), owner);
  if (m->change->skew.of->n_heads > 1) make_matrix(m);
  ir_value turned = gpu_is_encoded(t); /* rows of skipped tokens are the others but for their turns */
  if (turned.ptr) m->turns = m->turns.ptr ? ir_op2(b, "arith.andi", m->turns, turned) : turned;
  gpu_owner_walk walk = {make_coefficients, emit_rows, m};
  gpu_walk_owner(t, &walk, gpu_tokens(t->program, PART_ENCODED)->body);
  m->turns = threads_turn;
}

/* ---- entries ---- */

/* The matrices of a program, whose rows are multiplied with two. */
static basis basis_of(const program *p) {
  const program_op *first = program_encoded_apply(p), *second = first->next;
  const program_op *made[] = {p->value[first->argument[0]].maker, p->value[second->argument[0]].maker};
  int changes_first = made[0]->skew.source == SOURCE_CAYLEY;
  return (basis){.change = made[!changes_first],
                 .turn = made[changes_first],
                 .blocks = &made[changes_first]->blocks,
                 .is_transposed = first->transposed};
}

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  const struct program *turns = gpu_entry_program(program, entry);
  basis m = basis_of(turns);
  const program_blocks *whole = &m.change->blocks;
  gpu_body t = gpu_open(b, a, m.turn->plan, program->per_head, entry, native, host);
  t.program = gpu_schedule(a, turns);
  t.rows.exprs = &t.exprs;
  t.rows.streams = row_streams(b, t.parameter);
  matrix_team team = team_open(b, entry->name, whole->size, t.thread);
  m.rows = (team_rows){.b = b, .memory = a, .blocks = whole, .body = &t, .team = &team, .unit = i32(b, 0)};
  int tokens = tokens_of(m.change);
  ir_value line = add(b, scaled(b, t.block, PEGEN_PTX_BLOCK / team.threads), team.index), all = gpu_owners(&t);
  gpu_range(&t);
  deal_out(&m);
  m.rows.exists = ir_int(b, b->i1, 1);
  if (m.change->skew.of->n_heads == 1) make_matrix(&m);
  team_rows_begin(&m.rows);
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, tokens));
  emit_token(&m, add(b, scaled(b, line, tokens), ir_cast(b, "arith.trunci", loop.index, b->i32)), all);
  ir_end_for(b, loop);
  ir_return(b);
}

const gpu_program *gpu_basis_program(arena *a, const program *encode, const program *backward, unsigned dtypes) {
  const spec *s = encode->spec;
  basis m = basis_of(encode);
  unsigned spaces = 0; /* that one of the matrices is indexed by */
  for (int v = 0; v < encode->n_values; v++)
    if (encode->value[v].kind == KIND_MATRIX) spaces |= encode->value[v].spaces;
  if (s->head_dim > MOST_SIZE) {
    diag_error(s->file, s->line,
               "kernels of this kind are made for processors only: a GPU changes the basis of heads of up to %d "
               "channels; expected a smaller head_dim than %d, weights that pegen_fold_basis has multiplied it into, "
               "or --target x86-64-v3 or the like",
               MOST_SIZE, s->head_dim);
    return NULL;
  }
  gpu_program *program = arena_new(a, gpu_program);
  *program = (gpu_program){.spec = s,
                           .encode = encode,
                           .backward = backward,
                           .per_head = spaces & IN(HEADS),
                           .operations = m.turn->plan->token_operations,
                           .emit = emit};
  gpu_entry of = {
      .of = PEGEN_LAUNCH_encode, .units = team_threads(s->head_dim) / tokens_of(m.change), .blocks = BLOCKS};
  gpu_add_team_entries(a, program, &m.change->blocks, of, dtypes);
  of.of = PEGEN_LAUNCH_encode_backward;
  if (backward) gpu_add_team_entries(a, program, &m.change->blocks, of, dtypes);
  return program;
}
