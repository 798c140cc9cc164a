/* gpu/matrix: matrices of a token's blocks, and the rows that share them; see gpu/matrix.h. */
#include "gpu/matrix.h"
#include "mlir/number.h"

#include "base/diag.h"
#include "gpu/index.h"
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

/* ---- channels of no block, which pass through with the last one where the call is out of place ---- */

static int passing(team_rows *r, const char *table) {
  const program_blocks *s = r->blocks;
  int all = r->body->p->spec->head_dim, count = 0;
  int32_t *channels = arena_array(r->memory, int32_t, all + 1);
  bool *is_of_block = arena_array(r->memory, bool, all);
  for (int i = 0; i < s->count * s->size; i++) is_of_block[s->channel[i]] = true;
  for (int i = 0; i < all; i++)
    if (!is_of_block[i]) channels[count++] = i;
  if (count > 0) ir_table(r->b, table, count, NULL, channels);
  return count;
}

static void copy_channels(team_rows *r, const row_origin *origin, ir_value first, const char *table, int count) {
  ir *b = r->b;
  int element = r->body->entry->tile->element, flight = team_flight(r->blocks->size);
  MlirType type = number_bits(b, r->body->rows.dtype);
  if (count == 0) return;
  ir_branch last = ir_if(b, both(b, r->exists, ir_compare_int(b, "eq", r->unit, i32(b, r->blocks->count - 1))));
  ir_loop loop =
      ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, (flight * count + r->team->threads - 1) / r->team->threads));
  ir_value index = add(b, r->team->lane, scaled(b, narrow(b, loop.index), r->team->threads)),
           row = add(b, first, quotient(b, index, count));
  ir_value is_there = both(b, below(b, index, i32(b, (int64_t)flight * count)), below(b, row, r->body->end));
  ir_branch branch = ir_if(b, is_there);
  ir_value at =
      ir_load(b, b->i32, ir_offset(b, ir_table_address(b, table), wide(b, scaled(b, rest(b, index, count), 4))), 4);
  row_place place = emit_row_place(&r->body->rows, origin, row);
  at = wide(b, scaled(b, at, element));
  ir_store(b, ir_load(b, type, ir_offset(b, place.in, at), element), ir_offset(b, place.out, at), element, false);
  ir_end_if(b, branch);
  ir_end_for(b, loop);
  ir_end_if(b, last);
}

/* ---- entries ---- */

static void emit_rows(void *context, const program_op *ops) {
  matrices *m = context;
  team_rows *r = &m->rows;
  ir *b = r->b;
  const char *table = arena_printf(r->memory, "%s_passing", r->body->entry->name);
  (void)ops; /* one apply */
  int count = passing(r, table);
  ir_value first;
  row_origin origin = emit_row_origin(&r->body->rows, &r->body->owner, ir_int(b, b->i64, 0));
  team_rows_begin(r);
  ir_loop loop = gpu_begin_rows(r->body, &first);
  team_rows_in(r, &origin, first);
  copy_channels(r, &origin, first, table, count);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_rows_multiply(r, m->matrix->skew.factor, m->encoded);
  team_rows_out(r, &origin, first);
  ir_end_for(b, loop);
}

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  matrices m = {.apply = program_encoded_apply(program->encode)};
  m.matrix = program->encode->value[m.apply->argument[0]].maker;
  const program_blocks *blocks = &m.matrix->blocks;
  for (int k = 0; k < m.matrix->skew.count; k++) { /* before the emitter, which has room for the nodes that there are */
    const spec_skew *g = &m.matrix->skew.of[k];
    m.generator[k] = expr_operand(program->spec->pool, g->operand, g->n_heads, g->offset);
  }
  gpu_body t = gpu_open(b, a, m.matrix->plan, program->per_head, entry, native, host);
  t.program = gpu_schedule(a, program->encode);
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

const gpu_program *gpu_matrix_program(arena *a, const program *encode, unsigned dtypes) {
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
                           .per_head = value->spaces & IN(HEADS),
                           .operations = matrix->blocks.size * matrix->blocks.size,
                           .emit = emit};
  gpu_add_team_entries(a, program, &matrix->blocks, matrix->blocks.count * team_threads(matrix->blocks.size), 0,
                       dtypes);
  return program;
}
