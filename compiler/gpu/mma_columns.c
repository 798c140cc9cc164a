/* gpu/mma_columns: a bias that is a polynomial; see gpu/mma.h and gpu/polynomial.c.
 *
 * Where a machine multiplies float32 a row has a number a column. For tensor cores a column's float32 number is the sum
 * of three bfloat16 parts, each 2^-8 of the one before. A query's parts have nine products with a key's: the six
 * largest are made, and leave out no more than 2^-24 of the number, as much as float32 does. Two parts would leave out
 * 2^-16 of columns that are larger than the bias, since they cancel. Parts are bfloat16 also where rows are float16,
 * whose exponents are too few for powers of coordinates.
 *
 * A row of parts has 6 numbers of each column. Two columns share words, so that rounding gives words.
 */
#include "gpu/index.h"
#include "gpu/mma.h"
#include "mlir/monomial.h"

#include "kernel/launch.h"

enum { PARTS = 3, PRODUCTS = 6, WORD = 4, PIECE_WORDS = 4 };

static const struct {
  int of_query, of_key; /* parts, the largest first */
} products[PRODUCTS] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {0, 2}, {2, 0}};

static int whole(int x, int step) { return (x + step - 1) / step * step; }

static const plan_widen *columns_of(const mma *m) { return m->t->p->columns; }

/* ---- memory ---- */

int mma_parts(const attention_plan *p, const mma_machine *machine) {
  if (!attend_has_columns(p)) return 0;
  int columns = p->columns->n_columns;
  return machine->element == WORD ? whole(columns, ATTEND_QUAD) : whole(PRODUCTS * columns, MMA_INNER);
}

static int words_of(const mma *m) { return m->shape.tile.parts * m->machine->element / WORD; }

static bool has_parts(const mma *m) { return m->machine->element < WORD; }

/* float32 of a query's columns. */
static int width_of(const mma *m) { return whole(columns_of(m)->n_columns, ATTEND_QUAD); }

int64_t mma_scratch_bytes(const mma *m) {
  if (!m->shape.tile.parts || m->p->owns_keys) return 0;
  return m->shape.scratch + (has_parts(m) ? (int64_t)m->shape.tile.own * width_of(m) * WORD : 0);
}

int64_t mma_constant_bytes(const mma *m) {
  return attend_has_constant(m->t->p) && !m->p->owns_keys ? (int64_t)m->shape.tile.own * WORD : 0;
}

bool mma_set_columns(mma *m, int64_t room) {
  if (!m->shape.tile.parts || m->p->owns_keys) return true;
  const plan_widen *columns = columns_of(m);
  widen_tables tables = widen_tables_make(m->memory, columns, NULL);
  int lanes = weight_lanes_of(columns, &tables, 0, room);
  if (!lanes) return false;
  m->t->shape.width = width_of(m);
  m->t->shape.token_lanes = lanes;
  m->shape.scratch = (int64_t)weight_token_bytes(columns, &tables, lanes, 0) * (PEGEN_PTX_BLOCK / lanes);
  return true;
}

/* ---- a row of parts ---- */

/* x of a pair of columns becomes words of its parts. */
static void split(ir *b, const ir_value *x, ir_value *part) {
  ir_value left[2] = {x[0], x[1]};
  for (int i = 0; i < PARTS; i++) {
    part[i] = ir_pack(b, true, left[0], left[1]);
    if (i + 1 == PARTS) return;
    ir_value rounded[2];
    ir_unpack(b, true, part[i], rounded);
    for (int k = 0; k < 2; k++) left[k] = sub(b, left[k], rounded[k]);
  }
}

static int part_of(int product, bool of_keys) {
  return of_keys ? products[product].of_key : products[product].of_query;
}

/* Words whose halves are parts of one column: those of two products. */
static ir_value joined(ir *b, const ir_value *part, int first, int second) {
  if (first == second) return part[first];
  ir_value low = ir_op2(b, "arith.andi", part[first], i32(b, 0xffff)),
           high = ir_op2(b, "arith.andi", part[second], i32(b, (int32_t)0xffff0000));
  return ir_op2(b, "arith.ori", low, high);
}

static void store_row(mma *m, ir_value at, bool of_keys, const ir_value *column) {
  ir *b = m->b;
  int n = columns_of(m)->n_columns, words = words_of(m), count = 0;
  bool splits = has_parts(m);
  ir_value *word = arena_array(m->memory, ir_value, words), part[PARTS];
  for (int c = 0; !splits && c < n; c++) word[count++] = column[c];
  for (int c = 0; splits && c < n; c += 2) {
    bool alone = c + 1 == n;
    const ir_value two[2] = {column[c], column[alone ? c : c + 1]};
    split(b, two, part);
    for (int i = 0; i < PRODUCTS; i += alone ? 2 : 1)
      word[count++] = alone ? joined(b, part, part_of(i, of_keys), part_of(i + 1, of_keys)) : part[part_of(i, of_keys)];
  }
  while (count < words) word[count++] = splits ? i32(b, 0) : ir_float(b, b->f32, 0);
  for (int i = 0; i < words; i += PIECE_WORDS) {
    ir_value piece = ir_elements(b, ir_vector(b, PIECE_WORDS, ir_type(word[i])), PIECE_WORDS, word + i);
    ir_store(b, piece, ir_offset_const(b, at, (int64_t)i * WORD), PIECE_WORDS * WORD, false);
  }
}

/* Row `index` (i32) of the tile's parts. */
static ir_value row_at(mma *m, int value, ir_value stage, ir_value index) {
  return ir_offset(m->b, mma_tile_at(m, value, stage), wide(m->b, scaled(m->b, index, mma_pitch_of(m, value))));
}

/* Prefix tokens have no bias: a product with 0 is none. */
static void clear_prefix(mma *m, bool of_keys, ir_value token, ir_value *column) {
  ir *b = m->b;
  int skip = m->t->p->spec->skip_tokens;
  if (!skip) return;
  ir_value first = of_keys ? i32(b, skip) : attend_first_query(m->t), zero = ir_float(b, b->f32, 0);
  ir_value is_prefix = less(b, token, first);
  for (int c = 0; c < columns_of(m)->n_columns; c++) column[c] = ir_select(b, is_prefix, zero, column[c]);
}

/* Own rows of products change their sign where the scale is negative; see begin_rows of gpu/mma_walk.c. */
static void set_sign(mma *m, ir_value *column) {
  ir *b = m->b;
  ir_value negative = ir_compare_float(b, "olt", attend_scale(m->t), ir_float(b, b->f32, 0));
  ir_value sign = ir_select(b, negative, ir_float(b, b->f32, -1), ir_float(b, b->f32, 1));
  for (int c = 0; c < columns_of(m)->n_columns; c++) column[c] = mul(b, column[c], sign);
}

/* The threads that have a row of a tile each. */
static ir_branch begin_threads(mma *m, bool own) {
  return ir_if(m->b, less(m->b, m->t->thread, i32(m->b, mma_side_tokens(m, own))));
}

/* ---- coordinates ---- */

static int positions_of(bool of_keys) {
  return of_keys ? PEGEN_PTX_ATTENTION_KEY_POSITIONS : PEGEN_PTX_ATTENTION_POSITIONS;
}

/* The origin as two float32 an axis, behind that of gpu/polynomial.c. */
static ir_value origin_at(mma *m, int axis, bool narrow) {
  return ir_offset_const(m->b, m->t->origin, 8LL * axis + (narrow ? 8LL * SPEC_MAX_AXES : 0));
}

int64_t mma_origin_bytes(const mma *m) { return m->shape.tile.parts ? 2 * 8LL * SPEC_MAX_AXES : 0; }

/* By a thread, before a barrier. */
static void lay_narrow_origin(mma *m) {
  ir *b = m->b;
  ir_branch one = ir_if(b, ir_compare_int(b, "eq", m->t->thread, i32(b, 0)));
  for (int axis = 0; axis < m->t->p->spec->n_axes; axis++) {
    two_float x = gpu_narrow_origin(b, ir_load(b, b->i64, origin_at(m, axis, false), 8));
    ir_value at = origin_at(m, axis, true);
    ir_store(b, x.hi, at, 4, false);
    ir_store(b, x.lo, ir_offset_const(b, at, 4), 4, false);
  }
  ir_end_if(b, one);
}

static void find_places(mma *m, const mma_asked *of, bool of_keys, ir_value *place) {
  ir *b = m->b;
  const spec *s = m->t->p->spec;
  ir_value origin[SPEC_MAX_AXES];
  two_float narrow_origin[SPEC_MAX_AXES];
  for (int axis = 0; axis < s->n_axes; axis++) {
    ir_value at = origin_at(m, axis, true);
    origin[axis] = ir_load(b, b->i64, origin_at(m, axis, false), 8);
    narrow_origin[axis].hi = ir_load(b, b->f32, at, 4);
    narrow_origin[axis].lo = ir_load(b, b->f32, ir_offset_const(b, at, 4), 4);
  }
  gpu_narrow_places(b, s, m->t->parameter + positions_of(of_keys), of->placed, of->place, origin, narrow_origin, place);
}

/* ---- keys ---- */

static void lay_keys(mma *m, const mma_asked *of) {
  ir *b = m->b;
  ir_value *column = arena_array(m->memory, ir_value, columns_of(m)->n_columns), place[SPEC_MAX_AXES];
  bool own = m->p->value[of->value].rows == TILE_OWN;
  ir_branch some = begin_threads(m, own);
  find_places(m, of, true, place);
  for (int i = 0; i < columns_of(m)->p->n_keys; i++) place[m->t->p->spec->n_axes + i] = of->number[i];
  attend_columns_of_place(m->t, place, column);
  clear_prefix(m, true, of->token, column);
  if (own) set_sign(m, column);
  store_row(m, row_at(m, of->value, of->stage, m->t->thread), true, column);
  ir_end_if(b, some);
}

/* ---- own queries: from inputs and operands, by several threads a query ---- */

static void lay_own_queries(mma *m, int value) {
  ir *b = m->b;
  attend *t = m->t;
  int n = columns_of(m)->n_columns, pitch = has_parts(m) ? width_of(m) : mma_pitch_of(m, value) / WORD;
  ir_value *column = arena_array(m->memory, ir_value, n), one = ir_float(b, b->f32, 1);
  ir_value rows = has_parts(m) ? ir_offset_const(b, m->scratch_of, m->shape.scratch)
                               : mma_tile_at(m, value, i32(b, 0)); /* columns are made where they stay */
  if (m->gradient) t->kept = m->gradient[PEGEN_PTX_ATTENTION_KEPT];
  t->exprs.head = t->head;
  two_float *remembered = emit_thread_remember(&t->exprs);
  attend_query_columns(t, &(attend_column_rows){rows, pitch, m->own_first, m->shape.tile.own}, m->scratch_of, one);
  emit_thread_forget(&t->exprs, remembered);
  ir_branch some = begin_threads(m, true);
  ir_value row = attend_row_at(t, rows, t->thread, pitch);
  for (int c = 0; c < n; c++) column[c] = ir_load(b, b->f32, ir_offset_const(b, row, (int64_t)c * WORD), WORD);
  clear_prefix(m, false, add(b, m->own_first, t->thread), column);
  set_sign(m, column);
  store_row(m, row_at(m, value, i32(b, 0), t->thread), false, column);
  ir_end_if(b, some);
  lay_narrow_origin(m);
  ir_wait(b, IR_BARRIER_BLOCK); /* streamed tiles come where columns were made */
}

/* ---- streamed queries: from the weights that the program of queries kept ---- */

/* A sum of weights times gains, n of them. */
static ir_value sum_gains(ir *b, power_table *powers, const ir_value *weight, const widen_gain *gain, int n) {
  ir_value sum = {NULL};
  for (int first = 0, end; first < n; first = end) {
    ir_value of_weight = {NULL};
    for (end = first; end < n && gain[end].weight == gain[first].weight; end++) {
      ir_value term = emit_monomial(powers, &gain[end].power, gain[end].factor);
      of_weight = of_weight.ptr ? add(b, of_weight, term) : term;
    }
    ir_value by = weight[gain[first].weight];
    sum = sum.ptr ? ir_fma(b, by, of_weight, sum) : mul(b, by, of_weight);
  }
  return sum.ptr ? sum : ir_float(b, b->f32, 0);
}

/* Columns of a query, and what they leave out of its log-sum-exp. */
static ir_value make_query(mma *m, const mma_asked *of, ir_value *column) {
  ir *b = m->b;
  const plan_widen *p = columns_of(m);
  widen_gain *own = arena_array(m->memory, widen_gain, p->n_gains + 1);
  ir_value place[SPEC_MAX_AXES];
  power_table powers = {.b = b, .type = b->f32};
  find_places(m, of, false, place);
  for (int axis = 0; axis < p->spec->n_axes; axis++) powers.at[axis][1] = place[axis];
  for (int c = 0; c < p->n_columns; c++) {
    int count = 0;
    for (int i = 0; i < p->n_gains; i++)
      if (p->gain[i].column == c) own[count++] = p->gain[i];
    column[c] = sum_gains(b, &powers, of->weight, own, count);
  }
  ir_value constant = sum_gains(b, &powers, of->weight, p->constant, p->n_constant);
  return mul(b, constant, attend_scale(m->t));
}

static void load_weights(mma *m, mma_asked *of) {
  ir *b = m->b;
  int n = columns_of(m)->p->n_weights;
  ir_value row = add(b, m->gradient[PEGEN_PTX_ATTENTION_KEPT], attend_weight_byte(m->t, of->placed)),
           at = ir_pointer(b, row);
  of->weight = arena_array(m->memory, ir_value, n);
  for (int w = 0; w < n; w++) of->weight[w] = ir_load(b, b->f32, ir_offset_const(b, at, (int64_t)w * WORD), WORD);
}

static void lay_streamed_queries(mma *m, mma_asked *of) {
  ir *b = m->b;
  ir_value *column = arena_array(m->memory, ir_value, columns_of(m)->n_columns);
  ir_branch some = begin_threads(m, false);
  load_weights(m, of);
  ir_value constant = make_query(m, of, column);
  clear_prefix(m, false, of->token, column);
  store_row(m, row_at(m, of->value, of->stage, m->t->thread), false, column);
  mma_store_facts(m, of->token, of->stage, constant);
  ir_end_if(b, some);
}

/* ---- tiles ---- */

mma_asked mma_ask_columns(mma *m, const tile_op *op, ir_value first, ir_value stage) {
  ir *b = m->b;
  attend *t = m->t;
  bool of_keys = !tile_is_of_queries(op->tensor);
  mma_asked of = {.value = op->value, .of_keys = of_keys, .token = add(b, first, t->thread), .stage = stage};
  if (!of_keys && m->p->value[op->value].rows == TILE_OWN) return of;
  of.placed = attend_placed_token(t, positions_of(of_keys), of.token);
  gpu_raw_places(b, t->p->spec, t->parameter + positions_of(of_keys), t->batch, of.placed, of.place);
  for (int i = 0; of_keys && i < columns_of(m)->p->n_keys; i++) of.number[i] = attend_number_of(t, i, of.placed);
  return of;
}

void mma_lay_columns(mma *m, mma_asked *of) {
  if (of->of_keys) lay_keys(m, of);
  else if (m->p->value[of->value].rows == TILE_OWN) lay_own_queries(m, of->value);
  else lay_streamed_queries(m, of);
}

void mma_lay_columns_of_head(mma *m) {
  for (int i = 0; m->shape.tile.parts && columns_of(m)->p->n_keys && i < m->p->n_ops; i++) {
    const tile_op *op = &m->p->op[i];
    if (op->kind != TILE_LOAD || op->tensor != TILE_K_COLUMNS || m->p->value[op->value].rows != TILE_OWN) continue;
    mma_asked asked = mma_ask_columns(m, op, m->own_first, m->stage);
    mma_lay_columns(m, &asked);
  }
}

void mma_load(mma *m, const tile_op *op) {
  if (!tile_is_of_columns(op->tensor)) {
    mma_copy(m, op);
    return;
  }
  bool own = m->p->value[op->value].rows == TILE_OWN;
  mma_asked asked = mma_ask_columns(m, op, own ? m->own_first : m->streamed_first, m->stage);
  mma_lay_columns(m, &asked);
}

void mma_begin_columns(mma *m) {
  if (!m->shape.tile.parts || !m->p->owns_keys) return; /* queries' own columns begin with it */
  attend_lay_origin(m->t, PEGEN_PTX_ATTENTION_KEY_POSITIONS, m->own_first, m->shape.tile.own);
  lay_narrow_origin(m);
  ir_wait(m->b, IR_BARRIER_BLOCK);
}

/* ---- one row a thread ---- */

ir_value mma_columns_product(mma *m, const tile_op *op, ir_value own, ir_value streamed) {
  ir *b = m->b;
  ir_value x = row_at(m, op->arg[0], i32(b, 0), own), y = row_at(m, op->arg[1], m->stage, streamed), one[2], other[2],
           sum = ir_float(b, b->f32, 0), now;
  bool splits = has_parts(m);
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, words_of(m)), 1, &sum, &now);
  ir_value at = mul(b, loop.index, i64(b, WORD));
  x = ir_load(b, splits ? b->i32 : b->f32, ir_offset(b, x, at), WORD);
  y = ir_load(b, splits ? b->i32 : b->f32, ir_offset(b, y, at), WORD);
  one[0] = x;
  other[0] = y;
  if (splits) ir_unpack(b, true, x, one);
  if (splits) ir_unpack(b, true, y, other);
  for (int i = 0; i <= splits; i++) now = ir_fma(b, one[i], other[i], now);
  ir_end_for_with(b, loop, 1, &now, &sum);
  ir_value negative = ir_compare_float(b, "olt", attend_scale(m->t), ir_float(b, b->f32, 0));
  return ir_select(b, negative, ir_op1(b, "arith.negf", sum), sum);
}
