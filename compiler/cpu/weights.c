/* cpu/weights: chunks of terms, and their sums; see cpu/weights.h. */
#include "cpu/weights.h"

#include "cpu/product.h"
#include "mlir/arith.h"

enum { MOST_LANES = 16 };

/* Adds a chunk of terms to the sums [n_weights]; counted: of its lanes, from the last backwards, so many are new. */
static void add_chunk(weight_emitter *e, const query_row *row, int begin, int width, ir_value shift, int counted,
                      ir_value *sums) {
  ir *b = e->b;
  const plan_widen *p = e->p;
  chunk_emitter x = chunk_emitter_create(b, e->memory, p->values, e->target, e->has_table, begin, width);
  x.shift = shift;
  x.prepared = row->prepared;
  x.input = row->input;
  x.input_dtype = e->input_dtype;
  bool mask[MOST_LANES];
  for (int i = 0; i < width; i++) mask[i] = i >= width - counted;
  for (int w = 0; w < p->p->n_weights; w++) {
    ir_value sum = sums[w];
    for (int k = p->first_product[w]; k < p->first_product[w + 1]; k++) {
      ir_value fixed = emit_expr_f32(&x.walker, p->fixed[k]);
      if (p->product_query[k] >= 0)
        sum = emit_multiply_add(b, e->target, emit_expr_f32(&x.walker, p->query[p->product_query[k]]), fixed, sum);
      else sum = sum.ptr ? add(b, sum, fixed) : fixed;
    }
    if (counted < width) {
      ir_value before = sums[w].ptr ? sums[w] : ir_float(b, ir_type(sum), 0);
      sum = ir_select(b, ir_bools(b, width, mask), sum, before);
    }
    sums[w] = sum;
  }
}

bool weights_in_order(const spec *s, const expr *leaf) {
  for (int i = 1; i < s->n_blocks; i++)
    if (leaf->offsets[i] != leaf->offsets[0] + i) return false;
  return true;
}

bool weights_are_regular(const spec *s, const expr *x) {
  if (x->op == EXPR_INPUT && (x->depends & DEPENDS_BLOCK) && !weights_in_order(s, x)) return false;
  for (int i = 0; i < expr_op_arity(x->op); i++)
    if (!weights_are_regular(s, x->arg[i])) return false;
  return true;
}

static bool is_loop(const plan_widen *p, int chunks) {
  for (int i = 0; i < p->n_queries; i++)
    if (!weights_are_regular(p->spec, p->query[i])) return false;
  return chunks > WEIGHTS_MOST_UNROLLED;
}

/* There are as many weights as monomials at most, POLYNOMIAL_MAX_MONOMIALS. */
static void loop_over_chunks(weight_emitter *e, const query_row *row, int width, int chunks, ir_value *sums) {
  ir *b = e->b;
  int n = e->p->p->n_weights;
  ir_value now[IR_MAX_RESULTS];
  for (int w = 0; w < n; w++)
    if (!sums[w].ptr) sums[w] = ir_float(b, ir_vector(b, width, b->f32), 0);
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, chunks), n, sums, now);
  add_chunk(e, row, 0, width, mul(b, loop.index, i64(b, width)), width, now);
  ir_end_for_with(b, loop, n, now, sums);
}

/* Lanes of a vector of terms; 0: one term, scalars. */
static int term_lanes(const weight_emitter *e) {
  int terms = e->p->spec->n_blocks, width = e->target->lanes;
  while (width > terms) width /= 2;
  return terms == 1 ? 0 : width;
}

/* ---- sums of lanes ---- */

enum { FOLDED = 4 }; /* vectors that become one */

/* A vector of segments, each of which is to be summed. */
typedef struct segments {
  ir_value lanes;
  int count;
} segments;

/* Two vectors become one with the segments of both, half as long: the halves of every segment are added. */
static segments fold_pair(ir *b, segments x, segments y) {
  int n = ir_lanes(x.lanes), length = n / x.count;
  int64_t low[MOST_LANES], high[MOST_LANES];
  for (int i = 0; i < n; i++) {
    int segment = i / (length / 2); /* of x, then of y */
    low[i] = (segment < x.count ? 0 : n) + segment % x.count * length + i % (length / 2);
    high[i] = low[i] + length / 2;
  }
  return (segments){add(b, ir_shuffle(b, x.lanes, y.lanes, n, low), ir_shuffle(b, x.lanes, y.lanes, n, high)),
                    2 * x.count};
}

/* Every lane of a segment becomes the segment's sum. */
static ir_value fold_within(ir *b, segments x) {
  int n = ir_lanes(x.lanes);
  int64_t other[MOST_LANES];
  for (int half = n / x.count / 2; half > 0; half /= 2) {
    for (int i = 0; i < n; i++) other[i] = i ^ half;
    x.lanes = add(b, x.lanes, ir_shuffle(b, x.lanes, x.lanes, n, other));
  }
  return x.lanes;
}

/* Up to four at a time, which share most of the additions. */
void emit_fold_sums(ir *b, ir_value *sums, int count) {
  for (int first = 0, few; first < count; first += few) {
    few = count - first < FOLDED ? count - first : FOLDED;
    while (few > ir_lanes(sums[first])) few /= 2;
    int last = first + few - 1;
    segments x = {sums[first], 1};
    if (few > 1) x = fold_pair(b, x, (segments){sums[first + 1], 1});
    if (few > 2) x = fold_pair(b, x, fold_pair(b, (segments){sums[first + 2], 1}, (segments){sums[last], 1}));
    ir_value folded = fold_within(b, x);
    for (int i = 0; i < few; i++) sums[first + i] = ir_extract(b, folded, i * ir_lanes(folded) / x.count);
  }
}

ir_value emit_lengthened(ir *b, ir_value x, int lanes) {
  int64_t mask[MOST_LANES];
  int given = ir_lanes(x);
  for (int i = 0; i < lanes; i++) mask[i] = i < given ? i : given;
  return given == lanes ? x : ir_shuffle(b, x, ir_float(b, ir_type(x), 0), lanes, mask);
}

/* The last terms are a shorter vector, which begins early where they do not fill it; the others are added to them. */
void emit_weights(weight_emitter *e, const query_row *row, ir_value *weight) {
  ir_value none = {NULL};
  int width = term_lanes(e), terms = e->p->spec->n_blocks, n = e->p->p->n_weights;
  for (int w = 0; w < n; w++) weight[w] = none;
  if (width == 0) {
    add_chunk(e, row, 0, 0, none, 0, weight);
    return;
  }
  int chunks = terms / width, rest = terms % width, short_width = width < 4 ? width : 4;
  while (short_width < rest) short_width *= 2;
  if (rest) add_chunk(e, row, terms - short_width, short_width, none, rest, weight);
  for (int w = 0; w < n && rest; w++) weight[w] = emit_lengthened(e->b, weight[w], width);
  if (is_loop(e->p, chunks)) loop_over_chunks(e, row, width, chunks, weight);
  else
    for (int i = 0; i < chunks; i++) add_chunk(e, row, i * width, width, none, width, weight);
  emit_fold_sums(e->b, weight, n);
}
