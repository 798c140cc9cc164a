/* dense_finish.c: from chunks' sums to what operands of dense blocks gain, and the sizes of these sums; see
 * dense_backward.h.
 */
#include "dense_backward.h"
#include "skew.h"

enum { MOST_CHUNKS = 32 };

/* ---- sizes ---- */

static int64_t pairs_of(const pegen_dense *d) { return d->size * (d->size - 1) / 2; }

int64_t pegen_dense_gained(const pegen_dense *d, const pegen_dense_code *code) {
  return code->lanes ? pairs_of(d) * code->lanes : code->padded * code->padded;
}

int64_t pegen_dense_outer_bytes(const pegen_dense *d, const pegen_dense_code *code) {
  return (code->lanes ? d->size * d->size * code->lanes : code->padded * code->padded) * (d->is_f64 ? 8 : 4);
}

int64_t pegen_dense_generator_sums(const pegen_dense *d, const pegen_dense_code *code) {
  return (d->n_blocks + code->unit - 1) / code->unit * d->terms * pegen_dense_gained(d, code);
}

int64_t pegen_dense_head_sums(const pegen_dense *d, const pegen_dense_code *code) {
  return pegen_dense_generator_sums(d, code) + (d->gradient ? d->gradient->n_sums * d->leaf_lanes : 0);
}

/* A block's sums, and where they are taken to another basis its matrix and a product. */
static int64_t finish_numbers(const pegen_dense *d) { return d->size * d->size * (pegen_dense_is_rebased(d) ? 3 : 1); }

void pegen_dense_facts(const pegen_driver *driver, pegen_backward_facts *facts) {
  const pegen_dense *d = driver->form;
  const pegen_gradient *of = d->gradient;
  int64_t most = 0, of_angles = of ? (of->n_sums + of->n_scatters) * d->leaf_lanes : 0, of_block = finish_numbers(d);
  facts->row_bytes = pegen_dense_row_bytes(d);
  facts->has_operands = d->targets[0].adjoint != 0;
  facts->has_positions = facts->has_operands && of && of->has_positions;
  facts->needs_kept = 1;
  facts->needs_input = 0;
  facts->most_chunks = MOST_CHUNKS;
  for (int64_t i = 0; i < driver->n_targets && facts->has_operands; i++)
    if (pegen_dense_head_sums(d, &d->targets[i]) > most) most = pegen_dense_head_sums(d, &d->targets[i]);
  facts->sums_bytes = pegen_heads_apart(driver) * most * 8;
  facts->finish_bytes = (of_angles > of_block ? of_angles : of_block) * 8;
  facts->token_bytes = pegen_dense_is_rebased(d) ? (d->gain_terms * d->gain_lanes + driver->kernel->n_axes) * 8 : 0;
  facts->widens = facts->has_inputs = 0;
  pegen_tuning tuning;
  int target = pegen_dispatch(driver, &tuning);
  const pegen_dense_code *code = &d->targets[target < 0 ? 0 : target];
  int64_t units = (d->n_blocks + code->unit - 1) / code->unit;
  facts->torque_bytes = facts->has_operands ? (units * pegen_dense_outer_bytes(d, code) + 63) / 64 * 64 : 0;
  facts->torque_layout = target + 1;
}

/* ---- generators ---- */

/* A block's gains of a generator over all chunks, in their order, as [size][size] above the diagonal, in the basis of a
 * Schur form all of it: f->sums. */
static void sum_block(const pegen_finish *f, const pegen_dense_code *code, int64_t head, int64_t term, int64_t block) {
  const pegen_dense *d = f->driver->form;
  int64_t n = d->size, chunks = pegen_backward_chunks(f->call), step = f->call->facts->sums_bytes / 8;
  int64_t at =
      head * pegen_dense_head_sums(d, code) + (block / code->unit * d->terms + term) * pegen_dense_gained(d, code);
  const double *from = (const double *)f->args->workspace + at;
  pegen_clear((char *)f->sums, n * n * 8);
  for (int64_t chunk = 0; chunk < chunks; chunk++, from += step)
    for (int64_t i = 0, pair = 0; i < n; i++)
      for (int64_t j = pegen_dense_is_rebased(d) ? 0 : i + 1; j < n; j++, pair++)
        f->sums[i * n + j] += from[code->lanes ? pair * code->lanes + block % code->unit : i * code->padded + j];
}

/* f->sums = G - G^T of the G that it holds. */
static void make_skew(const pegen_finish *f, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j <= i; j++) {
      double value = f->sums[i * n + j] - f->sums[j * n + i];
      f->sums[i * n + j] = value;
      f->sums[j * n + i] = -value;
    }
}

static void transpose(int64_t n, double *x) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++) {
      double value = x[i * n + j];
      x[i * n + j] = x[j * n + i];
      x[j * n + i] = value;
    }
}

/* f->sums = factor X^T A X of the A that it holds; product: room for a matrix. */
static void change(const pegen_finish *f, int64_t n, double factor, const double *x, double *product) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t column = 0; column < n; column++) product[i * n + column] = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++)
      for (int64_t column = 0; column < n; column++) product[i * n + column] += f->sums[i * n + j] * x[j * n + column];
  for (int64_t i = 0; i < n * n; i++) f->sums[i] = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t row = 0; row < n; row++)
      for (int64_t column = 0; column < n; column++)
        f->sums[row * n + column] += factor * x[i * n + row] * product[i * n + column];
}

/* Replaces a block's matrix G in f->sums, which is in the basis S of its Schur form, by S (G - G^T) S^T. */
static void to_channels(const pegen_finish *f, int64_t head, int64_t block) {
  const pegen_dense *d = f->driver->form;
  int64_t n = d->size;
  double *raw = f->sums + n * n, *basis = raw + n * n, lambda[PEGEN_SCHUR_MAX / 2];
  pegen_maker_raw(d, d->generators, f->args, head, block, raw);
  pegen_schur((int)n, raw, basis, lambda);
  make_skew(f, n);
  change(f, n, 1, basis, raw);
}

/* Computes the gradient of A, where C = (I - A)(I + A)^-1: -1/2 (I + C)^T tau (I + C), with tau the torque of u = C x.
 * tau is G^T - G for the G that f->sums holds. Where rows are turned back, y = C^T u, tau is C (G^T - G) C^T. */
static void through_cayley(const pegen_finish *f, int64_t head) {
  const pegen_dense *d = f->driver->form;
  int64_t n = d->size;
  double *raw = f->sums + n * n, *basis = raw + n * n;
  pegen_maker_raw(d, d->basis, f->args, head, 0, raw);
  pegen_cayley((int)n, raw, basis);
  make_skew(f, n);
  if (d->inverse) {
    transpose(n, basis);
    change(f, n, 1, basis, raw);
    transpose(n, basis);
  }
  for (int64_t i = 0; i < n; i++) basis[i * n + i] += 1;
  change(f, n, 0.5, basis, raw);
}

static void add_element(const pegen_finish *f, int64_t at, double value) {
  if (at >= f->begin && at < f->end) f->elements[at] += value;
}

/* What f->sums holds above the diagonal, to the raw matrix that begins at `first`. */
static void add_skew(const pegen_finish *f, const pegen_skew *g, int64_t first, double sign) {
  int64_t n = ((const pegen_dense *)f->driver->form)->size;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = i + 1; j < n; j++) {
      double value = sign * f->sums[i * n + j];
      add_element(f, first + i * n + j, value);
      if (g->difference) add_element(f, first + j * n + i, -value);
    }
}

/* What a head's blocks give a generator's raw matrices. */
static void add_generator(const pegen_finish *f, const pegen_dense_code *code, int64_t head, int64_t term) {
  const pegen_dense *d = f->driver->form;
  const pegen_skew *g = &d->generators[term];
  int64_t n = d->size, line = pegen_finish_line(f, g->operand);
  if (!f->call->grad->operands[g->operand]) return;
  for (int64_t block = 0; block < d->n_blocks; block++) {
    int64_t first = line + g->offset[(g->n_heads > 1 ? head * d->n_blocks : 0) + block];
    if (first >= f->end || first + n * n <= f->begin) continue;
    sum_block(f, code, head, term, block);
    if (d->schur) to_channels(f, head, block);
    add_skew(f, g, first, d->inverse ? -1 : 1);
  }
}

/* What a head gives the change of basis. */
static void add_basis(const pegen_finish *f, const pegen_dense_code *code, int64_t head) {
  const pegen_dense *d = f->driver->form;
  const pegen_skew *g = d->basis;
  int64_t n = d->size;
  if (!f->call->grad->operands[g->operand]) return;
  int64_t first = pegen_finish_line(f, g->operand) + g->offset[g->n_heads > 1 ? head : 0];
  if (first >= f->end || first + n * n <= f->begin) return;
  sum_block(f, code, head, 0, 0);
  through_cayley(f, head);
  add_skew(f, g, first, 1);
}

static int finish_sums(const pegen_driver *driver, const pegen_args *args, const pegen_backward_call *call, int target,
                       int part, int parts) {
  const pegen_dense *d = driver->form;
  pegen_finish f;
  const pegen_dense_code *code = &d->targets[target];
  f.of = d->gradient;
  f.code = d->gradient ? &d->gradient->targets[target] : 0;
  f.n_blocks = d->leaf_blocks;
  f.lanes = d->leaf_lanes;
  if (!pegen_finish_begin(&f, driver, args, call, part, parts)) return 0;
  for (int64_t head = 0; head < pegen_heads_apart(driver); head++) {
    if (d->basis) add_basis(&f, code, head);
    for (int64_t term = 0; term < d->terms && !d->basis; term++) add_generator(&f, code, head, term);
    if (d->gradient && d->gradient->n_sums)
      pegen_finish_head(&f, head, head * pegen_dense_head_sums(d, code) + pegen_dense_generator_sums(d, code));
  }
  pegen_finish_store(&f);
  return 0;
}

PEGEN_BACKWARD_ENTRY(pegen_dense_encode_backward_finish, pegen_dense_facts, pegen_check_backward, finish_sums)
PEGEN_BACKWARD_ENTRY(pegen_dense_prepare_backward_finish, pegen_dense_facts, pegen_check_prepare_backward, finish_sums)
PEGEN_SIZE_ENTRY(pegen_dense_prepare_backward_workspace, pegen_dense_facts, pegen_prepare_backward_needs)
PEGEN_SIZE_ENTRY(pegen_dense_gradient_table_bytes, pegen_dense_facts, pegen_gradient_table_size)
PEGEN_SIZE_ENTRY(pegen_dense_encode_backward_workspace, pegen_dense_facts, pegen_backward_needs)
