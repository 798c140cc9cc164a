/* verify/reference: the slow and sure evaluator; see verify/reference.h.
 *
 * In: a description, a position, operands. Out: the matrix of a block. A
 * multivector is all 2^n coefficients in long double and every product goes
 * through the Cayley table. exp is scaled by a power of two, summed as a Taylor
 * series and squared back: each squaring doubles the relative error, so a phase of
 * 2^24 radians (24 squarings) leaves about 2^-64 * 2^25 = 2^-39 of it, far
 * under the 2^-22 that kernels promise. Where the table says that the exponent's
 * square is a number, series and squarings are of numbers. The sandwich is
 * multiplied out on every basis blade. Nothing here knows of planes, quaternions or grades.
 */
#include "verify/reference.h"

#include "base/diag.h"
#include "verify/reference_map.h"
#include "verify/reference_rotors.h"

#include <math.h>
#include <stdlib.h>

typedef struct multivector {
  long double coefficient[SPEC_MAX_BLADES]; /* indexed by blade */
} multivector;

/* sign[a][b]: blade a times blade b is sign * blade (a ^ b); 0 where a null vector is squared. */
typedef struct cayley {
  int size; /* 2^n */
  float sign[SPEC_MAX_BLADES][SPEC_MAX_BLADES];
} cayley;

/* ---- the algebra ---- */

static int swaps_to_sort(unsigned a, unsigned b) {
  int swaps = 0;
  for (a >>= 1; a; a >>= 1) swaps += __builtin_popcount(a & b);
  return swaps;
}

int reference_sign(const spec_algebra *algebra, unsigned a, unsigned b) {
  int sign = swaps_to_sort(a, b) & 1 ? -1 : 1;
  for (unsigned common = a & b; common; common &= common - 1) {
    int i = __builtin_ctz(common);
    sign *= i < algebra->p ? 1 : i < algebra->p + algebra->q ? -1 : 0;
  }
  return sign;
}

/* The last one that was asked for is kept: block after block has the same. */
static const cayley *cayley_table(const spec_algebra *algebra) {
  static _Thread_local cayley table;
  static _Thread_local spec_algebra of;
  if (table.size && of.p == algebra->p && of.q == algebra->q && of.r == algebra->r) return &table;
  of = *algebra;
  table.size = 1 << (algebra->p + algebra->q + algebra->r);
  for (unsigned a = 0; a < (unsigned)table.size; a++)
    for (unsigned b = 0; b < (unsigned)table.size; b++) table.sign[a][b] = (float)reference_sign(algebra, a, b);
  return &table;
}

/* The product's coefficient of one blade. */
static long double coefficient_of(const cayley *table, const multivector *x, const multivector *y, unsigned blade) {
  long double sum = 0;
  for (unsigned a = 0; a < (unsigned)table->size; a++)
    if (x->coefficient[a] != 0) sum += table->sign[a][a ^ blade] * x->coefficient[a] * y->coefficient[a ^ blade];
  return sum;
}

/* product: neither x nor y. Each coefficient is summed in a register: storing a long double takes longest. */
static void multiply(const cayley *table, const multivector *x, const multivector *y, multivector *product) {
  int there[SPEC_MAX_BLADES], count = 0; /* rotors and bivectors have half of the blades, or fewer */
  for (int a = 0; a < table->size; a++)
    if (x->coefficient[a] != 0) there[count++] = a;
  for (int c = 0; c < table->size; c++) {
    long double sum = 0;
    for (int i = 0; i < count; i++) {
      int a = there[i];
      if (y->coefficient[a ^ c] != 0) sum += table->sign[a][a ^ c] * x->coefficient[a] * y->coefficient[a ^ c];
    }
    product->coefficient[c] = sum;
  }
}

/* The reverse: the factors of every blade in the opposite order. The reverse of exp(B), B a bivector, is exp(-B). */
static multivector reverse(const cayley *table, const multivector *x) {
  multivector reversed = *x;
  for (unsigned blade = 0; blade < (unsigned)table->size; blade++) {
    int grade = __builtin_popcount(blade);
    if (grade * (grade - 1) / 2 & 1) reversed.coefficient[blade] = -reversed.coefficient[blade];
  }
  return reversed;
}

/* sum = a + b x where x^2 is the number `square`: the series, and its squares, are of two numbers then. */
static multivector exponential_of_root(const cayley *table, const multivector *x, long double square, int squarings) {
  long double a = 1, b = 1, term = 1; /* of x / 2^squarings until the end */
  square = ldexpl(square, -2 * squarings);
  for (int k = 2; k <= 20 && fabsl(term) > 0x1p-81L; k += 2) {
    a += term *= square / (k * (k - 1));
    b += term / (k + 1);
  }
  for (int i = squarings; i > 0; i--) {
    long double twice = 2 * a * b;
    a = a * a + b * b * square;
    b = twice;
  }
  multivector sum = {{0}};
  b = ldexpl(b, -squarings);
  for (int i = 0; i < table->size; i++) sum.coefficient[i] = b * x->coefficient[i];
  sum.coefficient[0] += a;
  return sum;
}

static multivector exponential(const cayley *table, const multivector *x) {
  long double norm = 0; /* of the operator y -> xy in the sum norm: nothing is larger than this */
  for (int i = 0; i < table->size; i++) norm += fabsl(x->coefficient[i]);
  multivector sum = {{1}}, next;
  if (!isfinite(norm)) {
    for (int i = 0; i < table->size; i++) sum.coefficient[i] = NAN;
    return sum;
  }
  int squarings = 0;
  if (norm > 0.5L) {
    frexpl(norm, &squarings);
    squarings++; /* norm / 2^squarings is in [1/4, 1/2) */
  }
  multiply(table, x, x, &next);
  bool is_number = true;
  for (int i = 1; i < table->size && is_number; i++) is_number = next.coefficient[i] == 0;
  if (is_number) return exponential_of_root(table, x, next.coefficient[0], squarings);
  multivector scaled = {{0}}, term = {{1}};
  for (int i = 0; i < table->size; i++) scaled.coefficient[i] = ldexpl(x->coefficient[i], -squarings);
  /* 0.5^20 / 20! is below 2^-81. */
  long double size = norm;
  for (int k = 1; k <= 20 && size > 0x1p-81L; k++) {
    multiply(table, &term, &scaled, &next);
    size = 0;
    for (int i = 0; i < table->size; i++) {
      if ((term.coefficient[i] = next.coefficient[i]) == 0) continue;
      term.coefficient[i] /= k;
      sum.coefficient[i] += term.coefficient[i];
      size += fabsl(term.coefficient[i]);
    }
  }
  for (; squarings > 0; squarings--) {
    multiply(table, &sum, &sum, &next);
    sum = next;
  }
  return sum;
}

/* ---- the description ---- */

/* Adds factor * theta/2 B of an axis to the exponent, of q where q and k differ. */
static void add_generator(const spec *s, int axis, long double factor, const expr_environment *env,
                          multivector *exponent) {
  const spec_bivector *generator = &s->generator[axis];
  long double half_angle = factor * expr_eval_long(s->angle[axis], env) / (s->dual_axes >> axis & 1 ? -2 : 2);
  for (int i = 0; i < generator->count; i++)
    exponent->coefficient[generator->blade[i]] += half_angle * expr_eval_long(generator->coefficient[i], env);
}

static multivector axis_rotor(const spec *s, const cayley *table, int axis, long double factor,
                              const expr_environment *env) {
  multivector exponent = {{0}};
  add_generator(s, axis, factor, env, &exponent);
  return exponential(table, &exponent);
}

static multivector combined_rotor(const spec *s, const cayley *table, const expr_environment *env) {
  multivector rotor = {{1}}, next;
  switch (s->combine) {
  case COMBINE_SUM:
  case COMBINE_MEAN: {
    multivector exponent = {{0}};
    for (int axis = 0; axis < s->n_axes; axis++)
      add_generator(s, axis, s->combine == COMBINE_MEAN ? 1.0L / s->n_axes : 1, env, &exponent);
    return exponential(table, &exponent);
  }
  case COMBINE_PRODUCT:
    for (int i = 0; i < s->n_axes; i++) {
      multivector factor = axis_rotor(s, table, s->order[i], 1, env);
      multiply(table, &rotor, &factor, &next);
      rotor = next;
    }
    return rotor;
  case COMBINE_SYMMETRIC:
    /* From the middle outwards: the last axis whole, the others as half steps on both sides. */
    rotor = axis_rotor(s, table, s->order[s->n_axes - 1], 1, env);
    for (int i = s->n_axes - 2; i >= 0; i--) {
      multivector half = axis_rotor(s, table, s->order[i], 0.5L, env);
      multiply(table, &half, &rotor, &next);
      multiply(table, &next, &half, &rotor);
    }
    return rotor;
  case COMBINE_FUNCTION: break;
  }
  diag_bug("reference", "combine rule %d", (int)s->combine);
}

/* verify/reference_rotors.h */
static void function_block(const spec *s, const expr_environment *env, long double *matrix) {
  const expr *input[REFERENCE_ROTORS_MOST];
  long double value[REFERENCE_ROTORS_MOST];
  int count = reference_rotors_inputs(s, input);
  for (int i = 0; i < count; i++) value[i] = expr_eval_long(input[i], env);
  reference_rotors_block(s, value, 0, NULL, matrix);
}

long double reference_reach(const spec *s, const double *positions, const double *const *operands, int head,
                            int block) {
  const expr *input[REFERENCE_ROTORS_MOST];
  long double value[REFERENCE_ROTORS_MOST];
  expr_environment env = reference_environment(s, positions, operands, head, block);
  int count = reference_rotors_inputs(s, input);
  for (int i = 0; i < count; i++) value[i] = expr_eval_long(input[i], &env);
  return reference_rotors_reach(s, value, 0x1p-42L, 0x1p-48L);
}

long double reference_gain_of(const spec *s, const double *positions, const double *const *operands, int head,
                              int block) {
  if (!s->gain[0]) return 1;
  expr_environment env = reference_environment(s, positions, operands, head, block);
  long double gain = expr_eval_long(s->gain[0], &env);
  return s->inverse ? 1 / gain : gain;
}

void reference_block(const spec *s, const double *positions, const double *const *operands, int head, int block,
                     long double *matrix) {
  expr_environment env = reference_environment(s, positions, operands, head, block);
  if (s->dense) {
    reference_dense_block(s, &env, matrix);
    return;
  }
  if (s->gain[0]) {
    spec rotation = *s;
    rotation.gain[0] = rotation.gain[1] = NULL;
    reference_block(&rotation, positions, operands, head, block, matrix);
    long double gain = reference_gain_of(s, positions, operands, head, block);
    for (int i = 0; i < s->n_components * s->n_components; i++) matrix[i] *= gain;
    return;
  }
  if (s->entries[0]) {
    for (int i = 0; i < s->n_components * s->n_components; i++) matrix[i] = expr_eval_long(s->entries[0][i], &env);
    return;
  }
  if (s->function) {
    function_block(s, &env, matrix);
    return;
  }
  const cayley *table = cayley_table(&s->algebra);
  multivector left = combined_rotor(s, table, &env);
  multivector right = reverse(table, &left);
  if (s->inverse) {
    multivector swapped = left;
    left = right;
    right = swapped;
  }
  long double amplitude = s->inverse ? 1 / (long double)s->amplitude : (long double)s->amplitude;
  for (int j = 0; j < s->n_components; j++) {
    const spec_component *from = &s->component[j];
    multivector half;
    for (int a = 0; a < table->size; a++)
      half.coefficient[a ^ from->blade] = table->sign[a][from->blade] * from->sign * left.coefficient[a];
    for (int i = 0; i < s->n_components; i++)
      matrix[i * s->n_components + j] =
          amplitude * s->component[i].sign * coefficient_of(table, &half, &right, s->component[i].blade);
  }
}

/* to = C from, or C^T from. Not in place. */
static void change_basis(const spec *s, const double *const *operands, int head, bool transposed,
                         const long double *from, long double *to) {
  size_t n = (size_t)s->head_dim;
  long double *c = malloc(sizeof *c * n * n);
  if (!c) diag_bug("reference", "out of memory");
  reference_basis(s, operands, head, c);
  for (size_t i = 0; i < n; i++) {
    to[i] = 0;
    for (size_t j = 0; j < n; j++) to[i] += (transposed ? c[j * n + i] : c[i * n + j]) * from[j];
  }
  free(c);
}

/* Each part turns its own channels of the row, which no other part has. */
static void parts_of_row(const spec *s, const double *positions, const double *const *operands, int head,
                         const double *in, long double *out) {
  long double turned[SPEC_MAX_HEAD_DIM];
  double own[SPEC_MAX_AXES];
  for (int i = 0; i < s->n_parts; i++) {
    const spec_part *part = &s->part[i];
    reference_place_of_part(part, positions, own);
    reference_row(part->of, own, operands, head, in, turned);
    for (int c = part->first; c < part->first + part->count; c++) out[c] = turned[c];
  }
}

void reference_place_of_part(const spec_part *part, const double *positions, double *own) {
  for (int axis = 0; axis < part->of->n_axes; axis++) own[axis] = positions[part->axis[axis]];
}

void reference_row(const spec *s, const double *positions, const double *const *operands, int head, const double *in,
                   long double *out) {
  long double matrix[SPEC_MAX_BLOCK * SPEC_MAX_BLOCK], row[SPEC_MAX_HEAD_DIM], mapped[SPEC_MAX_BLOCK];
  for (int c = 0; c < s->head_dim; c++) out[c] = row[c] = in[c];
  if (s->n_parts) {
    parts_of_row(s, positions, operands, head, in, out);
    return;
  }
  if (s->basis && !s->inverse) {
    change_basis(s, operands, head, false, row, out);
    for (int c = 0; c < s->head_dim; c++) row[c] = out[c];
  }
  for (int block = 0; block < s->n_blocks; block++) {
    reference_block(s, positions, operands, head, block, matrix);
    for (int j = 0; j < s->n_components; j++) {
      int channel = s->channel[j * s->n_blocks + block];
      mapped[j] = s->pre ? reference_map(s, in[channel]).value : row[channel];
    }
    for (int i = 0; i < s->n_components; i++) {
      long double sum = 0;
      for (int j = 0; j < s->n_components; j++) sum += matrix[i * s->n_components + j] * mapped[j];
      out[s->channel[i * s->n_blocks + block]] = sum;
    }
  }
  if (s->basis && s->inverse) {
    for (int c = 0; c < s->head_dim; c++) row[c] = out[c];
    change_basis(s, operands, head, true, row, out);
  }
}

long double reference_sum(const spec *s, const double *positions, const double *const *operands, int head,
                          int channel) {
  expr_environment env = reference_environment(s, positions, operands, head, channel);
  long double value = expr_eval_long(s->additive->value, &env);
  return s->inverse ? -value : value;
}

long double reference_bias(const spec *s, const double *delta, const double *const *operands,
                           const double *const *inputs, int head) {
  long double sum = 0;
  for (int term = 0; term < s->polynomial->n_terms; term++) {
    expr_environment env = {
        .head = head, .block = term, .blocks = s->n_blocks, .positions = delta, .operands = operands, .inputs = inputs};
    sum += expr_eval_long(s->polynomial->value, &env);
  }
  return sum;
}

void reference_grid(const spec *s, int64_t token, double *positions) {
  int64_t cell = token - s->skip_tokens;
  for (int axis = s->n_axes - 1; axis >= 0; axis--) {
    positions[axis] = (double)(cell % s->grid[axis]);
    cell /= s->grid[axis];
  }
}

const double *reference_place(const spec *s, const double *values, int64_t token, double *room) {
  if (values) return values + token * s->n_axes;
  reference_grid(s, token, room);
  return room;
}
