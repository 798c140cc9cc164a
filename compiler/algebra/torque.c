/* algebra/torque: see algebra/torque.h. */
#include "algebra/torque.h"

#include "algebra/clifford.h"
#include "algebra/dense_vectors.h"
#include "algebra/torque_group.h"
#include "algebra/torque_rotors.h"

#include <stdlib.h>

/* ---- the basis ---- */

/* The sign of 1/2 (e x - x e) for a basis bivector e: 0 where they commute, or where the vector that they share is
 * null. */
static int bracket_sign(spec_algebra g, unsigned e, unsigned x) {
  if (clifford_grade(e & x) != 1) return 0;
  return clifford_reorder_sign(e, x) * clifford_square(g, __builtin_ctz(e & x));
}

static void add_blade(torque_basis *t, unsigned blade) {
  if (torque_find(t, blade) < 0) t->element[t->count++].blade = blade;
}

/* A bivector that an axis turns in: where its angle is 0 the rotor's matrix need not mix what its planes would, and
 * rows are read by what mixes. */
static bool is_turned(const spec *s, int axis, int i) {
  return !expr_is_const(s->angle[axis], 0) && !expr_is_const(s->generator[axis].coefficient[i], 0);
}

/* The generators' bivectors, and what their commutators lead to. */
static void close_blades(torque_basis *t) {
  const spec *s = t->spec;
  for (int axis = 0; axis < s->n_axes; axis++)
    for (int i = 0; i < s->generator[axis].count; i++)
      if (is_turned(s, axis, i)) add_blade(t, s->generator[axis].blade[i]);
  for (int i = 0; i < t->count; i++)
    for (int j = 0; j < i; j++)
      if (bracket_sign(s->algebra, t->element[i].blade, t->element[j].blade))
        add_blade(t, t->element[i].blade ^ t->element[j].blade);
}

static void find_entries(const spec *s, torque_element *e) {
  for (int column = 0; column < s->n_components; column++) {
    int sign = bracket_sign(s->algebra, e->blade, s->component[column].blade);
    for (int row = 0; sign && row < s->n_components; row++)
      if (s->component[row].blade == (e->blade ^ s->component[column].blade))
        e->entry[e->n_entries++] =
            (torque_entry){row, column, sign * s->component[row].sign * s->component[column].sign};
  }
}

static void find_brackets(torque_basis *t) {
  for (int i = 0; i < t->count; i++)
    for (int j = 0; j < t->count; j++) {
      unsigned e = t->element[i].blade, x = t->element[j].blade;
      t->sign[i][j] = (signed char)bracket_sign(t->spec->algebra, e, x);
      t->to[i][j] = (signed char)(t->sign[i][j] ? torque_find(t, e ^ x) : 0);
    }
}

/* The entries of a matrix that something gains by. */
static bool is_gained(const expr *x) { return x->depends & (DEPENDS_OPERAND | DEPENDS_POSITION | DEPENDS_QUERY); }

static void find_written(const spec *s, torque_basis *t) {
  for (int i = 0; i < s->n_components * s->n_components; i++)
    if (is_gained(spec_entry(s, i)))
      t->element[t->count++] = (torque_element){
          .n_entries = 1, .entry = {{.row = i / s->n_components, .column = i % s->n_components, .sign = 1}}};
}

void torque_basis_of(arena *a, const spec *s, torque_basis *out) {
  *out = (torque_basis){.spec = s};
  if (torque_is_of_entries(s)) {
    find_written(s, out);
    return;
  }
  if (s->dense) out->spec = dense_as_vectors(a, s);
  close_blades(out);
  for (int k = 0; k < out->count; k++) find_entries(out->spec, &out->element[k]);
  find_brackets(out);
  out->stretches = s->gain[0] != NULL;
  torque_element *whole = &out->element[out->count];
  for (int i = 0; i < s->n_components && out->stretches; i++)
    whole->entry[whole->n_entries++] = (torque_entry){i, i, 1};
}

/* ---- from torques to phases and generators ---- */

typedef struct collector {
  const torque_basis *basis;
  const spec *spec;
  expr_pool *pool;
  torque_frame frame;
  adjoint_output *output;
  int count;
} collector;

static void give(collector *c, const expr *value, const expr *gradient) {
  c->output[c->count++] = (adjoint_output){value, expr_widen(c->pool, gradient)};
}

/* Adds share times an axis' angle times its generator to M, by element of the basis. Turning back is a negative share.
 */
static void add_exponent(const collector *c, int axis, double share, const expr **m) {
  const spec_bivector *b = &c->spec->generator[axis];
  const expr *angle = expr_mul(c->pool, spec_angle(c->spec, axis), expr_const(c->pool, share));
  for (int i = 0; i < b->count; i++) {
    if (!is_turned(c->spec, axis, i)) continue;
    const expr **sum = &m[torque_find(c->basis, b->blade[i])];
    *sum = expr_add(c->pool, *sum, expr_mul(c->pool, angle, b->coefficient[i]));
  }
}

static bool is_learned(const spec_bivector *b) {
  for (int i = 0; i < b->count; i++)
    if (b->coefficient[i]->depends & (DEPENDS_OPERAND | DEPENDS_QUERY)) return true;
  return false;
}

/* exp(M) as the frame has it. length: |M|, or NULL. */
static torque_factor factor_of(const collector *c, const expr *const *m, const expr *length) {
  return (torque_factor){c->basis, m, length, c->frame == TORQUE_OF_Y ? 1 : -1};
}

/* What M gains. */
static void through_exponential(collector *c, const torque_factor *x, const expr *const *tau) {
  const expr *gradient[SPEC_MAX_BIVECTORS];
  torque_through(x, TORQUE_EXPONENTIAL, tau, gradient);
  for (int k = 0; k < c->basis->count; k++)
    if (!expr_is_const(x->m[k], 0)) give(c, x->m[k], gradient[k]);
}

/* A factor exp(share angle B) of a product; tau becomes the torque of the next one. M commutes with B, so that a phase
 * alone needs no dexp: it gains <B, tau>. |M| is the angle times |B|, which is computed once a call where operands
 * alone say it. */
static void through_factor(collector *c, int axis, double share, bool is_last, const expr **tau) {
  const spec_bivector *b = &c->spec->generator[axis];
  const expr *m[SPEC_MAX_BIVECTORS], *of[SPEC_MAX_BIVECTORS], *sum = expr_const(c->pool, 0);
  for (int k = 0; k < c->basis->count; k++) m[k] = of[k] = sum;
  add_exponent(c, axis, share, m);
  for (int i = 0; i < b->count; i++) {
    int k = is_turned(c->spec, axis, i) ? torque_find(c->basis, b->blade[i]) : -1;
    if (k < 0) continue;
    of[k] = b->coefficient[i];
    const expr *product = expr_mul(c->pool, expr_narrow(c->pool, of[k]), expr_narrow(c->pool, tau[k]));
    sum = expr_add(c->pool, sum, product);
  }
  const expr *angle = spec_angle(c->spec, axis), *length = torque_length(c->basis, of);
  if (length) length = expr_mul(c->pool, expr_mul(c->pool, angle, expr_const(c->pool, share)), length);
  torque_factor x = factor_of(c, m, length);
  if (is_learned(b)) through_exponential(c, &x, tau);
  else if (!expr_is_const(sum, 0)) give(c, angle, expr_mul(c->pool, sum, expr_const(c->pool, share)));
  if (!is_last) torque_through(&x, TORQUE_ROTOR, tau, tau);
}

/* exp(M) of a sum: one factor. With one axis M is a multiple of its bivector. */
static void through_sum(collector *c, double share, const expr *const *tau) {
  const expr *m[SPEC_MAX_BIVECTORS], *now[SPEC_MAX_BIVECTORS];
  for (int k = 0; k < c->basis->count; k++) {
    m[k] = expr_const(c->pool, 0);
    now[k] = tau[k];
  }
  if (c->spec->n_axes == 1) {
    through_factor(c, 0, share, true, now);
    return;
  }
  for (int axis = 0; axis < c->spec->n_axes; axis++) add_exponent(c, axis, share, m);
  torque_factor x = factor_of(c, m, NULL);
  through_exponential(c, &x, tau);
}

typedef struct factor {
  int axis;
  double share;
} factor;

/* The factors of a product from the left, as in algebra/block.c. */
static int factors_of(const spec *s, factor *out) {
  int count = 0, last = s->n_axes - 1;
  double turn = s->inverse ? -1 : 1;
  if (s->combine == COMBINE_PRODUCT)
    for (int i = 0; i <= last; i++) out[count++] = (factor){s->order[s->inverse ? last - i : i], turn};
  else
    for (int i = -last; i <= last; i++) out[count++] = (factor){s->order[last - abs(i)], i ? turn / 2 : turn};
  return count;
}

/* From the left in the frame of y, from the right in that of x. */
static void through_product(collector *c, const expr *const *tau) {
  factor factors[2 * SPEC_MAX_AXES];
  const expr *now[SPEC_MAX_BIVECTORS];
  int count = factors_of(c->spec, factors);
  for (int k = 0; k < c->basis->count; k++) now[k] = tau[k];
  for (int i = 0; i < count; i++) {
    const factor *f = &factors[c->frame == TORQUE_OF_Y ? i : count - 1 - i];
    through_factor(c, f->axis, f->share, i == count - 1, now);
  }
}

/* A function of the axes' rotors, each of which is an exponential of its own. */
static void through_function(arena *a, collector *c, const expr *const *tau) {
  const expr *axis_tau[SPEC_MAX_AXES][SPEC_MAX_BIVECTORS];
  c->count += torque_through_function(a, c->basis, c->frame, tau, axis_tau, c->output + c->count);
  c->frame = TORQUE_OF_Y; /* that of the axes' torques, whatever tau's is */
  for (int axis = 0; axis < c->spec->n_axes; axis++) through_factor(c, axis, 1, true, axis_tau[axis]);
}

/* y = gain R x, of which log(gain) gains <g, y>, in either frame; where it divides as much less. */
static void give_gain(collector *c, const expr *tau) {
  const expr *gained = expr_widen(c->pool, tau), *logarithm = expr_unary(c->pool, EXPR_LOG, spec_gain(c->spec));
  give(c, logarithm, c->spec->inverse ? expr_neg(c->pool, gained) : gained);
}

static void give_entries(collector *c, const expr *const *tau) {
  for (int k = 0; k < c->basis->count; k++) {
    const torque_entry *e = &c->basis->element[k].entry[0];
    give(c, spec_entry(c->spec, e->row * c->spec->n_components + e->column), tau[k]);
  }
}

/* How many outputs there are at most. */
static int most_outputs(const spec *s) {
  int factors = s->function ? s->function->count * SPEC_MAX_ARGUMENTS : 0;
  return TORQUE_MOST + 1 + 2 * SPEC_MAX_AXES * (1 + SPEC_MAX_BIVECTORS) + factors;
}

int torque_outputs(arena *a, const torque_basis *basis, torque_frame frame, const expr *const *tau,
                   const adjoint_output **out) {
  const spec *s = basis->spec;
  collector c = {.basis = basis, .spec = s, .pool = s->pool, .frame = frame};
  double turn = s->inverse ? -1 : 1;
  *out = c.output = arena_array(a, adjoint_output, most_outputs(s));
  if (basis->stretches) give_gain(&c, tau[basis->count]);
  if (basis->count == 0) return c.count;
  if (torque_is_of_entries(s)) give_entries(&c, tau);
  else if (s->combine == COMBINE_SUM) through_sum(&c, turn, tau);
  else if (s->combine == COMBINE_MEAN) through_sum(&c, turn / s->n_axes, tau);
  else if (s->combine == COMBINE_FUNCTION) through_function(a, &c, tau);
  else through_product(&c, tau);
  return c.count;
}
