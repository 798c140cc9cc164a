/* gpu/matrix: dense blocks of more channels than a warp's lanes form, on a GPU.
 *
 * A team of threads (gpu/exponential) has one token's block (of one head, where heads differ): it forms exp(sum_a
 * theta_a A_a) in shared memory and multiplies the rows that share it, some at a time, which pass through shared memory
 * as float32. No table: what forming costs is paid once for all rows of the call that a block of threads has.
 */

#include "base/diag.h"
#include "gpu/index.h"
#include "gpu/matrix_gradient.h"
#include "gpu/programs.h"
#include "gpu/schedule.h"
#include "gpu/team.h"

#include "kernel/launch.h"

typedef struct matrices {
  team_rows rows;
  const program_op *matrix, *apply;
  const expr *generator[SPEC_MAX_AXES]; /* where raw matrices begin */
  ir_value encoded; /* i1: the token is; null: all are */
} matrices;

/* What makes of a skew matrix A, in the team's left matrix, the transpose of what is to be applied; of the transposed A
 * where it is applied transposed. A Schur form's basis is the kernel's own: exp(A) is as good. */
typedef void maker(matrix_team *team);
static maker *const makers[SOURCE_COUNT] = {[SOURCE_EXP] = team_exponential, [SOURCE_SCHUR] = team_exponential};

static void make_matrix(void *context, const program_op *op) {
  matrices *m = context;
  team_rows *r = &m->rows;
  const program_op *eval = r->body->program->value[op->argument[0]].maker;
  thread_emitter *e = &r->body->exprs;
  ir_value first[SPEC_MAX_AXES];
  two_float angle[SPEC_MAX_AXES];
  int count = op->skew.count;
  gpu_load_positions(r->body);
  emit_thread_operands(e, (const expr **)eval->expr, count);
  for (int k = 0; k < count; k++) {
    first[k] = emit_thread_offset(e, m->generator[k], 0);
    angle[k] = emit_thread_value(e, eval->expr[k], 0);
  }
  team_skew(r, count, op->skew.of, first, angle, m->apply->transposed);
  makers[op->skew.source](r->team);
}

/* ---- entries ---- */

static void emit_rows(void *context, const program_op *ops) {
  matrices *m = context;
  team_rows *r = &m->rows;
  ir *b = r->b;
  (void)ops; /* one apply */
  int passing = team_rows_passing(r);
  row_origin origin = emit_row_origin(&r->body->rows, &r->body->owner, ir_int(b, b->i64, 0));
  team_rows_begin(r);
  team_rows_turn(r, &origin, passing, m->matrix->skew.factor, m->encoded);
}

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  const struct program *turns = gpu_entry_program(program, entry);
  matrices m = {.apply = program_encoded_apply(turns)};
  m.matrix = turns->value[m.apply->argument[0]].maker;
  const program_blocks *blocks = &m.matrix->blocks;
  gpu_generators(turns, &m.matrix->skew, m.generator);
  gpu_body t = gpu_open(b, a, m.matrix->plan, program->per_head, entry, native, host);
  t.program = gpu_schedule(a, turns);
  t.rows.exprs = &t.exprs;
  t.rows.streams = row_streams(b, t.parameter);
  matrix_team team = team_open(b, entry->name, blocks->size, t.thread);
  /* Groups beyond the last block form its matrix again and store nothing: barriers are the whole block's. */
  ir_value all = scaled(b, gpu_owners(&t), blocks->count),
           line = add(b, scaled(b, t.block, PEGEN_PTX_BLOCK / team.threads), team.index);
  ir_value exists = below(b, line, all);
  line = ir_select(b, exists, line, sub(b, all, i32(b, 1)));
  m.rows = (team_rows){.b = b,
                       .memory = a,
                       .blocks = blocks,
                       .body = &t,
                       .team = &team,
                       .unit = rest(b, line, blocks->count),
                       .exists = exists};
  gpu_range(&t);
  gpu_set_owner(&t, m.rows.unit, quotient(b, line, blocks->count));
  m.encoded = gpu_is_encoded(&t);
  gpu_owner_walk walk = {make_matrix, emit_rows, &m};
  gpu_walk_owner(&t, &walk, gpu_tokens(t.program, PART_ENCODED)->body);
  ir_return(b);
}

const gpu_program *gpu_matrix_program(arena *a, const program *encode, const program *backward, unsigned dtypes) {
  const spec *s = encode->spec;
  const program_value *value = &encode->value[program_encoded_apply(encode)->argument[0]];
  const program_op *matrix = value->maker;
  if (matrix->skew.in_f64) {
    diag_error(s->file, s->line,
               "kernels of this kind are made for processors only: a GPU forms matrices of dense blocks of %d channels "
               "in float32; expected prepare = \"float32\", or --target x86-64-v3 or the like",
               matrix->blocks.size);
    return NULL;
  }
  gpu_program *program = arena_new(a, gpu_program);
  *program = (gpu_program){.spec = s,
                           .encode = encode,
                           .backward = backward,
                           .per_head = value->spaces & IN(HEADS),
                           .operations = matrix->blocks.size * matrix->blocks.size,
                           .emit = emit};
  gpu_entry of = {.of = PEGEN_LAUNCH_encode, .units = matrix->blocks.count * team_threads(matrix->blocks.size)};
  gpu_add_team_entries(a, program, &matrix->blocks, of, dtypes);
  of.of = PEGEN_LAUNCH_encode_backward;
  if (backward) gpu_add_team_entries(a, program, &matrix->blocks, of, dtypes);
  gpu_add_matrix_gradients(a, program, dtypes);
  return program;
}
