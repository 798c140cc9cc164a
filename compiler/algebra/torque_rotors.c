/* algebra/torque_rotors: see algebra/torque_rotors.h. */
#include "algebra/torque_rotors.h"

typedef struct vector {
  const expr *at[3];
} vector;

typedef struct walk {
  rotors rotors;
  expr_pool *pool;
  vector *gained; /* [nodes] */
  bool *is_reached;
  adjoint_output *factors;
  int n_factors;
} walk;

/* ---- vectors ---- */

static const expr *number(const walk *w, double value) { return expr_const(w->pool, value); }

static vector plus(const walk *w, vector x, vector y) {
  for (int i = 0; i < 3; i++) x.at[i] = expr_add(w->pool, x.at[i], y.at[i]);
  return x;
}

static vector times(const walk *w, vector x, const expr *by) {
  for (int i = 0; i < 3; i++) x.at[i] = expr_mul(w->pool, x.at[i], by);
  return x;
}

static const expr *dot(const walk *w, vector x, vector y) {
  const expr *sum = number(w, 0);
  for (int i = 0; i < 3; i++) sum = expr_add(w->pool, sum, expr_mul(w->pool, x.at[i], y.at[i]));
  return sum;
}

static vector cross(const walk *w, vector x, vector y) {
  vector z;
  for (int i = 0; i < 3; i++) {
    int j = (i + 1) % 3, k = (i + 2) % 3;
    z.at[i] = expr_sub(w->pool, expr_mul(w->pool, x.at[j], y.at[k]), expr_mul(w->pool, x.at[k], y.at[j]));
  }
  return z;
}

static vector part_of(const quaternion *q) { return (vector){{q->v[0], q->v[1], q->v[2]}}; }

/* x + 2 w v x x + 2 v x (v x x); sense -1: turned back. */
static vector turned(const walk *w, const quaternion *q, vector x, double sense) {
  vector v = part_of(q), once = cross(w, v, x), twice = cross(w, v, once);
  once = times(w, once, expr_mul(w->pool, q->w, number(w, 2 * sense)));
  twice = times(w, twice, number(w, 2));
  return plus(w, plus(w, x, once), twice);
}

/* x + first b x x + second b x (b x x) */
static vector jacobian(const walk *w, vector b, vector x, const expr *first, const expr *second) {
  vector once = cross(w, b, x), twice = cross(w, b, once);
  once = times(w, once, first);
  twice = times(w, twice, second);
  return plus(w, plus(w, x, once), twice);
}

/* ---- what arguments gain ---- */

static void give(walk *w, int node, vector x) {
  w->gained[node] = w->is_reached[node] ? plus(w, w->gained[node], x) : x;
  w->is_reached[node] = true;
}

static void give_factor(walk *w, const expr *factor, const expr *gradient) {
  if (factor->depends & DEPENDS_OPERAND) w->factors[w->n_factors++] = (adjoint_output){factor, gradient};
}

/* (1 - (t/2) cot(t/2))/t^2 of square = t^2, at most pi^2: near 0 its series, the next term of which is 2^-44 there. The
 * cosine over the sine is that of x, with the sign for which the turn is the shorter one. */
static const expr *cotangent_rest(const walk *w, const expr *square, const quaternion *x) {
  static const double series[] = {1.0 / 12,      1.0 / 720,      1.0 / 30240,
                                  1.0 / 1209600, 1.0 / 47900160, 691.0 / 1307674368000};
  const double near = 0.25;
  expr_pool *pool = w->pool;
  const expr *sum = expr_polynomial(pool, square, series, 6);
  const expr *far = expr_binary(pool, EXPR_MAX, square, number(w, near)), *t = expr_unary(pool, EXPR_SQRT, far);
  vector v = part_of(x);
  const expr *sine = expr_binary(pool, EXPR_MAX, dot(w, v, v), number(w, near / 8));
  const expr *cotangent = expr_div(pool, expr_unary(pool, EXPR_ABS, x->w), expr_unary(pool, EXPR_SQRT, sine));
  const expr *whole = expr_mul(pool, expr_mul(pool, t, number(w, 0.5)), cotangent);
  const expr *rest = expr_div(pool, expr_sub(pool, number(w, 1), whole), far);
  return expr_select(pool, expr_binary(pool, EXPR_LESS, square, number(w, near)), sum, rest);
}

static void through_log(walk *w, const spec_rotor *node, int at) {
  const quaternion *x = &w->rotors.value[node->arg[0]];
  vector b = part_of(&w->rotors.value[at]);
  const expr *second = cotangent_rest(w, dot(w, b, b), x);
  give(w, node->arg[0], jacobian(w, b, w->gained[at], number(w, 0.5), second));
}

/* (1 - cos t)/t^2 = 2 |v|^2/t^2 and (t - sin t)/t^3 with sin(t)/t = 2 w (v . b)/t^2 of the quaternion that there is: of
 * GPUs' own sines, good to 2^-24, the second would lose too much. Below t = 1/2 that is its series. */
static void through_exp(walk *w, const spec_rotor *node, int at) {
  static const double series[] = {1.0 / 6, -1.0 / 120, 1.0 / 5040, -1.0 / 362880, 1.0 / 39916800, -1.0 / 6227020800};
  const double near = 0.25, tiny = 0x1p-100;
  expr_pool *pool = w->pool;
  const quaternion *x = &w->rotors.value[at];
  vector b = part_of(&w->rotors.value[node->arg[0]]), v = part_of(x);
  const expr *square = dot(w, b, b), *size = expr_binary(pool, EXPR_MAX, square, number(w, tiny));
  const expr *first = expr_div(pool, expr_mul(pool, dot(w, v, v), number(w, -2)), size);
  const expr *sine = expr_mul(pool, expr_mul(pool, x->w, dot(w, v, b)), number(w, 2));
  const expr *far = expr_binary(pool, EXPR_MAX, square, number(w, near));
  const expr *rest = expr_div(pool, expr_sub(pool, number(w, 1), expr_div(pool, sine, far)), far);
  const expr *sum = expr_polynomial(pool, square, series, 6);
  const expr *second = expr_select(pool, expr_binary(pool, EXPR_LESS, square, number(w, near)), sum, rest);
  give(w, node->arg[0], jacobian(w, b, w->gained[at], first, second));
}

static void through_sum(walk *w, const spec_rotor *node, int at) {
  for (int k = 0; k < node->n_args; k++) {
    vector b = part_of(&w->rotors.value[node->arg[k]]);
    give(w, node->arg[k], times(w, w->gained[at], node->factor[k]));
    give_factor(w, node->factor[k], dot(w, b, w->gained[at]));
  }
}

/* h^-1 x of a symmetric h, by its adjugate; 0 where it is singular. */
static vector solved(const walk *w, const expr *h[3][3], vector x) {
  expr_pool *pool = w->pool;
  const double singular = 0x1p-36;
  vector row[3], adjugate[3], u;
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) row[i].at[j] = h[i][j];
  for (int i = 0; i < 3; i++) adjugate[i] = cross(w, row[(i + 1) % 3], row[(i + 2) % 3]);
  const expr *determinant = dot(w, row[0], adjugate[0]),
             *is_singular = expr_binary(pool, EXPR_LESS, determinant, number(w, singular));
  const expr *share = expr_div(pool, number(w, 1), expr_binary(pool, EXPR_MAX, determinant, number(w, singular)));
  share = expr_select(pool, is_singular, number(w, 0), share);
  for (int i = 0; i < 3; i++) u.at[i] = expr_mul(pool, dot(w, adjugate[i], x), share);
  return u;
}

/* s (c^2 I - v v^T), added to h. */
static void add_hessian(const walk *w, const quaternion *relative, const expr *share, const expr *h[3][3]) {
  expr_pool *pool = w->pool;
  const expr *diagonal = expr_mul(pool, share, expr_mul(pool, relative->w, relative->w));
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) {
      const expr *product = expr_mul(pool, share, expr_mul(pool, relative->v[i], relative->v[j]));
      const expr *term = expr_sub(pool, i == j ? diagonal : number(w, 0), product);
      h[i][j] = h[i][j] ? expr_add(pool, h[i][j], term) : term;
    }
}

static void through_chordal(walk *w, const spec_rotor *node, int at) {
  expr_pool *pool = w->pool;
  quaternion back = w->rotors.value[at], relative[SPEC_MAX_ARGUMENTS];
  const expr *h[3][3] = {{NULL}}, *share[SPEC_MAX_ARGUMENTS];
  if (node->n_args == 1) {
    give(w, node->arg[0], w->gained[at]);
    return;
  }
  for (int i = 0; i < 3; i++) back.v[i] = expr_neg(pool, back.v[i]);
  for (int k = 0; k < node->n_args; k++) {
    relative[k] = quaternion_product(pool, &w->rotors.value[node->arg[k]], &back);
    share[k] = expr_binary(pool, EXPR_MAX, node->factor[k], number(w, 0));
    add_hessian(w, &relative[k], share[k], h);
  }
  vector u = solved(w, h, w->gained[at]);
  for (int k = 0; k < node->n_args; k++) {
    const expr *c = relative[k].w;
    vector v = part_of(&relative[k]), across = times(w, cross(w, v, u), c);
    const expr *along = dot(w, v, u);
    vector gain = plus(w, across, times(w, u, expr_mul(pool, c, c)));
    gain = plus(w, gain, times(w, v, expr_neg(pool, along)));
    give(w, node->arg[k], times(w, gain, share[k]));
    give_factor(w, node->factor[k], expr_mul(pool, expr_mul(pool, c, along), number(w, 2)));
  }
}

static void through_node(walk *w, const spec_rotor *node, int at) {
  const quaternion *x = &w->rotors.value[node->arg[0]];
  switch (node->op) {
  case ROTOR_PRODUCT:
    give(w, node->arg[0], w->gained[at]);
    give(w, node->arg[1], turned(w, x, w->gained[at], -1));
    return;
  case ROTOR_INVERSE: give(w, node->arg[0], times(w, turned(w, x, w->gained[at], 1), number(w, -1))); return;
  case ROTOR_LOG: through_log(w, node, at); return;
  case ROTOR_EXP: through_exp(w, node, at); return;
  case ROTOR_SUM: through_sum(w, node, at); return;
  case ROTOR_CHORDAL: through_chordal(w, node, at); return;
  default: return;
  }
}

/* ---- between the basis and vectors ---- */

static vector from_basis(const walk *w, const torque_basis *basis, const expr *const *tau) {
  vector t = {{number(w, 0), number(w, 0), number(w, 0)}};
  for (int k = 0; k < basis->count; k++) {
    int sense, i = rotors_direction(basis->spec, basis->element[k].blade, &sense);
    t.at[i] = expr_mul(w->pool, expr_widen(w->pool, tau[k]), number(w, sense));
  }
  return t;
}

int torque_through_function(arena *a, const torque_basis *basis, torque_frame frame, const expr *const *tau,
                            const expr *axis_tau[SPEC_MAX_AXES][SPEC_MAX_BIVECTORS], adjoint_output *factors) {
  const spec *s = basis->spec;
  int last = s->function->count - 1;
  walk w = {.rotors = rotors_build(a, s), .pool = s->pool, .factors = factors};
  w.gained = arena_array(a, vector, last + 1);
  w.is_reached = arena_array(a, bool, last + 1);
  /* What R gains in the frame of x: R T. What R^-1 gains = exp(d) R^-1 in that of y, R = R exp(-d): -R T; in that of x
   * -T. */
  vector t = from_basis(&w, basis, tau);
  if ((frame == TORQUE_OF_X) != s->inverse) t = turned(&w, &w.rotors.value[last], t, 1);
  give(&w, last, s->inverse ? times(&w, t, number(&w, -1)) : t);
  for (int i = last; i >= 0; i--)
    if (w.is_reached[i]) through_node(&w, &s->function->node[i], i);
  for (int axis = 0; axis < s->n_axes; axis++) {
    vector sum = {{number(&w, 0), number(&w, 0), number(&w, 0)}};
    for (int i = 0; i <= last; i++)
      if (s->function->node[i].op == ROTOR_AXIS && s->function->node[i].axis == axis && w.is_reached[i])
        sum = plus(&w, sum, w.gained[i]);
    for (int k = 0; k < basis->count; k++) {
      int sense, i = rotors_direction(s, basis->element[k].blade, &sense);
      axis_tau[axis][k] = expr_mul(w.pool, sum.at[i], number(&w, sense));
    }
  }
  return w.n_factors;
}
