/* gpu/matrix: matrices of a token's blocks, and the rows that share them; see gpu/matrix.h. */
#include "gpu/matrix.h"
#include "mlir/number.h"

#include "base/diag.h"
#include "gpu/index.h"
#include "gpu/team.h"

#include "kernel/launch.h"

/* The team's left matrix becomes the transpose of exp(sum of angle times generator), turned round where the encoding
 * is inverse. */
static void form_matrix(team_rows *r, const plan_dense *p, const expr *const *generator) {
  thread_emitter *e = &r->body->exprs;
  ir_value first[SPEC_MAX_AXES];
  two_float angle[SPEC_MAX_AXES];
  emit_thread_operands(e, p->angle, p->n_generators);
  for (int k = 0; k < p->n_generators; k++) {
    first[k] = emit_thread_offset(e, generator[k], 0);
    angle[k] = emit_thread_pair(e, p->angle[k], 0);
  }
  team_skew(r, p->n_generators, p->generator, first, angle, r->spec->inverse);
  team_exponential(r->team);
}

/* ---- channels of no block, which pass through with the last one where the call is out of place ---- */

static int passing(team_rows *r, const char *table) {
  const spec *s = r->spec;
  int32_t *channels = arena_array(r->memory, int32_t, s->head_dim + 1);
  bool *is_of_block = arena_array(r->memory, bool, s->head_dim);
  int count = 0;
  for (int i = 0; i < s->n_blocks * s->n_components; i++) is_of_block[s->channel[i]] = true;
  for (int i = 0; i < s->head_dim; i++)
    if (!is_of_block[i]) channels[count++] = i;
  if (count > 0) ir_table(r->b, table, count, NULL, channels);
  return count;
}

static void copy_channels(team_rows *r, const row_origin *origin, ir_value first, const char *table, int count) {
  ir *b = r->b;
  int element = r->body->entry->tile->element, flight = team_flight(r->spec);
  MlirType type = number_bits(b, r->body->rows.dtype);
  if (count == 0) return;
  ir_branch last = ir_if(b, both(b, r->exists, ir_compare_int(b, "eq", r->unit, i32(b, r->spec->n_blocks - 1))));
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

static void emit_rows(team_rows *r, ir_value encoded) {
  ir *b = r->b;
  const spec *s = r->spec;
  const char *table = arena_printf(r->memory, "%s_passing", r->body->entry->name);
  int count = passing(r, table);
  ir_value first;
  row_origin origin = emit_row_origin(&r->body->rows, &r->body->column, ir_int(b, b->i64, 0));
  team_rows_begin(r);
  ir_loop loop = gpu_begin_rows(r->body, &first);
  team_rows_in(r, &origin, first);
  copy_channels(r, &origin, first, table, count);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_rows_multiply(r, s->inverse ? 1 / s->amplitude : s->amplitude, encoded);
  team_rows_out(r, &origin, first);
  ir_end_for(b, loop);
}

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  const plan_dense *p = program->plan;
  const spec *s = p->spec;
  plan angles = *p->angles;
  ir_value encoded = {NULL};
  const expr *generator[SPEC_MAX_AXES]; /* where raw matrices begin; before the emitter, which has room for the nodes
                                           that there are */
  for (int k = 0; k < p->n_generators; k++)
    generator[k] = expr_operand(s->pool, p->generator[k].operand, p->generator[k].n_heads, p->generator[k].offset);
  angles.per_head = p->per_head;
  gpu_body t = gpu_open(b, a, &angles, entry, native, host);
  t.rows.exprs = &t.exprs;
  t.rows.streams = row_streams(b, t.parameter);
  matrix_team team = team_open(b, entry->name, s->n_components, t.thread);
  /* Groups beyond the last block form its matrix again and store nothing: barriers are the whole block's. */
  ir_value all = scaled(b, gpu_columns(&t), s->n_blocks),
           line = add(b, scaled(b, t.block, PEGEN_PTX_BLOCK / team.threads), team.index);
  ir_value exists = below(b, line, all);
  line = ir_select(b, exists, line, ir_op2(b, "arith.subi", all, i32(b, 1)));
  team_rows rows = {
      .b = b, .memory = a, .spec = s, .body = &t, .team = &team, .unit = rest(b, line, s->n_blocks), .exists = exists};
  gpu_range(&t);
  gpu_set_column(&t, rows.unit, quotient(b, line, s->n_blocks));
  if (s->skip_tokens > 0) encoded = ir_compare_int(b, "sge", t.column.token, i32(b, s->skip_tokens));
  gpu_load_positions(&t);
  form_matrix(&rows, p, generator);
  emit_rows(&rows, encoded);
  ir_return(b);
}

const gpu_program *gpu_matrix_program(arena *a, const plan_dense *p, unsigned dtypes) {
  const spec *s = p->spec;
  if (p->is_f64) {
    diag_error(s->file, s->line,
               "kernels of this kind are made for processors only: a GPU forms matrices of dense blocks of %d channels "
               "in float32; expected prepare = \"float32\", or --target x86-64-v3 or the like",
               s->n_components);
    return NULL;
  }
  gpu_program *program = arena_new(a, gpu_program);
  *program = (gpu_program){
      .spec = s, .plan = p, .per_head = p->per_head, .operations = s->n_components * s->n_components, .emit = emit};
  gpu_add_team_entries(a, program, s, s->n_blocks * team_threads(s->n_components), 0, dtypes);
  return program;
}
