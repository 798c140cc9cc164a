/* dense_maker.c: the matrices of dense blocks and of changes of basis; see dense_maker.h. */
#include "dense_maker.h"
#include "skew.h"

enum { MOST_SIZE = 64 /* of a Schur form */ };

static int64_t element_bytes(const pegen_dense *dense) { return dense->is_f64 ? 8 : 4; }

int64_t pegen_maker_generator_bytes(const pegen_dense *dense, const pegen_dense_code *code) {
  if (dense->basis) return code->padded * code->padded * 4;
  if (dense->schur) return code->padded * 8 + dense->size * code->padded * 4;
  int64_t pairs = dense->size * (dense->size - 1) / 2;
  int64_t each = code->lanes ? pairs * code->lanes : code->padded * code->padded;
  return dense->terms * each * element_bytes(dense);
}

int pegen_dense_is_rebased(const pegen_dense *dense) { return dense->schur || dense->basis; }

int64_t pegen_dense_row_bytes(const pegen_dense *dense) {
  return (dense->n_blocks * dense->size * dense->size * 4 + 63) / 64 * 64;
}

static void put_element(const pegen_maker *f, int64_t at, double value) {
  if (f->dense->is_f64) ((double *)f->generators)[at] = value;
  else ((float *)f->generators)[at] = (float)value;
}

/* The generator of a block, transposed as matrices are stored (or not, to turn back, or where the transpose of its
 * exponential is wanted), at lane `lane` of term `term`. */
static void put_generator(const pegen_maker *f, int64_t term, int64_t head, int64_t block, int64_t lane) {
  const pegen_dense *d = f->dense;
  const pegen_skew *g = &d->generators[term];
  int64_t n = d->size, pair = 0;
  const DLTensor *operand = f->args->operands[g->operand];
  pegen_gather_run(operand, g->offset[(g->n_heads > 1 ? head * d->n_blocks : 0) + block], n * n, f->raw);
  double sign = d->inverse != f->transposed ? 1 : -1;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = i + 1; j < n; j++, pair++) {
      double value = sign * (g->difference ? f->raw[i * n + j] - f->raw[j * n + i] : f->raw[i * n + j]);
      if (f->code->lanes) {
        put_element(f, (term * (n * (n - 1) / 2) + pair) * f->code->lanes + lane, value);
        continue;
      }
      int64_t padded = f->code->padded, base = term * padded * padded;
      put_element(f, base + i * padded + j, value);
      put_element(f, base + j * padded + i, -value);
    }
}

void pegen_maker_raw(const pegen_dense *d, const pegen_skew *g, const pegen_args *args, int64_t head, int64_t block,
                     double *raw) {
  int64_t n = d->size;
  pegen_gather_run(args->operands[g->operand], g->offset[(g->n_heads > 1 ? head * d->n_blocks : 0) + block], n * n,
                   raw);
  pegen_skew_make((int)n, g->difference ? PEGEN_SKEW_DIFFERENCE_RULE : PEGEN_SKEW_UPPER_RULE, raw);
}

/* The real Schur form of a block's generator, as emit_turns.h reads it. */
static void put_basis(const pegen_maker *f, int64_t head, int64_t block) {
  const pegen_dense *d = f->dense;
  int64_t n = d->size, padded = f->code->padded;
  double basis[MOST_SIZE * MOST_SIZE], lambda[MOST_SIZE / 2];
  pegen_maker_raw(d, d->generators, f->args, head, block, f->raw);
  pegen_schur((int)n, f->raw, basis, lambda);
  double *values = (double *)f->generators;
  float *columns = (float *)(f->generators + padded * 8);
  for (int64_t i = 0; i < padded; i++) values[i] = i / 2 * 2 + 1 < n ? (i & 1 ? lambda[i / 2] : -lambda[i / 2]) : 0;
  for (int64_t k = 0; k < n; k++)
    for (int64_t i = 0; i < padded; i++) columns[k * padded + i] = i < n ? (float)basis[i * n + k] : 0;
}

/* The change of basis of a head, float32 [padded][padded] column by column. */
static void put_cayley(pegen_maker *f, int64_t head) {
  const pegen_dense *d = f->dense;
  const pegen_skew *g = d->basis;
  int64_t n = d->size, padded = f->code->padded;
  double *basis = PEGEN_STACK((n * n) * 8);
  float *columns = (float *)f->generators;
  if (f->has_basis) return;
  pegen_maker_raw(d, g, f->args, head, 0, f->raw);
  pegen_cayley((int)n, f->raw, basis);
  for (int64_t k = 0; k < padded; k++)
    for (int64_t i = 0; i < padded; i++) columns[k * padded + i] = k < n && i < n ? (float)basis[i * n + k] : 0;
  f->has_basis = g->n_heads == 1;
}

void pegen_maker_start_head(const pegen_maker *f, int64_t head) {
  if (!f->code->prepare) return;
  const pegen_dense *d = f->dense;
  pegen_gather_leaves(d->leaves, d->n_leaves, d->leaf_blocks, d->leaf_lanes, f->args, head, f->leaves);
  f->code->prepare(f->leaves, f->prepared);
}

/* Gathers what blocks [begin, begin + unit) of a head need. */
void pegen_maker_start_unit(pegen_maker *f, int64_t head, int64_t begin) {
  const pegen_dense *d = f->dense;
  if (d->basis) {
    put_cayley(f, head);
    return;
  }
  if (d->schur) {
    put_basis(f, head, begin);
    return;
  }
  int64_t elements = pegen_maker_generator_bytes(d, f->code) / element_bytes(d);
  for (int64_t i = 0; i < elements; i++) put_element(f, i, 0);
  for (int64_t lane = 0; lane < f->code->unit && begin + lane < d->n_blocks; lane++)
    for (int64_t term = 0; term < d->terms; term++) put_generator(f, term, head, begin + lane, lane);
}

/* Bounds of the norms of the generators of a block. */
void pegen_maker_start_norms(pegen_maker *f) {
  const pegen_dense *d = f->dense;
  for (int64_t i = 0; i < d->terms * d->angle_lanes; i++) f->angles[i] = 0;
  for (int64_t term = 0; term < d->terms; term++) {
    f->angles[term * d->angle_lanes] = 1;
    f->code->bound(f->generators, f->angles, &f->norms[term]);
    f->angles[term * d->angle_lanes] = 0;
  }
}

void pegen_dense_transpose(int64_t n, float *matrix) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++) {
      float value = matrix[i * n + j];
      matrix[i * n + j] = matrix[j * n + i];
      matrix[j * n + i] = value;
    }
}

/* The matrix of a token in the basis of the others that is not turned itself. */
static void make_unturned(const pegen_maker *f, char *out) {
  const pegen_dense *d = f->dense;
  if (d->basis) {
    for (int64_t k = 0; k < d->size; k++)
      for (int64_t i = 0; i < d->size; i++)
        ((float *)out)[k * d->size + i] = ((const float *)f->generators)[k * f->code->padded + i];
    return;
  }
  for (int64_t i = 0; i < d->terms * d->angle_lanes; i++) f->angles[i] = 0;
  f->code->matrix(f->generators, f->angles, out);
}

void pegen_maker_numbers(const pegen_maker *f, const pegen_loop *loop, int64_t grid, int64_t token,
                         pegen_angles_function *angles) {
  double position[PEGEN_MAKER_AXES];
  if (grid) pegen_grid_position(f->driver->kernel, token, position);
  else pegen_driver_position(loop, token, f->driver->kernel->n_axes, position);
  angles(position, f->prepared, f->angles);
}

void pegen_maker_angles(const pegen_maker *f, const pegen_loop *loop, int64_t grid, int64_t token) {
  pegen_maker_numbers(f, loop, grid, token, f->code->angles);
}

/* Forms the unit's matrices for a token of a stream whose positions begin at loop->positions. */
void pegen_maker_unit(const pegen_maker *f, const pegen_loop *loop, int64_t grid, int64_t token, int64_t begin,
                      char *out) {
  if (token < f->driver->kernel->skip_tokens) {
    make_unturned(f, out);
  } else {
    pegen_maker_angles(f, loop, grid, token);
    int whole = begin + f->code->unit <= f->dense->n_blocks;
    (whole ? f->code->matrix : f->code->matrix_rest)(f->generators, f->angles + begin, out);
  }
  int turns = f->dense->basis ? f->dense->inverse != f->transposed : f->dense->schur && f->transposed;
  if (turns) pegen_dense_transpose(f->dense->size, (float *)out);
}
