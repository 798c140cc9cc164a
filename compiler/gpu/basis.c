/* gpu/basis: see gpu/basis.h. */
#include "gpu/basis.h"

#include "base/diag.h"
#include "gpu/cayley.h"
#include "gpu/index.h"

basis basis_of(const program *p) {
  const program_op *first = program_encoded_apply(p), *second = first->next;
  const program_op *made[] = {p->value[first->argument[0]].maker, p->value[second->argument[0]].maker};
  int changes_first = made[0]->skew.source == SOURCE_CAYLEY;
  return (basis){.change = made[!changes_first],
                 .turn = made[changes_first],
                 .blocks = &made[changes_first]->blocks,
                 .is_transposed = first->transposed};
}

/* ---- forming ---- */

void basis_make_matrix(basis *m) {
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

void basis_make_coefficients(basis *m) {
  int n = m->turn->blocks.size;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      const expr *x = m->turn->expr[m->is_transposed ? j * n + i : i * n + j];
      m->coefficient[i * n + j] = expr_is_const(x, 0) ? (ir_value){NULL} : emit_thread_f32(&m->rows.body->exprs, x, 0);
    }
}

ir_value basis_channel(basis *m, int component) {
  const program_blocks *s = m->blocks;
  return emit_thread_index(&m->rows.body->exprs, s->channel + (int64_t)component * s->count);
}

void basis_turn(basis *m, const ir_value *coefficient, const ir_value *at) {
  ir *b = m->rows.b;
  int n = m->blocks->size;
  ir_value x[SPEC_MAX_BLADES];
  for (int j = 0; j < n; j++) x[j] = ir_load(b, b->f32, at[j], 4);
  for (int i = 0; i < n; i++) {
    ir_value sum = {NULL};
    for (int j = 0; j < n; j++) {
      ir_value c = coefficient[i * n + j];
      if (c.ptr) sum = sum.ptr ? ir_fma(b, c, x[j], sum) : mul(b, c, x[j]);
    }
    ir_store(b, sum.ptr ? sum : ir_float(b, b->f32, 0), at[i], 4, false);
  }
}

/* The block's channels of a row in shared memory, by its matrix. */
static void turn_row(basis *m, ir_value row) {
  ir_value at[SPEC_MAX_BLADES];
  for (int j = 0; j < m->blocks->size; j++) at[j] = team_row_address(&m->rows, row, basis_channel(m, j));
  basis_turn(m, m->coefficient, at);
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

void basis_deal_out(basis *m) {
  ir *b = m->rows.b;
  const matrix_team *g = m->rows.team;
  int blocks = m->blocks->count;
  m->lanes = g->threads / blocks;
  m->lane = ir_op2(b, "arith.divui", g->lane, i32(b, blocks));
  m->turns = m->lanes * blocks < g->threads ? below(b, m->lane, i32(b, m->lanes)) : (ir_value){NULL};
}

/* ---- rows ---- */

void basis_turn_rows(basis *m, const program_op *ops) {
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
