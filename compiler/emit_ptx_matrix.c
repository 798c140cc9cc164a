/* emit_ptx_matrix: generators, rows in and out; see emit_ptx_matrix.h. */
#include "emit_ptx_matrix.h"

#include "diag.h"
#include "emit_cpu.h"
#include "emit_ptx_body.h"
#include "emit_ptx_exponential.h"

#include "../kernel/launch.h"

enum { QUAD = 4, QUAD_BYTES = 16, ROWS_OF_THREAD = 2, MOST_PIECES = 8 };

typedef struct matrix {
  arena *memory;
  const spec *spec;
  const plan_dense *plan;
  ptx_body *body;
  ir *b;
  matrix_group group;
  ir_value unit;             /* i32: block of the encoding */
  ir_value exists, encoded;  /* i1: the group has a block; its token is encoded */
  ir_value first_channel;    /* i32: where channels have neighbours: of the block */
  int n_pieces, of_row;      /* of a thread; of a row */
  ir_value row[MOST_PIECES], column[MOST_PIECES], inside[MOST_PIECES]; /* of a piece: row of the flight, piece of the row; i1, null: it is one */
} matrix;

static ir_value i32(ir *b, int64_t value) { return ir_int(b, b->i32, value); }
static ir_value add(ir *b, ir_value x, ir_value y) { return ir_op2(b, "arith.addi", x, y); }
static ir_value mul(ir *b, ir_value x, int64_t y) { return ir_op2(b, "arith.muli", x, i32(b, y)); }
static ir_value quotient(ir *b, ir_value x, int64_t y) { return ir_op2(b, "arith.divui", x, i32(b, y)); }
static ir_value rest(ir *b, ir_value x, int64_t y) { return ir_op2(b, "arith.remui", x, i32(b, y)); }
static ir_value wide(ir *b, ir_value x) { return ir_cast(b, "arith.extui", x, b->i64); }
static ir_value narrow(ir *b, ir_value x) { return ir_cast(b, "arith.trunci", x, b->i32); }
static ir_value both(ir *b, ir_value x, ir_value y) { return ir_op2(b, "arith.andi", x, y); }
static ir_value below(ir *b, ir_value x, ir_value y) { return ir_compare_int(b, "ult", x, y); }
static ir_value clamped(ir *b, ir_value x, ir_value end) { return ir_select(b, below(b, x, end), x, ir_op2(b, "arith.subi", end, i32(b, 1))); }

/* Rows that a group has in shared memory together: two for each thread of those that share four channels. */
static int flight_of(const spec *s) { return ROWS_OF_THREAD * group_padded(s->n_components) / (2 * QUAD); }

/* ---- channels ---- */

/* Channel `component` (i32) of the thread's block. */
static ir_value channel_of(matrix *m, ir_value component) {
  ir *b = m->b;
  if (m->first_channel.ptr) return add(b, m->first_channel, component);
  const spec *s = m->spec;
  const char *name = arena_printf(m->memory, "%s_channels", m->body->entry->name);
  ir_value index = add(b, mul(b, m->unit, s->n_components), component);
  return ir_load(b, b->i32, ir_offset(b, ir_table_address(b, name), wide(b, mul(b, index, 4))), 4);
}

static void make_channels(matrix *m) {
  const spec *s = m->spec;
  if (ptx_has_neighbours(s)) {
    m->first_channel = add(m->b, i32(m->b, s->channel[0]), mul(m->b, m->unit, s->n_components));
    return;
  }
  int32_t *channels = arena_array(m->memory, int32_t, s->n_blocks * s->n_components);
  for (int i = 0; i < s->n_blocks; i++)
    for (int j = 0; j < s->n_components; j++) channels[i * s->n_components + j] = s->channel[(int64_t)j * s->n_blocks + i];
  ir_table(m->b, arena_printf(m->memory, "%s_channels", m->body->entry->name), s->n_blocks * s->n_components, NULL, channels);
}

/* ---- forming ---- */

/* Element (row, column) of an axis' generator, from the raw matrix at `first`, turned round where the encoding is inverse. */
static ir_value generator_element(matrix *m, const spec_skew *g, ir_value first, ir_value row, ir_value column) {
  ir *b = m->b;
  int size = m->spec->n_components;
  ir_value lower = ir_compare_int(b, "ugt", row, column), offset[2];
  pair raw[2];
  offset[0] = add(b, mul(b, row, size), column), offset[1] = add(b, mul(b, column, size), row);
  bool one = g->rule == SKEW_UPPER;
  if (one) offset[0] = ir_select(b, lower, offset[1], offset[0]);
  for (int i = 0; i < 2 - one; i++) offset[i] = add(b, first, offset[i]);
  emit_thread_elements(&m->body->exprs, g->operand, 2 - one, offset, raw);
  if (one) {
    ir_value upper = raw[0].hi, turned = ir_op1(b, "arith.negf", upper);
    return m->spec->inverse ? ir_select(b, lower, upper, turned) : ir_select(b, lower, turned, upper);
  }
  int plus = m->spec->inverse;
  return pair_narrow(b, pair_sub(b, raw[plus], raw[!plus]));
}

/* Sum of angle times generator, elements row, 4 quad ... 4 quad + 3; zeros beyond the block and on the diagonal. */
static ir_value summed_quad(matrix *m, const expr *const *generator, const pair *angle, ir_value row, ir_value quad) {
  ir *b = m->b;
  const plan_dense *p = m->plan;
  ir_value size = i32(b, m->spec->n_components), element[QUAD], zero = ir_float(b, b->f32, 0);
  for (int j = 0; j < QUAD; j++) {
    ir_value column = add(b, mul(b, quad, QUAD), i32(b, j)), sum = {NULL};
    ir_value is_there = both(b, ir_compare_int(b, "ne", row, column), both(b, below(b, row, size), below(b, column, size)));
    ir_value at_row = ir_select(b, is_there, row, i32(b, 0)), at_column = ir_select(b, is_there, column, i32(b, 1));
    for (int k = 0; k < p->n_generators; k++) {
      ir_value first = emit_thread_offset(&m->body->exprs, generator[k], 0);
      ir_value value = generator_element(m, &p->generator[k], first, at_row, at_column);
      sum = sum.ptr ? ir_fma(b, angle[k].hi, value, sum) : ir_op2(b, "arith.mulf", angle[k].hi, value);
      if (angle[k].lo.ptr) sum = ir_fma(b, angle[k].lo, value, sum);
    }
    element[j] = ir_select(b, is_there, sum, zero);
  }
  return ir_elements(b, ir_vector(b, QUAD, b->f32), QUAD, element);
}

/* The group's left matrix becomes the transpose of its block's. */
static void form_matrix(matrix *m) {
  ir *b = m->b;
  const plan_dense *p = m->plan;
  thread_emitter *e = &m->body->exprs;
  const expr *generator[SPEC_MAX_AXES];
  pair angle[SPEC_MAX_AXES];
  emit_thread_operands(e, p->angle, p->n_generators);
  for (int k = 0; k < p->n_generators; k++) {
    generator[k] = expr_operand(m->spec->pool, p->generator[k].operand, p->generator[k].n_heads, p->generator[k].offset);
    angle[k] = emit_thread_pair(e, p->angle[k], 0);
  }
  int quads = m->group.padded / QUAD, each = m->group.padded * quads / m->group.threads;
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, each));
  ir_value index = add(b, m->group.lane, mul(b, narrow(b, loop.index), m->group.threads));
  ir_value row = quotient(b, index, quads), quad = rest(b, index, quads);
  ir_store(b, summed_quad(m, generator, angle, row, quad), group_quad(&m->group, GROUP_LEFT, row, quad), QUAD_BYTES, false);
  ir_end_for(b, loop);
  group_exponential(&m->group);
}

/* ---- rows: float32 in the group's right matrix, `padded` numbers each ---- */

static ir_value staged(matrix *m, ir_value row, ir_value channel) {
  ir *b = m->b;
  return group_bytes(&m->group, add(b, mul(b, row, 4LL * m->group.padded), mul(b, channel, 4)));
}

/* What lies beyond the block's channels is multiplied by zeros, and must be finite. */
static void clear_rows(matrix *m) {
  ir *b = m->b;
  int quads = flight_of(m->spec) * m->group.padded / QUAD / m->group.threads;
  if (m->group.size == m->group.padded) return;
  for (int i = 0; i < quads; i++) {
    ir_value at = mul(b, add(b, m->group.lane, i32(b, (int64_t)i * m->group.threads)), QUAD_BYTES);
    ir_store(b, ir_float(b, ir_vector(b, QUAD, b->f32), 0), group_bytes(&m->group, at), QUAD_BYTES, false);
  }
  ir_wait(b, IR_BARRIER_BLOCK);
}

static void place_pieces(matrix *m) {
  ir *b = m->b;
  int all = flight_of(m->spec) * m->of_row;
  for (int i = 0; i < m->n_pieces; i++) {
    ir_value index = add(b, m->group.lane, i32(b, (int64_t)i * m->group.threads)), piece = clamped(b, index, i32(b, all));
    m->inside[i] = (i + 1) * m->group.threads > all ? below(b, index, i32(b, all)) : (ir_value){NULL};
    m->row[i] = quotient(b, piece, m->of_row);
    m->column[i] = rest(b, piece, m->of_row);
  }
}

/* The thread's piece of a row, where it lies. */
static row_place piece_place(matrix *m, const row_origin *origin, ir_value first, int i) {
  ir *b = m->b;
  const thread_tile *t = m->body->entry->tile;
  row_place place = emit_row_place(&m->body->rows, origin, clamped(b, add(b, first, m->row[i]), m->body->end));
  ir_value at = wide(b, mul(b, channel_of(m, mul(b, m->column[i], t->lanes)), t->element));
  place.in = ir_offset(b, place.in, at);
  place.out = ir_offset(b, place.out, at);
  return place;
}

static void stage_in(matrix *m, const row_place *place) {
  ir *b = m->b;
  const thread_tile *t = m->body->entry->tile;
  ir_value x[QUAD_BYTES / 2];
  for (int i = 0; i < m->n_pieces; i++) emit_row_load(&m->body->rows, (row_place *)&place[i]);
  for (int i = 0; i < m->n_pieces; i++) {
    emit_row_unpack(&m->body->rows, &place[i], x);
    ir_branch branch;
    if (m->inside[i].ptr) branch = ir_if(b, m->inside[i]);
    ir_value at = staged(m, m->row[i], mul(b, m->column[i], t->lanes));
    if (t->lanes == 1) ir_store(b, x[0], at, 4, false);
    for (int k = 0; t->lanes > 1 && k < t->lanes; k += QUAD)
      ir_store(b, ir_elements(b, ir_vector(b, QUAD, b->f32), QUAD, x + k), ir_offset_const(b, at, 4LL * k), QUAD_BYTES, false);
    if (m->inside[i].ptr) ir_end_if(b, branch);
  }
}

static void stage_out(matrix *m, const row_place *place, ir_value first) {
  ir *b = m->b;
  const thread_tile *t = m->body->entry->tile;
  ir_value y[QUAD_BYTES / 2];
  for (int i = 0; i < m->n_pieces; i++) {
    ir_value stored = both(b, m->exists, below(b, add(b, first, m->row[i]), m->body->end));
    ir_branch branch = ir_if(b, m->inside[i].ptr ? both(b, m->inside[i], stored) : stored);
    ir_value at = staged(m, m->row[i], mul(b, m->column[i], t->lanes));
    if (t->lanes == 1) y[0] = ir_load(b, b->f32, at, 4);
    for (int k = 0; t->lanes > 1 && k < t->lanes; k++) {
      ir_value quad = k % QUAD ? (ir_value){NULL} : ir_load(b, ir_vector(b, QUAD, b->f32), ir_offset_const(b, at, 4LL * k), QUAD_BYTES);
      if (quad.ptr)
        for (int j = 0; j < QUAD; j++) y[k + j] = ir_extract(b, quad, j);
    }
    ir_store(b, emit_row_pack(&m->body->rows, y), place[i].out, t->access, false);
    ir_end_if(b, branch);
  }
}

/* ---- applying ---- */

/* Four channels of two rows a thread: y_i = sum_k E_ik x_k, the left matrix being E transposed. */
static void multiply_rows(matrix *m, ir_value quad, const ir_value *row, ir_value *y) {
  ir *b = m->b;
  enum { COUNT = ROWS_OF_THREAD * QUAD };
  MlirType vector = ir_vector(b, QUAD, b->f32);
  ir_value zero[COUNT], sum[COUNT];
  for (int i = 0; i < COUNT; i++) zero[i] = ir_float(b, b->f32, 0);
  ir_loop loop = ir_for_with(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, m->group.padded / QUAD), COUNT, zero, sum);
  ir_value four = mul(b, narrow(b, loop.index), QUAD), x[ROWS_OF_THREAD];
  ir_value matrix = group_quad(&m->group, GROUP_LEFT, four, quad);
  for (int r = 0; r < ROWS_OF_THREAD; r++) x[r] = ir_load(b, vector, staged(m, row[r], four), QUAD_BYTES);
  for (int k = 0; k < QUAD; k++) {
    ir_value e = ir_load(b, vector, ir_offset_const(b, matrix, 4LL * m->group.padded * k), QUAD_BYTES);
    for (int i = 0; i < COUNT; i++) sum[i] = ir_fma(b, ir_extract(b, e, i % QUAD), ir_extract(b, x[i / QUAD], k), sum[i]);
  }
  ir_end_for_with(b, loop, COUNT, sum, y);
}

/* The rows in shared memory; tokens that are not encoded stay. */
static void apply(matrix *m) {
  ir *b = m->b;
  const spec *s = m->spec;
  int quads = m->group.padded / QUAD;
  double amplitude = s->inverse ? 1 / s->amplitude : s->amplitude;
  ir_value quad = rest(b, m->group.lane, quads), row[ROWS_OF_THREAD], y[ROWS_OF_THREAD * QUAD];
  row[0] = quotient(b, m->group.lane, quads);
  for (int r = 1; r < ROWS_OF_THREAD; r++) row[r] = add(b, row[0], i32(b, (int64_t)r * m->group.padded / (2 * QUAD)));
  multiply_rows(m, quad, row, y);
  for (int i = 0; i < ROWS_OF_THREAD * QUAD; i++) {
    if (amplitude != 1) y[i] = ir_op2(b, "arith.mulf", y[i], ir_float(b, b->f32, amplitude));
    if (s->n_components % QUAD || s->n_components < m->group.padded) {
      ir_value is_there = below(b, add(b, mul(b, quad, QUAD), i32(b, i % QUAD)), i32(b, s->n_components));
      y[i] = ir_select(b, is_there, y[i], ir_float(b, b->f32, 0));
    }
  }
  ir_wait(b, IR_BARRIER_BLOCK); /* all have read */
  ir_branch branch;
  if (m->encoded.ptr) branch = ir_if(b, m->encoded);
  for (int r = 0; r < ROWS_OF_THREAD; r++)
    ir_store(b, ir_elements(b, ir_vector(b, QUAD, b->f32), QUAD, y + r * QUAD), staged(m, row[r], mul(b, quad, QUAD)), QUAD_BYTES, false);
  if (m->encoded.ptr) ir_end_if(b, branch);
  ir_wait(b, IR_BARRIER_BLOCK); /* all have written */
}

/* ---- channels of no block, which pass through with the last one where the call is out of place ---- */

static int passing(matrix *m, const char *table) {
  const spec *s = m->spec;
  int32_t *channels = arena_array(m->memory, int32_t, s->head_dim + 1);
  bool *is_of_block = arena_array(m->memory, bool, s->head_dim);
  int count = 0;
  for (int i = 0; i < s->n_blocks * s->n_components; i++) is_of_block[s->channel[i]] = true;
  for (int i = 0; i < s->head_dim; i++)
    if (!is_of_block[i]) channels[count++] = i;
  if (count > 0) ir_table(m->b, table, count, NULL, channels);
  return count;
}

static void copy_channels(matrix *m, const row_origin *origin, ir_value first, const char *table, int count) {
  ir *b = m->b;
  int element = m->body->entry->tile->element, flight = flight_of(m->spec);
  MlirType type = element == 4 ? b->i32 : b->i16;
  if (count == 0) return;
  ir_branch last = ir_if(b, both(b, m->exists, ir_compare_int(b, "eq", m->unit, i32(b, m->spec->n_blocks - 1))));
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, (flight * count + m->group.threads - 1) / m->group.threads));
  ir_value index = add(b, m->group.lane, mul(b, narrow(b, loop.index), m->group.threads)), row = add(b, first, quotient(b, index, count));
  ir_value is_there = both(b, below(b, index, i32(b, (int64_t)flight * count)), below(b, row, m->body->end));
  ir_branch branch = ir_if(b, is_there);
  ir_value at = ir_load(b, b->i32, ir_offset(b, ir_table_address(b, table), wide(b, mul(b, rest(b, index, count), 4))), 4);
  row_place place = emit_row_place(&m->body->rows, origin, row);
  at = wide(b, mul(b, at, element));
  ir_store(b, ir_load(b, type, ir_offset(b, place.in, at), element), ir_offset(b, place.out, at), element, false);
  ir_end_if(b, branch);
  ir_end_for(b, loop);
  ir_end_if(b, last);
}

/* ---- entries ---- */

static void emit_rows(matrix *m) {
  ir *b = m->b;
  const char *table = arena_printf(m->memory, "%s_passing", m->body->entry->name);
  int count = passing(m, table);
  row_place place[MOST_PIECES];
  ir_value first;
  row_origin origin = emit_row_origin(&m->body->rows, &m->body->column, ir_int(b, b->i64, 0));
  place_pieces(m);
  clear_rows(m);
  ir_loop loop = ptx_begin_rows(m->body, &first);
  for (int i = 0; i < m->n_pieces; i++) place[i] = piece_place(m, &origin, first, i);
  stage_in(m, place);
  copy_channels(m, &origin, first, table, count);
  ir_wait(b, IR_BARRIER_BLOCK);
  apply(m);
  /* A thread takes out the pieces that it put in: no barrier before the next rows. */
  stage_out(m, place, first);
  ir_end_for(b, loop);
}

static void emit(ir *b, arena *a, const ptx_program *program, const ptx_entry *entry, bool has_bf16, bool host) {
  const plan_dense *p = program->plan;
  const spec *s = p->spec;
  plan angles = *p->angles;
  angles.per_head = p->per_head;
  ptx_body t = ptx_open(b, a, &angles, entry, has_bf16, host);
  t.rows.exprs = &t.exprs;
  t.rows.streams = row_streams(b, t.parameter);
  matrix m = {.memory = a, .spec = s, .plan = p, .body = &t, .b = b, .group = group_open(b, entry->name, s->n_components, t.thread)};
  m.of_row = s->n_components / entry->tile->lanes;
  m.n_pieces = (flight_of(s) * m.of_row + m.group.threads - 1) / m.group.threads;
  /* Groups beyond the last block form its matrix again and store nothing: barriers are the whole block's. */
  ir_value all = mul(b, ptx_columns(&t), s->n_blocks), line = add(b, mul(b, t.block, PEGEN_PTX_BLOCK / m.group.threads), m.group.group);
  m.exists = below(b, line, all);
  line = clamped(b, line, all);
  m.unit = rest(b, line, s->n_blocks);
  ptx_range(&t);
  ptx_set_column(&t, m.unit, quotient(b, line, s->n_blocks));
  if (s->skip_tokens > 0) m.encoded = ir_compare_int(b, "sge", t.column.token, i32(b, s->skip_tokens));
  make_channels(&m);
  ptx_positions(&t);
  form_matrix(&m);
  emit_rows(&m);
  ir_return(b);
}

static const thread_tile *make_tile(arena *a, const spec *s, int element, int access) {
  thread_tile *t = arena_new(a, thread_tile);
  *t = (thread_tile){.element = element, .access = access, .lanes = access / element, .n_units = s->n_blocks, .n_accesses = 1, .n_blocks = 1};
  t->block_at = arena_array(a, int, s->n_blocks + 1);
  for (int i = 0; i < s->n_blocks; i++) t->block_at[i] = i;
  return t;
}

static void add_entry(arena *a, ptx_program *program, const char *name, int dtype, int access) {
  const spec *s = program->spec;
  program->entry[program->n_entries++] = (ptx_entry){.name = name, .dtype = dtype, .access = access, .tile = make_tile(a, s, dtype == DTYPE_F32 ? 4 : 2, access),
                                                     .threads = group_threads(s->n_components), .flight = flight_of(s)};
}

const ptx_program *emit_ptx_matrix_program(arena *a, const plan_dense *p, unsigned dtypes) {
  const spec *s = p->spec;
  if (p->is_f64) {
    diag_error(s->file, s->line, "kernels of this kind are made for processors only: a GPU forms matrices of dense blocks of %d channels in float32; expected prepare = \"float32\", or --target x86-64-v3 or the like", s->n_components);
    return NULL;
  }
  ptx_program *program = arena_new(a, ptx_program);
  *program = (ptx_program){.spec = s, .plan = p, .per_head = p->per_head, .operations = s->n_components * s->n_components, .emit = emit};
  for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    int element = dtype == DTYPE_F32 ? 4 : 2;
    const char *name = arena_printf(a, "%s_encode_%s", s->name, dtype_name[dtype]);
    bool is_wide = ptx_has_neighbours(s) && s->channel[0] * element % THREAD_PIECE == 0 && s->n_components * element % THREAD_PIECE == 0;
    if (is_wide && s->head_dim * element % THREAD_PIECE == 0) {
      add_entry(a, program, name, dtype, THREAD_PIECE);
      name = arena_printf(a, "%s_narrow", name);
    }
    add_entry(a, program, name, dtype, element);
  }
  return program;
}
