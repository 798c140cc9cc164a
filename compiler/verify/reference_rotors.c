/* verify/reference_rotors: see verify/reference_rotors.h. */
#include "verify/reference_rotors.h"

#include "base/diag.h"

#include <math.h>
#include <stdlib.h>

typedef struct matrix {
  long double at[3][3];
} matrix;

static matrix identity(void) { return (matrix){{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}; }

static matrix times(const matrix *x, const matrix *y) {
  matrix z = {{{0}}};
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++)
      for (int k = 0; k < 3; k++) z.at[i][j] += x->at[i][k] * y->at[k][j];
  return z;
}

static matrix transposed(const matrix *x) {
  matrix z;
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) z.at[i][j] = x->at[j][i];
  return z;
}

/* ---- skew matrices, as three numbers [w] x = w x x ---- */

static matrix skew(const long double *w) { return (matrix){{{0, -w[2], w[1]}, {w[2], 0, -w[0]}, {-w[1], w[0], 0}}}; }

/* Rodrigues: I + sin(t)/t W + 2 sin(t/2)^2/t^2 W^2. */
static matrix exponential(const long double *w) {
  long double t = hypotl(hypotl(w[0], w[1]), w[2]);
  matrix r = identity(), first = skew(w), second = times(&first, &first);
  if (t == 0) return r;
  long double half = sinl(t / 2) / t, odd = sinl(t) / t, even = 2 * half * half;
  for (int i = 0; i < 9; i++) (&r.at[0][0])[i] += odd * (&first.at[0][0])[i] + even * (&second.at[0][0])[i];
  return r;
}

/* The axis of a turn by more than 2 radians, c the cosine: the largest column of the symmetric part less c, which is
 * (1 - c) u u^T; `along` says which way it points. */
static void far_axis(const matrix *r, long double c, const long double *along, long double *u) {
  int largest = 0;
  long double length = 0, sense = 0;
  for (int j = 1; j < 3; j++)
    if (r->at[j][j] > r->at[largest][largest]) largest = j;
  for (int i = 0; i < 3; i++) {
    u[i] = (r->at[i][largest] + r->at[largest][i]) / 2 - (i == largest ? c : 0);
    length = hypotl(length, u[i]);
  }
  for (int i = 0; i < 3; i++) sense += u[i] * along[i];
  for (int i = 0; i < 3; i++) u[i] *= (sense < 0 ? -1 : 1) / length;
}

static void logarithm(const matrix *r, long double *w) {
  long double a[3] = {(r->at[2][1] - r->at[1][2]) / 2, (r->at[0][2] - r->at[2][0]) / 2,
                      (r->at[1][0] - r->at[0][1]) / 2},
              c = (r->at[0][0] + r->at[1][1] + r->at[2][2] - 1) / 2, s = hypotl(hypotl(a[0], a[1]), a[2]);
  long double t = atan2l(s, c), u[3];
  if (t > 2) {
    far_axis(r, cosl(t), a, u);
    for (int i = 0; i < 3; i++) w[i] = t * u[i];
  } else {
    for (int i = 0; i < 3; i++) w[i] = s == 0 ? 0 : a[i] * (t / s);
  }
}

/* ---- the nearest rotation ---- */

static long double column_dot(const matrix *x, int i, int j) {
  return x->at[0][i] * x->at[0][j] + x->at[1][i] * x->at[1][j] + x->at[2][i] * x->at[2][j];
}

static void rotate_columns(matrix *x, int p, int q, long double c, long double s) {
  for (int i = 0; i < 3; i++) {
    long double a = x->at[i][p], b = x->at[i][q];
    x->at[i][p] = c * a - s * b;
    x->at[i][q] = s * a + c * b;
  }
}

/* m v has orthogonal columns afterwards (Hestenes). */
static void orthogonalize(matrix *m, matrix *v) {
  *v = identity();
  for (int sweep = 0; sweep < 60; sweep++) {
    bool turned = false;
    for (int p = 0; p < 2; p++)
      for (int q = p + 1; q < 3; q++) {
        long double pp = column_dot(m, p, p), qq = column_dot(m, q, q), pq = column_dot(m, p, q);
        if (fabsl(pq) <= ldexpl(sqrtl(pp * qq), -66) || pq == 0) continue;
        long double z = (qq - pp) / (2 * pq), t = (z < 0 ? -1 : 1) / (fabsl(z) + sqrtl(1 + z * z));
        long double c = 1 / sqrtl(1 + t * t);
        rotate_columns(m, p, q, c, c * t);
        rotate_columns(v, p, q, c, c * t);
        turned = true;
      }
    if (!turned) return;
  }
}

static void cross(const long double *x, const long double *y, long double *z) {
  for (int i = 0; i < 3; i++) z[i] = x[(i + 1) % 3] * y[(i + 2) % 3] - x[(i + 2) % 3] * y[(i + 1) % 3];
}

/* Some unit vector at right angles to a unit vector. */
static void any_across(const long double *x, long double *y) {
  int least = fabsl(x[0]) <= fabsl(x[1]) && fabsl(x[0]) <= fabsl(x[2]) ? 0 : fabsl(x[1]) <= fabsl(x[2]) ? 1 : 2;
  long double e[3] = {0}, length = 0;
  e[least] = 1;
  cross(x, e, y);
  for (int i = 0; i < 3; i++) length = hypotl(length, y[i]);
  for (int i = 0; i < 3; i++) y[i] /= length;
}

/* u1 v1^T + u2 v2^T + (u1 x u2)(v1 x v2)^T of the two largest singular values: what maximizes tr(R^T m) over rotations,
 * whatever the sign of its determinant. Where m is 0 it is the identity. */
static matrix nearest(matrix m) {
  matrix v, r = {{{0}}};
  orthogonalize(&m, &v);
  int order[3] = {0, 1, 2};
  long double size[3], u[3][3] = {{0}}, w[3][3];
  for (int j = 0; j < 3; j++) size[j] = sqrtl(column_dot(&m, j, j));
  for (int i = 0; i < 2; i++)
    for (int j = i + 1; j < 3; j++)
      if (size[order[j]] > size[order[i]]) {
        int swap = order[i];
        order[i] = order[j], order[j] = swap;
      }
  if (!(size[order[0]] > 0)) return identity();
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < 3; i++) {
      w[k][i] = v.at[i][order[k]];
      u[k][i] = size[order[k]] > 0 ? m.at[i][order[k]] / size[order[k]] : 0;
    }
  if (!(size[order[1]] > 0)) any_across(u[0], u[1]);
  cross(u[0], u[1], u[2]);
  cross(w[0], w[1], w[2]);
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < 3; i++)
      for (int j = 0; j < 3; j++) r.at[i][j] += u[k][i] * w[k][j];
  return r;
}

/* ---- the function ---- */

int reference_rotors_inputs(const spec *s, const expr **out) {
  int count = 0;
  for (int axis = 0; axis < s->n_axes; axis++) {
    out[count++] = s->angle[axis];
    for (int i = 0; i < s->generator[axis].count; i++) out[count++] = s->generator[axis].coefficient[i];
  }
  for (int i = 0; i < s->function->count; i++) {
    const spec_rotor *r = &s->function->node[i];
    if (r->op == ROTOR_CHORDAL || r->op == ROTOR_SUM)
      for (int k = 0; k < r->n_args; k++) out[count++] = r->factor[k];
  }
  return count;
}

/* e_ij takes e_i to -e_i^2 e_j and e_j to e_j^2 e_i; dimensions 0 to 2 are x, y, z. */
static void add_plane(const spec *s, unsigned blade, long double by, long double *w) {
  int i = __builtin_ctz(blade), j = 31 - __builtin_clz(blade), along = 3 - i - j;
  long double square = s->algebra.p > 0 ? 1 : -1, turns_i_to_j = -square * by;
  w[along] += (j - i == 1 ? 1 : -1) * turns_i_to_j; /* x to y about z, y to z about x, z to x about y */
}

/* A node's value; of bivectors w. */
typedef struct node_value {
  matrix r;
  long double w[3];
} node_value;

static node_value apply(const spec_rotor *node, const node_value *values, const long double *factor) {
  node_value out = {.r = identity()};
  const node_value *x = &values[node->arg[0]], *y = &values[node->arg[1]];
  matrix sum = {{{0}}};
  switch (node->op) {
  case ROTOR_PRODUCT: out.r = times(&x->r, &y->r); break;
  case ROTOR_INVERSE: out.r = transposed(&x->r); break;
  case ROTOR_LOG: logarithm(&x->r, out.w); break;
  case ROTOR_EXP: out.r = exponential(x->w); break;
  case ROTOR_SUM:
    for (int k = 0; k < node->n_args; k++)
      for (int i = 0; i < 3; i++) out.w[i] += factor[k] * values[node->arg[k]].w[i];
    break;
  case ROTOR_CHORDAL:
    for (int k = 0; k < node->n_args; k++)
      for (int i = 0; i < 9; i++) (&sum.at[0][0])[i] += fmaxl(factor[k], 0) * (&values[node->arg[k]].r.at[0][0])[i];
    out.r = nearest(sum);
    break;
  default: diag_bug("reference", "operation %d on rotors", (int)node->op);
  }
  return out;
}

/* The rotation of space, and largest_angle (NULL, or [axes]) of each axis. */
static matrix rotation_of(const spec *s, const long double *values, int nudged, const long double *nudge,
                          long double *angle) {
  matrix axis[SPEC_MAX_AXES];
  node_value *node = calloc((size_t)s->function->count, sizeof *node);
  if (!node) diag_bug("reference", "out of memory");
  for (int a = 0; a < s->n_axes; a++) {
    long double w[3] = {0}, theta = *values++;
    for (int i = 0; i < s->generator[a].count; i++) add_plane(s, s->generator[a].blade[i], theta * *values++, w);
    axis[a] = exponential(w);
    if (angle) angle[a] = hypotl(hypotl(w[0], w[1]), w[2]);
    if (nudge && a == nudged) {
      matrix by = exponential(nudge);
      axis[a] = times(&by, &axis[a]);
    }
  }
  for (int i = 0; i < s->function->count; i++) {
    const spec_rotor *r = &s->function->node[i];
    if (r->op == ROTOR_AXIS) {
      node[i].r = axis[r->axis];
      continue;
    }
    node[i] = apply(r, node, values);
    if (r->op == ROTOR_CHORDAL || r->op == ROTOR_SUM) values += r->n_args;
  }
  matrix whole = node[s->function->count - 1].r;
  free(node);
  return s->inverse ? transposed(&whole) : whole;
}

/* The minor of the blades' rows and columns. */
static long double minor_of(const matrix *r, unsigned rows, unsigned columns) {
  if (rows == 0) return 1;
  int i = __builtin_ctz(rows), sign = 1;
  long double sum = 0;
  for (int j = 0; j < 3; j++) {
    if (!(columns >> j & 1)) continue;
    sum += sign * r->at[i][j] * minor_of(r, rows & (rows - 1), columns & ~(1u << j));
    sign = -sign;
  }
  return sum;
}

void reference_rotors_block(const spec *s, const long double *values, int axis, const long double *nudge,
                            long double *matrix_out) {
  matrix r = rotation_of(s, values, axis, nudge, NULL);
  long double amplitude = s->inverse ? 1 / (long double)s->amplitude : (long double)s->amplitude;
  for (int i = 0; i < s->n_components; i++)
    for (int j = 0; j < s->n_components; j++) {
      spec_component row = s->component[i], column = s->component[j];
      bool is_graded = __builtin_popcount(row.blade) == __builtin_popcount(column.blade);
      matrix_out[i * s->n_components + j] =
          is_graded ? amplitude * row.sign * column.sign * minor_of(&r, row.blade, column.blade) : 0;
    }
}

/* How far the rotation moves where that of an axis is turned by `nudge`. */
static long double moved_by(const spec *s, const long double *values, int axis, const long double *nudge,
                            const matrix *here) {
  long double moved = 0;
  matrix there = rotation_of(s, values, axis, nudge, NULL);
  for (int k = 0; k < 9; k++) moved = fmaxl(moved, fabsl((&there.at[0][0])[k] - (&here->at[0][0])[k]));
  return moved;
}

long double reference_rotors_reach(const spec *s, const long double *values, long double step, long double per_radian) {
  long double angle[SPEC_MAX_AXES], sum = 0;
  matrix here = rotation_of(s, values, 0, NULL, angle);
  for (int axis = 0; axis < s->n_axes; axis++)
    for (int i = 0; i < 3; i++) {
      long double nudge[3] = {0};
      if (s->algebra.p + s->algebra.q == 2 && i < 2) continue; /* out of the plane */
      nudge[i] = step + per_radian * angle[axis];
      long double there = moved_by(s, values, axis, nudge, &here);
      nudge[i] = -nudge[i]; /* a cut may be on either side */
      sum += fmaxl(there, moved_by(s, values, axis, nudge, &here));
    }
  return sum;
}
