/* schur: the real Schur form of a skew matrix; see skew.h.
 *
 * Householder reflections make A tridiagonal, A = Q T Q^T. T couples even with odd indices only: with the odd ones
 * first it is (0 -C; C^T 0), C upper bidiagonal. The singular value decomposition C = U Sigma V^T, by implicitly
 * shifted QR steps (Golub and Van Loan, Matrix Computations, 8.6), gives the planes: A takes the vector of u_k to
 * sigma_k times that of v_k, and v_k to -sigma_k times u_k. All rotations go straight into the rows of `basis`.
 */
#include "skew.h"

enum { STEPS_PER_VALUE = 60 }; /* two or three are usual */

static const double EPSILON = 0x1p-53, LARGE = 0x1p256, SMALL = 0x1p-256;

static double root(double x) { return __builtin_sqrt(x); }
static double magnitude(double x) { return x < 0 ? -x : x; }

typedef struct bidiagonal {
  int n, m;                           /* of A; m = n / 2 */
  double d[PEGEN_SCHUR_MAX / 2 + 1];  /* C[k][k] */
  double e[PEGEN_SCHUR_MAX / 2 + 1];  /* C[k][k + 1] */
  double *basis;                      /* rows 2k: the right vectors; 2k + 1: the left ones */
} bidiagonal;

/* ---- rotations ---- */

typedef struct rotation {
  double c, s, r; /* (c s; -s c) takes (x, y) to (r, 0) */
} rotation;

/* Quotients first: squares of tiny numbers would lose the digits that keep the rotation orthogonal. */
static void rotation_to_first(double x, double y, rotation *out) {
  if (y == 0) {
    out->c = 1, out->s = 0, out->r = x;
  } else if (magnitude(x) < magnitude(y)) {
    double t = x / y, u = root(1 + t * t);
    out->s = 1 / u, out->c = t / u, out->r = y * u;
  } else {
    double t = y / x, u = root(1 + t * t);
    out->c = 1 / u, out->s = t / u, out->r = x * u;
  }
}

static void rotate_rows(const bidiagonal *b, int i, int j, const rotation *by) {
  double *x = b->basis + i * b->n, *y = b->basis + j * b->n;
  for (int k = 0; k < b->n; k++) {
    double xk = x[k], yk = y[k];
    x[k] = by->c * xk + by->s * yk;
    y[k] = by->c * yk - by->s * xk;
  }
}

static void rotate_right(const bidiagonal *b, int i, int j, const rotation *by) { rotate_rows(b, 2 * i, 2 * j, by); }
static void rotate_left(const bidiagonal *b, int i, int j, const rotation *by) {
  rotate_rows(b, 2 * i + 1, 2 * j + 1, by);
}

/* ---- tridiagonal ---- */

/* v with (I - tau v v^T) x = alpha e_0 for x = column k below the diagonal; 0 where there is nothing to do. */
static double reflector(const double *a, int n, int k, double *v, double *alpha) {
  double size = 0, square = 0;
  for (int i = k + 1; i < n; i++)
    if (magnitude(a[i * n + k]) > size) size = magnitude(a[i * n + k]);
  if (size == 0) return 0;
  for (int i = k + 1; i < n; i++) {
    v[i] = a[i * n + k] / size;
    square += v[i] * v[i];
  }
  double length = v[k + 1] < 0 ? root(square) : -root(square);
  *alpha = length * size;
  square += length * length - 2 * length * v[k + 1]; /* no cancellation: the signs differ */
  v[k + 1] -= length;
  return 2 / square;
}

/* a -> T in its subdiagonal, basis -> Q^T. A skew A has v^T A v = 0, so both sides' reflection is of rank two. */
static void make_tridiagonal(int n, double *a, double *basis, double *below) {
  double v[PEGEN_SCHUR_MAX], p[PEGEN_SCHUR_MAX];
  for (int k = 0; k + 1 < n; k++) {
    double alpha = a[(k + 1) * n + k];
    double tau = k + 2 < n ? reflector(a, n, k, v, &alpha) : 0;
    below[k] = alpha;
    if (tau == 0) continue;
    for (int i = k + 1; i < n; i++) {
      double sum = 0;
      for (int j = k + 1; j < n; j++) sum += a[i * n + j] * v[j];
      p[i] = tau * sum;
    }
    for (int i = k + 1; i < n; i++)
      for (int j = k + 1; j < n; j++) a[i * n + j] += v[i] * p[j] - p[i] * v[j];
    for (int j = 0; j < n; j++) p[j] = 0;
    for (int i = k + 1; i < n; i++)
      for (int j = 0; j < n; j++) p[j] += v[i] * basis[i * n + j];
    for (int i = k + 1; i < n; i++)
      for (int j = 0; j < n; j++) basis[i * n + j] -= tau * v[i] * p[j];
  }
}

/* ---- singular values of the bidiagonal ---- */

/* Row i of C has d[i] = 0: rotates e[i] out of it to the right, with the rows below. */
static void clear_row(bidiagonal *b, int i, int last) {
  rotation by;
  double f = b->e[i];
  b->e[i] = 0;
  for (int k = i + 1; k <= last && f != 0; k++) {
    rotation_to_first(b->d[k], f, &by);
    rotate_left(b, k, i, &by);
    b->d[k] = by.r;
    f = -by.s * b->e[k];
    if (k < last) b->e[k] *= by.c;
  }
}

/* Column `column` has, in row `from`, the only entry f and nothing on its diagonal: rotates it out upwards,
 * with the columns to the left, as far as row `first`. */
static void clear_column(bidiagonal *b, int column, int from, int first, double f) {
  rotation by;
  for (int k = from; k >= first && f != 0; k--) {
    rotation_to_first(b->d[k], f, &by);
    rotate_right(b, k, column, &by);
    b->d[k] = by.r;
    if (k == first) break;
    f = -by.s * b->e[k - 1];
    b->e[k - 1] *= by.c;
  }
}

/* The eigenvalue of the last 2 x 2 block of C^T C that is nearer to its last entry (Wilkinson's shift). */
static double shift_of(const bidiagonal *b, int first, int last) {
  double above = last - 1 > first ? b->e[last - 2] : 0;
  double p = b->d[last - 1] * b->d[last - 1] + above * above;
  double q = b->d[last] * b->d[last] + b->e[last - 1] * b->e[last - 1];
  double off = b->d[last - 1] * b->e[last - 1], half = (p - q) / 2;
  double size = magnitude(half) > magnitude(off) ? magnitude(half) : magnitude(off);
  if (size == 0) return q;
  double x = half / size, y = off / size, distance = root(x * x + y * y);
  return q - y / (x < 0 ? x - distance : x + distance) * off;
}

/* One implicitly shifted QR step on rows first..last, whose d and e are not zero. */
static void step(bidiagonal *b, int first, int last) {
  double *d = b->d, *e = b->e;
  double y = d[first] * d[first] - shift_of(b, first, last), z = d[first] * e[first];
  rotation by;
  for (int k = first; k < last; k++) {
    rotation_to_first(y, z, &by);
    rotate_right(b, k, k + 1, &by);
    if (k > first) e[k - 1] = by.r;
    y = by.c * d[k] + by.s * e[k];
    e[k] = by.c * e[k] - by.s * d[k];
    z = by.s * d[k + 1];
    d[k + 1] *= by.c;
    rotation_to_first(y, z, &by);
    rotate_left(b, k, k + 1, &by);
    d[k] = by.r;
    y = by.c * e[k] + by.s * d[k + 1];
    d[k + 1] = by.c * d[k + 1] - by.s * e[k];
    if (k + 1 < last) {
      z = by.s * e[k + 1];
      e[k + 1] *= by.c;
    }
  }
  e[last - 1] = y;
}

/* C becomes diagonal; 0 where it does not in STEPS_PER_VALUE steps a value, which has not been seen. */
static int diagonalize(bidiagonal *b) {
  double norm = 0;
  for (int k = 0; k < b->m; k++) {
    double row = magnitude(b->d[k]) + (k + 1 < b->m ? magnitude(b->e[k]) : 0);
    if (row > norm) norm = row;
  }
  int last = b->m - 1, left = STEPS_PER_VALUE * b->m;
  while (last > 0) {
    for (int k = 0; k < last; k++)
      if (magnitude(b->e[k]) <= EPSILON * (magnitude(b->d[k]) + magnitude(b->d[k + 1]))) b->e[k] = 0;
    if (b->e[last - 1] == 0) {
      last--;
      continue;
    }
    int first = last - 1, zero = -1;
    while (first > 0 && b->e[first - 1] != 0) first--;
    for (int k = first; k <= last; k++)
      if (magnitude(b->d[k]) <= EPSILON * norm) b->d[k] = 0, zero = k;
    if (zero >= 0 && zero < last) {
      clear_row(b, zero, last);
    } else if (zero == last) {
      double f = b->e[last - 1];
      b->e[last - 1] = 0;
      clear_column(b, last, last - 1, first, f);
    } else {
      if (left-- == 0) return 0;
      step(b, first, last);
    }
  }
  return 1;
}

/* ---- the whole ---- */

static void swap_rows(double *x, double *y, int n) {
  for (int k = 0; k < n; k++) {
    double value = x[k];
    x[k] = y[k];
    y[k] = value;
  }
}

/* Values to the front by size, signs into the left vectors, left vectors before right ones. */
static void arrange(bidiagonal *b, double *lambda) {
  int n = b->n;
  for (int k = 0; k < b->m; k++) {
    lambda[k] = magnitude(b->d[k]);
    if (b->d[k] < 0)
      for (int j = 0; j < n; j++) b->basis[(2 * k + 1) * n + j] = -b->basis[(2 * k + 1) * n + j];
    swap_rows(b->basis + 2 * k * n, b->basis + (2 * k + 1) * n, n);
  }
  for (int k = 0; k < b->m; k++) {
    int largest = k;
    for (int j = k + 1; j < b->m; j++)
      if (lambda[j] > lambda[largest]) largest = j;
    if (largest == k) continue;
    double value = lambda[k];
    lambda[k] = lambda[largest];
    lambda[largest] = value;
    swap_rows(b->basis + 2 * k * n, b->basis + 2 * largest * n, 2 * n);
  }
}

/* basis += (I - basis basis^T) basis / 2: what hundreds of rotations left of rounding goes, but for a few units. */
static void orthogonalize(int n, double *basis, double *excess) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j <= i; j++) {
      double sum = -(i == j);
      for (int k = 0; k < n; k++) sum += basis[i * n + k] * basis[j * n + k];
      excess[i * n + j] = excess[j * n + i] = sum / 2;
    }
  for (int k = 0; k < n; k++) {
    double column[PEGEN_SCHUR_MAX];
    for (int i = 0; i < n; i++) column[i] = basis[i * n + k];
    for (int i = 0; i < n; i++) {
      double sum = 0;
      for (int j = 0; j < n; j++) sum += excess[i * n + j] * column[j];
      basis[i * n + k] -= sum;
    }
  }
}

static void spoil(int n, double *basis, double *lambda) {
  double nan = __builtin_nan("");
  for (int i = 0; i < n * n; i++) basis[i] = nan;
  for (int k = 0; k < n / 2; k++) lambda[k] = nan;
}

void pegen_schur(int n, double *a, double *basis, double *lambda) {
  double size = 0, spoilt = 0, below[PEGEN_SCHUR_MAX], back = 1;
  int scalings = 0;
  for (int i = 0; i < n * n; i++) {
    spoilt += a[i] * 0; /* NaN where one is not finite */
    if (magnitude(a[i]) > size) size = magnitude(a[i]);
    basis[i] = i % (n + 1) == 0;
  }
  if (spoilt != 0) {
    spoil(n, basis, lambda);
    return;
  }
  /* Squares must neither overflow nor vanish. */
  for (; size > LARGE || (size > 0 && size < SMALL); scalings++) {
    double factor = size > LARGE ? SMALL : LARGE;
    back = size > LARGE ? LARGE : SMALL;
    size *= factor;
    for (int i = 0; i < n * n; i++) a[i] *= factor;
  }
  make_tridiagonal(n, a, basis, below);
  bidiagonal b;
  b.n = n, b.m = n / 2, b.basis = basis;
  for (int k = 0; k < b.m; k++) {
    b.d[k] = -below[2 * k];
    b.e[k] = 2 * k + 2 < n ? below[2 * k + 1] : 0;
  }
  if (n % 2 && n > 1) clear_column(&b, b.m, b.m - 1, 0, b.e[b.m - 1]);
  if (!diagonalize(&b)) {
    spoil(n, basis, lambda);
    return;
  }
  orthogonalize(n, basis, a);
  arrange(&b, lambda);
  for (; scalings > 0; scalings--)
    for (int k = 0; k < b.m; k++) lambda[k] *= back;
}
