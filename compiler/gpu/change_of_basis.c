/* gpu/change_of_basis: turns after a change of basis of the whole head, on a GPU: x -> R C x, or C^T R^-1 x to turn
 * back.
 *
 * A team of threads (gpu/exponential) forms C once and goes through some tokens with it: their rows pass through
 * shared memory as float32, are multiplied by C there, and their blocks turned in closed form, each by a thread that
 * has its coefficients. Other than on a CPU no matrix is formed for a token: a product with R costs what its planes do.
 */

#include "base/diag.h"
#include "gpu/basis.h"
#include "gpu/index.h"
#include "gpu/matrix_gradient.h"
#include "gpu/programs.h"
#include "gpu/schedule.h"

#include "kernel/launch.h"

/* Tokens that share a C: what inverting costs is then as much as what multiplying some heads' rows does. */
enum {
  MOST_SIZE = 64,
  MOST_TOKENS = 32,
  BLOCKS = 2 /* of a multiprocessor: registers of eliminating, some 200 a thread */
};

/* Tokens that a team goes through, and the teams of a block together: what makes the number of threads a token whole.
 */
static int tokens_of(const program_op *change) {
  int threads = team_threads(change->blocks.size);
  if (change->skew.of->n_heads > 1) return 1; /* heads differ: so does C */
  return threads < MOST_TOKENS ? threads : MOST_TOKENS;
}

/* ---- a token ---- */

static void make_coefficients(void *context, const program_op *op) {
  basis *m = context;
  gpu_load_positions(m->rows.body);
  emit_thread_operands(&m->rows.body->exprs, (const expr **)op->expr, op->blocks.size * op->blocks.size);
  basis_make_coefficients(m);
}

static void emit_rows(void *context, const program_op *ops) { basis_turn_rows(context, ops); }

static void emit_token(basis *m, ir_value index, ir_value all) {
  ir *b = m->rows.b;
  gpu_body *t = m->rows.body;
  ir_value threads_turn = m->turns;
  m->rows.exists = below(b, index, all);
  ir_value owner = ir_select(b, m->rows.exists, index, sub(b, all, i32(b, 1)));
  gpu_set_owner(t, ir_op2(b, "arith.remui", m->rows.team->lane, i32(b, m->blocks->count)), owner);
  if (m->change->skew.of->n_heads > 1) basis_make_matrix(m);
  ir_value turned = gpu_is_encoded(t); /* rows of skipped tokens are the others but for their turns */
  if (turned.ptr) m->turns = m->turns.ptr ? ir_op2(b, "arith.andi", m->turns, turned) : turned;
  gpu_owner_walk walk = {make_coefficients, emit_rows, m};
  gpu_walk_owner(t, &walk, gpu_tokens(t->program, PART_ENCODED)->body);
  m->turns = threads_turn;
}

/* ---- entries ---- */

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
  basis_deal_out(&m);
  m.rows.exists = ir_int(b, b->i1, 1);
  if (m.change->skew.of->n_heads == 1) basis_make_matrix(&m);
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
  gpu_add_basis_gradients(a, program, dtypes);
  return program;
}
