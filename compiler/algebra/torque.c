/* algebra/torque: see algebra/torque.h. */
#include "algebra/torque.h"

#include "algebra/clifford.h"
#include "algebra/dense_vectors.h"
#include "algebra/torque_four.h"
#include "algebra/torque_group.h"
#include "algebra/torque_rotors.h"

#include <stdlib.h>

/* ---- the basis ---- */

static bool vanishes(const expr *x) { return expr_is_const(x, 0); }

/* The sign of 1/2 (e x - x e) for a basis bivector e: 0 where they commute, or where the vector that they share is
 * null. */
static int bracket_sign(spec_algebra g, unsigned e, unsigned x) {
  if (clifford_grade(e & x) != 1) return 0;
  return clifford_reorder_sign(e, x) * clifford_square(g, __builtin_ctz(e & x));
}

static int find_blade(const torque_basis *t, unsigned blade) {
  for (int k = 0; k < t->count; k++)
    if (t->element[k].blade == blade) return k;
  return -1;
}

static void add_blade(torque_basis *t, unsigned blade) {
  if (find_blade(t, blade) < 0) t->element[t->count++].blade = blade;
}

/* A bivector that an axis turns in: where its angle is 0 the rotor's matrix need not mix what its planes would, and
 * rows are read by what mixes. */
static bool is_turned(const spec *s, int axis, int i) {
  return !vanishes(s->angle[axis]) && !vanishes(s->generator[axis].coefficient[i]);
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
      t->to[i][j] = (signed char)(t->sign[i][j] ? find_blade(t, e ^ x) : 0);
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
  if (s->dense && !dense_is_vectors(s)) {
    torque_four_basis(out);
    return;
  }
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
  torque_group group;
  const spec *spec;
  torque_frame frame;
  /* Sums over the factors in which an axis stands; NULL: nothing yet. */
  const expr *angle[SPEC_MAX_AXES], *coefficient[SPEC_MAX_AXES][SPEC_MAX_BIVECTORS];
  int n_factors; /* of a function of rotors */
  const adjoint_output *factor;
} collector;

static const expr *plus(const collector *c, const expr *sum, const expr *x) {
  return sum ? expr_add(c->group.pool, sum, x) : x;
}

/* The angle of an axis in a factor that has a share of it; turning back is a negative share. */
static const expr *share_of_angle(const collector *c, int axis, double share) {
  return expr_mul(c->group.pool, spec_angle(c->spec, axis), expr_const(c->group.pool, share));
}

/* Coordinates of an axis' generator: coefficient by element of the basis, NULL where it has none. */
static void coordinates(const collector *c, int axis, const expr **m) {
  const spec_bivector *b = &c->spec->generator[axis];
  for (int k = 0; k < c->group.basis->count; k++) m[k] = NULL;
  for (int i = 0; i < b->count; i++)
    if (is_turned(c->spec, axis, i)) m[find_blade(c->group.basis, b->blade[i])] = b->coefficient[i];
}

static bool is_learned(const spec_bivector *b) {
  for (int i = 0; i < b->count; i++)
    if (b->coefficient[i]->depends & (DEPENDS_OPERAND | DEPENDS_QUERY)) return true;
  return false;
}

/* What an axis gains of the gradient of M = ... + share angle B: <B, M> and, of what is learned of B, share angle M. */
static void give_angle(collector *c, int axis, double share, const expr *const *gradient) {
  expr_pool *pool = c->group.pool;
  const expr *m[SPEC_MAX_BIVECTORS], *sum = NULL;
  coordinates(c, axis, m);
  for (int k = 0; k < c->group.basis->count; k++)
    if (m[k]) sum = plus(c, sum, expr_mul(pool, torque_narrow(pool, m[k]), torque_narrow(pool, gradient[k])));
  if (sum) c->angle[axis] = plus(c, c->angle[axis], expr_mul(pool, sum, expr_const(pool, share)));
}

static void give_generator(collector *c, int axis, double share, const expr *const *gradient) {
  const spec_bivector *b = &c->spec->generator[axis];
  const expr *angle = share_of_angle(c, axis, share);
  for (int i = 0; i < b->count; i++) {
    if (!is_turned(c->spec, axis, i) || !(b->coefficient[i]->depends & (DEPENDS_OPERAND | DEPENDS_QUERY))) continue;
    const expr *x = expr_mul(c->group.pool, angle, gradient[find_blade(c->group.basis, b->blade[i])]);
    c->coefficient[axis][i] = plus(c, c->coefficient[axis][i], x);
  }
}

/* M in the basis, of one axis or of all that are summed. */
static void exponent(const collector *c, int first, int last, double share, const expr **m) {
  expr_pool *pool = c->group.pool;
  const expr *b[SPEC_MAX_BIVECTORS];
  for (int k = 0; k < c->group.basis->count; k++) m[k] = expr_const(pool, 0);
  for (int axis = first; axis <= last; axis++) {
    const expr *angle = share_of_angle(c, axis, share);
    coordinates(c, axis, b);
    for (int k = 0; k < c->group.basis->count; k++)
      if (b[k]) m[k] = expr_add(pool, m[k], expr_mul(pool, angle, b[k]));
  }
}

/* |M| of one axis: what operands alone say of it is computed once a call. */
static const expr *length_of(const collector *c, int axis, double share) {
  const expr *b[SPEC_MAX_BIVECTORS];
  coordinates(c, axis, b);
  for (int k = 0; k < c->group.basis->count; k++) b[k] = b[k] ? b[k] : expr_const(c->group.pool, 0);
  const expr *length = torque_length(&c->group, b);
  return length ? expr_mul(c->group.pool, share_of_angle(c, axis, share), length) : NULL;
}

/* A factor exp(share angle B) of a product; tau becomes the torque of the next one. M commutes with B, so that a phase
 * needs no dexp. */
static void through_factor(collector *c, int axis, double share, bool is_last, const expr **tau) {
  const expr *m[SPEC_MAX_BIVECTORS], *gradient[SPEC_MAX_BIVECTORS], *length = length_of(c, axis, share);
  double sense = c->frame == TORQUE_OF_Y ? 1 : -1;
  give_angle(c, axis, share, tau);
  exponent(c, axis, axis, share, m);
  if (is_learned(&c->spec->generator[axis])) {
    torque_through_exponential(&c->group, m, length, sense, tau, gradient);
    give_generator(c, axis, share, gradient);
  }
  if (!is_last) torque_through_rotor(&c->group, m, length, sense, tau, tau);
}

/* exp(M) of a sum: one factor. With one axis M is a multiple of its bivector. */
static void through_sum(collector *c, double share, const expr *const *tau) {
  const expr *m[SPEC_MAX_BIVECTORS], *gradient[SPEC_MAX_BIVECTORS];
  if (c->spec->n_axes == 1) {
    for (int k = 0; k < c->group.basis->count; k++) gradient[k] = tau[k];
    through_factor(c, 0, share, true, gradient);
    return;
  }
  exponent(c, 0, c->spec->n_axes - 1, share, m);
  torque_through_exponential(&c->group, m, NULL, c->frame == TORQUE_OF_Y ? 1 : -1, tau, gradient);
  for (int axis = 0; axis < c->spec->n_axes; axis++) {
    give_angle(c, axis, share, gradient);
    give_generator(c, axis, share, gradient);
  }
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
  for (int k = 0; k < c->group.basis->count; k++) now[k] = tau[k];
  for (int i = 0; i < count; i++) {
    const factor *f = &factors[c->frame == TORQUE_OF_Y ? i : count - 1 - i];
    through_factor(c, f->axis, f->share, i == count - 1, now);
  }
}

/* A function of the axes' rotors, each of which is an exponential of its own. */
static void through_function(arena *a, collector *c, const expr *const *tau) {
  const spec *s = c->spec;
  const expr *axis_tau[SPEC_MAX_AXES][SPEC_MAX_BIVECTORS];
  adjoint_output *factor = arena_array(a, adjoint_output, s->function->count * SPEC_MAX_ARGUMENTS);
  c->n_factors = torque_through_function(a, c->group.basis, c->frame, tau, axis_tau, factor);
  c->factor = factor;
  c->frame = TORQUE_OF_Y; /* that of the axes' torques, whatever tau's is */
  for (int axis = 0; axis < s->n_axes; axis++) through_factor(c, axis, 1, true, axis_tau[axis]);
}

/* y = gain R x, of which log(gain) gains <g, y>, in either frame; where it divides as much less. */
static adjoint_output stretched(const collector *c, const expr *const *tau) {
  const spec *s = c->spec;
  const expr *gained = torque_widen(s->pool, tau[c->group.basis->count]);
  const expr *logarithm = expr_unary(s->pool, EXPR_LOG, spec_gain(s));
  return (adjoint_output){logarithm, s->inverse ? expr_neg(s->pool, gained) : gained};
}

static int outputs_of(arena *a, const collector *c, const expr *const *tau, const adjoint_output **out) {
  const spec *s = c->spec;
  adjoint_output *list = arena_array(a, adjoint_output, SPEC_MAX_AXES * (1 + SPEC_MAX_BIVECTORS) + c->n_factors + 1);
  int count = 0;
  if (c->group.basis->stretches) list[count++] = stretched(c, tau);
  for (int i = 0; i < c->n_factors; i++) list[count++] = c->factor[i];
  for (int axis = 0; axis < s->n_axes; axis++) {
    if (c->angle[axis]) list[count++] = (adjoint_output){spec_angle(s, axis), torque_widen(s->pool, c->angle[axis])};
    for (int i = 0; i < s->generator[axis].count; i++)
      if (c->coefficient[axis][i])
        list[count++] =
            (adjoint_output){s->generator[axis].coefficient[i], torque_widen(s->pool, c->coefficient[axis][i])};
  }
  *out = list;
  return count;
}

static int outputs_of_entries(arena *a, const torque_basis *t, const expr *const *tau, const adjoint_output **out) {
  adjoint_output *list = arena_array(a, adjoint_output, t->count + 1);
  for (int k = 0; k < t->count; k++) {
    const torque_entry *e = &t->element[k].entry[0];
    const expr *entry = spec_entry(t->spec, e->row * t->spec->n_components + e->column);
    list[k] = (adjoint_output){entry, torque_widen(t->spec->pool, tau[k])};
  }
  *out = list;
  return t->count;
}

int torque_outputs(arena *a, const torque_basis *basis, torque_frame frame, const expr *const *tau,
                   const adjoint_output **out) {
  const spec *s = basis->spec;
  if (torque_is_of_entries(s)) return outputs_of_entries(a, basis, tau, out);
  if (s->dense) return torque_four_outputs(a, s, frame == TORQUE_OF_Y ? 1 : -1, tau, out);
  collector c = {.group = {s->pool, basis}, .spec = s, .frame = frame};
  double turn = s->inverse ? -1 : 1;
  if (basis->count == 0) return outputs_of(a, &c, tau, out);
  switch (s->combine) {
  case COMBINE_SUM: through_sum(&c, turn, tau); break;
  case COMBINE_MEAN: through_sum(&c, turn / s->n_axes, tau); break;
  case COMBINE_FUNCTION: through_function(a, &c, tau); break;
  default: through_product(&c, tau); break;
  }
  return outputs_of(a, &c, tau, out);
}
