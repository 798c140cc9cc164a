/* verify/oracle: the reference's answers, remembered, and kernels' rows compared with them; see verify/oracle.h. */
#include "verify/oracle.h"

#include "verify/reference.h"
#include "verify/reference_map.h"

#include <math.h>
#include <string.h>

typedef struct remembered {
  long double *matrix; /* NULL: not yet asked for */
  long double scale;
} remembered;

struct oracle {
  arena *memory;
  const spec *spec;
  int64_t batches, tokens, step;
  const double *positions;
  const double *const *operands;
  const trial_inputs *inputs; /* NULL: rows of a token have one matrix */
  int64_t matrix_batches, heads;
  remembered *block;   /* [matrix_batches][tokens][heads][n_blocks] */
  oracle *part[SPEC_MAX_PARTS]; /* of a description that has them, which has no blocks itself */
  long double **basis; /* [heads]: matrices of the change of basis; NULL: not yet asked for */
};

/* positions [count][axes] of the whole, or those of its grid, as the part's. */
static const double *positions_of_part(arena *a, const spec *s, const spec_part *part, int64_t count,
                                       const double *positions) {
  double *own = arena_array(a, double, count * part->of->n_axes + 1), grid[SPEC_MAX_AXES];
  for (int64_t n = 0; n < count; n++)
    reference_place_of_part(part, reference_place(s, positions, n, grid), own + n * part->of->n_axes);
  return own;
}

oracle *oracle_create(arena *a, const spec *s, int64_t batches, int64_t tokens, const double *positions,
                      const trial_operands *operands) {
  oracle *o = arena_new(a, oracle);
  *o = (oracle){.memory = a,
                .spec = s,
                .batches = batches,
                .tokens = tokens,
                .step = 1,
                .positions = positions,
                .operands = operands->values,
                .matrix_batches = batches,
                .heads = s->heads,
                .basis = arena_array(a, long double *, s->heads)};
  o->block = arena_array(a, remembered, batches * tokens * s->heads * s->n_blocks + 1);
  for (int i = 0; i < s->n_parts; i++) {
    const double *own = positions_of_part(a, s, &s->part[i], batches * tokens, positions);
    o->part[i] = oracle_create(a, s->part[i].of, batches, tokens, own, operands);
  }
  return o;
}

oracle *oracle_part(const oracle *o, int part) { return o->part[part]; }

void oracle_set_inputs(oracle *o, const trial_inputs *inputs, int64_t batches, int64_t heads) {
  o->inputs = inputs;
  o->matrix_batches = batches;
  o->heads = heads;
  o->block = arena_array(o->memory, remembered, batches * o->tokens * heads * o->spec->n_blocks + 1);
}

/* Operands, and behind them the rows of inputs of a row; list [n_operands + n_inputs]. */
static const double *const *operands_of(const oracle *o, int64_t batch, int64_t token, int64_t head,
                                        const double **list) {
  const spec *s = o->spec;
  if (!o->inputs) return o->operands;
  memcpy(list, o->operands, sizeof *list * (size_t)s->n_operands);
  trial_input_rows(s, o->inputs, (batch * o->heads + head) * o->tokens + token, list + s->n_operands);
  return list;
}

void oracle_sample(oracle *o, int64_t step) { o->step = step; }

static bool is_sampled(const oracle *o, int64_t token) {
  return token <= o->spec->skip_tokens || token == o->tokens - 1 || token % o->step == 0;
}

/* ---- matrices ---- */

static long double largest(const long double *entries, int count) {
  long double size = 0;
  for (int i = 0; i < count; i++)
    if (!(fabsl(entries[i]) <= size)) size = fabsl(entries[i]); /* NaN stays */
  return size;
}

/* The product over axes of the largest entry of each axis' action on vectors, to the power of the highest
 * grade that is built from minors: how large numbers get on the way to a matrix that may be small again.
 * Above half the dimensions a grade is as small as its complement, unless the metric is degenerate. */
static long double growth(const spec *s, const double *positions, const double *const *operands, int head, int block) {
  int n = s->algebra.p + s->algebra.q + s->algebra.r, power = 1;
  for (int i = 0; i < s->n_components; i++) {
    int grade = __builtin_popcount(s->component[i].blade);
    if (s->algebra.r == 0 && n - grade < grade) grade = n - grade;
    if (grade > power) power = grade;
  }
  long double product = 1, matrix[SPEC_MAX_DIMENSIONS * SPEC_MAX_DIMENSIONS];
  spec one = *s;
  one.amplitude = 1;
  one.gain[0] = one.gain[1] = NULL;
  one.dual_axes = 0; /* whose entries are as large */
  one.combine = COMBINE_SUM;
  one.n_components = n;
  for (int i = 0; i < n; i++) one.component[i] = (spec_component){1u << i, 1};
  bool together = s->combine == COMBINE_SUM || s->combine == COMBINE_MEAN;
  if (!together) one.n_axes = 1;
  for (int axis = 0; axis < (together ? 1 : s->n_axes); axis++) {
    if (!together) {
      one.angle[0] = s->angle[axis];
      one.generator[0] = s->generator[axis];
    }
    reference_block(&one, positions, operands, head, block, matrix);
    long double size = largest(matrix, n * n);
    if (size > 1) product *= size;
  }
  return powl(product, power);
}

/* What errors of a block's matrix are measured by. */
static long double scale_of(const spec *s, const double *positions, const double *const *operands, int head,
                            int block) {
  long double scale = fabsl(s->inverse ? 1 / (long double)s->amplitude : (long double)s->amplitude) *
                      fabsl(reference_gain_of(s, positions, operands, head, block));
  if (s->entries[0]) {
    long double matrix[SPEC_MAX_ENTRIES * SPEC_MAX_ENTRIES];
    reference_block(s, positions, operands, head, block, matrix);
    return fmaxl(1, largest(matrix, s->n_components * s->n_components));
  }
  if (s->function) return scale * (1 + ldexpl(4 * reference_reach(s, positions, operands, head, block), 22));
  if (s->dense && !s->dense->is_f64) return scale * fmaxl(1, reference_norm(s, positions, operands, head, block));
  return s->algebra.q || s->algebra.r ? scale * growth(s, positions, operands, head, block) : scale;
}

const long double *oracle_matrix(oracle *o, int64_t batch, int64_t token, int head, int block, long double *scale) {
  const spec *s = o->spec;
  int64_t at_batch = o->matrix_batches == 1 ? 0 : batch, at_head = o->heads == 1 ? 0 : head;
  if (o->batches == 1) batch = 0;
  if (s->heads == 1) head = 0;
  remembered *r = &o->block[((at_batch * o->tokens + token) * o->heads + at_head) * s->n_blocks + block];
  if (!r->matrix) {
    double grid[SPEC_MAX_AXES];
    const double *of_batch = o->positions ? o->positions + batch * o->tokens * s->n_axes : NULL,
                 *positions = reference_place(s, of_batch, token, grid);
    const double **list = arena_array(o->memory, const double *, s->n_operands + s->n_inputs + 1);
    const double *const *operands = operands_of(o, at_batch, token, at_head, list);
    r->matrix = arena_array(o->memory, long double, s->n_components * s->n_components);
    reference_block(s, positions, operands, head, block, r->matrix);
    r->scale = scale_of(s, positions, operands, head, block);
  }
  *scale = r->scale;
  return r->matrix;
}

/* ---- rows ---- */

/* row -> C row, or C^T row with `inverse`. */
static void change_basis(oracle *o, int head, long double *row) {
  const spec *s = o->spec;
  int n = s->head_dim, which = s->heads == 1 ? 0 : head;
  if (!o->basis[which]) {
    o->basis[which] = arena_array(o->memory, long double, n *n);
    reference_basis(s, o->operands, which, o->basis[which]);
  }
  const long double *c = o->basis[which];
  long double changed[SPEC_MAX_HEAD_DIM];
  for (int i = 0; i < n; i++) {
    changed[i] = 0;
    for (int j = 0; j < n; j++) changed[i] += (s->inverse ? c[j * n + i] : c[i * n + j]) * row[j];
  }
  memcpy(row, changed, sizeof *row * (size_t)n);
}

static void turn_block(oracle *o, int64_t batch, int64_t token, int head, int block, long double *row,
                       long double *unit) {
  const spec *s = o->spec;
  long double scale, norm = 0, x[SPEC_MAX_BLOCK];
  const long double *matrix = oracle_matrix(o, batch, token, head, block, &scale);
  for (int j = 0; j < s->n_components; j++) {
    x[j] = row[s->channel[j * s->n_blocks + block]];
    long double size = x[j];
    if (s->pre) { /* rows are as they came, and so doubles */
      reference_mapped m = reference_map(s, (double)x[j]);
      x[j] = m.value;
      size = m.value_rounding;
    }
    norm += size * size;
  }
  for (int i = 0; i < s->n_components; i++) {
    int channel = s->channel[i * s->n_blocks + block];
    long double sum = 0, terms = 0;
    for (int j = 0; j < s->n_components; j++) {
      long double term = matrix[i * s->n_components + j] * x[j];
      sum += term;
      terms += fabsl(term);
    }
    row[channel] = sum;
    unit[channel] = scale * sqrtl(norm);
    /* Entries of boosts and shears are larger than 1: a sum rounds in proportion to its terms. */
    if (s->algebra.q || s->algebra.r) unit[channel] = fmaxl(unit[channel], terms);
  }
}

static void turn_blocks(oracle *o, int64_t batch, int64_t token, int head, long double *row, long double *unit) {
  for (int block = 0; block < o->spec->n_blocks && token >= o->spec->skip_tokens; block++)
    turn_block(o, batch, token, head, block, row, unit);
}

void oracle_row(oracle *o, int64_t batch, int64_t token, int head, const double *in, long double *exact,
                long double *unit) {
  const spec *s = o->spec;
  long double norm = 0, largest_unit = 0;
  for (int c = 0; c < s->head_dim; c++) {
    exact[c] = in[c];
    unit[c] = -1;
    norm += exact[c] * exact[c];
  }
  if (s->n_parts) {
    for (int i = 0; i < s->n_parts; i++) turn_blocks(o->part[i], batch, token, head, exact, unit);
    return;
  }
  if (s->basis && !s->inverse) change_basis(o, head, exact);
  turn_blocks(o, batch, token, head, exact, unit);
  if (!s->basis) return;
  if (s->inverse) change_basis(o, head, exact);
  /* Every channel is made of all: errors are measured by the whole row. */
  for (int c = 0; c < s->head_dim; c++) largest_unit = fmaxl(largest_unit, unit[c]);
  for (int c = 0; c < s->head_dim; c++) unit[c] = fmaxl(sqrtl(norm), largest_unit);
}

/* ---- comparisons ---- */

void trial_note(trial_error *worst, trial_error now) {
  if (isnan(now.error)) now.error = INFINITY;
  if (!worst->spoilt && (now.spoilt || now.error > worst->error)) *worst = now;
}

static void compare_row(oracle *o, const DLTensor *in, const DLTensor *out, int64_t b, int64_t h, int64_t n,
                        trial_error *worst) {
  const spec *s = o->spec;
  number_type type = number_type_of(out->dtype);
  double row[SPEC_MAX_HEAD_DIM];
  long double exact[SPEC_MAX_HEAD_DIM], unit[SPEC_MAX_HEAD_DIM];
  for (int c = 0; c < s->head_dim; c++) row[c] = tensor_get(in, b, h, n, c);
  oracle_row(o, b, n, (int)h, row, exact, unit);
  for (int c = 0; c < s->head_dim; c++) {
    const void *from = tensor_at(in, b, h, n, c), *to = tensor_at(out, b, h, n, c);
    double got = number_load(type, to);
    if (unit[c] < 0 && number_type_of(in->dtype) != type) unit[c] = fabsl(exact[c]);
    if (unit[c] < 0) {
      if (memcmp(from, to, in->dtype.bits / 8u) != 0)
        trial_note(worst, (trial_error){0, true, b, h, n, c, got, row[c]});
      continue;
    }
    long double error = fabsl(got - exact[c]);
    if (type != NUMBER_F32) error = fmaxl(0, error - number_half_ulp(type, exact[c]));
    if (error > 0) error /= unit[c];
    trial_note(worst, (trial_error){error, !isfinite(got), b, h, n, c, got, exact[c]});
  }
}

long double trial_product_rounding(const spec *s, number_type type) {
  return spec_rounds_products(s) && type != NUMBER_F32 ? 3 * number_half_ulp(type, 1) : 0;
}

/* Which channels belong to a block. */
static bool *blocked_channels(arena *a, const spec *s) {
  bool *blocked = arena_array(a, bool, s->head_dim);
  for (int i = 0; i < s->n_components * s->n_blocks; i++) blocked[s->channel[i]] = true;
  return blocked;
}

/* ---- outputs in a basis of the kernel's own ---- */

/* A row of a block: exact in the channels' basis, as the kernel gave it, and by how much its numbers' type may be off.
 */
typedef struct turned {
  long double exact[SPEC_MAX_BLOCK], norm, scale;
  double got[SPEC_MAX_BLOCK], rounding[SPEC_MAX_BLOCK];
  int64_t batch, token;
} turned;

static int collect(oracle *o, const DLTensor *in, const DLTensor *out, int64_t head, int block, turned *rows) {
  const spec *s = o->spec;
  number_type type = number_type_of(in->dtype);
  int count = 0;
  for (int64_t b = 0; b < in->shape[0]; b++)
    for (int64_t n = 0; n < in->shape[2]; n++) {
      if (!is_sampled(o, n)) continue;
      turned *row = &rows[count++];
      const long double *matrix = n < s->skip_tokens ? NULL : oracle_matrix(o, b, n, (int)head, block, &row->scale);
      if (!matrix) row->scale = 1;
      row->batch = b, row->token = n, row->norm = 0;
      for (int i = 0; i < s->n_components; i++) {
        row->exact[i] = 0;
        for (int j = 0; j < s->n_components; j++) {
          double x = tensor_get(in, b, head, n, s->channel[j * s->n_blocks + block]);
          row->exact[i] += (matrix ? matrix[i * s->n_components + j] : i == j) * x;
        }
        row->got[i] = tensor_get(out, b, head, n, s->channel[i * s->n_blocks + block]);
        row->rounding[i] = type == NUMBER_F32 ? 0 : (double)number_half_ulp(type, row->got[i]);
        row->norm += row->exact[i] * row->exact[i];
      }
      row->norm = sqrtl(row->norm);
    }
  return count;
}

static void compare_pair(const spec *s, const turned *x, const turned *y, int64_t head, int block, trial_error *worst) {
  long double exact = 0, got = 0, rounding = 0;
  for (int i = 0; i < s->n_components; i++) {
    exact += x->exact[i] * y->exact[i];
    got += (long double)x->got[i] * y->got[i];
    rounding += x->rounding[i] * fabs(y->got[i]) + fabs(x->got[i]) * y->rounding[i] + x->rounding[i] * y->rounding[i];
  }
  long double error = fmaxl(0, fabsl(got - exact) - rounding), unit = (x->scale + y->scale) * x->norm * y->norm;
  if (error > 0) error /= unit;
  if (isnan(got)) error = INFINITY;
  trial_note(worst, (trial_error){error, !isfinite((double)got), y->batch, head, y->token, s->channel[block],
                                  (double)got, exact});
}

/* Vectors are known up to one rotation of a head's block by their inner products. */
static void compare_products(oracle *o, const DLTensor *in, const DLTensor *out, trial_error *worst) {
  const spec *s = o->spec;
  arena *scratch = arena_create();
  bool *blocked = blocked_channels(scratch, s);
  turned *rows = arena_array(scratch, turned, in->shape[0] * in->shape[2] + 1);
  for (int64_t h = 0; h < in->shape[1]; h++)
    for (int block = 0; block < s->n_blocks; block++) {
      int count = collect(o, in, out, h, block, rows);
      for (int i = 0; i < count; i++)
        for (int j = 0; j <= i; j++) compare_pair(s, &rows[j], &rows[i], h, block, worst);
    }
  EACH_NUMBER(in, b, h, n, c)
  if (!blocked[c] && memcmp(tensor_at(in, b, h, n, c), tensor_at(out, b, h, n, c), in->dtype.bits / 8u) != 0)
    trial_note(worst, (trial_error){0, true, b, h, n, c, tensor_get(out, b, h, n, c), 0});
  arena_destroy(scratch);
}

/* ---- what tests call ---- */

void trial_compare_rows(oracle *o, const DLTensor *in, const DLTensor *out, trial_error *worst) {
  if (o->spec->dense && o->spec->dense->map == DENSE_SCHUR) {
    compare_products(o, in, out, worst);
    return;
  }
  EACH_ROW(in, b, h, n)
  if (is_sampled(o, n)) compare_row(o, in, out, b, h, n, worst);
}

static void put_ones(DLTensor *t, const spec *s, int64_t b, int64_t h, int64_t n) {
  for (int block = 0; block < s->n_blocks && b < s->n_components; block++)
    tensor_set(t, b, h, n, s->channel[b * s->n_blocks + block], 1);
}

DLTensor *trial_unit_rows(arena *a, const spec *s, number_type type, int64_t heads, int64_t tokens) {
  int most = s->n_components;
  for (int i = 0; i < s->n_parts; i++)
    if (s->part[i].of->n_components > most) most = s->part[i].of->n_components;
  DLTensor *t = tensor_rows(a, type, ROWS_BHND, most, heads, tokens, s->head_dim);
  EACH_ROW(t, b, h, n) {
    for (int c = 0; c < s->head_dim; c++) tensor_set(t, b, h, n, c, 0);
    put_ones(t, s, b, h, n);
    for (int i = 0; i < s->n_parts; i++) put_ones(t, s->part[i].of, b, h, n);
  }
  return t;
}

void trial_compare_entries(oracle *o, const DLTensor *out, int64_t from, int64_t to, trial_error *worst) {
  const spec *s = o->spec;
  for (int i = 0; i < s->n_parts; i++) {
    o->part[i]->step = o->step;
    trial_compare_entries(o->part[i], out, from, to, worst);
  }
  EACH_ROW(out, b, h, n) {
    if (n < from || n >= to || n < s->skip_tokens || !is_sampled(o, n)) continue;
    for (int block = 0; block < s->n_blocks && b < s->n_components; block++) {
      long double scale;
      /* The batch only says which column; positions are shared. */
      const long double *matrix = oracle_matrix(o, 0, n, (int)h, block, &scale);
      for (int i = 0; i < s->n_components; i++) {
        int channel = s->channel[i * s->n_blocks + block];
        double got = tensor_get(out, b, h, n, channel);
        long double exact = matrix[i * s->n_components + b];
        /* Bounds are absolute: a factor below 1 does not tighten them. */
        trial_note(worst,
                   (trial_error){fabsl(got - exact) / fmaxl(1, scale), !isfinite(got), b, h, n, channel, got, exact});
      }
    }
  }
}

const char *trial_error_text(arena *a, const trial_error *e) {
  return arena_printf(a, "batch %lld head %lld token %lld channel %d: got %.9g, exact %.9Lg, error %.3Lg%s",
                      (long long)e->batch, (long long)e->head, (long long)e->token, e->channel, e->got, e->exact,
                      e->error,
                      !isfinite(e->exact) ? " (what is described, or its derivative, is not finite there)"
                      : e->spoilt         ? " (not finite, or a channel that passes through was changed)"
                                          : "");
}
