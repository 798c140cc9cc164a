/* gpu/gradient: see gpu/gradient.h. */
#include "gpu/gradient.h"

#include "base/diag.h"
#include "gpu/gains.h"
#include "gpu/index.h"
#include "gpu/schedule.h"

#include "kernel/launch.h"

enum { FLIGHT_BYTES = 64, FLIGHT_ROWS = 4, NUMBER = TWO_FLOAT_BYTES };

/* Blocks of threads that a multiprocessor is to have: the assembler, left alone, spills a register or two to have one
 * more. */
enum { BLOCKS = 2 };

/* The gradient plan of a part of a head that gives gradients of rows alone. */
static const plan_gradient of_rows_alone = {.n_torques = 0};

static const plan_gradient *gains_of(const plan_gradient_row *of, int part) {
  return of->part[part] ? of->part[part] : &of_rows_alone;
}

/* ---- a thread ---- */

typedef struct gradient_thread {
  gpu_body t;
  const plan_gradient *of;
  row_thread kept; /* rows that encode wrote or read */
  gpu_gains gains;
  ir_value from_input; /* i1 */
  two_float *tau; /* [blocks][n_torques] */
} gradient_thread;

static int n_tau(const gradient_thread *g) { return g->t.tile->n_blocks * g->of->n_torques; }

static void begin_thread(gradient_thread *g) {
  gpu_body *t = &g->t;
  ir *b = t->b;
  t->rows.exprs = &t->exprs;
  t->rows.coefficient = arena_array(t->rows.memory, ir_value,
                                    t->tile->n_blocks * t->p->spec->n_components * t->p->spec->n_components + 1);
  g->gains.body = t;
  g->gains.of = g->of;
  g->gains.own = t->parameter + gpu_parameters(t->p->spec);
  g->from_input = ir_compare_int(b, "ne", g->gains.own[PEGEN_PTX_FROM_INPUT], i64(b, 0));
  g->tau = arena_array(t->rows.memory, two_float, n_tau(g) + 1);
  /* A function of rotors may give one of them a gradient that is what is left of parts that cancel (slerp near its
   * end). */
  t->exprs.walker.turns_narrow = !t->p->spec->function;
  t->exprs.cotangents = g->tau;
  t->exprs.n_cotangents = g->of->n_torques;
}

/* ---- rows ---- */

/* Blocks' channels of a row: component c of the template's block s at [s * n + c]; null: not of it. */
static ir_value *blocks_of_row(row_thread *r, const row_place *place) {
  const thread_tile *t = r->t;
  int n = r->p->spec->n_components, width = t->n_accesses * t->lanes;
  ir_value *x = arena_array(r->memory, ir_value, width),
           *of_block = arena_array(r->memory, ir_value, t->n_blocks * n + 1);
  emit_row_unpack(r, place, x);
  for (int i = 0; i < width; i++)
    if (t->role_block[i] >= 0) of_block[t->role_block[i] * n + t->role_component[i]] = x[i];
  return of_block;
}

/* What torques of a block are of, beside its gradient: y, which was kept, or what encode makes of what was; of a matrix
 * that the description writes, x. */
static void torque_row(gradient_thread *g, int slot, const ir_value *kept, ir_value *y) {
  row_thread *r = &g->t.rows;
  int n = g->t.p->spec->n_components;
  bool of_entries = torque_is_of_entries(g->t.p->spec);
  for (int i = 0; of_entries && i < n; i++) y[i] = kept[i];
  if (of_entries) return;
  ir_value made[SPEC_MAX_BLADES] = {{NULL}}, turned[SPEC_MAX_BLADES] = {{NULL}};
  for (int i = 0; i < n; i++)
    if (kept[i].ptr) turned[i] = emit_row_mapped(r, kept[i]);
  emit_row_transposed(r, slot, turned, made);
  for (int i = 0; i < n; i++) {
    y[i] = kept[i];
    if (!kept[i].ptr) continue;
    y[i] = r->map ? made[i] : ir_select(g->t.b, g->from_input, made[i], kept[i]); /* maps: it was read in any case */
  }
}

/* Adds a row's torques of a block to sum[n_torques], null where they are still 0. y NULL: of g alone. */
static void add_torques(gradient_thread *g, const ir_value *in, const ir_value *y, ir_value *sum) {
  ir *b = g->t.b;
  for (int k = 0; k < g->of->n_torques; k++) {
    const torque_element *e = &g->of->basis.element[k];
    if (!y) {
      sum[k] = sum[k].ptr ? add(b, sum[k], in[k]) : in[k];
      continue;
    }
    for (int i = 0; i < e->n_entries; i++) {
      ir_value left = in[e->entry[i].row], right = y[e->entry[i].column];
      if (!left.ptr || !right.ptr) diag_bug("gpu/gradient", "a torque of channels that pass through");
      if (e->entry[i].sign < 0) left = ir_op1(b, "arith.negf", left);
      sum[k] = sum[k].ptr ? ir_fma(b, left, right, sum[k]) : mul(b, left, right);
    }
  }
}

/* The torques of one row of a flight, 0 of one past the end. */
static void row_torques(gradient_thread *g, const row_place *place, const row_place *kept, ir_value valid,
                        ir_value *sums) {
  ir *b = g->t.b;
  int n = g->t.p->spec->n_components, count = n_tau(g);
  ir_value *in = blocks_of_row(&g->t.rows, place), y[SPEC_MAX_BLADES] = {{NULL}};
  ir_value *old = kept ? blocks_of_row(&g->kept, kept) : NULL,
           *own = arena_array(g->t.rows.memory, ir_value, count + 1);
  for (int slot = 0; slot < g->t.tile->n_blocks; slot++) {
    if (old) torque_row(g, slot, old + slot * n, y);
    add_torques(g, in + slot * n, old ? y : NULL, own + slot * g->of->n_torques);
  }
  for (int i = 0; i < count; i++) {
    ir_value zero = ir_float(b, b->f32, 0);
    if (!own[i].ptr) own[i] = zero;
    if (valid.ptr) own[i] = ir_select(b, valid, own[i], zero);
    sums[i] = sums[i].ptr ? add(b, sums[i], own[i]) : own[i];
  }
}

/* Some rows whose loads are under way together; carried: torques so far. */
static void flight_of_rows(gradient_thread *g, const row_origin *origin, const row_origin *kept, ir_value first,
                           bool has_torques, two_float *carried) {
  gpu_body *t = &g->t;
  ir *b = t->b;
  int flight = t->entry->flight;
  row_place *place = arena_array(t->rows.memory, row_place, 2 * flight), *old = place + flight;
  ir_value *valid = arena_array(t->rows.memory, ir_value, 2 * flight), *stored = valid + flight;
  ir_value last = sub(b, t->end, i32(b, 1)), *sums = arena_array(t->rows.memory, ir_value, n_tau(g) + 1);
  for (int i = 0; i < flight; i++) {
    ir_value row = i ? add(b, first, i32(b, i)) : first;
    if (i) valid[i] = less(b, row, t->end);
    if (i) row = ir_select(b, valid[i], row, last);
    stored[i] = gpu_is_written(t, row);
    if (i) stored[i] = both(b, stored[i], valid[i]);
    place[i] = emit_row_place(&t->rows, origin, row);
    emit_row_load(&t->rows, &place[i]);
    if (!kept || (!has_torques && !t->rows.map_back)) continue;
    old[i] = emit_row_place(&g->kept, kept, row);
    emit_row_load(&g->kept, &old[i]);
    place[i].kept = &old[i];
  }
  for (int i = 0; i < flight; i++) {
    if (has_torques) row_torques(g, &place[i], kept ? &old[i] : NULL, valid[i], sums);
    emit_row_store(&t->rows, &place[i], stored[i]);
  }
  for (int i = 0; has_torques && i < n_tau(g); i++) carried[i] = two_float_add(b, carried[i], two_float_f32(sums[i]));
}

/* The rows of an item. */
static void walk_rows(gradient_thread *g, const program_op *ops) {
  gpu_body *t = &g->t;
  ir *b = t->b;
  bool has_torques = false;
  for (const program_op *op = ops; op; op = op->next)
    has_torques = has_torques || (op->kind == OP_WEDGE && program_part_of(op) == t->p->part);
  int count = has_torques ? n_tau(g) : 0;
  for (int i = 0; i < count; i++) g->tau[i] = two_float_const(b, 0);
  gpu_set_row_ops(t, ops);
  row_origin origin = emit_row_origin(&t->rows, &t->owner, t->rows.delta[0]), kept = {.base = {{{NULL}}}};
  if (!plan_is_sum(t->p)) kept = emit_row_origin(&g->kept, &t->owner, t->rows.delta[0]);
  ir_value span = sub(b, t->end, t->begin), flight = i32(b, t->entry->flight),
           steps = ir_op2(b, "arith.divsi", add(b, span, sub(b, flight, i32(b, 1))), flight);
  ir_loop loop = two_float_for(b, i64(b, 0), ir_cast(b, "arith.extsi", steps, b->i64), count, g->tau);
  ir_value first = add(b, t->begin, mul(b, narrow(b, loop.index), flight));
  flight_of_rows(g, &origin, plan_is_sum(t->p) ? NULL : &kept, first, has_torques, g->tau);
  two_float_end_for(b, loop, count, g->tau);
}

/* ---- the program ---- */

static bool is_of_token(const program_op *op) { return op && (op->kind == OP_EVAL || op->kind == OP_MATRIX); }

/* What is done of a token: its matrices, its rows, what their torques give. Where rows turn by inputs a token's own
 * are one of q and one of k, which read the same: what is made of torques is linear in them, and so it is made of their
 * sum. */
static void walk_token(gradient_thread *g, const program_op *list) {
  gpu_body *t = &g->t;
  for (const program_op *op = list; op; op = op->next) switch (op->kind) {
    case OP_FOR:
      if (t->of_rows || (op->space == SPACE_HEADS && t->per_head)) walk_token(g, op->body); /* threads */
      else walk_rows(g, gpu_row_ops(op));
      break;
    case OP_LOAD:
      walk_rows(g, op);
      while (op->next && op->next->kind != OP_REDUCE) op = op->next;
      break;
    case OP_EVAL:
    case OP_MATRIX:
      if (!is_of_token(op->next)) gpu_make_coefficients(t);
      break;
    case OP_REDUCE: gpu_add_gains(&g->gains); return; /* the evals behind it are of the torques */
    default: diag_bug("gpu/gradient", "'%s' of a token", program_op_word(op->kind));
    }
}

static void walk_item(gradient_thread *g) {
  gpu_body *t = &g->t;
  ir *b = t->b;
  const program_op *encoded = gpu_tokens(t->program, PART_ENCODED), *skipped = gpu_tokens(t->program, PART_SKIPPED);
  if (!skipped || skipped == encoded) {
    gpu_load_positions(t);
    walk_token(g, encoded->body);
    return;
  }
  ir_branch branch = ir_if(b, less(b, t->owner.token, i32(b, t->p->spec->skip_tokens)));
  walk_token(g, skipped->body);
  ir_else(b, &branch);
  gpu_load_positions(t);
  walk_token(g, encoded->body);
  ir_end_if(b, branch);
}

/* Operands are read once a thread. */
static void load_operands(gradient_thread *g) {
  const plan_gradient *of = g->of;
  const spec *s = g->t.p->spec;
  int n = s->n_components * s->n_components, count = 0;
  int gains = of->n_boundaries + s->n_axes + of->n_row_inputs[TORQUE_OF_Y];
  const expr **roots = arena_array(g->t.rows.memory, const expr *, n + gains);
  for (int i = 0; i < n; i++) roots[count++] = g->t.p->program->matrix.entry[i];
  count += gpu_gain_roots(&g->gains, roots + count);
  emit_thread_operands(&g->t.exprs, roots, count);
}

/* The chunk's rows of the body's part. line: the thread among its own, of which there are `threads` (null: all that
 * have a chunk). */
static void emit_part(gradient_thread *g, ir_value line, ir_value threads, ir_value items, ir_value size) {
  gpu_body *t = &g->t;
  ir *b = t->b;
  ir_value units = i32(b, t->tile->n_units), heads = gpu_heads(t);
  ir_value owner = ir_op2(b, "arith.divui", line, units);
  g->gains.chunk = ir_op2(b, "arith.divui", owner, heads);
  ir_value begin = mul(b, g->gains.chunk, size);
  ir_branch inside = ir_if(b, threads.ptr ? below(b, line, threads) : below(b, begin, items));
  t->exprs.unit = ir_op2(b, "arith.remui", line, units);
  t->exprs.head = t->owner.head = ir_op2(b, "arith.remui", owner, heads);
  emit_row_accesses(&t->rows);
  emit_row_blocks(&t->rows);
  g->kept = t->rows;
  g->kept.parameter = gpu_kept_parameters(t, g->gains.own);
  load_operands(g);
  gpu_clear_sums(&g->gains);
  ir_value end = smaller(b, add(b, begin, size), items);
  ir_loop loop = ir_for(b, wide(b, begin), wide(b, end));
  gpu_set_item(&g->gains, narrow(b, loop.index));
  walk_item(g);
  ir_end_for(b, loop);
  ir_end_if(b, inside);
}

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  const gpu_plans *plans = plan_is_sum(program->rows.of[0]) ? &program->rows : &program->transposed;
  gradient_thread g = {.t = gpu_open(b, a, plans->of[0], program->per_head, entry, native, host)};
  g.t.program = gpu_schedule_gradient(a, program->gradient);
  const ir_value *own = g.t.parameter + gpu_parameters(program->spec);
  ir_value line = add(b, scaled(b, g.t.block, PEGEN_PTX_BLOCK), g.t.thread);
  ir_value items = narrow(b, own[PEGEN_PTX_ITEMS]), size = narrow(b, own[PEGEN_PTX_CHUNK]);
  ir_value chunks = {NULL}, threads = {NULL};
  if (plans->count > 1) chunks = ir_op2(b, "arith.divui", add(b, items, sub(b, size, i32(b, 1))), size);
  for (int i = 0; i < plans->count; i++) { /* threads of parts one part after the other, as rows' are */
    if (i) {
      line = sub(b, line, threads);
      g.t = gpu_of_part(&g.t, i, plans->of[i]);
    }
    if (chunks.ptr) threads = scaled(b, chunks, g.t.tile->n_units * (program->per_head ? program->spec->heads : 1));
    g.of = gains_of(program->of, i);
    g.gains.row = program->of;
    g.gains.part = i;
    begin_thread(&g);
    emit_part(&g, line, threads, items, size);
  }
  ir_return(b);
}

/* ---- entries ---- */

/* A row and what was kept of it are under way together. */
static gpu_entry entry_of(arena *a, const spec *s, int dtype, const thread_tile *t, const char *suffix) {
  int flight = FLIGHT_BYTES / (2 * thread_tile_unit_bytes(t));
  return (gpu_entry){.name = arena_printf(a, "%s_encode_gradient_%s%s", s->name, number_name(dtype), suffix),
                     .of = PEGEN_LAUNCH_encode_backward,
                     .word = PEGEN_PTX_WORD_GRADIENT,
                     .kind = GPU_GRADIENT,
                     .emit = emit,
                     .dtype = dtype,
                     .access = thread_tile_access(t),
                     .tile = t,
                     .blocks = BLOCKS,
                     .flight = flight < 1             ? 1
                               : flight > FLIGHT_ROWS ? FLIGHT_ROWS
                                                      : flight};
}

/* Units of all parts, as wide as registers allow, or a channel at a time. */
static const thread_tile *tiles_of(arena *a, const gpu_plans *plans, const plan_gradient_row *of, int element,
                                   bool widest) {
  const thread_tile *next = NULL;
  for (int i = plans->count - 1; i >= 0; i--) {
    const plan_gradient *g = gains_of(of, i);
    thread_tile *t = widest ? thread_tile_of_gradient(a, plans->of[i], element, 2 * g->n_torques + g->n_boundaries)
                            : thread_tile_build(a, plans->of[i], element, element);
    t->next = next;
    next = t;
  }
  return next;
}

int gpu_gradient_entries(arena *a, const gpu_plans *plans, const plan_gradient_row *of, unsigned dtypes,
                         gpu_entry *entries) {
  const spec *s = plans->of[0]->spec;
  int count = 0;
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    int element = number_bytes(dtype);
    const thread_tile *t = tiles_of(a, plans, of, element, true);
    entries[count++] = entry_of(a, s, dtype, t, "");
    if (thread_tile_access(t) > element)
      entries[count++] = entry_of(a, s, dtype, tiles_of(a, plans, of, element, false), "_narrow");
  }
  return count;
}
