/* explain_blades: what is known of blocks that rotors turn.
 *
 * Proofs are about generators and phases as the description gives them: signs of the algebra,
 * commutators of bivectors, phases linear in the position. What they leave open is
 * measured with the long double reference, which multiplies Cayley tables and knows no normal form.
 */
#include "check.h"
#include "clifford.h"
#include "dense_vectors.h"
#include "explain.h"
#include "expr_facts.h"
#include "group.h"
#include "plan.h"
#include "reference.h"
#include "trial.h"

#include <math.h>
#include <string.h>

enum { MOST_ROTORS = 64, WORK = 2048 }; /* blocks that are looked at; rotors a measurement computes */
static const uint64_t SEED = 20260101;

typedef struct facts {
  arena *memory;
  const spec *spec;
  trial_operands operands;
  uint64_t random;
  bool orthogonal; /* every generator acts by a skew matrix */
  bool commute;    /* proved */
  bool affine, linear; /* every phase in the positions */
  property commuting;
} facts;

/* ---- words ---- */

static const char *blade_name(arena *a, unsigned blade) {
  if (!blade) return "1";
  const char *name = "e";
  for (int i = 0; i < SPEC_MAX_DIMENSIONS; i++)
    if (blade >> i & 1) name = arena_printf(a, "%s%d", name, i + 1);
  return name;
}

/* e31 for -e13: what a component is called where its sign is turned by swapping the last two digits. */
static const char *component_name(arena *a, const spec_component *c) {
  char *name = arena_strdup(a, blade_name(a, c->blade));
  size_t length = strlen(name);
  if (c->sign > 0) return name;
  if (length < 3) return arena_printf(a, "-%s", name);
  char swap = name[length - 1];
  name[length - 1] = name[length - 2];
  name[length - 2] = swap;
  return name;
}

static const char *block_text(arena *a, const spec *s) {
  const char *names = "";
  for (int i = 0; i < s->n_components; i++) names = arena_printf(a, "%s%s%s", names, i ? ", " : "", component_name(a, &s->component[i]));
  return arena_printf(a, "%s of Cl(%d,%d,%d)", names, s->algebra.p, s->algebra.q, s->algebra.r);
}

/* "operand a, b", of all operands that the expressions read. */
static const char *operands_text(arena *a, const spec *s, const expr *const *x, int count) {
  bool *read = arena_array(a, bool, s->n_operands + 1);
  for (int i = 0; i < count; i++) expr_mark_operands(x[i], read);
  const char *text = NULL;
  for (int i = 0; i < s->n_operands; i++)
    if (read[i]) text = text ? arena_printf(a, "%s, %s", text, s->operand[i].name) : s->operand[i].name;
  return text;
}

static const char *coefficient_text(arena *a, const expr *x) {
  if (x->op != EXPR_CONST) return x->depends & DEPENDS_OPERAND ? "learned " : "(by block) ";
  return x->value == 1 ? "" : x->value == -1 ? "-" : arena_printf(a, "%.6g ", x->value);
}

static const char *generator_text(arena *a, const spec *s, int axis) {
  const spec_bivector *b = &s->generator[axis];
  const char *text = NULL;
  for (int i = 0; i < b->count; i++) {
    if (expr_is_const(b->coefficient[i], 0)) continue;
    const char *term = arena_printf(a, "%s%s", coefficient_text(a, b->coefficient[i]), blade_name(a, b->blade[i]));
    text = text ? arena_printf(a, "%s + %s", text, term) : term;
  }
  const char *operands = operands_text(a, s, b->coefficient, b->count);
  if (!text) return "0";
  return operands ? arena_printf(a, "%s, from %s", text, operands) : text;
}

/* Radians that one unit of position adds, over all heads and blocks. */
static const char *phase_text(arena *a, const spec *s, int axis) {
  const expr *angle = s->angle[axis];
  const char *operands = operands_text(a, s, &angle, 1);
  if (!expr_is_affine(angle)) return operands ? arena_printf(a, "nonlinear in the position, from %s", operands) : "nonlinear in the position";
  if (operands) return arena_printf(a, "from %s", operands);
  double least = INFINITY, most = 0, positions[SPEC_MAX_AXES] = {0};
  int listening = 0;
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++) {
      expr_environment env = {.head = head, .block = block, .blocks = s->n_blocks, .positions = positions};
      positions[axis] = 0;
      double at_zero = expr_eval(angle, &env);
      positions[axis] = 1;
      double speed = fabs(expr_eval(angle, &env) - at_zero);
      if (speed == 0) continue;
      listening++;
      least = fmin(least, speed);
      most = fmax(most, speed);
    }
  int all = s->heads * s->n_blocks;
  if (!listening) return "0: no block listens to it";
  const char *range = least == most ? arena_printf(a, "%.4g", most) : arena_printf(a, "%.4g to %.4g", least, most);
  const char *where = listening == all ? "" : arena_printf(a, ", in %d of %d blocks", listening, all);
  return arena_printf(a, "%s radians per unit of position%s", range, where);
}

static const char *combine_text(arena *a, const spec *s) {
  if (s->n_axes == 1) return "one axis";
  if (s->combine == COMBINE_SUM) return "sum: the exponential of the sum of the axes' generators";
  if (s->combine == COMBINE_MEAN) return "mean: the exponential of the mean of the axes' generators";
  const char *order = "";
  for (int i = 0; i < s->n_axes; i++) order = arena_printf(a, "%s%s%s", order, i ? ", " : "", s->axis[s->order[i]]);
  return arena_printf(a, s->combine == COMBINE_PRODUCT ? "product, leftmost acts last: %s" : "symmetric product from outside in: %s", order);
}

/* ---- proofs ---- */

/* A bivector acts by a skew matrix where its planes' vectors square to one sign: then exp is orthogonal. */
static bool acts_orthogonally(const spec *s) {
  for (int axis = 0; axis < s->n_axes; axis++)
    for (int i = 0; i < s->generator[axis].count; i++) {
      unsigned blade = s->generator[axis].blade[i];
      int low = __builtin_ctz(blade), high = 31 - __builtin_clz(blade);
      if (expr_is_const(s->generator[axis].coefficient[i], 0)) continue;
      if (clifford_square(s->algebra, low) != clifford_square(s->algebra, high)) return false;
    }
  return true;
}

/* c_t d_u = c_u d_t in a block: by being one expression, by zeros, or as numbers. */
static bool products_agree(const spec *s, const expr *x[2], const expr *y[2], int head, int block) {
  if (expr_mul(s->pool, x[0], x[1]) == expr_mul(s->pool, y[0], y[1])) return true;
  bool zero[2];
  for (int i = 0; i < 2; i++) {
    const expr *const *factor = i ? y : x;
    zero[i] = expr_is_zero_in(factor[0], head, block, s->n_blocks) || expr_is_zero_in(factor[1], head, block, s->n_blocks);
  }
  if (zero[0] && zero[1]) return true;
  if (!expr_is_fixed(x[0]) || !expr_is_fixed(x[1]) || !expr_is_fixed(y[0]) || !expr_is_fixed(y[1])) return false;
  expr_environment env = {.head = head, .block = block, .blocks = s->n_blocks};
  return expr_eval(x[0], &env) * expr_eval(x[1], &env) == expr_eval(y[0], &env) * expr_eval(y[1], &env);
}

static const expr *coefficient_of(const spec *s, const spec_bivector *b, unsigned blade) {
  for (int i = 0; i < b->count; i++)
    if (b->blade[i] == blade) return b->coefficient[i];
  return expr_const(s->pool, 0);
}

/* Whether e_t and e_u, planes of the algebra, do not commute: they share one vector, and its square is not 0. */
static bool clash(const spec *s, unsigned t, unsigned u) {
  unsigned shared = t & u;
  return clifford_grade(shared) == 1 && clifford_square(s->algebra, __builtin_ctz(shared)) != 0;
}

/* [sum c_t e_t, sum d_u e_u] has a term c_t d_u - c_u d_t for every two planes that clash. */
static bool commute_in(const spec *s, int a, int b, int head, int block) {
  const spec_bivector *c = &s->generator[a], *d = &s->generator[b];
  unsigned top = 1u << clifford_dimensions(s->algebra);
  for (unsigned t = 0; t < top; t++)
    for (unsigned u = t + 1; u < top; u++) {
      if (clifford_grade(t) != 2 || clifford_grade(u) != 2 || !clash(s, t, u)) continue;
      const expr *x[2] = {coefficient_of(s, c, t), coefficient_of(s, d, u)}, *y[2] = {coefficient_of(s, c, u), coefficient_of(s, d, t)};
      if (!products_agree(s, x, y, head, block)) return false;
    }
  return true;
}

static bool listens(const spec *s, int axis, int head, int block) { return !expr_is_zero_in(s->angle[axis], head, block, s->n_blocks); }

static bool all_commute(const spec *s) {
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++)
      for (int a = 0; a < s->n_axes; a++)
        for (int b = a + 1; b < s->n_axes; b++)
          if (listens(s, a, head, block) && listens(s, b, head, block) && !commute_in(s, a, b, head, block)) return false;
  return true;
}

/* The most axes that any block listens to. */
static int axes_of_a_block(const spec *s) {
  int most = 0;
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++) {
      int axes = 0;
      for (int axis = 0; axis < s->n_axes; axis++) axes += listens(s, axis, head, block);
      most = axes > most ? axes : most;
    }
  return most;
}

/* ---- the probe: relative rotations by the reference ---- */

/* Blocks that are looked at: all of them, or as many, spread evenly. */
static int looked_at(const spec *s) { return s->heads * s->n_blocks < MOST_ROTORS ? s->heads * s->n_blocks : MOST_ROTORS; }

/* relative = R(from)^T R(to) / amplitude^2 of the index-th block. */
static void relative_rotation(const facts *f, int index, const double *from, const double *to, long double *relative) {
  const spec *s = f->spec;
  int n = s->n_components, at = (int)((int64_t)index * s->heads * s->n_blocks / looked_at(s));
  int head = at / s->n_blocks, block = at % s->n_blocks;
  long double x[SPEC_MAX_BLADES * SPEC_MAX_BLADES], y[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  long double amplitude = s->inverse ? 1 / (long double)s->amplitude : s->amplitude;
  reference_block(s, from, f->operands.values, head, block, x);
  reference_block(s, to, f->operands.values, head, block, y);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      long double sum = 0;
      for (int k = 0; k < n; k++) sum += x[k * n + i] * y[k * n + j];
      relative[i * n + j] = sum / (amplitude * amplitude);
    }
}

static void probe_pair(const property_probe *p, const double *from, const double *to, long double *values) {
  const facts *f = p->context;
  int n = f->spec->n_components;
  for (int i = 0; i < looked_at(f->spec); i++) relative_rotation(f, i, from, to, values + i * n * n);
}

static long double probe_likeness(const property_probe *p, const double *from, const double *to) {
  const facts *f = p->context;
  int n = f->spec->n_components, count = looked_at(f->spec);
  long double relative[SPEC_MAX_BLADES * SPEC_MAX_BLADES], sum = 0;
  for (int i = 0; i < count; i++) {
    relative_rotation(f, i, from, to, relative);
    for (int c = 0; c < n; c++) sum += relative[c * n + c];
  }
  return sum / (count * n);
}

/* ---- measurements of one position ---- */

/* The largest entry of R(r)^T R(r) / amplitude^2 - I. */
static long double norm_deviation(facts *f) {
  const spec *s = f->spec;
  long double worst = 0, product[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  for (int i = 0; i < looked_at(s); i++) {
    double position[SPEC_MAX_AXES];
    for (int axis = 0; axis < s->n_axes; axis++) position[axis] = random_uniform(&f->random, 0, 8);
    relative_rotation(f, i, position, position, product);
    for (int c = 0; c < s->n_components * s->n_components; c++) {
      long double off = fabsl(product[c] - (c % (s->n_components + 1) == 0));
      if (!(off <= worst)) worst = isnan(off) ? INFINITY : off;
    }
  }
  return worst;
}

static long double origin_deviation(const facts *f) {
  const spec *s = f->spec;
  const double origin[SPEC_MAX_AXES] = {0};
  long double worst = 0, matrix[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++) {
      reference_block(s, origin, f->operands.values, head, block, matrix);
      for (int c = 0; c < s->n_components * s->n_components; c++) {
        long double off = fabsl(matrix[c] - (c % (s->n_components + 1) == 0));
        if (!(off <= worst)) worst = isnan(off) ? INFINITY : off;
      }
    }
  return worst;
}

/* The largest |c_t d_u - c_u d_t| / (|c| |d|) of two axes that a block listens to. */
static long double commutator_deviation(const facts *f) {
  const spec *s = f->spec;
  long double worst = 0;
  unsigned top = 1u << clifford_dimensions(s->algebra);
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++) {
      long double value[SPEC_MAX_AXES][SPEC_MAX_BLADES] = {{0}}, norm[SPEC_MAX_AXES] = {0};
      expr_environment env = {.head = head, .block = block, .blocks = s->n_blocks, .operands = f->operands.values};
      for (int axis = 0; axis < s->n_axes; axis++)
        for (int i = 0; i < s->generator[axis].count; i++) {
          long double c = expr_eval_long(s->generator[axis].coefficient[i], &env);
          value[axis][s->generator[axis].blade[i]] = c;
          norm[axis] = hypotl(norm[axis], c);
        }
      for (int a = 0; a < s->n_axes; a++)
        for (int b = a + 1; b < s->n_axes; b++) {
          if (!listens(s, a, head, block) || !listens(s, b, head, block) || norm[a] == 0 || norm[b] == 0) continue;
          for (unsigned t = 0; t < top; t++)
            for (unsigned u = t + 1; u < top; u++)
              if (clifford_grade(t) == 2 && clifford_grade(u) == 2 && clash(s, t, u))
                worst = fmaxl(worst, fabsl(value[a][t] * value[b][u] - value[a][u] * value[b][t]) / (norm[a] * norm[b]));
        }
    }
  return worst;
}

/* ---- the properties ---- */

static property norm_property(facts *f) {
  const spec *s = f->spec;
  long double amplitude = fabsl(s->inverse ? 1 / (long double)s->amplitude : s->amplitude), off = norm_deviation(f);
  if (amplitude != 1) return property_proved(VERDICT_NO, arena_printf(f->memory, "encoded channels are scaled by %.6Lg", amplitude));
  if (f->orthogonal)
    return property_confirmed(PROPERTY_NORM, "every generator is a skew matrix, so its exponential is orthogonal", property_measured(off, ""));
  return property_measured(off, "the largest entry of R^T R - I: turns in planes of mixed signature stretch");
}

static property commuting_property(const facts *f) {
  property measured = property_measured(commutator_deviation(f), "the largest commutator of two axes' generators, relative to their sizes");
  if (!f->commute) return measured;
  const char *reason = f->spec->n_axes == 1        ? "there is one axis"
                       : axes_of_a_block(f->spec) <= 1 ? "no block listens to two axes"
                                                       : "the axes' generators are multiples of one, or of planes apart";
  return property_confirmed(PROPERTY_COMMUTING, reason, measured);
}

static property translation_property(facts *f, const property_probe *probe) {
  property measured = measure_translation(f->memory, probe, &f->random);
  if (!f->commute || !f->affine || !f->orthogonal) return measured;
  return property_confirmed(PROPERTY_TRANSLATION,
                            "generators commute and are skew, and phases are linear in the position: R(r)^T R(s) = R(s - r)", measured);
}

static property origin_property(const facts *f) {
  property measured = property_measured(origin_deviation(f), "the largest entry of R(0) - I");
  if (!f->linear || f->spec->amplitude != 1) return measured;
  return property_confirmed(PROPERTY_ORIGIN, "all phases are 0 there", measured);
}

static void fill_properties(facts *f, explanation *out) {
  const spec *s = f->spec;
  /* A rotor of n dimensions takes 4^(n-3) times the work of one of three. */
  int n = clifford_dimensions(s->algebra), work = WORK >> (n > 3 ? 2 * (n - 3) : 0), samples = work / looked_at(s);
  property_probe probe = {.n_axes = s->n_axes, .n_values = looked_at(s) * s->n_components * s->n_components,
                          .samples = samples < 8 ? 8 : samples, .pair = probe_pair, .likeness = probe_likeness, .context = f};
  property *p = out->property;
  p[PROPERTY_COMMUTING] = commuting_property(f);
  p[PROPERTY_NORM] = norm_property(f);
  p[PROPERTY_TRANSLATION] = translation_property(f, &probe);
  p[PROPERTY_ROTATION] = measure_rotation(f->memory, &probe, &f->random);
  p[PROPERTY_INVERTIBLE] = property_proved(VERDICT_YES, "the reverse of a rotor is its inverse; -D inverse=true turns back");
  p[PROPERTY_DECAY] = measure_decay(f->memory, &probe, &f->random);
  p[PROPERTY_CONTEXT] = property_proved(VERDICT_NO, "nothing is computed from a token's content");
  p[PROPERTY_ORIGIN] = origin_property(f);
}

/* ---- group, cost ---- */

static const char *group_text(arena *a, const facts *f) {
  const spec *s = f->spec;
  int n = clifford_dimensions(s->algebra);
  if (f->orthogonal && f->commute) return "torus: turns of planes that commute";
  if (f->orthogonal && s->algebra.q == 0 && s->algebra.r == 0) return arena_printf(a, "SO(%d)", n);
  if (s->algebra.r == 0) return arena_printf(a, "SO+(%d,%d)", s->algebra.p, s->algebra.q);
  return arena_printf(a, "Spin(%d,%d,%d)", s->algebra.p, s->algebra.q, s->algebra.r);
}

static void fill_cost(arena *a, const plan *p, explain_cost *cost) {
  const spec *s = p->spec;
  unsigned char *seen = arena_alloc(a, (size_t)expr_pool_count(s->pool));
  for (int i = 0; i < p->n_prepared; i++) operation_count_add(&cost->prepared, p->prepared[i], s->n_blocks, seen);
  int entries = 0;
  for (int i = 0; i < s->n_components * s->n_components; i++) {
    const expr *x = p->program->matrix.entry[i];
    operation_count_add(&cost->token, x, s->n_blocks, seen);
    bool kept = i % (s->n_components + 1) == 0 && expr_is_const(x, 1);
    if (!kept && !expr_is_const(x, 0)) entries++;
  }
  cost->per_head = p->per_head;
  cost->row_operations = 2 * entries * s->n_blocks; /* each product is a multiplication and an addition */
}

bool explain_blades(arena *a, const spec *s, explanation *out) {
  block_program program;
  if (s->dense) s = dense_as_vectors(a, s);
  if (!group_build(a, s, &program)) return false;
  facts f = {.memory = a, .spec = s, .random = SEED, .orthogonal = acts_orthogonally(s), .commute = all_commute(s), .affine = true, .linear = true};
  f.operands = trial_random_operands(a, s, NUMBER_F32, &f.random);
  for (int axis = 0; axis < s->n_axes; axis++) {
    f.affine = f.affine && expr_is_affine(s->angle[axis]);
    f.linear = f.linear && expr_is_linear(s->angle[axis]);
    out->generator[axis] = generator_text(a, s, axis);
    out->phase[axis] = phase_text(a, s, axis);
  }
  out->role = "separable";
  out->block = block_text(a, s);
  out->block_size = s->n_components;
  out->n_blocks = s->n_blocks;
  out->leftover = s->head_dim - s->n_components * s->n_blocks;
  out->combine = combine_text(a, s);
  out->group = group_text(a, &f);
  out->normal_form = group_normal_form(a, &program);
  fill_properties(&f, out);
  fill_cost(a, plan_build(a, &program), &out->cost);
  bool compact = s->algebra.q == 0 && s->algebra.r == 0;
  out->entries_precision = compact ? "within 2^-22 for phases up to 2^24 radians"
                                   : "within 2^-22 of the largest number that the axes' actions pass through";
  out->rows_precision = "float32 within 2^-20 of a block's norm; bfloat16 and float16 half a unit in the last place more";
  return true;
}
