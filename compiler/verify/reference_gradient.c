/* verify/reference_gradient: rows, rotors and sums; see verify/reference_gradient.h. Matrices are
 * verify/reference_gradient_dense.c's, sums verify/reference_gradient_sums.c's. */
#include "verify/reference_gradient.h"

#include "verify/reference.h"
#include "verify/reference_map.h"

#include <math.h>
#include <string.h>

/* ---- dual multivectors ---- */

typedef struct multivector {
  long double value[SPEC_MAX_BLADES], tangent[SPEC_MAX_BLADES]; /* by blade */
} multivector;

typedef struct algebra {
  int size;
  signed char sign[SPEC_MAX_BLADES][SPEC_MAX_BLADES];
} algebra;

static algebra algebra_of(const spec_algebra *g) {
  algebra t = {.size = 1 << (g->p + g->q + g->r)};
  for (int a = 0; a < t.size; a++)
    for (int b = 0; b < t.size; b++) t.sign[a][b] = (signed char)reference_sign(g, (unsigned)a, (unsigned)b);
  return t;
}

/* z: neither x nor y. Most coefficients are zeros, of generators and of even multivectors, which are passed over. */
static void multiply_into(const algebra *t, const multivector *x, const multivector *y, multivector *z) {
  int of_y[SPEC_MAX_BLADES], count = 0;
  for (int i = 0; i < t->size; i++) {
    z->value[i] = z->tangent[i] = 0;
    if (y->value[i] != 0 || y->tangent[i] != 0) of_y[count++] = i;
  }
  for (int a = 0; a < t->size; a++) {
    if (x->value[a] == 0 && x->tangent[a] == 0) continue;
    for (int i = 0; i < count; i++) {
      int b = of_y[i], sign = t->sign[a][b];
      if (sign == 0) continue;
      z->value[a ^ b] += sign * x->value[a] * y->value[b];
      z->tangent[a ^ b] += sign * (x->value[a] * y->tangent[b] + x->tangent[a] * y->value[b]);
    }
  }
}

static multivector product(const algebra *t, const multivector *x, const multivector *y) {
  multivector z;
  multiply_into(t, x, y, &z);
  return z;
}

static multivector reversed(const algebra *t, const multivector *x) {
  multivector y = *x;
  for (int a = 0; a < t->size; a++)
    if (__builtin_popcount((unsigned)a) & 2) y.value[a] = -y.value[a], y.tangent[a] = -y.tangent[a];
  return y;
}

/* By its series, scaled until the value is below 1/2, and squared back. */
static multivector exponential(const algebra *t, multivector x) {
  long double norm = 0;
  for (int i = 0; i < t->size; i++) norm += fabsl(x.value[i]);
  if (!isfinite(norm)) {
    multivector undefined;
    for (int i = 0; i < SPEC_MAX_BLADES; i++) undefined.value[i] = undefined.tangent[i] = NAN;
    return undefined;
  }
  int squarings = 0;
  while (ldexpl(norm, -squarings) > 0.5L) squarings++;
  long double scale = ldexpl(1, -squarings);
  for (int i = 0; i < t->size; i++) x.value[i] *= scale, x.tangent[i] *= scale;
  multivector sum = {{1}, {0}}, terms[2] = {sum};
  for (int k = 1; k <= 22; k++) {
    multivector *term = &terms[k & 1];
    multiply_into(t, &terms[!(k & 1)], &x, term);
    for (int i = 0; i < t->size; i++) {
      if (term->value[i] == 0 && term->tangent[i] == 0) continue; /* a division takes as long as a product's row */
      sum.value[i] += term->value[i] /= k;
      sum.tangent[i] += term->tangent[i] /= k;
    }
  }
  for (; squarings > 0; squarings--) {
    multiply_into(t, &sum, &sum, &terms[0]);
    sum = terms[0];
  }
  return sum;
}

/* ---- rotors ---- */

/* angles and coefficients of all axes, as duals: those of axis a begin at start[a], the angle first. */
typedef struct description {
  const spec *spec;
  algebra algebra;
  int start[SPEC_MAX_AXES], count;
  const expr *exprs[SPEC_MAX_AXES * (1 + SPEC_MAX_BIVECTORS)];
  dual value[SPEC_MAX_AXES * (1 + SPEC_MAX_BIVECTORS)];
} description;

static void describe(const spec *s, description *d) {
  d->spec = s;
  d->algebra = algebra_of(&s->algebra);
  d->count = 0;
  for (int axis = 0; axis < s->n_axes; axis++) {
    d->start[axis] = d->count;
    d->exprs[d->count++] = s->angle[axis];
    for (int i = 0; i < s->generator[axis].count; i++) d->exprs[d->count++] = s->generator[axis].coefficient[i];
  }
}

/* exponent += share angle/2 B of an axis. */
static void add_generator(const description *d, int axis, long double share, multivector *exponent) {
  const dual *angle = &d->value[d->start[axis]], *b = angle + 1;
  for (int i = 0; i < d->spec->generator[axis].count; i++) {
    unsigned blade = d->spec->generator[axis].blade[i];
    exponent->value[blade] += share / 2 * angle->value * b[i].value;
    exponent->tangent[blade] += share / 2 * (angle->value * b[i].tangent + angle->tangent * b[i].value);
  }
}

static multivector rotor_of(const description *d, int first, int last, long double share) {
  multivector exponent = {{0}, {0}};
  for (int axis = first; axis <= last; axis++) add_generator(d, axis, share, &exponent);
  return exponential(&d->algebra, exponent);
}

static multivector combined(const description *d) {
  const spec *s = d->spec;
  int last = s->n_axes - 1;
  if (s->combine == COMBINE_SUM) return rotor_of(d, 0, last, 1);
  if (s->combine == COMBINE_MEAN) return rotor_of(d, 0, last, 1.0L / s->n_axes);
  bool is_symmetric = s->combine == COMBINE_SYMMETRIC;
  multivector r = rotor_of(d, s->order[last], s->order[last], 1);
  for (int i = last - 1; i >= 0; i--) {
    multivector factor = rotor_of(d, s->order[i], s->order[i], is_symmetric ? 0.5L : 1);
    r = product(&d->algebra, &factor, &r);
    if (is_symmetric) r = product(&d->algebra, &r, &factor);
  }
  return r;
}

/* How large a tangent's rounding errors may be: dM is 0 where the rotor commutes with all blades of the block. */
static long double noise_of(const algebra *t, const multivector *left, const multivector *right) {
  long double tangents = 0, values = 0;
  for (int i = 0; i < t->size; i++) {
    tangents += fabsl(left->tangent[i]) + fabsl(right->tangent[i]);
    values += fabsl(left->value[i]) + fabsl(right->value[i]);
  }
  return tangents * values * ldexpl(1, -56);
}

/* <outer, dM> and |dM|, Frobenius, for the tangent that d->value holds. */
static long double contract(const description *d, const long double *outer, long double *value) {
  const spec *s = d->spec;
  multivector left = combined(d), right = reversed(&d->algebra, &left);
  if (s->inverse) {
    multivector swap = left;
    left = right, right = swap;
  }
  long double amplitude = s->inverse ? 1 / (long double)s->amplitude : (long double)s->amplitude, square = 0;
  *value = 0;
  for (int j = 0; j < s->n_components; j++) {
    multivector blade = {{0}, {0}};
    blade.value[s->component[j].blade] = s->component[j].sign;
    blade = product(&d->algebra, &left, &blade);
    blade = product(&d->algebra, &blade, &right);
    for (int i = 0; i < s->n_components; i++) {
      long double entry = amplitude * s->component[i].sign * blade.tangent[s->component[i].blade];
      *value += outer[i * s->n_components + j] * entry;
      square += entry * entry;
    }
  }
  if (sqrtl(square) > fabsl(amplitude) * noise_of(&d->algebra, &left, &right)) return sqrtl(square);
  *value = 0;
  return 0;
}

static long double norm_of_tangent(const void *d) {
  static const long double zeros[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  long double value;
  return contract(d, zeros, &value);
}

/* Goes back through gain R by its two factors. */
static void gained_block_backward(const spec *s, const expr_environment *env, reference_outer outer,
                                  const reference_gains *to) {
  int entries = s->n_components * s->n_components;
  spec rotation = *s;
  rotation.gain[0] = rotation.gain[1] = NULL;
  long double scaled[SPEC_MAX_BLADES * SPEC_MAX_BLADES], matrix[SPEC_MAX_BLADES * SPEC_MAX_BLADES],
      product = 0, square = 0, gain = reference_gain_of(s, env->positions, env->operands, env->head, env->block);
  for (int i = 0; i < entries; i++) scaled[i] = gain * outer.sum[i];
  reference_block_backward(&rotation, env, (reference_outer){scaled, fabsl(gain) * outer.size}, to);
  reference_block(&rotation, env->positions, env->operands, env->head, env->block, matrix);
  for (int i = 0; i < entries; i++) product += outer.sum[i] * matrix[i], square += matrix[i] * matrix[i];
  long double slope = s->inverse ? -gain * gain : 1; /* of 1 / gain */
  gradient_sum sum = {slope * product, fabsl(slope) * outer.size * sqrtl(square)};
  reference_expr_backward(s->pool, env, &s->gain[0], 1, &sum, to);
}

/* Each entry gains what its row gained times what its column held. */
static void entries_backward(const spec *s, const expr_environment *env, reference_outer outer,
                             const reference_gains *to) {
  gradient_sum sum[SPEC_MAX_ENTRIES * SPEC_MAX_ENTRIES];
  int count = s->n_components * s->n_components;
  for (int i = 0; i < count; i++) sum[i] = (gradient_sum){outer.sum[i], outer.size};
  reference_expr_backward(s->pool, env, s->entries[0], count, sum, to);
}

/* Rotors of angles and bivectors, by a dual number for each variable. */
static void rotor_backward(const spec *s, const expr_environment *env, reference_outer outer,
                           const reference_gains *to) {
  arena *scratch = arena_create();
  dual_place place = dual_at(scratch, s->pool, env);
  description *d = arena_new(scratch, description);
  const dual_variable *by;
  describe(s, d);
  int count = dual_variables(&place, d->exprs, d->count, &by);
  for (int i = 0; i < count; i++) {
    long double value, norm;
    if (!reference_is_asked(to, &by[i])) continue;
    dual_eval(&place, &by[i], d->exprs, d->count, d->value);
    norm =
        contract(d, outer.sum, &value) + reference_cancelled(d->value, d->count, (reference_slope){d, norm_of_tangent});
    reference_gain(to, &by[i], value, outer.size * norm);
  }
  arena_destroy(scratch);
}

void reference_block_backward(const spec *s, const expr_environment *env, reference_outer outer,
                              const reference_gains *to) {
  if (s->dense) reference_dense_backward(s, env, outer, to);
  else if (s->gain[0]) gained_block_backward(s, env, outer, to);
  else if (s->entries[0]) entries_backward(s, env, outer, to);
  else if (s->function) reference_rotors_backward(s, env, outer, to);
  else rotor_backward(s, env, outer, to);
}

/* ---- rows ---- */

typedef struct walk {
  arena *memory;
  const spec *spec;
  const reference_backward *call;
  long double **basis, **basis_outer; /* [heads of the kernel] */
  long double *basis_size;
} walk;

static const double *positions_of(const walk *w, int64_t set, int64_t token, double *grid) {
  const double *values = w->call->positions;
  return reference_place(w->spec, values ? values + set * w->call->tokens * w->spec->n_axes : NULL, token, grid);
}

static int64_t row_at(const walk *w, const reference_rows *rows, int64_t batch, int64_t head, int64_t token) {
  return ((batch * rows->heads + head) * w->call->tokens + token) * w->spec->head_dim;
}

static void multiply(const long double *c, int n, bool transposed, const long double *x, long double *y) {
  for (int i = 0; i < n; i++) {
    y[i] = 0;
    for (int j = 0; j < n; j++) y[i] += (transposed ? c[j * n + i] : c[i * n + j]) * x[j];
  }
}

static long double norm_of(const long double *x, int n) {
  long double square = 0;
  for (int i = 0; i < n; i++) square += x[i] * x[i];
  return sqrtl(square);
}

/* What a head's C gains: of y = C x it is g x^T, of y = C^T z (turned back) z g^T. */
static void gain_basis(walk *w, int head, const long double *left, const long double *right) {
  int n = w->spec->head_dim;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) w->basis_outer[head][i * n + j] += left[i] * right[j];
  w->basis_size[head] += norm_of(left, n) * norm_of(right, n);
}

/* One token's blocks of a head: the sums that its rows share. */
typedef struct shared_block {
  long double *outer, size;
  const long double *matrix;
} shared_block;

/* A row of x and g: channels of blocks into what the token's rows share, and the gradient of x. */
static void row_backward(walk *w, int head, bool is_turned, shared_block *blocks, const double *x, const double *g,
                         gradient_sum *gradient) {
  const spec *s = w->spec;
  int n = s->n_components, d = s->head_dim;
  long double *in = arena_array(w->memory, long double, 4 * d), *up = in + d, *down = up + d, *out = down + d;
  for (int c = 0; c < d; c++) in[c] = x[c], up[c] = g[c];
  /* in: what blocks read; up: the gradient of what they write. */
  const long double *basis = s->basis ? w->basis[head] : NULL;
  if (basis && !s->inverse) multiply(basis, d, false, in, out), memcpy(in, out, sizeof *in * (size_t)d);
  if (basis && s->inverse) multiply(basis, d, false, up, out), memcpy(up, out, sizeof *up * (size_t)d);
  reference_mapped *mapped = arena_array(w->memory, reference_mapped, d);
  memcpy(down, up, sizeof *down * (size_t)d);
  memcpy(out, in, sizeof *out * (size_t)d);
  for (int c = 0; c < d; c++) gradient[c].size = 0;
  for (int block = 0; is_turned && block < s->n_blocks; block++) {
    const int *channel = s->channel + block;
    long double x_square = 0, g_square = 0;
    for (int i = 0; i < n; i++) {
      int at = channel[i * s->n_blocks];
      mapped[i] = reference_map(s, (double)in[at]);
      if (s->pre) in[at] = mapped[i].value;
      long double size = s->pre ? mapped[i].value_rounding : in[at];
      x_square += size * size, g_square += up[at] * up[at];
    }
    for (int i = 0; i < n; i++) {
      int at = channel[i * s->n_blocks];
      down[at] = out[at] = 0;
      for (int j = 0; j < n; j++) {
        int from = channel[j * s->n_blocks];
        blocks[block].outer[i * n + j] += up[at] * in[from];
        down[at] += blocks[block].matrix[j * n + i] * up[from];
        out[at] += blocks[block].matrix[i * n + j] * in[from];
      }
    }
    blocks[block].size += sqrtl(x_square * g_square);
    for (int i = 0; i < n; i++) {
      down[channel[i * s->n_blocks]] *= mapped[i].slope;
      gradient[channel[i * s->n_blocks]].size = sqrtl(g_square) * mapped[i].slope_rounding;
    }
  }
  if (basis && !s->inverse) {
    long double *first = arena_array(w->memory, long double, d);
    for (int c = 0; c < d; c++) first[c] = x[c];
    gain_basis(w, head, down, first);
    multiply(basis, d, true, down, out), memcpy(down, out, sizeof *down * (size_t)d);
  } else if (basis) {
    long double *last = arena_array(w->memory, long double, d);
    for (int c = 0; c < d; c++) last[c] = g[c];
    gain_basis(w, head, out, last);
  }
  long double whole = basis ? norm_of(up, d) : 0;
  for (int c = 0; c < d; c++) {
    gradient[c].value = down[c];
    if (basis) gradient[c].size = whole;
  }
}

/* Whether no gradient comes in for a token's rows: then none goes out. */
static bool is_quiet(const walk *w, int64_t set, int64_t token, int head) {
  const reference_backward *call = w->call;
  int64_t from = call->position_sets > 1 ? set : 0, to = call->position_sets > 1 ? set + 1 : call->batches;
  const reference_rows *tensors[] = {&call->q, &call->k};
  for (int t = 0; t < 2; t++)
    for (int64_t b = from; b < to; b++)
      for (int64_t h = 0; h < tensors[t]->heads; h++) {
        const double *g = tensors[t]->g + row_at(w, tensors[t], b, h, token);
        for (int c = 0; c < w->spec->head_dim && (w->spec->heads == 1 || h == head); c++)
          if (g[c] != 0) return false;
      }
  return true;
}

/* All rows of one token of a head of the kernel; gradients that are not written are 0. */
static void token_backward(walk *w, int64_t set, int64_t token, int head) {
  const spec *s = w->spec;
  const reference_backward *call = w->call;
  int n = s->n_components;
  bool is_turned = token >= s->skip_tokens;
  double grid[SPEC_MAX_AXES];
  const double *positions = is_turned ? positions_of(w, set, token, grid) : NULL;
  arena *outside = w->memory;
  w->memory = arena_create();
  shared_block *blocks = arena_array(w->memory, shared_block, s->n_blocks + 1);
  for (int block = 0; is_turned && block < s->n_blocks; block++) {
    long double *matrix = arena_array(w->memory, long double, n *n);
    reference_block(s, positions, call->operands, head, block, matrix);
    blocks[block] = (shared_block){arena_array(w->memory, long double, n *n), 0, matrix};
  }
  int64_t from = call->position_sets > 1 ? set : 0, to = call->position_sets > 1 ? set + 1 : call->batches;
  const reference_rows *tensors[] = {&call->q, &call->k};
  for (int t = 0; t < 2; t++)
    for (int64_t b = from; b < to; b++)
      for (int64_t h = 0; h < tensors[t]->heads; h++) {
        if (s->heads > 1 && h != head) continue;
        int64_t at = row_at(w, tensors[t], b, h, token);
        row_backward(w, head, is_turned, blocks, tensors[t]->x + at, tensors[t]->g + at, tensors[t]->gradient + at);
      }
  reference_gains gains = {.operand = call->operand,
                           .input = call->input,
                           .position =
                               call->position ? call->position + (set * call->tokens + token) * s->n_axes : NULL};
  for (int block = 0; is_turned && block < s->n_blocks; block++) {
    expr_environment env = reference_environment(s, positions, call->operands, head, block);
    reference_block_backward(s, &env, (reference_outer){blocks[block].outer, blocks[block].size}, &gains);
  }
  arena_destroy(w->memory);
  w->memory = outside;
}

/* The definition's matrix is a exp(theta A) = a S R S^T. */
void reference_gradients_in_channels(const spec *s, const double *positions, const double *const *operands, int head,
                                     int count, double *const *rows) {
  int n = s->n_components;
  arena *a = arena_create();
  long double *matrix = arena_array(a, long double, n *n), *in = arena_array(a, long double, n);
  for (int block = 0; block < s->n_blocks; block++) {
    reference_block(s, positions, operands, head, block, matrix);
    for (int row = 0; row < count; row++) {
      for (int j = 0; j < n; j++) in[j] = rows[row][s->channel[j * s->n_blocks + block]];
      for (int i = 0; i < n; i++) {
        long double sum = 0;
        for (int j = 0; j < n; j++) sum += matrix[i * n + j] * in[j];
        rows[row][s->channel[i * s->n_blocks + block]] = (double)(sum / s->amplitude / s->amplitude);
      }
    }
  }
  arena_destroy(a);
}

/* ---- sums of the position ---- */

/* g passes through; what was added gains the sum of g over rows. */
static void additive_backward(walk *w, int64_t set, int64_t token, int head) {
  const spec *s = w->spec;
  const reference_backward *call = w->call;
  double grid[SPEC_MAX_AXES];
  bool is_added = token >= s->skip_tokens;
  const double *positions = is_added ? positions_of(w, set, token, grid) : NULL;
  int64_t from = call->position_sets > 1 ? set : 0, to = call->position_sets > 1 ? set + 1 : call->batches;
  reference_gains gains = {.operand = call->operand,
                           .position =
                               call->position ? call->position + (set * call->tokens + token) * s->n_axes : NULL};
  const reference_rows *tensors[] = {&call->q, &call->k};
  for (int c = 0; c < s->head_dim; c++) {
    gradient_sum sum = {0, 0};
    for (int t = 0; t < 2; t++)
      for (int64_t b = from; b < to; b++)
        for (int64_t h = 0; h < tensors[t]->heads; h++) {
          if (s->heads > 1 && h != head) continue;
          int64_t at = row_at(w, tensors[t], b, h, token) + c;
          long double g = tensors[t]->g[at];
          tensors[t]->gradient[at] = (gradient_sum){g, 0};
          sum.value += s->inverse ? -g : g;
          sum.size += fabsl(g);
        }
    expr_environment env = reference_environment(s, positions, call->operands, head, c);
    if (is_added) reference_expr_backward(s->pool, &env, &s->additive->value, 1, &sum, &gains);
  }
}

/* ---- all of a call ---- */

static void begin_basis(walk *w) {
  const spec *s = w->spec;
  w->basis = arena_array(w->memory, long double *, s->heads);
  w->basis_outer = arena_array(w->memory, long double *, s->heads);
  w->basis_size = arena_array(w->memory, long double, s->heads);
  for (int head = 0; s->basis && head < s->heads; head++) {
    w->basis[head] = arena_array(w->memory, long double, s->head_dim * s->head_dim);
    w->basis_outer[head] = arena_array(w->memory, long double, s->head_dim * s->head_dim);
    reference_basis(s, w->call->operands, head, w->basis[head]);
  }
}

static void backward_of(const spec *s, const reference_backward *call) {
  walk w = {.memory = arena_create(), .spec = s, .call = call};
  begin_basis(&w);
  for (int64_t set = 0; set < call->position_sets; set++)
    for (int64_t token = 0; token < call->tokens; token++)
      for (int head = 0; head < s->heads; head++)
        if (is_quiet(&w, set, token, head)) continue;
        else if (s->additive) additive_backward(&w, set, token, head);
        else token_backward(&w, set, token, head);
  reference_gains gains = {.operand = call->operand};
  for (int head = 0; s->basis && head < s->heads; head++)
    reference_basis_backward(s, call->operands, head, w.basis_outer[head], w.basis_size[head], &gains);
  arena_destroy(w.memory);
}

/* ---- heads of several parts ---- */

static int64_t channels_of(const spec *s, const reference_backward *call, const reference_rows *rows) {
  return call->batches * rows->heads * call->tokens * s->head_dim;
}

/* Adds what a part's own axes gain. */
static void add_positions(const spec *s, const spec_part *part, const reference_backward *call,
                          const gradient_sum *own) {
  for (int64_t n = 0; n < call->position_sets * call->tokens; n++)
    for (int axis = 0; axis < part->of->n_axes; axis++, own++) {
      gradient_sum *sum = &call->position[n * s->n_axes + part->axis[axis]];
      sum->value += own->value;
      sum->size += own->size;
    }
}

/* Its gradients of rows, of its own channels. */
static void take_channels(const spec *s, const spec_part *part, const reference_backward *call,
                          const reference_rows *from, const reference_rows *to) {
  for (int64_t row = 0; row < channels_of(s, call, to); row += s->head_dim)
    for (int c = part->first; c < part->first + part->count; c++) to->gradient[row + c] = from->gradient[row + c];
}

static void part_backward(const spec *s, const spec_part *part, const reference_backward *call) {
  arena *a = arena_create();
  int64_t tokens = call->position_sets * call->tokens;
  int axes = part->of->n_axes;
  double *own = arena_array(a, double, tokens *axes), grid[SPEC_MAX_AXES] = {0};
  gradient_sum *gained = arena_array(a, gradient_sum, tokens * axes);
  reference_backward one = *call;
  for (int64_t n = 0; n < tokens; n++) {
    const double *at = call->positions ? call->positions + n * s->n_axes : grid;
    if (!call->positions && n % call->tokens >= s->skip_tokens) reference_grid(s, n % call->tokens, grid);
    reference_place_of_part(part, at, own + n * axes);
  }
  one.positions = own;
  one.position = call->position ? gained : NULL;
  one.q.gradient = arena_array(a, gradient_sum, channels_of(s, call, &call->q) + 1);
  one.k.gradient = arena_array(a, gradient_sum, channels_of(s, call, &call->k) + 1);
  backward_of(part->of, &one);
  take_channels(s, part, call, &one.q, &call->q);
  take_channels(s, part, call, &one.k, &call->k);
  if (call->position) add_positions(s, part, call, gained);
  arena_destroy(a);
}

/* Each part gives the gradients of its own channels, operands and axes; other channels' pass. */
static void parts_backward(const spec *s, const reference_backward *call) {
  const reference_rows *tensors[] = {&call->q, &call->k};
  for (int t = 0; t < 2; t++)
    for (int64_t i = 0; i < channels_of(s, call, tensors[t]); i++)
      tensors[t]->gradient[i] = (gradient_sum){tensors[t]->g[i], 0};
  for (int i = 0; i < s->n_parts; i++) part_backward(s, &s->part[i], call);
}

void reference_encode_backward(const spec *s, const reference_backward *call) {
  if (s->n_parts) {
    parts_backward(s, call);
    return;
  }
  if (!spec_has_sides(s)) {
    backward_of(s, call);
    return;
  }
  for (int side = 0; side < 2; side++) {
    spec one = spec_of_side(s, side);
    reference_backward half = *call;
    *(side ? &half.q : &half.k) = (reference_rows){.heads = 0};
    backward_of(&one, &half);
  }
}
