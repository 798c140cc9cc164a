/* algebra/block: closed forms of exp, combine rules; see algebra/block.h.
 *
 * Angles are carried in quarter turns: the factor 2/pi is folded into the frequencies
 * at compile time, so that reduction of a phase is a subtraction of the nearest integer,
 * exact in float64. Everything that feeds a phase stays float64; sines, cosines and unit
 * directions are rounded to float32 once and combined there.
 */
#include "algebra/block.h"

#include "algebra/entire.h"
#include "algebra/five.h"
#include "algebra/quaternion.h"
#include "algebra/rotors.h"
#include "algebra/split.h"
#include "base/diag.h"
#include "spec/size.h"

#include <math.h>

static const double QUARTER_TURNS_PER_RADIAN = 0.63661977236758134308;
static const double RADIANS_PER_QUARTER_TURN = 1.57079632679489661923;

/* Below this a squared norm counts as zero: its direction is then 0/tiny = 0 and its rotation the identity. */
static const double TINY_SQUARE = 0x1p-100;

/* A rotor exp(angle/2 B) with angle in quarter turns. */
typedef struct factor {
  const expr *angle;
  spec_bivector plane;
} factor;

typedef struct builder {
  arena *memory;
  expr_pool *pool;
  const spec *spec;
  spec_algebra algebra;
  int n;
  bool wide;  /* several rotations are multiplied: entries stay float64 until the product is done */
  bool exact; /* float64 polynomials: asked for, or so many rotations that errors of float32 sines and cosines would add
                 up */
} builder;

static bool is_scaled_position(const expr *x) {
  if (x->op == EXPR_ADD || x->op == EXPR_SUB) return is_scaled_position(x->arg[0]) && is_scaled_position(x->arg[1]);
  if (x->op == EXPR_NEG) return is_scaled_position(x->arg[0]);
  return x->op == EXPR_MUL && x->arg[0]->op == EXPR_POSITION && expr_is_fixed(x->arg[1]);
}

/* x times a constant, taken into sums of positions times frequencies, where it meets the frequencies and costs
 * nothing. Not into other sums: r - 3 floor(r/3) is exact, the difference of its scaled terms is not. */
static const expr *scaled(expr_pool *pool, const expr *x, double c) {
  if (!is_scaled_position(x)) return expr_mul(pool, x, expr_const(pool, c));
  if (x->op == EXPR_ADD || x->op == EXPR_SUB)
    return expr_binary(pool, x->op, scaled(pool, x->arg[0], c), scaled(pool, x->arg[1], c));
  if (x->op == EXPR_NEG) return expr_neg(pool, scaled(pool, x->arg[0], c));
  return expr_mul(pool, x, expr_const(pool, c));
}

/* ---- exp on vectors ---- */

static const expr *narrow(expr_pool *pool, const expr *x) { return expr_unary(pool, EXPR_NARROW, x); }
static const expr *constant(const builder *b, double value) { return expr_const(b->pool, value); }

/* A sine or cosine: its float32 polynomial, whose error a product of rotations can carry, in the
 * type that the entries are computed in. */
static const expr *turned(const builder *b, expr_op op, const expr *phi) {
  if (b->exact) return expr_unary(b->pool, op, phi);
  const expr *x = narrow(b->pool, expr_unary(b->pool, op, phi));
  return b->wide ? expr_unary(b->pool, EXPR_WIDEN, x) : x;
}

static const expr *entry_type(const builder *b, const expr *x) { return b->wide ? x : narrow(b->pool, x); }

static expr_matrix bivector_action(const builder *b, const spec_bivector *plane) {
  return clifford_bivector_action(b->memory, b->pool, b->algebra, plane);
}

/* I + s M + c M^2. */
static expr_matrix cubic_exp(const builder *b, expr_matrix m, const expr *s, const expr *c) {
  expr_matrix square = expr_matrix_product(b->memory, b->pool, m, m);
  expr_matrix v = expr_matrix_identity(b->memory, b->pool, b->n);
  for (int i = 0; i < b->n * b->n; i++) {
    const expr *odd = expr_mul(b->pool, s, m.entry[i]), *even = expr_mul(b->pool, c, square.entry[i]);
    v.entry[i] = expr_add(b->pool, expr_add(b->pool, v.entry[i], even), odd);
  }
  return v;
}

/* One basis plane, turned by phi quarter turns: circular, parabolic or hyperbolic by e_ij^2. */
static expr_matrix exp_basis_plane(const builder *b, unsigned blade, const expr *phi) {
  expr_pool *pool = b->pool;
  int i = __builtin_ctz(blade), j = 31 - __builtin_clz(blade), n = b->n;
  int si = clifford_square(b->algebra, i), sj = clifford_square(b->algebra, j);
  const expr *c, *s, *radians = scaled(pool, phi, RADIANS_PER_QUARTER_TURN);
  if (si * sj > 0) {
    c = turned(b, EXPR_COSQ, phi);
    s = turned(b, EXPR_SINQ, phi);
  } else if (si * sj < 0) {
    const expr *grow = expr_unary(pool, EXPR_EXP, radians);
    const expr *decay = expr_unary(pool, EXPR_EXP, expr_neg(pool, radians));
    const expr *square = expr_mul(pool, radians, radians);
    const expr *series = expr_mul(
        pool, radians,
        expr_add(pool, constant(b, 1),
                 expr_mul(pool, square, expr_add(pool, constant(b, 1.0 / 6), scaled(pool, square, 1.0 / 120)))));
    c = entry_type(b, scaled(pool, expr_add(pool, grow, decay), 0.5));
    /* sinh by subtraction loses digits near 0; the series' error there is square^3/5040. */
    s = entry_type(b, expr_select(pool, expr_binary(pool, EXPR_LESS, square, constant(b, 1e-3)), series,
                                  scaled(pool, expr_sub(pool, grow, decay), 0.5)));
  } else {
    c = constant(b, 1);
    s = entry_type(b, radians);
  }
  expr_matrix v = expr_matrix_identity(b->memory, pool, n);
  v.entry[i * n + i] = v.entry[j * n + j] = c;
  v.entry[j * n + i] = expr_mul(pool, s, constant(b, -si));
  v.entry[i * n + j] = expr_mul(pool, s, constant(b, sj));
  return v;
}

/* Squared norm of a bivector with all basis vectors' squares positive. */
static const expr *euclidean_square(const builder *b, const spec_bivector *plane) {
  const expr *sum = constant(b, 0);
  for (int t = 0; t < plane->count; t++)
    sum = expr_add(b->pool, sum, expr_mul(b->pool, plane->coefficient[t], plane->coefficient[t]));
  return sum;
}

static bool is_positive(const builder *b, const expr *k) {
  if (k->op == EXPR_CONST) return k->value > 0;
  if (k->op != EXPR_TABLE) return false;
  for (int i = 0; i < k->n_heads * b->spec->n_blocks; i++)
    if (!(k->table[i] > 0)) return false;
  return true;
}

/* The direction and length of a bivector, lengths below a tiny one counting as that. Where the square of the
 * length is x K with positive constants K, K is taken out of both: if all blocks turn about one axis, as they do
 * when every axis has the same frequencies, root and division are done once a token. */
static const expr *normalize(const builder *b, spec_bivector *plane) {
  expr_pool *pool = b->pool;
  const expr *square = euclidean_square(b, plane), *scale = constant(b, 1);
  if (expr_is_const(square, 1)) return square;
  if (square->op == EXPR_MUL && is_positive(b, square->arg[1])) {
    scale = expr_unary(pool, EXPR_SQRT, square->arg[1]);
    square = square->arg[0];
  }
  const expr *length = expr_unary(pool, EXPR_SQRT, expr_binary(pool, EXPR_MAX, square, constant(b, TINY_SQUARE)));
  const expr *inverse = expr_div(pool, constant(b, 1), length);
  for (int t = 0; t < plane->count; t++) {
    const expr *x = plane->coefficient[t], *k = constant(b, 1);
    if (x->op == EXPR_MUL && expr_is_fixed(x->arg[1])) {
      k = x->arg[1];
      x = x->arg[0];
    }
    plane->coefficient[t] = expr_mul(pool, expr_mul(pool, x, inverse), expr_div(pool, k, scale));
  }
  return expr_mul(pool, length, scale);
}

/* I + U^2 for a unit plane U: the projection on what the plane's rotation leaves alone. In three
 * dimensions it is u u^T for the axis u dual to the plane, products instead of differences,
 * which keeps the digits of entries near 0. */
static const expr *projection(const builder *b, expr_matrix unit, expr_matrix square, int i, int j) {
  if (b->n != 3) return expr_add(b->pool, constant(b, i == j), square.entry[i * b->n + j]);
  const expr *axis[3] = {unit.entry[2 * 3 + 1], unit.entry[0 * 3 + 2], unit.entry[1 * 3 + 0]};
  return expr_mul(b->pool, axis[i < j ? i : j], axis[i < j ? j : i]);
}

/* Whether a direction is computed for each token and block anew. */
static bool is_of_token_and_block(const spec_bivector *plane) {
  const unsigned of_token = DEPENDS_POSITION | DEPENDS_QUERY;
  for (int t = 0; t < plane->count; t++)
    if (plane->coefficient[t]->depends & of_token && plane->coefficient[t]->depends & DEPENDS_BLOCK) return true;
  return false;
}

/* A simple bivector whose basis vectors all square to +1 (Rodrigues): with the unit plane U and P = I + U^2,
 * exp(phi U) = P + sin(phi) U + cos(phi) (I - P), two multiply-adds an entry. P and U are
 * rounded once from float64 where that is cheap: prepared, or one for all blocks. A zero
 * bivector has U = 0 and sine 0, so it gives the identity without a branch. */
static expr_matrix exp_euclidean(const builder *b, const factor *f) {
  expr_pool *pool = b->pool;
  spec_bivector unit = f->plane;
  const expr *phi = expr_mul(pool, f->angle, normalize(b, &unit));
  const expr *s = turned(b, EXPR_SINQ, phi), *c = turned(b, EXPR_COSQ, phi);
  /* Elsewhere, in three dimensions, products of rounded directions are near enough and cheaper. */
  bool early = b->n == 3 && !b->wide && is_of_token_and_block(&unit);
  for (int t = 0; early && t < unit.count; t++) unit.coefficient[t] = narrow(pool, unit.coefficient[t]);
  expr_matrix u = bivector_action(b, &unit), square = expr_matrix_product(b->memory, pool, u, u);
  expr_matrix v = {b->n, arena_array(b->memory, const expr *, b->n * b->n)};
  for (int i = 0; i < b->n; i++)
    for (int j = 0; j < b->n; j++) {
      const expr *fixed = projection(b, u, square, i, j);
      const expr *turning = expr_sub(pool, constant(b, i == j), fixed);
      const expr *even = expr_add(pool, entry_type(b, fixed), expr_mul(pool, c, entry_type(b, turning)));
      v.entry[i * b->n + j] = expr_add(pool, even, expr_mul(pool, s, entry_type(b, u.entry[i * b->n + j])));
    }
  return v;
}

/* A simple bivector of any signature: the entire functions of beta = B^2,
 * S = sinh(sqrt beta)/sqrt beta and C = (cosh(sqrt beta) - 1)/beta, all in float64. */
static expr_matrix exp_any_signature(const builder *b, const factor *f) {
  expr_pool *pool = b->pool;
  spec_bivector whole = f->plane;
  const expr *beta = constant(b, 0);
  for (int t = 0; t < whole.count; t++) {
    int i = __builtin_ctz(whole.blade[t]), j = 31 - __builtin_clz(whole.blade[t]);
    whole.coefficient[t] = scaled(pool, expr_mul(pool, f->angle, whole.coefficient[t]), RADIANS_PER_QUARTER_TURN);
    const expr *square = expr_mul(pool, whole.coefficient[t], whole.coefficient[t]);
    beta = expr_add(pool, beta, scaled(pool, square, -clifford_square(b->algebra, i) * clifford_square(b->algebra, j)));
  }
  entire_functions g = entire_functions_of(pool, expr_neg(pool, beta), ENTIRE_EITHER, true);
  expr_matrix v = cubic_exp(b, bivector_action(b, &whole), g.sine, g.cosine);
  for (int i = 0; i < b->n * b->n; i++) v.entry[i] = entry_type(b, v.entry[i]);
  return v;
}

/* The closed form of a rotor; *clean is it without the planes whose coefficient is 0. */
static closed_form choose_form(const builder *b, const factor *f, factor *clean) {
  bool euclidean = true;
  *clean = (factor){f->angle, split_without_zeros(&f->plane)};
  unsigned vectors = split_vectors(&clean->plane);
  for (unsigned left = vectors; left; left &= left - 1)
    euclidean = euclidean && clifford_square(b->algebra, __builtin_ctz(left)) > 0;
  if (clean->plane.count == 0) return CLOSED_IDENTITY;
  if (clean->plane.count == 1) return CLOSED_BASIS_PLANE;
  if (!split_is_simple(b->spec, &clean->plane)) {
    if (clifford_grade(vectors) == FIVE) return CLOSED_FIVE;
    return (closed_form)(CLOSED_HALVES + (int)split_kind_of(b->algebra, vectors)); /* ORDER SPLIT_KIND */
  }
  return euclidean ? CLOSED_RODRIGUES : CLOSED_ANY_SIGNATURE;
}

/* Not a simple one. */
static expr_matrix exp_split(const builder *b, const factor *f) {
  bool is_five = clifford_grade(split_vectors(&f->plane)) == FIVE;
  expr_matrix v = is_five ? five_exponential(b->memory, b->spec, f->angle, &f->plane)
                          : split_exponential(b->memory, b->spec, f->angle, &f->plane);
  for (int i = 0; i < b->n * b->n; i++) v.entry[i] = entry_type(b, v.entry[i]);
  return v;
}

static expr_matrix exp_on_vectors(const builder *b, const factor *f, closed_form *form) {
  factor clean;
  *form = choose_form(b, f, &clean);
  switch (*form) {
  case CLOSED_BASIS_PLANE:
    return exp_basis_plane(b, clean.plane.blade[0], expr_mul(b->pool, f->angle, clean.plane.coefficient[0]));
  case CLOSED_RODRIGUES: return exp_euclidean(b, &clean);
  case CLOSED_ANY_SIGNATURE: return exp_any_signature(b, &clean);
  case CLOSED_HALVES:
  case CLOSED_BOOST_AND_TURN:
  case CLOSED_SCREW:
  case CLOSED_FIVE: return exp_split(b, &clean);
  default: return expr_matrix_identity(b->memory, b->pool, b->n);
  }
}

/* ---- combining the axes ---- */

static bool same_plane(const spec_bivector *x, const spec_bivector *y) {
  if (x->count != y->count) return false;
  for (int t = 0; t < x->count; t++)
    if (x->blade[t] != y->blade[t] || x->coefficient[t] != y->coefficient[t]) return false;
  return true;
}

/* The axes' bivectors added up into one rotor. Where all share one plane only the angles add,
 * and the plane's norm does not depend on the token. */
static factor summed(const builder *b, double share) {
  const spec *s = b->spec;
  expr_pool *pool = b->pool;
  bool one_plane = true;
  for (int a = 1; a < s->n_axes; a++) one_plane = one_plane && same_plane(&s->generator[0], &s->generator[a]);
  factor f = {constant(b, one_plane ? 0 : 1), {0}};
  if (one_plane) f.plane = s->generator[0];
  for (int a = 0; a < s->n_axes; a++) {
    const expr *angle = scaled(pool, spec_angle(s, a), share * QUARTER_TURNS_PER_RADIAN);
    if (one_plane) f.angle = expr_add(pool, f.angle, angle);
    for (int t = 0; !one_plane && t < s->generator[a].count; t++) {
      unsigned blade = s->generator[a].blade[t];
      int slot = 0;
      while (slot < f.plane.count && f.plane.blade[slot] != blade) slot++;
      if (slot == f.plane.count) {
        f.plane.blade[f.plane.count++] = blade;
        f.plane.coefficient[slot] = constant(b, 0);
      }
      const expr *term = expr_mul(pool, angle, s->generator[a].coefficient[t]);
      f.plane.coefficient[slot] = expr_add(pool, f.plane.coefficient[slot], term);
    }
  }
  return f;
}

/* Puts a rotation to the right of those there are; turns of one plane become one turn. */
static int append_one(const builder *b, factor *factors, int count, factor next) {
  if (next.plane.count == 1) { /* the coefficient of a basis plane is a factor of its angle */
    next.angle = expr_mul(b->pool, next.angle, next.plane.coefficient[0]);
    next.plane.coefficient[0] = constant(b, 1);
  }
  factor *last = &factors[count - 1];
  if (count == 0 || !same_plane(&last->plane, &next.plane)) {
    factors[count] = next;
    return count + 1;
  }
  last->angle = expr_add(b->pool, last->angle, next.angle);
  return count;
}

/* A rotor whose planes may be apart becomes a factor for each of them: of commuting ones, one after the other. */
static int append(const builder *b, factor *factors, int count, factor next) {
  spec_bivector group[SPLIT_MOST_GROUPS];
  int groups = split_groups(&next.plane, group);
  if (groups < 2 || split_is_simple(b->spec, &next.plane)) return append_one(b, factors, count, next);
  for (int g = 0; g < groups; g++) count = append_one(b, factors, count, (factor){next.angle, group[g]});
  return count;
}

/* Room for BLOCK_MOST_TURNS. */
static int combine(const builder *b, factor *factors) {
  const spec *s = b->spec;
  double turn = s->inverse ? -1 : 1;
  int count = 0, last = s->n_axes - 1;
  switch (s->combine) {
  case COMBINE_SUM: count = append(b, factors, count, summed(b, turn)); break;
  case COMBINE_MEAN: count = append(b, factors, count, summed(b, turn / s->n_axes)); break;
  case COMBINE_PRODUCT:
    for (int i = 0; i <= last; i++) {
      int a = s->order[s->inverse ? last - i : i];
      const expr *angle = scaled(b->pool, spec_angle(s, a), turn * QUARTER_TURNS_PER_RADIAN);
      count = append(b, factors, count, (factor){angle, s->generator[a]});
    }
    break;
  case COMBINE_SYMMETRIC: /* a palindrome: its own reverse */
    for (int i = -last; i <= last; i++) {
      int a = s->order[last - (i < 0 ? -i : i)];
      const expr *angle = scaled(b->pool, spec_angle(s, a), (i == 0 ? turn : turn / 2) * QUARTER_TURNS_PER_RADIAN);
      count = append(b, factors, count, (factor){angle, s->generator[a]});
    }
    break;
  case COMBINE_FUNCTION: diag_bug("algebra/block", "a function of rotors as a product");
  }
  return count;
}

/* Products of rotations round in float64: in float32 the roundings of two factors and of their product
 * can add up to more than 2^-22. Two turns of basis planes have one product an entry and may stay. */
static bool needs_wide(const factor *factors, int count) {
  bool basis_planes = true;
  for (int i = 0; i < count; i++) basis_planes = basis_planes && factors[i].plane.count <= 1;
  return count > 2 || (count == 2 && !basis_planes);
}

/* What multiplies every entry beside the amplitude, a float32; NULL: nothing. */
static const expr *gain_of(const spec *s) {
  const expr *gain = spec_gain(s);
  if (!gain) return NULL;
  if (s->inverse) gain = expr_div(s->pool, expr_const(s->pool, 1), gain);
  return expr_unary(s->pool, EXPR_NARROW, gain);
}

/* The matrix of the blades from v's action on vectors, rounded. */
static expr_matrix on_blades(arena *a, const spec *s, expr_matrix v) {
  int size = s->n_components;
  const expr *amplitude = expr_const(s->pool, s->inverse ? 1 / s->amplitude : s->amplitude), *gain = gain_of(s);
  expr_matrix m = {size, arena_array(a, const expr *, size *size)};
  for (int i = 0; i < size; i++)
    for (int j = 0; j < size; j++) {
      spec_component row = s->component[i], column = s->component[j];
      const expr *entry = expr_const(s->pool, 0);
      if (clifford_grade(row.blade) == clifford_grade(column.blade))
        entry = clifford_compound(s->pool, s->algebra, v, row.blade, column.blade);
      if (row.sign * column.sign < 0) entry = expr_neg(s->pool, entry);
      entry = expr_unary(s->pool, EXPR_NARROW, expr_mul(s->pool, entry, amplitude));
      m.entry[i * size + j] = gain ? expr_mul(s->pool, entry, gain) : entry;
    }
  return m;
}

/* Whether the matrix can be compiled; else after a diag_error. An entry is two operations of a row. */
static bool is_small(arena *a, const spec *s, const block_program *program) {
  int entries = s->n_components * s->n_components;
  int64_t size = expr_size_of_all(a, s->pool, (const expr *const *)program->matrix.entry, entries);
  for (int i = 0; i < entries; i++) size += expr_is_const(program->matrix.entry[i], 0) ? 0 : 2;
  if (size <= BLOCK_MOST_OPERATIONS && size * s->n_blocks <= BLOCK_MOST_OF_HEAD) return true;
  diag_error(s->file, s->line,
             "a block of '%s' takes %lld operations, %d at most, and the %d of a head %lld, %d at most; expected fewer "
             "axes, bivectors, blades or channels",
             s->name, (long long)size, BLOCK_MOST_OPERATIONS, s->n_blocks, (long long)(size * s->n_blocks),
             BLOCK_MOST_OF_HEAD);
  return false;
}

/* A function of the axes' rotors (algebra/rotors.h). */
static bool build_function(arena *a, const spec *s, block_program *out) {
  int n = clifford_dimensions(s->algebra);
  if (!rotors_are_quaternions(s)) {
    diag_error(
        s->file, s->line,
        "combine of '%s' is a function of rotors in Cl(%d,%d,%d); means, logarithms and powers of rotors are there "
        "for two and three dimensions of one sign, and elsewhere pe.sum, pe.mean, pe.product{...} and "
        "pe.symmetric{...}",
        s->name, s->algebra.p, s->algebra.q, s->algebra.r);
    return false;
  }
  rotors r = rotors_build(a, s);
  quaternion whole = r.value[s->function->count - 1];
  for (int i = 0; i < 3 && s->inverse; i++) whole.v[i] = expr_neg(s->pool, whole.v[i]);
  expr_matrix space = quaternion_rotation(a, s->pool, &whole), v = {n, arena_array(a, const expr *, n *n)};
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) v.entry[i * n + j] = space.entry[i * 3 + j];
  *out = (block_program){.spec = s, .matrix = on_blades(a, s, v), .n_turns = 1, .turn = {CLOSED_FUNCTION}};
  return is_small(a, s, out);
}

/* Whether a row (step 1) or a column (step: the size) of a matrix is the constant 0 everywhere. */
static bool is_zero(const spec *s, int first, int step) {
  for (int i = 0; i < s->n_components; i++)
    if (!expr_is_const(spec_entry(s, first + i * step), 0)) return false;
  return true;
}

/* A matrix that the description writes. Targets take what no entry touches for what passes through, so that a channel
 * that is cleared, or that none is made of, is refused. False after a diag_error. */
static bool build_entries(arena *a, const spec *s, block_program *out) {
  int size = s->n_components;
  for (int i = 0; i < size; i++) {
    bool is_row = is_zero(s, i * size, 1);
    if (!is_row && !is_zero(s, i, size)) continue;
    diag_error(s->file, s->line,
               "%s %d of the matrix of '%s' is 0 in all blocks: %s; expected a matrix that every channel is read and "
               "written by",
               is_row ? "row" : "column", i + 1, s->name,
               is_row ? "its channel would hold nothing but zeros" : "nothing would be made of its channel");
    return false;
  }
  expr_matrix m = {size, arena_array(a, const expr *, size *size)};
  for (int i = 0; i < size * size; i++) m.entry[i] = expr_unary(s->pool, EXPR_NARROW, spec_entry(s, i));
  *out = (block_program){.spec = s, .matrix = m, .n_turns = 1, .turn = {CLOSED_ENTRIES}};
  return true;
}

bool block_build(arena *a, const spec *s, block_program *out) {
  if (s->entries[0]) return build_entries(a, s, out);
  if (s->combine == COMBINE_FUNCTION) return build_function(a, s, out);
  builder b = {a, s->pool, s, s->algebra, clifford_dimensions(s->algebra), false, false};
  factor factors[BLOCK_MOST_TURNS];
  int count = combine(&b, factors);
  b.wide = s->exact || needs_wide(factors, count);
  b.exact = s->exact || count > 3;
  expr_matrix v = {0};
  for (int i = 0; i < count; i++) {
    expr_matrix e = exp_on_vectors(&b, &factors[i], &out->turn[i]);
    v = i ? expr_matrix_product(a, s->pool, v, e) : e;
  }
  out->spec = s;
  out->n_turns = count;
  out->matrix = on_blades(a, s, v);
  return is_small(a, s, out);
}

/* ---- products of turns in three dimensions as unit quaternions ---- */

/* A phase as what positions have part in, what operands alone do, and numbers. */
typedef struct phase_factors {
  const expr *moving, *prepared, *fixed;
} phase_factors;

static void take_factors(expr_pool *pool, const expr *x, phase_factors *f) {
  if (x->op == EXPR_MUL && !expr_is_fixed(x)) {
    take_factors(pool, x->arg[0], f);
    take_factors(pool, x->arg[1], f);
    return;
  }
  bool moves = x->depends & (DEPENDS_POSITION | DEPENDS_QUERY);
  const expr **part = expr_is_fixed(x) ? &f->fixed : moves ? &f->moving : &f->prepared;
  *part = *part ? expr_mul(pool, *part, x) : x;
}

/* c x with one multiplication a token. A quotient, for numbers leave products of others: they would gather again. */
static const expr *regrouped(expr_pool *pool, const expr *x, double c) {
  phase_factors f = {.fixed = expr_const(pool, c)};
  take_factors(pool, x, &f);
  const expr *one = expr_const(pool, 1);
  if (!f.prepared) return expr_mul(pool, f.moving ? f.moving : one, f.fixed);
  const expr *still = expr_div(pool, f.prepared, expr_div(pool, one, f.fixed));
  return f.moving ? expr_mul(pool, f.moving, still) : still;
}

/* A turn as the quaternion of either sign: cosine + sine axis. */
typedef struct half_turn {
  const expr *cosine, *sine, *axis[3];
} half_turn;

static half_turn half_turn_of(const builder *b, const factor *f) {
  expr_pool *pool = b->pool;
  factor clean;
  const expr *zero = constant(b, 0);
  if (choose_form(b, f, &clean) == CLOSED_IDENTITY) return (half_turn){constant(b, 1), zero, {zero, zero, zero}};
  const expr *quarters = expr_mul(pool, f->angle, normalize(b, &clean.plane));
  const expr *half = regrouped(pool, quarters, 0.25); /* of the angle, in half turns */
  const expr *cosine = expr_unary(pool, EXPR_COS_FOLDED, half), *sine = expr_unary(pool, EXPR_SIN_FOLDED, half);
  expr_matrix u = bivector_action(b, &clean.plane);
  return (half_turn){cosine, sine, {u.entry[2 * 3 + 1], u.entry[0 * 3 + 2], u.entry[1 * 3 + 0]}};
}

static quaternion unit_quaternion(const builder *b, const half_turn *t) {
  quaternion q = {t->cosine, {NULL}};
  for (int i = 0; i < 3; i++) q.v[i] = expr_mul(b->pool, t->sine, t->axis[i]);
  return q;
}

static bool has_still_axis(const half_turn *t) {
  unsigned depends = t->axis[0]->depends | t->axis[1]->depends | t->axis[2]->depends;
  return !(depends & (DEPENDS_POSITION | DEPENDS_QUERY));
}

/* Two turns whose axes' products are the same for all tokens: 14 operations a token in place of 22. */
static quaternion product_of_turns(const builder *b, const half_turn *x, const half_turn *y) {
  expr_pool *pool = b->pool;
  const expr *of_x = expr_mul(pool, x->sine, y->cosine), *of_y = expr_mul(pool, x->cosine, y->sine);
  const expr *both = expr_mul(pool, x->sine, y->sine), *zero = constant(b, 0);
  quaternion p = {zero, {x->axis[0], x->axis[1], x->axis[2]}}, q = {zero, {y->axis[0], y->axis[1], y->axis[2]}};
  quaternion of_axes = quaternion_product(pool, &p, &q), all = {expr_mul(pool, x->cosine, y->cosine), {NULL}};
  all.w = expr_add(pool, all.w, expr_mul(pool, both, of_axes.w));
  for (int i = 0; i < 3; i++) {
    const expr *sum = expr_add(pool, expr_mul(pool, of_x, x->axis[i]), expr_mul(pool, of_y, y->axis[i]));
    all.v[i] = expr_add(pool, sum, expr_mul(pool, both, of_axes.v[i]));
  }
  return all;
}

bool block_build_quaternions(arena *a, const spec *s, block_program *out) {
  builder b = {a, s->pool, s, s->algebra, clifford_dimensions(s->algebra), true, true};
  bool euclidean = b.n == 3 && !s->exact && s->combine != COMBINE_FUNCTION && !s->entries[0];
  for (int i = 0; i < b.n; i++) euclidean = euclidean && clifford_square(b.algebra, i) > 0;
  if (!euclidean) return false;
  factor factors[BLOCK_MOST_TURNS];
  int count = combine(&b, factors);
  if (!needs_wide(factors, count)) return false;
  half_turn first = half_turn_of(&b, &factors[0]);
  quaternion all = unit_quaternion(&b, &first);
  for (int i = 1; i < count; i++) {
    half_turn turn = half_turn_of(&b, &factors[i]);
    if (i == 1 && has_still_axis(&first) && has_still_axis(&turn)) {
      all = product_of_turns(&b, &first, &turn);
      continue;
    }
    quaternion next = unit_quaternion(&b, &turn);
    all = quaternion_product(s->pool, &all, &next);
  }
  *out = (block_program){.spec = s, .matrix = on_blades(a, s, quaternion_rotation(a, s->pool, &all)), .n_turns = count};
  for (int i = 0; i < count; i++) out->turn[i] = CLOSED_HALF_ANGLE;
  return true;
}

/* The dimension of the one vector of the basis that all planes of a bivector share; -1: none. */
static int shared_vector(const spec_bivector *plane) {
  unsigned shared = ~0u;
  for (int t = 0; t < plane->count; t++) shared &= plane->blade[t];
  return shared && !(shared & (shared - 1)) ? __builtin_ctz(shared) : -1;
}

bool block_mirror(arena *a, const spec *s, const expr **mirror, bool *flipped) {
  builder b = {a, s->pool, s, s->algebra, clifford_dimensions(s->algebra), s->exact, s->exact};
  if ((s->combine != COMBINE_SUM && s->combine != COMBINE_MEAN) || s->amplitude != 1 || s->gain[0] || s->exact)
    return false;
  for (int i = 0; i < s->n_components; i++)
    if (clifford_grade(s->component[i].blade) != 1) return false;
  double half = (s->inverse ? -0.5 : 0.5) / (s->combine == COMBINE_MEAN ? s->n_axes : 1);
  factor f = summed(&b, half), clean;
  if (choose_form(&b, &f, &clean) != CLOSED_RODRIGUES) return false;
  int e = shared_vector(&clean.plane);
  if (e < 0) return false;
  const expr *phi = expr_mul(b.pool, clean.angle, normalize(&b, &clean.plane)), *root = constant(&b, sqrt(2));
  const expr *sine = turned(&b, EXPR_SINQ, phi), *cosine = turned(&b, EXPR_COSQ, phi);
  expr_matrix u = bivector_action(&b, &clean.plane);
  for (int i = 0; i < s->n_components; i++) {
    int d = __builtin_ctz(s->component[i].blade);
    flipped[i] = d == e;
    const expr *direction = narrow(b.pool, expr_mul(b.pool, u.entry[d * b.n + e], root));
    mirror[i] = expr_mul(b.pool, d == e ? cosine : sine, d == e ? narrow(b.pool, root) : direction);
    if (s->component[i].sign < 0) mirror[i] = expr_neg(b.pool, mirror[i]);
  }
  return true;
}

const char *block_normal_form(arena *a, const block_program *program) {
  /* ORDER CLOSED_FORM */
  static const char *const forms[CLOSED_FORM_COUNT] = {"the identity",
                                                       "a sine and a cosine in a plane of the basis",
                                                       "Rodrigues' formula with a unit plane",
                                                       "entire functions of B^2 in any signature",
                                                       "two commuting halves with squares that are numbers",
                                                       "a boost and a turn that commute",
                                                       "a screw, entire functions of one square",
                                                       "entire functions of two squares",
                                                       "two unit quaternions, from the left and from the right",
                                                       "the unit quaternion of half the angle",
                                                       "the matrix as the description writes it",
                                                       "a function of unit quaternions"};
  const char *text = program->n_turns > 1 ? arena_printf(a, "%d rotations multiplied: ", program->n_turns) : "";
  for (int i = 0; i < program->n_turns; i++)
    text = arena_printf(a, "%s%s%s", text, i ? "; " : "", forms[program->turn[i]]);
  unsigned grades = 0;
  if (program->spec->dense) return text;
  for (int i = 0; i < program->spec->n_components; i++)
    grades |= 1u << clifford_grade(program->spec->component[i].blade);
  return grades == 1u << 1 ? text : arena_printf(a, "%s; other grades from the action on vectors", text);
}
