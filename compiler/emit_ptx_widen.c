/* emit_ptx_widen: see emit_ptx_widen.h. */
#include "emit_ptx_widen.h"

#include "diag.h"
#include "emit_cpu.h"
#include "emit_index.h"
#include "emit_math.h"
#include "emit_ptx_body.h"
#include "widen_tables.h"

#include "../kernel/launch.h"

enum { WARP = 32, PAIR = 8, PIECE = 16, MOST_SHARED = 48 << 10 };

/* Shared memory of a token, one array after the other. */
enum { MONOMIALS, GAINS, WEIGHTS, PARTS, KEY_TAIL, QUERY_TAIL, ARRAYS };

typedef struct widen {
  ir *b;
  arena *memory;
  const plan_widen *p;
  const widen_layout *layout;
  widen_tables tables;
  ptx_body *body;
  int lanes;              /* of a token */
  ir_value lane, token;   /* i32: of the token's; token of the block's */
  ir_value encoded;       /* i1: the token is; null: all are */
} widen;

static ir_value i64(ir *b, int64_t value) { return ir_int(b, b->i64, value); }
static ir_value narrow_index(ir *b, ir_loop loop) { return ir_cast(b, "arith.trunci", loop.index, b->i32); }

/* ---- shared memory ---- */

static int whole_pieces(int bytes) { return (bytes + PIECE - 1) / PIECE * PIECE; }

/* Floats from lane to lane of the sums' parts: an odd number, so that lanes side by side meet different banks. */
static int part_pitch(const plan_widen *p) { return p->p->n_weights | 1; }

static int array_bytes(const plan_widen *p, const widen_tables *t, int n_lanes, int element, int lanes, int array) {
  int bytes[ARRAYS] = {
      [MONOMIALS] = t->n_monomials * PAIR, [GAINS] = t->n_gains * 4,         [WEIGHTS] = p->p->n_weights * 4,
      [PARTS] = lanes * part_pitch(p) * 4, [KEY_TAIL] = n_lanes * element, [QUERY_TAIL] = n_lanes * element};
  return whole_pieces(bytes[array]);
}

static int token_bytes(const plan_widen *p, const widen_tables *t, int n_lanes, int element, int lanes) {
  int sum = 0;
  for (int i = 0; i < ARRAYS; i++) sum += array_bytes(p, t, n_lanes, element, lanes, i);
  return sum;
}

/* Lanes of a token: the fewest with which a block's tokens fit; 0: none. */
static int lanes_of(const plan_widen *p, const widen_tables *t, int n_lanes, int element) {
  for (int lanes = 8; lanes <= WARP; lanes *= 2)
    if (token_bytes(p, t, n_lanes, element, lanes) * (PEGEN_PTX_BLOCK / lanes) <= MOST_SHARED) return lanes;
  return 0;
}

static int element_of(const widen *w) { return w->body->entry->tile->element; }

/* Byte `at` (i32) of an array of the token. */
static ir_value shared(widen *w, int array, ir_value at) {
  ir *b = w->b;
  int n = w->layout->n_lanes, base = 0;
  for (int i = 0; i < array; i++) base += array_bytes(w->p, &w->tables, n, element_of(w), w->lanes, i);
  ir_value of_token = mul(b, w->token, token_bytes(w->p, &w->tables, n, element_of(w), w->lanes));
  ir_value memory = ir_shared_address(b, arena_printf(w->memory, "%s_tokens", w->body->entry->name));
  return ir_offset(b, memory, wide(b, add(b, add(b, of_token, i32(b, base)), at)));
}

static ir_value table_i32(widen *w, const char *name, ir_value index) {
  ir *b = w->b;
  return ir_load(b, b->i32, ir_offset(b, ir_table_address(b, widen_table_name(w->memory, w->body->entry->name, name)), wide(b, mul(b, index, 4))), 4);
}

/* A loop over [0, count) of which the token's lanes take turns; ends with end_turns. */
typedef struct turns {
  ir_loop loop;
  ir_branch branch;
  bool some;
  ir_value index; /* i32 */
} turns;

static turns begin_turns(widen *w, int count) {
  ir *b = w->b;
  turns t = {.some = count % w->lanes != 0};
  t.loop = ir_for(b, i64(b, 0), i64(b, (count + w->lanes - 1) / w->lanes));
  t.index = add(b, w->lane, mul(b, narrow_index(b, t.loop), w->lanes));
  if (t.some) t.branch = ir_if(b, below(b, t.index, i32(b, count)));
  return t;
}

static void end_turns(widen *w, turns t) {
  if (t.some) ir_end_if(w->b, t.branch);
  ir_end_for(w->b, t.loop);
}

/* ---- what a token's columns are made of ---- */

/* Powers of the coordinates, each made once. */
typedef struct power_table {
  ir *b;
  pair at[SPEC_MAX_AXES][SPEC_MAX_DEGREE + 1];
} power_table;

static pair power_of(power_table *t, int axis, int exponent) {
  pair *x = &t->at[axis][exponent];
  if (!x->hi.ptr) {
    pair half = power_of(t, axis, exponent / 2);
    *x = pair_mul(t->b, half, half);
    if (exponent & 1) *x = pair_mul(t->b, *x, t->at[axis][1]);
  }
  return *x;
}

static pair monomial_of(power_table *t, const monomial *m) {
  pair product = {.hi = {NULL}};
  for (int axis = 0; axis < SPEC_MAX_AXES; axis++)
    if (m->power[axis]) product = product.hi.ptr ? pair_mul(t->b, product, power_of(t, axis, m->power[axis])) : power_of(t, axis, m->power[axis]);
  return product.hi.ptr ? product : pair_const(t->b, 1);
}

/* Of the coordinates less the origin, by the token's first lane. */
static void lay_monomials(widen *w) {
  ir *b = w->b;
  const spec *s = w->p->spec;
  ir_branch first = ir_if(b, ir_compare_int(b, "eq", w->lane, i32(b, 0)));
  power_table powers = {.b = b};
  ptx_positions(w->body);
  for (int axis = 0; axis < s->n_axes; axis++) {
    pair r = w->body->exprs.positions[axis];
    powers.at[axis][1] = s->polynomial->origin[axis] == 0 ? r : pair_sub(b, r, pair_const(b, s->polynomial->origin[axis]));
  }
  for (int i = 0; i < w->tables.n_monomials; i++) {
    pair x = monomial_of(&powers, &w->tables.monomial[i]);
    ir_value both[2] = {x.hi, x.lo.ptr ? x.lo : ir_float(b, b->f32, 0)};
    ir_store(b, ir_elements(b, ir_vector(b, 2, b->f32), 2, both), shared(w, MONOMIALS, i32(b, (int64_t)i * PAIR)), PAIR, false);
  }
  ir_end_if(b, first);
}

static pair pair_at(ir *b, ir_value at) {
  ir_value both = ir_load(b, ir_vector(b, 2, b->f32), at, PAIR);
  return (pair){.hi = ir_extract(b, both, 0), .lo = ir_extract(b, both, 1)};
}

/* Sum `index` of the tables' list: factors times monomials, as float32. */
static ir_value sum_at(widen *w, const widen_sums *sums, ir_value index) {
  ir *b = w->b;
  const char *factors = widen_table_name(w->memory, w->body->entry->name, sums->factors);
  ir_value begin = table_i32(w, sums->starts, index), end = table_i32(w, sums->starts, add(b, index, i32(b, 1)));
  ir_value zero = ir_float(b, b->f32, 0), initial[2] = {zero, zero}, now[2];
  ir_loop loop = ir_for_with(b, wide(b, begin), wide(b, end), 2, initial, now);
  ir_value at = narrow_index(b, loop);
  pair factor = pair_at(b, ir_offset(b, ir_table_address(b, factors), wide(b, mul(b, at, PAIR))));
  pair x = pair_at(b, shared(w, MONOMIALS, mul(b, table_i32(w, sums->monomials, at), PAIR)));
  pair next = pair_add(b, (pair){.hi = now[0], .lo = now[1]}, pair_mul(b, factor, x));
  ir_value values[2] = {next.hi, next.lo.ptr ? next.lo : zero};
  ir_end_for_with(b, loop, 2, values, now);
  return pair_narrow(b, (pair){.hi = now[0], .lo = now[1]});
}

/* A number of a lane in the rows' type: rounded, or what rounding took from it. */
static ir_value part_of(widen *w, ir_value x, ir_value low) {
  ir *b = w->b;
  row_thread *r = &w->body->rows;
  if (element_of(w) == 4) return x;
  ir_value high = emit_row_number(r, x);
  if (!w->layout->is_split) return high;
  ir_value back = r->dtype == DTYPE_BF16 ? math_f32_from_bf16(b, high) : ir_cast(b, "arith.extf", ir_cast(b, "arith.bitcast", high, b->f16), b->f32);
  return ir_select(b, ir_compare_int(b, "ne", low, i32(b, 0)), emit_row_number(r, ir_op2(b, "arith.subf", x, back)), high);
}

/* Lane `index` of a tail; tokens that are not encoded have zeros. */
static void store_part(widen *w, int tail, ir_value index, ir_value x, const char *low) {
  ir *b = w->b;
  if (w->encoded.ptr) x = ir_select(b, w->encoded, x, ir_float(b, b->f32, 0));
  ir_value flag = w->layout->is_split ? table_i32(w, low, index) : (ir_value){NULL};
  ir_store(b, part_of(w, x, flag), shared(w, tail, mul(b, index, element_of(w))), element_of(w), false);
}

static void lay_token(widen *w) {
  ir *b = w->b;
  lay_monomials(w);
  ir_wait(b, IR_BARRIER_WARP);
  turns gains = begin_turns(w, w->tables.n_gains);
  ir_store(b, sum_at(w, &w->tables.gains, gains.index), shared(w, GAINS, mul(b, gains.index, 4)), 4, false);
  end_turns(w, gains);
  turns keys = begin_turns(w, w->layout->n_lanes);
  store_part(w, KEY_TAIL, keys.index, sum_at(w, &w->tables.keys, table_i32(w, "lane_columns", keys.index)), "lane_low_keys");
  end_turns(w, keys);
}

/* ---- a query ---- */

/* Where the inputs' rows of query `head` lie. */
static void set_inputs(widen *w, ir_value head) {
  ir *b = w->b;
  const spec *s = w->p->spec;
  ptx_body *t = w->body;
  ir_value *rows = arena_array(w->memory, ir_value, s->n_inputs + 1);
  for (int i = 0; i < s->n_inputs; i++) {
    const ir_value *of = t->parameter + PEGEN_PTX_OPERANDS + s->n_operands * PEGEN_PTX_OPERAND_COUNT + i * PEGEN_PTX_INPUT_COUNT;
    ir_value at = add(b, of[PEGEN_PTX_INPUT_ADDRESS], ir_op2(b, "arith.muli", wide(b, t->column.batch), of[PEGEN_PTX_INPUT_BATCH]));
    at = add(b, at, ir_op2(b, "arith.muli", wide(b, t->column.token), of[PEGEN_PTX_INPUT_TOKEN]));
    rows[i] = add(b, at, ir_op2(b, "arith.muli", wide(b, head), of[PEGEN_PTX_INPUT_HEAD]));
    if (i == 0 && element_of(w) == 2) t->exprs.wide_inputs = ir_compare_int(b, "eq", of[PEGEN_PTX_INPUT_TYPE], i64(b, PEGEN_PTX_OPERAND_F32));
  }
  t->exprs.inputs = rows;
  t->exprs.has_bf16_inputs = t->rows.dtype == DTYPE_BF16;
}

/* Adds what the term adds to every weight; a lane past the last term adds nothing. */
static void add_term(widen *w, ir_value exists, ir_value *sums) {
  ir *b = w->b;
  const plan_widen *p = w->p;
  thread_emitter *e = &w->body->exprs;
  int n_products = p->first_product[p->p->n_weights], count = 0;
  const expr **roots = arena_array(w->memory, const expr *, p->n_queries + n_products + 1);
  for (int i = 0; i < p->n_queries; i++) roots[count++] = p->query[i];
  for (int i = 0; i < n_products; i++) roots[count++] = p->fixed[i];
  emit_thread_operands(e, roots, count);
  for (int weight = 0; weight < p->p->n_weights; weight++) {
    ir_value sum = {NULL};
    for (int k = p->first_product[weight]; k < p->first_product[weight + 1]; k++) {
      ir_value fixed = emit_thread_f32(e, p->fixed[k], 0);
      if (p->product_query[k] < 0) sum = sum.ptr ? ir_op2(b, "arith.addf", sum, fixed) : fixed;
      else {
        ir_value query = emit_thread_f32(e, p->query[p->product_query[k]], 0);
        sum = sum.ptr ? ir_fma(b, query, fixed, sum) : ir_op2(b, "arith.mulf", query, fixed);
      }
    }
    if (sum.ptr) sums[weight] = ir_select(b, exists, ir_op2(b, "arith.addf", sums[weight], sum), sums[weight]);
  }
}

/* The lane's part of each weight: of its terms. */
static void lay_parts(widen *w) {
  ir *b = w->b;
  const plan_widen *p = w->p;
  thread_emitter *e = &w->body->exprs;
  int n = p->p->n_weights, terms = p->spec->n_blocks;
  ir_value *zeros = arena_array(w->memory, ir_value, 3 * n + 1), *now = zeros + n, *sums = now + n;
  for (int i = 0; i < n; i++) zeros[i] = ir_float(b, b->f32, 0);
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, (terms + w->lanes - 1) / w->lanes), n, zeros, now);
  ir_value term = add(b, w->lane, mul(b, narrow_index(b, loop), w->lanes)), exists = below(b, term, i32(b, terms));
  pair *remembered = emit_thread_remember(e);
  e->unit = ir_select(b, exists, term, i32(b, terms - 1));
  add_term(w, exists, now);
  emit_thread_forget(e, remembered);
  ir_end_for_with(b, loop, n, now, sums);
  for (int i = 0; i < n; i++) ir_store(b, sums[i], shared(w, PARTS, add(b, mul(b, w->lane, 4LL * part_pitch(p)), i32(b, 4LL * i))), 4, false);
}

/* The token's weights from its lanes' parts, in the order of lanes. */
static void lay_weights(widen *w) {
  ir *b = w->b;
  turns t = begin_turns(w, w->p->p->n_weights);
  ir_value sum = {NULL};
  for (int lane = 0; lane < w->lanes; lane++) {
    ir_value part = ir_load(b, b->f32, shared(w, PARTS, add(b, mul(b, t.index, 4), i32(b, 4LL * lane * part_pitch(w->p)))), 4);
    sum = sum.ptr ? ir_op2(b, "arith.addf", sum, part) : part;
  }
  ir_store(b, sum, shared(w, WEIGHTS, mul(b, t.index, 4)), 4, false);
  end_turns(w, t);
}

/* Columns: sums of weight times gain. */
static void lay_columns(widen *w) {
  ir *b = w->b;
  turns t = begin_turns(w, w->layout->n_lanes);
  ir_value column = table_i32(w, "lane_columns", t.index), zero = ir_float(b, b->f32, 0), now;
  ir_value begin = table_i32(w, "column_starts", column), end = table_i32(w, "column_starts", add(b, column, i32(b, 1)));
  ir_loop loop = ir_for_with(b, wide(b, begin), wide(b, end), 1, &zero, &now);
  ir_value at = narrow_index(b, loop), gain = ir_load(b, b->f32, shared(w, GAINS, mul(b, at, 4)), 4);
  ir_value next = ir_fma(b, ir_load(b, b->f32, shared(w, WEIGHTS, mul(b, table_i32(w, "gain_weights", at), 4)), 4), gain, now);
  ir_end_for_with(b, loop, 1, &next, &now);
  store_part(w, QUERY_TAIL, t.index, now, "lane_low_queries");
  end_turns(w, t);
}

static void lay_query(widen *w, ir_value head) {
  ir *b = w->b;
  set_inputs(w, head);
  w->body->exprs.head = head;
  lay_parts(w);
  ir_wait(b, IR_BARRIER_WARP);
  lay_weights(w);
  ir_wait(b, IR_BARRIER_WARP);
  lay_columns(w);
}

/* ---- rows ---- */

static MlirType piece_type(const widen *w) {
  ir *b = w->b;
  return w->body->entry->access == PIECE ? ir_vector(b, 4, b->i32) : element_of(w) == 4 ? b->i32 : b->i16;
}

/* Channels as they are: bits, so that no NaN changes. */
static void move_row(widen *w, const row_place *place, ir_value valid) {
  ir *b = w->b;
  int access = w->body->entry->access;
  ir_branch exists = ir_if(b, valid);
  turns t = begin_turns(w, w->p->spec->head_dim * element_of(w) / access);
  ir_value at = wide(b, mul(b, t.index, access));
  ir_store(b, ir_load(b, piece_type(w), ir_offset(b, place->in, at), access), ir_offset(b, place->out, at), access, false);
  end_turns(w, t);
  ir_end_if(b, exists);
}

static void move_tail(widen *w, const row_place *place, ir_value is_k, ir_value valid) {
  ir *b = w->b;
  int access = w->body->entry->access, element = element_of(w);
  ir_value tail = ir_offset_const(b, place->out, (int64_t)w->p->spec->head_dim * element);
  int step = array_bytes(w->p, &w->tables, w->layout->n_lanes, element, w->lanes, KEY_TAIL); /* the query's follows the key's */
  ir_value from = ir_select(b, is_k, i32(b, 0), i32(b, step));
  ir_branch exists = ir_if(b, valid);
  turns t = begin_turns(w, w->layout->n_lanes * element / access);
  ir_value at = mul(b, t.index, access);
  ir_store(b, ir_load(b, piece_type(w), shared(w, KEY_TAIL, add(b, from, at)), access), ir_offset(b, tail, wide(b, at)), access, false);
  end_turns(w, t);
  ir_end_if(b, exists);
}

/* All lanes of a warp are at the same row of their tokens. */
static void walk_rows(widen *w, ir_value valid) {
  ir *b = w->b;
  ptx_body *t = w->body;
  row_origin origin = emit_row_origin(&t->rows, &t->column, i64(b, 0));
  ir_value of_q = ir_cast(b, "arith.trunci", t->parameter[PEGEN_PTX_Q + PEGEN_PTX_TENSOR_HEADS], b->i32), row;
  ir_loop loop = ptx_begin_rows(t, &row);
  row_place place = emit_row_place(&t->rows, &origin, row);
  ir_value is_k = ir_compare_int(b, "sge", row, of_q);
  move_row(w, &place, valid);
  ir_branch queries = ir_if(b, ir_compare_int(b, "slt", row, of_q));
  lay_query(w, row);
  ir_end_if(b, queries);
  ir_wait(b, IR_BARRIER_WARP);
  move_tail(w, &place, is_k, valid);
  ir_end_for(b, loop);
}

/* ---- entries ---- */

static void emit(ir *b, arena *a, const ptx_program *program, const ptx_entry *entry, bool has_bf16, bool host) {
  const plan_widen *p = program->plan;
  plan values = *p->values;
  values.per_head = false; /* rows are heads in any case: what differs among them is made row by row */
  widen w = {.b = b, .memory = a, .p = p, .layout = &p->layout[entry->dtype], .lanes = WARP / entry->tile->columns};
  w.tables = widen_tables_make(a, p, w.layout);
  widen_tables_emit(b, a, &w.tables, entry->name);
  ptx_body t = ptx_open(b, a, &values, entry, has_bf16, host);
  t.rows.exprs = &t.exprs;
  w.body = &t;
  int tokens = PEGEN_PTX_BLOCK / w.lanes;
  ir_shared(b, arena_printf(a, "%s_tokens", entry->name), (int64_t)tokens * token_bytes(p, &w.tables, w.layout->n_lanes, entry->tile->element, w.lanes));
  w.lane = ir_op2(b, "arith.remui", t.thread, i32(b, w.lanes));
  w.token = ir_op2(b, "arith.divui", t.thread, i32(b, w.lanes));
  ir_value columns = ptx_columns(&t), column = add(b, mul(b, t.block, tokens), w.token), valid = below(b, column, columns);
  ptx_range(&t);
  ptx_set_column(&t, i32(b, 0), ir_select(b, valid, column, ir_op2(b, "arith.subi", columns, i32(b, 1))));
  t.rows.streams = row_streams(b, t.parameter);
  if (p->spec->skip_tokens > 0) w.encoded = ir_compare_int(b, "sge", t.column.token, i32(b, p->spec->skip_tokens));
  lay_token(&w);
  walk_rows(&w, valid);
  ir_return(b);
}

static const thread_tile *make_tile(arena *a, const plan_widen *p, int element, int access, int lanes) {
  thread_tile *t = arena_new(a, thread_tile);
  int terms = p->spec->n_blocks;
  *t = (thread_tile){.element = element, .access = access, .lanes = access / element, .n_units = terms, .n_accesses = 1, .n_blocks = 1, .columns = WARP / lanes};
  t->block_at = arena_array(a, int, terms + 1);
  for (int i = 0; i < terms; i++) t->block_at[i] = i;
  return t;
}

static bool add_entries(arena *a, ptx_program *program, const plan_widen *p, int dtype) {
  const spec *s = p->spec;
  const widen_layout *l = &p->layout[dtype];
  widen_tables tables = widen_tables_make(a, p, l);
  int element = dtype == DTYPE_F32 ? 4 : 2, lanes = lanes_of(p, &tables, l->n_lanes, element);
  if (!lanes) {
    diag_error(s->file, s->line, "kernels of this kind are made for processors only: %d columns with %d gains do not fit in a GPU's shared memory; expected a lower degree, or --target x86-64-v3 or the like", p->n_columns, tables.n_gains);
    return false;
  }
  const char *name = arena_printf(a, "%s_encode_%s", s->name, dtype_name[dtype]);
  bool whole = s->head_dim * element % PIECE == 0 && l->n_lanes * element % PIECE == 0;
  for (int narrow = !whole; narrow < 2; narrow++) {
    int access = narrow ? element : PIECE;
    const char *full = narrow && whole ? arena_printf(a, "%s_narrow", name) : name;
    program->entry[program->n_entries++] = (ptx_entry){.name = full, .dtype = dtype, .access = access, .tile = make_tile(a, p, element, access, lanes), .flight = 1, .blocks = 1};
  }
  return true;
}

const ptx_program *emit_ptx_widen_program(arena *a, const plan_widen *p, unsigned dtypes) {
  ptx_program *program = arena_new(a, ptx_program);
  *program = (ptx_program){.spec = p->spec, .plan = p, .emit = emit};
  program->summary = arena_printf(a, "%d terms of a bias, %d columns.", p->spec->n_blocks, p->n_columns);
  for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
    if (dtypes & 1u << dtype && !add_entries(a, program, p, dtype)) return NULL;
  return program;
}
