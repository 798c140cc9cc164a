/* cpu/weight_gains: see cpu/weight_gains.h.
 *
 * Terms are in the lanes, queries go one after the other inside a chunk of terms, some of them at a time. What a term's
 * inputs gain is added to rows of float32 on the stack, which are rounded once. What operands' halves of the products
 * gain is added up over those few queries in float32, and then, term by term, to float64 sums: of 16 terms these are
 * two vectors to load, add and store for every product, more than all arithmetic of a query.
 */
#include "cpu/weight_gains.h"

#include "base/number.h"
#include "cpu/gain.h"
#include "cpu/gradient.h"
#include "cpu/rotors.h"
#include "cpu/weights.h"
#include "mlir/arith.h"
#include "mlir/number.h"

#include "kernel/loop.h"

#include <stddef.h>

enum { CACHE_LINE = 64 };

typedef struct gain_emitter {
  ir *b;
  arena *memory;
  const plan_gradient *of;
  const cpu_target *target; /* under which the functions have their names */
  int dtype;                /* of inputs */
  bool *has_table;          /* see chunk_emitter */
  ir_value work;            /* const pegen_weight_gains * */
  ir_value first, query;    /* i64: of some queries, and the one at hand */
  ir_value prepared, sums;  /* sums: i64, 0 where they are not wanted */
  ir_value input[SPEC_MAX_INPUTS]; /* rows of the query at hand */
  ir_value rooms[SPEC_MAX_INPUTS]; /* float32 [PEGEN_WEIGHT_FEW][elements]: what their rows gain */
  ir_value room[SPEC_MAX_INPUTS];  /* that of the query at hand */
  ir_value few;                    /* float32 [boundaries][lanes]: sums of a chunk over some queries */
} gain_emitter;

static const spec *spec_of(const gain_emitter *e) { return e->of->token->spec; }

static int elements_of(const gain_emitter *e, int input) {
  int64_t size = spec_of(e)->input[input].size;
  return size ? (int)size : 1;
}

static ir_value work_at(const gain_emitter *e, size_t offset, int i, MlirType type) {
  return ir_load(e->b, type, ir_offset_const(e->b, e->work, (int64_t)offset + i * 8), 8);
}

#define WORK(e, name, i, type) work_at((e), offsetof(pegen_weight_gains, name), (i), (type))

/* ---- a chunk of terms ---- */

/* Whether each of its elements gains of one term alone, which writes it. */
static bool is_alone(const gain_emitter *e, const expr *leaf) {
  for (int i = 0; i < e->of->n_inputs; i++)
    if (e->of->of_input[i].leaf->index == leaf->index && e->of->of_input[i].leaf != leaf) return false;
  return (leaf->depends & DEPENDS_BLOCK) && weights_in_order(spec_of(e), leaf);
}

/* Where element `offset`, and as many further as the chunk is shifted by, stands in an input's room. */
static ir_value element_at(const gain_emitter *e, const chunk_emitter *x, const expr *leaf, int64_t offset) {
  ir_value at = ir_offset_const(e->b, e->room[leaf->index], offset * 4);
  bool moves = x->shift.ptr && (leaf->depends & DEPENDS_BLOCK);
  return moves ? ir_offset(e->b, at, mul(e->b, x->shift, i64(e->b, 4))) : at;
}

/* Lanes beyond the last term are left out. */
static void add_to_input(const gain_emitter *e, chunk_emitter *x, const adjoint_scatter *s) {
  ir *b = e->b;
  int left = spec_of(e)->n_blocks - x->begin, count = left < x->width ? left : x->width;
  ir_value lanes = emit_expr_f32(&x->walker, s->gradient);
  if (is_alone(e, s->leaf) && count == x->width) {
    ir_store(b, lanes, element_at(e, x, s->leaf, s->leaf->offsets[x->begin]), 4, false);
    return;
  }
  for (int i = 0; i < count; i++) {
    ir_value at = element_at(e, x, s->leaf, s->leaf->offsets[x->begin + i]);
    ir_store(b, add(b, ir_load(b, b->f32, at, 4), ir_extract(b, lanes, i)), at, 4, false);
  }
}

static int64_t few_at(const gain_emitter *e, int boundary) { return (int64_t)boundary * e->target->lanes * 4; }

static void clear_few(const gain_emitter *e, int width) {
  ir *b = e->b;
  for (int i = 0; i < e->of->n_boundaries; i++)
    ir_store(b, ir_float(b, ir_vector(b, width, b->f32), 0), ir_offset_const(b, e->few, few_at(e, i)), 4, false);
}

static void add_to_few(const gain_emitter *e, chunk_emitter *x) {
  ir *b = e->b;
  ir_branch wanted = ir_if(b, ir_compare_int(b, "ne", e->sums, i64(b, 0)));
  for (int i = 0; i < e->of->n_boundaries; i++) {
    ir_value gained = emit_expr_f32(&x->walker, e->of->of_boundary[0][i]),
             at = ir_offset_const(b, e->few, few_at(e, i));
    ir_store(b, add(b, ir_load(b, ir_type(gained), at, 4), gained), at, 4, false);
  }
  ir_end_if(b, wanted);
}

static void add_few_to_sums(const gain_emitter *e, int begin, int width, ir_value shift) {
  ir *b = e->b;
  ir_branch wanted = ir_if(b, ir_compare_int(b, "ne", e->sums, i64(b, 0)));
  for (int i = 0; i < e->of->n_boundaries; i++) {
    ir_value few = ir_load(b, ir_vector(b, width, b->f32), ir_offset_const(b, e->few, few_at(e, i)), 4),
             at = ir_offset_const(b, ir_pointer(b, e->sums), ((int64_t)i * e->of->token->lanes + begin) * 8);
    if (shift.ptr) at = ir_offset(b, at, mul(b, shift, i64(b, 8)));
    ir_value wide = ir_cast(b, "arith.extf", few, b->f64);
    ir_store(b, add(b, ir_load(b, ir_type(wide), at, 8), wide), at, 8, false);
  }
  ir_end_if(b, wanted);
}

/* Emits the terms of the query at hand. */
static void emit_terms_of_query(const gain_emitter *e, int begin, int width, ir_value shift) {
  ir *b = e->b;
  const plan_gradient *of = e->of;
  chunk_emitter x = chunk_emitter_create(b, e->memory, of->token, e->target, e->has_table, begin, width);
  x.shift = shift;
  x.prepared = e->prepared;
  x.input = e->input;
  x.input_dtype = e->dtype;
  ir_value weights = ir_offset(b, WORK(e, weights, 0, b->ptr), mul(b, e->query, i64(b, 4)));
  for (int w = 0; w < of->n_torques; w++)
    expr_known(&x.walker, of->tau[w])->hi =
        ir_load(b, b->f32, ir_offset_const(b, weights, (int64_t)w * PEGEN_WEIGHT_QUERIES * 4), 4);
  for (int i = 0; i < of->n_inputs; i++) add_to_input(e, &x, &of->of_input[i]);
  if (of->n_boundaries > 0) add_to_few(e, &x);
}

/* Opens the loop over the queries from e->first on. */
static ir_loop begin_few(gain_emitter *e) {
  ir *b = e->b;
  ir_value left = sub(b, WORK(e, count, 0, b->i64), e->first), few = i64(b, PEGEN_WEIGHT_FEW),
           is_last = ir_compare_int(b, "slt", left, few);
  ir_loop loop = ir_for(b, i64(b, 0), ir_select(b, is_last, left, few));
  e->query = add(b, e->first, loop.index);
  for (int i = 0; i < spec_of(e)->n_inputs; i++) {
    e->input[i] = ir_offset(b, WORK(e, input, i, b->ptr), mul(b, e->query, WORK(e, input_step, i, b->i64)));
    e->room[i] = ir_offset(b, e->rooms[i], mul(b, loop.index, i64(b, (int64_t)elements_of(e, i) * 4)));
  }
  return loop;
}

static void emit_chunk_of_terms(gain_emitter *e, int begin, int width, ir_value shift) {
  clear_few(e, width);
  ir_loop queries = begin_few(e);
  emit_terms_of_query(e, begin, width, shift);
  ir_end_for(e->b, queries);
  if (e->of->n_boundaries > 0) add_few_to_sums(e, begin, width, shift);
}

/* Whether one code in a loop serves all whole chunks. */
static bool is_loop(const gain_emitter *e, int chunks) {
  const spec *s = spec_of(e);
  for (int i = 0; i < e->of->n_inputs; i++)
    if (!weights_in_order(s, e->of->of_input[i].leaf) || !weights_are_regular(s, e->of->of_input[i].gradient))
      return false;
  for (int i = 0; i < e->of->n_boundaries; i++)
    if (!weights_are_regular(s, e->of->of_boundary[0][i])) return false;
  return chunks > WEIGHTS_MOST_UNROLLED;
}

static void emit_terms(gain_emitter *e) {
  ir *b = e->b;
  int terms = spec_of(e)->n_blocks, width = e->target->lanes, chunks = terms / width;
  ir_value none = {NULL};
  if (is_loop(e, chunks)) {
    ir_loop loop = ir_for(b, i64(b, 0), i64(b, chunks));
    emit_chunk_of_terms(e, 0, width, mul(b, loop.index, i64(b, width)));
    ir_end_for(b, loop);
  } else
    for (int i = 0; i < chunks; i++) emit_chunk_of_terms(e, i * width, width, none);
  if (terms % width) emit_chunk_of_terms(e, chunks * width, plan_chunk_width(terms % width), none);
}

/* ---- rows of inputs ---- */

/* What is done with lanes of a row from element `first` (i64) on. */
typedef void row_piece(const gain_emitter *e, int input, ir_value row, ir_value first, int lanes);

static void each_piece(const gain_emitter *e, int input, ir_value row, row_piece *visit) {
  ir *b = e->b;
  int count = elements_of(e, input), width = e->target->lanes, whole = count / width;
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, whole));
  visit(e, input, row, mul(b, loop.index, i64(b, width)), width);
  ir_end_for(b, loop);
  for (int at = whole * width; at < count; at += width) {
    while (at + width > count) width /= 2;
    visit(e, input, row, i64(b, at), width);
  }
}

static ir_value room_at(const gain_emitter *e, int input, ir_value first) {
  return ir_offset(e->b, e->room[input], mul(e->b, first, i64(e->b, 4)));
}

static ir_value gain_at(const gain_emitter *e, ir_value row, ir_value first) {
  return ir_offset(e->b, row, mul(e->b, first, i64(e->b, number_bytes(e->dtype))));
}

static void clear_piece(const gain_emitter *e, int input, ir_value row, ir_value first, int lanes) {
  (void)row;
  ir_store(e->b, ir_float(e->b, ir_vector(e->b, lanes, e->b->f32), 0), room_at(e, input, first), 4, false);
}

static void add_piece(const gain_emitter *e, int input, ir_value row, ir_value first, int lanes) {
  ir *b = e->b;
  ir_value at = room_at(e, input, first), more = ir_load(b, ir_vector(b, lanes, b->f32), at, 4);
  ir_value there = emit_load_channels(b, e->target->native, e->dtype, lanes, gain_at(e, row, first));
  ir_store(b, add(b, there, more), at, 4, false);
}

static void store_piece(const gain_emitter *e, int input, ir_value row, ir_value first, int lanes) {
  ir *b = e->b;
  ir_value gained = ir_load(b, ir_vector(b, lanes, b->f32), room_at(e, input, first), 4);
  emit_store_channels(b, e->target->native, e->dtype, gained, gain_at(e, row, first), false);
}

static void write_input(const gain_emitter *e, int input) {
  ir *b = e->b;
  ir_value base = WORK(e, gain, input, b->ptr);
  ir_branch wanted = ir_if(b, ir_compare_int(b, "ne", ir_address(b, base), i64(b, 0)));
  ir_value row = ir_offset(b, base, mul(b, e->query, WORK(e, gain_step, input, b->i64)));
  ir_branch adds = ir_if(b, ir_compare_int(b, "ne", WORK(e, adds, 0, b->i64), i64(b, 0)));
  each_piece(e, input, row, add_piece);
  ir_end_if(b, adds);
  each_piece(e, input, row, store_piece);
  ir_end_if(b, wanted);
}

/* ---- the functions ---- */

static void emit_unweigh(gain_emitter *e) {
  ir *b = e->b;
  int n_inputs = spec_of(e)->n_inputs;
  ir_open(b, emit_unweigh_name(e->memory, e->target, e->dtype), "p", &e->work);
  e->prepared = WORK(e, prepared, 0, b->ptr);
  e->sums = ir_address(b, WORK(e, sums, 0, b->ptr));
  for (int i = 0; i < n_inputs; i++)
    e->rooms[i] = ir_alloca(b, (int64_t)elements_of(e, i) * PEGEN_WEIGHT_FEW * 4, CACHE_LINE);
  e->few = ir_alloca(b, few_at(e, e->of->n_boundaries) + CACHE_LINE, CACHE_LINE);
  ir_value few = i64(b, PEGEN_WEIGHT_FEW), up = add(b, WORK(e, count, 0, b->i64), i64(b, PEGEN_WEIGHT_FEW - 1)),
           steps = ir_op2(b, "arith.divsi", up, few);
  ir_loop groups = ir_for(b, i64(b, 0), steps);
  e->first = mul(b, groups.index, few);
  ir_loop cleared = begin_few(e);
  for (int i = 0; i < n_inputs; i++) each_piece(e, i, e->room[i], clear_piece);
  ir_end_for(b, cleared);
  emit_terms(e);
  ir_loop written = begin_few(e);
  for (int i = 0; i < n_inputs; i++) write_input(e, i);
  ir_end_for(b, written);
  ir_end_for(b, groups);
  ir_return(b);
}

void emit_weight_gains(ir *b, arena *a, const plan_gradient *of, const cpu_target *target, unsigned dtypes) {
  if (!of) return;
  gradient_code g = {.memory = a, .of = of, .target = emit_gradient_target(a, target), .whole = of->token->spec};
  chunk_walk walk = emit_chunks_of(b, a, of->token, plan_tile_build(a, of->token, target->lanes), g.target);
  if (of->token->n_leaves > 0) emit_prepare(&walk);
  emit_gradient_scatter(b, a, &g);
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
    if (type != NUMBER_F32 && (!(dtypes & 1u << type) || of->token->spec->n_inputs == 0))
      continue; /* float32 goes with any rows */
    gain_emitter e = {.b = b, .memory = a, .of = of, .target = g.target, .dtype = type, .has_table = walk.has_table};
    emit_unweigh(&e);
  }
}
