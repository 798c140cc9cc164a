/* cpu/rows: spreads coefficients over channels and applies them; see cpu/rows.h.
 *
 * Both directions are lane permutations of whole vectors: gather() builds one vector whose
 * lanes come from several, by shuffles of two at a time in which the lanes that are
 * done stay where they are (which AVX2 turns into one permutation and one blend).
 */
#include "cpu/rows.h"
#include "cpu/product.h"
#include "mlir/arith.h"
#include "mlir/math.h"
#include "mlir/number.h"

#include "base/diag.h"

#include "kernel/loop.h"

#include <stddef.h>

enum { CACHE_LINE = 64 };

/* Permutations of lanes that a pair must save for one of words to be fewer instructions. */
enum { LEAST_OF_WORDS = 3 };

int emit_gather_source(gather_request *g, ir_value v) {
  for (int i = 0; i < g->count; i++)
    if (g->vectors[i].ptr == v.ptr) return i;
  if (g->count == GATHER_MAX_SOURCES) diag_bug("emit_rows", "a vector of %d sources", g->count + 1);
  g->vectors[g->count] = v;
  return g->count++;
}

ir_value emit_gather(ir *b, gather_request *g) {
  int64_t mask[GATHER_MAX_LANES];
  bool in_place = g->count == 1;
  for (int i = 0; i < g->width; i++) in_place = in_place && (g->from[i] < 0 || g->lane[i] == i);
  if (in_place && ir_lanes(g->vectors[0]) == g->width) return g->vectors[0];
  ir_value gathered = {NULL};
  for (int source = 0; source < g->count; source++) {
    ir_value v = g->vectors[source];
    if (ir_lanes(v) < g->width) {
      for (int i = 0; i < g->width; i++) mask[i] = i < ir_lanes(v) ? i : -1;
      v = ir_shuffle(b, v, v, g->width, mask);
    }
    for (int i = 0; i < g->width; i++) {
      mask[i] = g->from[i] < 0 || g->from[i] > source ? -1
                : g->from[i] < source                 ? i
                                                      : g->lane[i] + (source ? g->width : 0);
    }
    gathered = ir_shuffle(b, source ? gathered : v, v, g->width, mask);
  }
  return gathered;
}

/* ---- coefficients ---- */

static double lane_constant(const plan *p, const expr *x, int channel) {
  return x->op == EXPR_CONST ? x->value : x->table[p->block_of[channel]];
}

/* A vector of the lanes that are numbers, 0 elsewhere; of channels in order. */
static ir_value constant_lanes(ir *b, const plan *p, const plan_tile *t, int term, int start) {
  double values[GATHER_MAX_LANES];
  for (int i = 0; i < t->width; i++) {
    const expr *x = plan_coefficient(p, term, start + i);
    values[i] = x && expr_is_fixed_for_heads(x) ? lane_constant(p, x, start + i) : 0;
  }
  return ir_floats(b, ir_vector(b, t->width, b->f32), values);
}

static int chunk_of(const plan_tile *t, int block) {
  int chunk = 0;
  while (block >= t->chunk_begin[chunk] + t->chunk_width[chunk]) chunk++;
  return chunk;
}

/* Values of fewer lanes than a vector has, several of them in one vector: `narrow` are lanes offset .. of `whole`. */
typedef struct packed_value {
  ir_value narrow, whole;
  int offset;
} packed_value;

typedef struct packing {
  packed_value *value;
  int count;
} packing;

static const packed_value *find_packed(const packing *known, ir_value narrow) {
  for (int i = 0; i < known->count; i++)
    if (known->value[i].narrow.ptr == narrow.ptr) return &known->value[i];
  return NULL;
}

/* One vector of `count` vectors of as many lanes each, of which there are enough to fill `width`; what is missing may
 * be anything. */
static ir_value joined(ir *b, const ir_value *v, int count, int width) {
  int lanes = ir_lanes(v[0]), half = width / 2;
  if (lanes == width) return v[0];
  int first = count < half / lanes ? count : half / lanes;
  ir_value low = joined(b, v, first, half), high = count > first ? joined(b, v + first, count - first, half) : low;
  int64_t mask[GATHER_MAX_LANES];
  for (int i = 0; i < width; i++) mask[i] = i < half || count > first ? i : -1;
  return ir_shuffle(b, low, high, width, mask);
}

/* Packs those of the values that are not yet, as they come: vectors of one term ask for the same ones. */
static void pack(ir *b, packing *known, const ir_value *narrow, int count, int width) {
  int lanes = ir_lanes(narrow[0]), fit = width / lanes;
  ir_value fresh[GATHER_MAX_SOURCES];
  int n = 0;
  for (int i = 0; i < count; i++)
    if (ir_lanes(narrow[i]) == lanes && !find_packed(known, narrow[i])) fresh[n++] = narrow[i];
  for (int begin = 0; begin < n; begin += fit) {
    int some = n - begin < fit ? n - begin : fit;
    ir_value whole = joined(b, fresh + begin, some, width);
    for (int i = 0; i < some; i++) known->value[known->count++] = (packed_value){fresh[begin + i], whole, i * lanes};
  }
}

/* The request for packed values: more than two narrow ones take fewer shuffles so. */
static gather_request of_packed(ir *b, packing *known, const gather_request *g) {
  ir_value narrow[GATHER_MAX_SOURCES];
  int count = 0;
  for (int i = 0; i < g->count; i++)
    if (ir_lanes(g->vectors[i]) < g->width) narrow[count++] = g->vectors[i];
  if (count <= 2) return *g;
  pack(b, known, narrow, count, g->width);
  gather_request packed = {.width = g->width};
  for (int i = 0; i < g->width; i++) {
    packed.from[i] = g->from[i];
    if (g->from[i] < 0) continue;
    const packed_value *p = find_packed(known, g->vectors[g->from[i]]);
    packed.from[i] = emit_gather_source(&packed, p ? p->whole : g->vectors[g->from[i]]);
    packed.lane[i] = g->lane[i] + (p ? p->offset : 0);
  }
  return packed;
}

static ir_value coefficient_vector(ir *b, const plan *p, const plan_tile *t, chunk_emitter *emitters, packing *known,
                                   int term, int start) {
  gather_request g = {.width = t->width};
  for (int i = 0; i < t->width; i++) {
    const expr *x = plan_coefficient(p, term, start + i);
    g.from[i] = -1;
    if (!x || expr_is_fixed_for_heads(x) || plan_is_identity(p, start + i)) continue;
    int chunk = chunk_of(t, p->block_of[start + i]);
    g.from[i] = emit_gather_source(&g, emit_expr_f32(&emitters[chunk].walker, x));
    g.lane[i] = p->block_of[start + i] - t->chunk_begin[chunk];
  }
  g = of_packed(b, known, &g);
  ir_value constants = {NULL};
  for (int i = 0; i < t->width; i++) {
    const expr *x = plan_coefficient(p, term, start + i);
    if (g.from[i] >= 0 || (!x && term > 0) || plan_is_identity(p, start + i)) continue;
    if (!constants.ptr) constants = constant_lanes(b, p, t, term, start);
    g.from[i] = emit_gather_source(&g, constants);
    g.lane[i] = i;
  }
  return emit_gather(b, &g);
}

void emit_coefficients(ir *b, arena *a, const plan *p, const plan_tile *t, chunk_emitter *emitters, bool looped,
                       ir_value out) {
  packing known = {arena_array(a, packed_value, p->n_terms * t->n_vectors * GATHER_MAX_SOURCES), 0};
  for (int k = 0; k < p->n_terms; k++)
    for (int j = 0; j < t->n_vectors; j++) {
      int slot = t->slot[k * t->n_vectors + j], chunk = t->vector_chunk[j];
      if (slot < 0 || (looped ? chunk != 0 : chunk >= 0 && chunk < t->n_looped)) continue;
      ir_value v = coefficient_vector(b, p, t, emitters, &known, k, t->start[j]);
      ir_store(b, v, ir_offset_const(b, out, (int64_t)slot * t->width * 4), 4, false);
    }
}

static void load_slots(row_emitter *r, ir_value from, int begin, int end) {
  for (int i = begin; i < end; i++) {
    ir_value at = ir_offset_const(r->b, from, (int64_t)i * r->t->width * 4);
    r->slots[i] = ir_load(r->b, ir_vector(r->b, r->t->width, r->b->f32), at, 4);
    if (r->cuts_nan) r->slots[i] = math_cut_nan(r->b, r->slots[i]);
  }
}

void emit_load_slots(row_emitter *r, ir_value coefficients) {
  r->slots = arena_array(r->memory, ir_value, r->t->n_slots + 1);
  r->coefficients = coefficients;
  load_slots(r, coefficients, r->by_chunks ? r->t->n_looped * r->t->looped_slots : 0, r->t->n_slots);
}

void emit_load_chunk(row_emitter *r, ir_value chunk) {
  ir *b = r->b;
  ir_value bytes = i64(b, (int64_t)r->t->looped_slots * r->t->width * 4);
  load_slots(r, ir_offset(b, r->coefficients, mul(b, chunk, bytes)), 0, r->t->looped_slots);
}

/* ---- rows ---- */

static ir_value at_channel(row_emitter *r, ir_value row, int channel, int type) {
  return ir_offset_const(r->b, row, (int64_t)channel * number_bytes(type));
}

/* What is done of both vectors of a pair is done with the first. */
static bool is_pair(const plan_tile *t, int vector) { return t->pair && t->pair[vector] == vector; }
static bool is_second(const plan_tile *t, int vector) {
  return t->pair && t->pair[vector] >= 0 && t->pair[vector] < vector;
}

static ir_value numbers_of(row_emitter *r, ir_value v, int count) {
  return ir_bitcast_lanes(r->b, v, ir_vector(r->b, count * r->t->width, r->b->i16));
}

static void load_channels(row_emitter *r, ir_value row, int j, row_vectors *x) {
  ir *b = r->b;
  int width = r->t->width, bytes = number_bytes(r->dtype);
  ir_value at = at_channel(r, row, r->t->start[j], r->dtype);
  if (is_pair(r->t, j)) {
    ir_value words = ir_load(b, ir_vector(b, width, b->i32), at, bytes);
    emit_unpack_pair(b, words, x->lanes + j);
    x->numbers[j] = numbers_of(r, words, 2);
  } else if (r->rounds) {
    x->numbers[j] = ir_load(b, ir_vector(b, width, b->i16), at, bytes);
    x->lanes[j] = emit_number_value(b, r->target->native, r->dtype, x->numbers[j]);
  } else {
    x->lanes[j] = emit_load_channels(b, r->target->native, r->dtype, width, at);
  }
}

/* A pair, or a vector that the processor rounds, in memory's order; else nothing. Channels that stay as they are, to
 * the bit, are those that were loaded: the processor's rounding would flush subnormal numbers. */
static ir_value rounded(row_emitter *r, const row_vectors *y, int j, bool nan_is_cut) {
  ir *b = r->b;
  bool stays[GATHER_MAX_LANES], some = false, pair = is_pair(r->t, j);
  int count = pair ? 2 : 1;
  for (int i = 0; i < count * r->t->width; i++)
    some |= stays[i] = plan_is_identity(r->p, plan_tile_channel(r->t, j + i % count, i / count));
  bool rounds = r->rounds && (!some || y->numbers[j].ptr);
  unsigned native = r->target->native | (rounds ? NUMBER_BIT(NUMBER_BF16) : 0);
  ir_value v = {NULL};
  if (pair) v = emit_pack_pair(b, native, r->out, y->lanes + j, nan_is_cut);
  else if (rounds) v = emit_number_bits(b, native, r->out, y->lanes[j]);
  if (!some || !rounds || !v.ptr) return v;
  return ir_select(b, ir_bools(b, count * r->t->width, stays), y->numbers[j], numbers_of(r, v, count));
}

static void store_channels(row_emitter *r, const row_vectors *y, ir_value row, int j) {
  ir *b = r->b;
  const ir_value *x = y->lanes + j;
  bool pair = is_pair(r->t, j);
  ir_value at = at_channel(r, row, r->t->start[j], r->out), stored = {NULL};
  if (r->out == r->dtype) stored = rounded(r, y, j, pair && y->nan_is_cut[j] && y->nan_is_cut[j + 1]);
  if (stored.ptr) {
    int bytes = number_bytes(r->out);
    ir_store(b, stored, at, r->streaming ? (pair ? 2 : 1) * r->t->width * bytes : bytes, r->streaming);
    return;
  }
  for (int i = 0; i <= pair; i++) {
    ir_value v = pair ? emit_in_order(b, x, i) : x[0];
    if (r->out != r->dtype) v = mul(b, v, ir_broadcast(b, ir_type(v), r->gain));
    emit_store_channels(b, r->target->native, r->out, v, at_channel(r, at, i * r->t->width, r->out), r->streaming);
  }
}

/* Numbers of a pair as a term takes them, in memory's order; false where some of them are not those of memory. */
static bool request_numbers(row_emitter *r, const row_vectors *x, int term, int first, gather_request *g) {
  const plan_tile *t = r->t;
  *g = (gather_request){.width = 2 * t->width};
  for (int i = 0; i < g->width; i++) {
    int channel = plan_tile_channel(t, first + i % 2, i / 2), source = plan_source(r->p, term, channel);
    g->from[i] = -1;
    if (source < 0 || plan_is_identity(r->p, channel)) continue;
    int lane, vector = plan_tile_vector(t, source, first, &lane);
    bool paired = t->pair[vector] >= 0;
    int of = paired ? t->pair[vector] : vector;
    if (!x->numbers[of].ptr || !x->kept[vector]) return false;
    g->from[i] = emit_gather_source(g, x->numbers[of]);
    g->lane[i] = paired ? 2 * lane + vector - of : lane;
  }
  return true;
}

/* A pair of a term by permutations of words, where these and two instructions that take a word apart are fewer than
 * permutations of lanes; else nothing. */
static bool permuted_as_words(row_emitter *r, const row_vectors *x, int term, int first, ir_value *y) {
  gather_request g;
  int moves = plan_moves(r->p, r->t, term, first) + plan_moves(r->p, r->t, term, first + 1);
  if (!r->rounds || moves < LEAST_OF_WORDS || !request_numbers(r, x, term, first, &g)) return false;
  if (moves < LEAST_OF_WORDS + g.count - 2) return false;
  ir *b = r->b;
  /* Without a fence LLVM makes a permutation, with a table, for the lower halves and another for the upper ones. */
  ir_value v = ir_bitcast_lanes(b, emit_gather(b, &g), ir_vector(b, r->t->width, b->f32));
  v = ir_intrinsic(b, "llvm.arithmetic.fence", ir_type(v), 1, &v);
  emit_unpack_pair(b, ir_cast(b, "arith.bitcast", v, b->i32), y);
  return true;
}

/* Null where no lane takes anything. skips: lanes that are known to stay as they are take nothing. */
static ir_value permuted(row_emitter *r, const plan *p, const row_vectors *x, int term, int j, bool skips) {
  const plan_tile *t = r->t;
  int first = t->pair ? t->pair[j] : -1;
  ir_value two[2];
  if (first >= 0 && skips && permuted_as_words(r, x, term, first, two)) return two[j - first];
  gather_request g = {.width = t->width};
  for (int i = 0; i < t->width; i++) {
    int channel = plan_tile_channel(t, j, i), source = plan_source(p, term, channel);
    g.from[i] = -1;
    if (source < 0 || (skips && plan_is_identity(p, channel))) continue;
    g.from[i] = emit_gather_source(&g, x->lanes[plan_tile_vector(t, source, j, &g.lane[i])]);
  }
  return g.count ? emit_gather(r->b, &g) : (ir_value){NULL};
}

ir_value emit_vector_permuted(row_emitter *r, const plan *p, const row_vectors *x, int term, int j) {
  /* What a channel is multiplied with: one whose own row of the matrix is the identity's may turn others (a boost along
   * a null vector, a translation). */
  return permuted(r, p, x, term, j, false);
}

/* Lanes that a term leaves alone although other terms change them: a coefficient of 0 there would
 * turn a neighbour's infinity into NaN, so the sum is kept by a mask. */
static bool mask_of_term(const row_emitter *r, int term, int j, bool *mask) {
  bool all = true;
  for (int i = 0; i < r->t->width; i++) {
    int channel = plan_tile_channel(r->t, j, i);
    mask[i] = plan_source(r->p, term, channel) >= 0 || plan_is_identity(r->p, channel);
    all = all && mask[i];
  }
  return all;
}

static ir_value coefficient_in_order(row_emitter *r, int term, int j) {
  int slot = r->t->slot[term * r->t->n_vectors + j];
  return slot >= 0 ? r->slots[slot] : constant_lanes(r->b, r->p, r->t, term, r->t->start[j]);
}

/* Coefficients of a pair are brought into its order, which LLVM does where they are loaded, outside of the loop over
 * rows. */
static ir_value coefficient(row_emitter *r, int term, int j) {
  int first = r->t->pair ? r->t->pair[j] : -1;
  if (first < 0) return coefficient_in_order(r, term, j);
  ir_value both[2];
  for (int i = 0; i < 2; i++) both[i] = coefficient_in_order(r, term, first + i);
  return emit_taking_turns(r->b, both, j - first);
}

/* Adds coefficients times channels to y (null: nothing), rounded as the description says. */
static ir_value emit_term(row_emitter *r, ir_value coefficients, ir_value channels, ir_value y) {
  ir *b = r->b;
  spec_products kind = r->p->spec->products;
  unsigned native = r->target->native | (r->rounds ? NUMBER_BIT(NUMBER_BF16) : 0);
  if (kind == PRODUCTS_FUSED) return emit_multiply_add(b, r->target, coefficients, channels, y);
  if (kind == PRODUCTS_ROUNDED) coefficients = emit_rounded(b, native, r->dtype, coefficients);
  bool was_exact = b->exact;
  b->exact = true; /* LLVM fuses none of them */
  ir_value product = mul(b, coefficients, channels);
  if (kind == PRODUCTS_ROUNDED) product = emit_rounded(b, native, r->dtype, product);
  if (y.ptr) product = add(b, y, product);
  b->exact = was_exact;
  return product;
}

/* y of vector j, coefficients multiplied with channels or added to them; a null value where every lane is the input's.
 */
static ir_value transformed(row_emitter *r, bool adds, const row_vectors *x, int j) {
  ir *b = r->b;
  const plan_tile *t = r->t;
  bool mask[GATHER_MAX_LANES];
  ir_value y = {NULL};
  for (int k = 0; k < r->p->n_terms; k++) {
    if (t->slot[k * t->n_vectors + j] == PLAN_ABSENT) continue;
    ir_value taken = permuted(r, r->p, x, k, j, true);
    if (!taken.ptr) continue; /* of a pair the other vector's channels alone take something */
    ir_value own = coefficient(r, k, j);
    ir_value sum = adds ? add(b, taken, own) : emit_term(r, own, taken, y);
    if (!mask_of_term(r, k, j, mask)) {
      ir_value rest = y.ptr ? y : ir_float(b, ir_type(sum), 0);
      sum = ir_select(b, ir_bools(b, t->width, mask), sum, rest);
    }
    y = sum;
  }
  bool some = false;
  for (int i = 0; i < t->width; i++) some |= mask[i] = plan_is_identity(r->p, plan_tile_channel(t, j, i));
  return y.ptr && some ? ir_select(b, ir_bools(b, t->width, mask), x->lanes[j], y) : y;
}

ir_value emit_normalised(ir *b, ir_value x, ir_value factor, ir_value weights) {
  x = mul(b, x, ir_broadcast(b, ir_type(x), factor));
  return mul(b, x, weights);
}

static void normalise(row_emitter *r, int j, ir_value *x) {
  bool pair = is_pair(r->t, j);
  ir_value weights[2];
  for (int i = 0; i <= pair; i++)
    weights[i] = ir_load(r->b, ir_type(x[0]), ir_offset_const(r->b, r->weights, (int64_t)r->t->start[j + i] * 4), 4);
  for (int i = 0; i <= pair; i++) {
    ir_value own = pair ? emit_taking_turns(r->b, weights, i) : weights[0];
    x[i] = emit_normalised(r->b, x[i], r->factor, own);
  }
}

row_vectors emit_vectors_new(row_emitter *r) {
  int count = r->t->n_vectors;
  return (row_vectors){arena_array(r->memory, ir_value, count), arena_array(r->memory, ir_value, count),
                       arena_array(r->memory, bool, count), arena_array(r->memory, bool, count)};
}

/* Whether all that a vector's lanes can be is what arithmetic made of loaded channels and of coefficients. */
static bool is_made_of_loaded(const row_emitter *r, int group, const row_vectors *x, int j) {
  bool made = r->cuts_nan;
  for (int i = 0; i < r->t->n_vectors; i++) made = made && (r->t->group[i] != group || x->kept[i]);
  for (int i = 0; i < r->t->width; i++) made = made && !plan_is_identity(r->p, plan_tile_channel(r->t, j, i));
  return made;
}

row_vectors emit_vectors_load(row_emitter *r, int group, ir_value in) {
  row_vectors x = emit_vectors_new(r);
  for (int j = 0; j < r->t->n_vectors; j++) {
    if (r->t->group[j] != group) continue;
    x.kept[j] = !r->weights.ptr;
    if (is_second(r->t, j)) continue;
    load_channels(r, in, j, &x);
    if (!r->weights.ptr) continue;
    normalise(r, j, x.lanes + j);
    x.numbers[j] = (ir_value){NULL};
  }
  return x;
}

static row_vectors transformed_vectors(row_emitter *r, int group, bool adds, const row_vectors *x) {
  row_vectors y = emit_vectors_new(r);
  for (int j = 0; j < r->t->n_vectors; j++) {
    if (r->t->group[j] != group) continue;
    y.lanes[j] = transformed(r, adds, x, j);
    y.numbers[j] = x->numbers[j];
    y.nan_is_cut[j] = y.lanes[j].ptr && is_made_of_loaded(r, group, x, j);
    if (y.lanes[j].ptr) continue;
    y.lanes[j] = x->lanes[j];
    y.kept[j] = x->kept[j];
  }
  return y;
}

row_vectors emit_vectors_apply(row_emitter *r, int group, const row_vectors *x) {
  return transformed_vectors(r, group, false, x);
}

row_vectors emit_vectors_add(row_emitter *r, int group, const row_vectors *x) {
  return transformed_vectors(r, group, true, x);
}

/* A pair is stored where one of its vectors must be. */
static bool is_kept(const plan_tile *t, const row_vectors *y, int j) {
  return y->kept[j] && (!is_pair(t, j) || y->kept[j + 1]);
}

void emit_vectors_store(row_emitter *r, int group, const row_vectors *y, ir_value out, ir_value in_place) {
  const plan_tile *t = r->t;
  bool kept = false;
  for (int j = 0; j < t->n_vectors; j++) {
    if (t->group[j] != group || is_second(t, j)) continue;
    if (!is_kept(t, y, j)) store_channels(r, y, out, j);
    kept = kept || is_kept(t, y, j);
  }
  if (!kept) return;
  bool may_be_there = r->out == r->dtype; /* rows that are converted are not in place */
  ir_branch branch;
  /* Channels that pass through are moved only where out is elsewhere. */
  if (may_be_there) {
    branch = ir_if(r->b, in_place);
    ir_else(r->b, &branch);
  }
  for (int j = 0; j < t->n_vectors; j++)
    if (t->group[j] == group && !is_second(t, j) && is_kept(t, y, j)) store_channels(r, y, out, j);
  if (may_be_there) ir_end_if(r->b, (ir_branch){branch.outer, {NULL}});
}

/* ---- rows to come ---- */

prefetch_ahead emit_load_ahead(ir *b, ir_value loop) {
  return (prefetch_ahead){.nearest = ir_load(b, b->i64, ir_offset_const(b, loop, offsetof(pegen_loop, prefetch)), 8),
                          .second =
                              ir_load(b, b->i64, ir_offset_const(b, loop, offsetof(pegen_loop, prefetch_second)), 8)};
}

void emit_prefetch_lines(ir *b, ir_value at, int bytes, int level) {
  for (int line = 0; line < bytes; line += CACHE_LINE) ir_prefetch(b, ir_offset_const(b, at, line), level);
}

void emit_prefetch(ir *b, prefetch_ahead ahead, ir_value row, int bytes) {
  ir_value none = i64(b, 0);
  ir_branch nearest = ir_if(b, ir_compare_int(b, "ne", ahead.nearest, none));
  emit_prefetch_lines(b, ir_offset(b, row, ahead.nearest), bytes, 1);
  ir_else(b, &nearest);
  ir_branch second = ir_if(b, ir_compare_int(b, "ne", ahead.second, none));
  emit_prefetch_lines(b, ir_offset(b, row, ahead.second), bytes, 2);
  ir_end_if(b, second);
  ir_end_if(b, nearest);
}
