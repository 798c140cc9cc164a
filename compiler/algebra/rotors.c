/* algebra/rotors: see algebra/rotors.h. */
#include "algebra/rotors.h"

static const double PI = 3.14159265358979323846;

/* Below this a square counts as zero: its direction is 0/tiny. Far inside the range of float32, in pairs of which GPUs
 * compute. */
static const double TINY_SQUARE = 0x1p-100;

enum { HALVINGS = 3, ARC_TERMS = 12, SINE_TERMS = 12, SQUARINGS = 20, SQUARINGS_BETWEEN_SCALINGS = 4, MOST_ROWS = 4 };

static const expr *number(const rotors *r, double value) { return expr_const(r->pool, value); }

bool rotors_are_quaternions(const spec *s) {
  int n = clifford_dimensions(s->algebra);
  if (n < 2 || n > 3) return false;
  for (int i = 1; i < n; i++)
    if (clifford_square(s->algebra, i) != clifford_square(s->algebra, 0)) return false;
  return clifford_square(s->algebra, 0) != 0;
}

/* e_ij takes e_i to -s e_j and e_j to s e_i, s their square (algebra/block.c): e12 turns from e2 to e1 where it is +1.
 */
int rotors_direction(const spec *s, unsigned blade, int *sense) {
  int square = clifford_square(s->algebra, 0);
  *sense = blade == 5 ? square : -square;
  return blade == 3 ? 2 : blade == 5 ? 1 : 0;
}

/* ---- rotors of axes, exponentials and logarithms ---- */

static void find_turn(rotors *r, int axis) {
  const spec_bivector *b = &r->spec->generator[axis];
  for (int i = 0; i < 3; i++) r->turn[axis][i] = number(r, 0);
  for (int t = 0; t < b->count; t++) {
    int sense, i = rotors_direction(r->spec, b->blade[t], &sense);
    r->turn[axis][i] = expr_add(r->pool, r->turn[axis][i], expr_scaled(r->pool, b->coefficient[t], sense));
  }
}

static const expr *dot(const rotors *r, const expr *const *x, const expr *const *y) {
  const expr *sum = number(r, 0);
  for (int i = 0; i < 3; i++) sum = expr_add(r->pool, sum, expr_mul(r->pool, x[i], y[i]));
  return sum;
}

/* The one number that is not 0 of a vector, or -1. */
static int only_entry(const expr *const *v) {
  int only = -1, count = 0;
  for (int i = 0; i < 3; i++)
    if (!expr_is_const(v[i], 0)) only = i, count++;
  return count == 1 ? only : -1;
}

/* cos(pi x) (first 0) or sin(pi x) (first 1) up to one sign for both, that of whole half turns: their series, to 2^-52
 * of up to a quarter of a turn. EXPR_SINQ is not it: GPUs know sines to 2^-24 alone, and what is near a cut magnifies
 * that.
 */
static const expr *sine_of(const rotors *r, const expr *half_turns, int first) {
  expr_pool *pool = r->pool;
  double term[SINE_TERMS] = {first ? PI : 1};
  for (int k = 1; k < SINE_TERMS; k++) term[k] = -term[k - 1] * PI * PI / ((2 * k - 1 + first) * (2 * k + first));
  const expr *whole = expr_unary(pool, EXPR_FLOOR, expr_add(pool, half_turns, number(r, 0.5)));
  const expr *x = expr_sub(pool, half_turns, whole);
  const expr *sum = expr_polynomial(pool, expr_squared(pool, x), term, SINE_TERMS);
  return first ? expr_mul(pool, sum, x) : sum;
}

/* The turn by `angle` radians times the rotation vector v. */
static quaternion turned_by(const rotors *r, const expr *angle, const expr *const *v) {
  int only = only_entry(v);
  const expr *length = only >= 0 ? v[only] : NULL;
  if (!length) {
    const expr *square = dot(r, v, v);
    length = expr_unary(r->pool, EXPR_SQRT, expr_binary(r->pool, EXPR_MAX, square, number(r, TINY_SQUARE)));
  }
  const expr *turns =
      expr_scaled(r->pool, expr_mul(r->pool, angle, length), 0.5 / PI); /* half of the angle, in half turns */
  const expr *sine = sine_of(r, turns, 1);
  quaternion q = {sine_of(r, turns, 0), {NULL}};
  for (int i = 0; i < 3; i++) {
    if (only >= 0) q.v[i] = i == only ? sine : number(r, 0);
    else q.v[i] = expr_mul(r->pool, sine, expr_div(r->pool, v[i], length));
  }
  return q;
}

static quaternion exponential(const rotors *r, const quaternion *x) { return turned_by(r, number(r, 1), x->v); }

static quaternion inverse(const rotors *r, const quaternion *x) {
  quaternion q = {x->w, {NULL}};
  for (int i = 0; i < 3; i++) q.v[i] = expr_neg(r->pool, x->v[i]);
  return q;
}

/* atan(t)/t of t^2 up to tan(pi/16)^2 = 0.04: its next term is below 2^-56. */
static const expr *arc(const rotors *r, const expr *square) {
  const expr *sum = number(r, 0);
  for (int k = ARC_TERMS - 1; k >= 0; k--)
    sum = expr_add(r->pool, expr_mul(r->pool, sum, square), number(r, (k & 1 ? -1.0 : 1.0) / (2 * k + 1)));
  return sum;
}

static quaternion logarithm(const rotors *r, const quaternion *x) {
  expr_pool *pool = r->pool;
  const expr *is_other = expr_binary(pool, EXPR_LESS, x->w, number(r, 0));
  const expr *factor = expr_select(pool, is_other, number(r, -1), number(r, 1));
  const expr *w = expr_unary(pool, EXPR_ABS, x->w);
  for (int i = 0; i < HALVINGS; i++) { /* cos(h/2) = sqrt((1 + cos h)/2), sin(h/2) = sin(h) / (2 cos(h/2)) */
    w = expr_unary(pool, EXPR_SQRT, expr_add(pool, expr_scaled(r->pool, w, 0.5), number(r, 0.5)));
    factor = expr_div(pool, expr_scaled(r->pool, factor, 0.5), w);
  }
  const expr *v[3];
  for (int i = 0; i < 3; i++) v[i] = expr_mul(pool, x->v[i], factor);
  const expr *tangent = expr_div(pool, dot(r, v, v), expr_mul(pool, w, w));
  const expr *length = expr_scaled(r->pool, expr_div(pool, arc(r, tangent), w), 2 << HALVINGS);
  quaternion b = {number(r, 0), {NULL}};
  for (int i = 0; i < 3; i++) b.v[i] = expr_mul(pool, v[i], length);
  return b;
}

static quaternion summed(const rotors *r, const spec_rotor *node) {
  quaternion b = {number(r, 0), {number(r, 0), number(r, 0), number(r, 0)}};
  for (int k = 0; k < node->n_args; k++)
    for (int i = 0; i < 3; i++) {
      const expr *term = expr_mul(r->pool, r->value[node->arg[k]].v[i], node->factor[k]);
      b.v[i] = expr_add(r->pool, b.v[i], term);
    }
  return b;
}

/* ---- the chordal mean ---- */

/* A symmetric matrix of at most MOST_ROWS rows. */
typedef struct symmetric {
  int size;
  const expr *entry[MOST_ROWS][MOST_ROWS];
} symmetric;

static const expr *component(const quaternion *q, int i) { return i ? q->v[i - 1] : q->w; }

static const expr *inner(const rotors *r, const quaternion *x, const quaternion *y) {
  const expr *product = expr_mul(r->pool, x->w, y->w);
  return expr_add(r->pool, product, dot(r, x->v, y->v));
}

static void set(symmetric *m, int i, int j, const expr *x) { m->entry[i][j] = m->entry[j][i] = x; }

/* Gram's matrix of vectors. */
static symmetric gram(const rotors *r, const quaternion *vector, int count) {
  symmetric m = {count, {{NULL}}};
  for (int i = 0; i < count; i++)
    for (int j = i; j < count; j++) set(&m, i, j, inner(r, &vector[i], &vector[j]));
  return m;
}

/* The sum of their products with themselves, of the components place[size]. */
static symmetric outer(const rotors *r, const quaternion *vector, int count, const int *place, int size) {
  symmetric m = {size, {{NULL}}};
  for (int i = 0; i < size; i++)
    for (int j = i; j < size; j++) {
      const expr *sum = number(r, 0);
      for (int k = 0; k < count; k++) {
        const expr *term = expr_mul(r->pool, component(&vector[k], place[i]), component(&vector[k], place[j]));
        sum = expr_add(r->pool, sum, term);
      }
      set(&m, i, j, sum);
    }
  return m;
}

static symmetric squared(const rotors *r, const symmetric *m) {
  symmetric s = {m->size, {{NULL}}};
  for (int i = 0; i < m->size; i++)
    for (int j = i; j < m->size; j++) {
      const expr *sum = expr_mul(r->pool, m->entry[i][0], m->entry[0][j]);
      for (int k = 1; k < m->size; k++) sum = expr_add(r->pool, sum, expr_mul(r->pool, m->entry[i][k], m->entry[k][j]));
      set(&s, i, j, sum);
    }
  return s;
}

/* A number is a factor of its own in products, and 2^20-th powers of it would be one: where there is one, a quotient.
 */
static const expr *share_of(const rotors *r, const expr *x, const expr *whole, const expr *share) {
  bool has_number = x->op == EXPR_MUL && expr_is_fixed(x->arg[1]);
  return has_number ? expr_div(r->pool, x, whole) : expr_mul(r->pool, x, share);
}

/* Divided by its trace. */
static symmetric rescaled(const rotors *r, const symmetric *m) {
  const expr *trace = m->entry[0][0];
  for (int i = 1; i < m->size; i++) trace = expr_add(r->pool, trace, m->entry[i][i]);
  trace = expr_binary(r->pool, EXPR_MAX, trace, number(r, TINY_SQUARE));
  const expr *share = expr_div(r->pool, number(r, 1), trace);
  symmetric s = {m->size, {{NULL}}};
  for (int i = 0; i < m->size; i++)
    for (int j = i; j < m->size; j++) set(&s, i, j, share_of(r, m->entry[i][j], trace, share));
  return s;
}

/* The column with the largest diagonal entry, the first of equals: of a projection the longest. */
static void longest_column(const rotors *r, const symmetric *m, const expr **out) {
  const expr *largest = m->entry[0][0];
  for (int i = 0; i < m->size; i++) out[i] = m->entry[i][0];
  for (int j = 1; j < m->size; j++) {
    const expr *is_longer = expr_binary(r->pool, EXPR_LESS, largest, m->entry[j][j]);
    for (int i = 0; i < m->size; i++) out[i] = expr_select(r->pool, is_longer, m->entry[i][j], out[i]);
    largest = expr_binary(r->pool, EXPR_MAX, largest, m->entry[j][j]);
  }
}

/* The eigenvector of two rows is (h + d, b) or (b, d - h), whichever adds numbers of one sign; h half of the difference
 * on the diagonal, d of the eigenvalues. Where those are equal the first. */
static void dominant_of_two(const rotors *r, const symmetric *m, const expr **out) {
  expr_pool *pool = r->pool;
  const expr *h = expr_scaled(r->pool, expr_sub(pool, m->entry[0][0], m->entry[1][1]), 0.5), *b = m->entry[0][1];
  const expr *square = expr_add(pool, expr_mul(pool, h, h), expr_mul(pool, b, b));
  const expr *d = expr_unary(pool, EXPR_SQRT, expr_binary(pool, EXPR_MAX, square, number(r, 0x1p-80)));
  const expr *is_second = expr_binary(pool, EXPR_LESS, h, number(r, 0));
  out[0] = expr_select(pool, is_second, b, expr_add(pool, d, h));
  out[1] = expr_select(pool, is_second, expr_sub(pool, d, h), b);
}

/* An eigenvector of the largest eigenvalue of a matrix whose trace is 1 to 8; of some length. */
static void dominant(const rotors *r, symmetric m, const expr **out) {
  if (m.size == 2) {
    dominant_of_two(r, &m, out);
    return;
  }
  for (int i = 1; i <= SQUARINGS; i++) {
    m = squared(r, &m);
    if (i % SQUARINGS_BETWEEN_SCALINGS == 0) m = rescaled(r, &m);
  }
  longest_column(r, &m, out);
}

/* x scaled to length 1; the identity where x is 0. */
static quaternion normalized(const rotors *r, const quaternion *x) {
  expr_pool *pool = r->pool;
  const double least = 0x1p-110; /* of an eigenvector's square, where there is a weight */
  const expr *square = inner(r, x, x),
             *length = expr_unary(pool, EXPR_SQRT, expr_binary(pool, EXPR_MAX, square, number(r, least)));
  const expr *share = expr_div(pool, number(r, 1), length);
  const expr *is_none = expr_binary(pool, EXPR_LESS, square, number(r, least));
  quaternion q = {expr_select(pool, is_none, number(r, 1), expr_mul(pool, x->w, share)), {NULL}};
  for (int i = 0; i < 3; i++) q.v[i] = expr_mul(pool, x->v[i], share);
  return q;
}

/* sqrt(s_a) q_a, or where all shares are equal q_a. */
static void weigh(const rotors *r, const spec_rotor *node, quaternion *vector) {
  bool is_even = expr_is_fixed(node->factor[0]);
  for (int k = 1; k < node->n_args; k++) is_even = is_even && node->factor[k] == node->factor[0];
  for (int k = 0; k < node->n_args; k++) {
    vector[k] = r->value[node->arg[k]];
    if (is_even) continue;
    const expr *share = expr_binary(r->pool, EXPR_MAX, node->factor[k], number(r, 0));
    const expr *root = expr_unary(r->pool, EXPR_SQRT, share);
    vector[k].w = expr_mul(r->pool, vector[k].w, root);
    for (int i = 0; i < 3; i++) vector[k].v[i] = expr_mul(r->pool, vector[k].v[i], root);
  }
}

static quaternion chordal(const rotors *r, const spec_rotor *node) {
  int plane[] = {0, 3}, space[] = {0, 1, 2, 3}, count = node->n_args;
  bool is_plane = clifford_dimensions(r->spec->algebra) == 2;
  quaternion vector[SPEC_MAX_ARGUMENTS], mean = {number(r, 0), {number(r, 0), number(r, 0), number(r, 0)}};
  const expr *c[MOST_ROWS];
  if (count == 1) return r->value[node->arg[0]];
  weigh(r, node, vector);
  if (is_plane || count >= MOST_ROWS) {
    dominant(r, outer(r, vector, count, is_plane ? plane : space, is_plane ? 2 : MOST_ROWS), c);
    mean.w = c[0];
    for (int i = is_plane ? 2 : 0; i < 3; i++) mean.v[i] = c[is_plane ? 1 : i + 1];
    return normalized(r, &mean);
  }
  dominant(r, gram(r, vector, count), c);
  for (int k = 0; k < count; k++) {
    mean.w = expr_add(r->pool, mean.w, expr_mul(r->pool, vector[k].w, c[k]));
    for (int i = 0; i < 3; i++) mean.v[i] = expr_add(r->pool, mean.v[i], expr_mul(r->pool, vector[k].v[i], c[k]));
  }
  return normalized(r, &mean);
}

/* ---- the function ---- */

static quaternion value_of(const rotors *r, const spec_rotor *node) {
  const quaternion *x = &r->value[node->arg[0]], *y = &r->value[node->arg[1]];
  switch (node->op) {
  case ROTOR_AXIS: return turned_by(r, r->spec->angle[node->axis], r->turn[node->axis]);
  case ROTOR_PRODUCT: return quaternion_product(r->pool, x, y);
  case ROTOR_INVERSE: return inverse(r, x);
  case ROTOR_CHORDAL: return chordal(r, node);
  case ROTOR_LOG: return logarithm(r, x);
  case ROTOR_SUM: return summed(r, node);
  default: return exponential(r, x);
  }
}

rotors rotors_build(arena *a, const spec *s) {
  rotors r = {.spec = s, .pool = s->pool};
  r.value = arena_array(a, quaternion, s->function->count);
  for (int axis = 0; axis < s->n_axes; axis++) find_turn(&r, axis);
  for (int i = 0; i < s->function->count; i++) r.value[i] = value_of(&r, &s->function->node[i]);
  return r;
}
