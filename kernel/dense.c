/* dense.c: blocks that turn by exponentials of skew matrices. Matrices are formed from positions and operands and
 * multiplied with rows, or formed into a table first; results are the same to the bit however the work is parted.
 * Without a table a matrix that serves few rows need not be formed: its exponential then acts on them, within the same
 * bounds.
 *
 * Forming walks head by head and unit by unit of blocks, so that a unit's generators are gathered once for all tokens.
 */
#include "dense.h"
#include "skew.h"
#include "table.h"

enum { CACHE_LINE_BITS = 512, MOST_SIZE = 64 /* of a Schur form */, MOST_UNIT = 16, MOST_AXES = PEGEN_MAX_ROTOR_AXES };

/* Forms the matrices of one head after the other. */
typedef struct maker {
  const pegen_driver *driver;
  const pegen_dense *dense;
  const pegen_dense_code *code;
  const pegen_args *args;
  char *generators, *prepared;
  double *leaves, *angles, *raw;
  int64_t matrix_bytes; /* of a block */
  int has_basis;        /* generators hold the change of basis of all heads */
  double norms[MOST_AXES]; /* bounds of the generators', where the action may be taken */
} maker;

static int64_t element_bytes(const pegen_dense *dense) { return dense->is_f64 ? 8 : 4; }

static int64_t generator_bytes(const pegen_dense *dense, const pegen_dense_code *code) {
  if (dense->basis) return dense->size * dense->size * 4;
  if (dense->schur) return code->padded * 8 + dense->size * code->padded * 4;
  int64_t pairs = dense->size * (dense->size - 1) / 2;
  int64_t each = code->lanes ? pairs * code->lanes : code->padded * code->padded;
  return dense->terms * each * element_bytes(dense);
}

/* Every token, turned or not, is in another basis than the channels' own. */
static int is_rebased(const pegen_dense *dense) { return dense->schur || dense->basis; }

static int64_t row_bytes(const pegen_dense *dense) {
  return (dense->n_blocks * dense->size * dense->size * 4 + 63) / 64 * 64;
}

/* The memory that forming works on, on the caller's stack. */
#define FORMER_START(f, driver_, code_, args_) \
  do { \
    const pegen_dense *d_ = (driver_)->form; \
    (f)->driver = (driver_); \
    (f)->dense = d_; \
    (f)->code = (code_); \
    (f)->args = (args_); \
    (f)->matrix_bytes = d_->size * d_->size * 4; \
    (f)->has_basis = 0; \
    (f)->generators = __builtin_alloca_with_align((size_t)generator_bytes(d_, (code_)), CACHE_LINE_BITS); \
    (f)->prepared = __builtin_alloca_with_align((size_t)d_->prepared_bytes + 64, CACHE_LINE_BITS); \
    (f)->leaves = __builtin_alloca_with_align((size_t)(d_->n_leaves * d_->leaf_lanes) * 8 + 64, CACHE_LINE_BITS); \
    (f)->angles = __builtin_alloca_with_align((size_t)(d_->terms * d_->angle_lanes) * 8 + 64, CACHE_LINE_BITS); \
    (f)->raw = __builtin_alloca_with_align((size_t)(d_->size * d_->size) * 8, CACHE_LINE_BITS); \
    for (int64_t i_ = 0; i_ < d_->terms * d_->angle_lanes; i_++) \
      (f)->angles[i_] = 0; /* lanes past the last block stay so */ \
  } while (0)

static void put_element(const maker *f, int64_t at, double value) {
  if (f->dense->is_f64) ((double *)f->generators)[at] = value;
  else ((float *)f->generators)[at] = (float)value;
}

/* The generator of a block, transposed as matrices are stored (or not, to turn back), at lane `lane` of term `term`. */
static void put_generator(const maker *f, int64_t term, int64_t head, int64_t block, int64_t lane) {
  const pegen_dense *d = f->dense;
  const pegen_skew *g = &d->generators[term];
  int64_t n = d->size, pair = 0;
  const DLTensor *operand = f->args->operands[g->operand];
  pegen_gather_run(operand, g->offset[(g->n_heads > 1 ? head * d->n_blocks : 0) + block], n * n, f->raw);
  double sign = d->inverse ? 1 : -1;
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

/* The real Schur form of a block's generator, as emit_turns.h reads it. */
static void put_basis(const maker *f, int64_t head, int64_t block) {
  const pegen_dense *d = f->dense;
  const pegen_skew *g = d->generators;
  int64_t n = d->size, padded = f->code->padded;
  double basis[MOST_SIZE * MOST_SIZE], lambda[MOST_SIZE / 2];
  pegen_gather_run(f->args->operands[g->operand], g->offset[(g->n_heads > 1 ? head * d->n_blocks : 0) + block], n * n,
                   f->raw);
  pegen_skew_make((int)n, g->difference ? PEGEN_SKEW_DIFFERENCE_RULE : PEGEN_SKEW_UPPER_RULE, f->raw);
  pegen_schur((int)n, f->raw, basis, lambda);
  double *values = (double *)f->generators;
  float *columns = (float *)(f->generators + padded * 8);
  for (int64_t i = 0; i < padded; i++) values[i] = i / 2 * 2 + 1 < n ? (i & 1 ? lambda[i / 2] : -lambda[i / 2]) : 0;
  for (int64_t k = 0; k < n; k++)
    for (int64_t i = 0; i < padded; i++) columns[k * padded + i] = i < n ? (float)basis[i * n + k] : 0;
}

/* The change of basis of a head, float32 [size][size] column by column. */
static void put_cayley(maker *f, int64_t head) {
  const pegen_dense *d = f->dense;
  const pegen_skew *g = d->basis;
  int64_t n = d->size;
  double *basis = __builtin_alloca_with_align((size_t)(n * n) * 8, CACHE_LINE_BITS);
  float *columns = (float *)f->generators;
  if (f->has_basis) return;
  pegen_gather_run(f->args->operands[g->operand], g->offset[g->n_heads > 1 ? head : 0], n * n, f->raw);
  pegen_skew_make((int)n, g->difference ? PEGEN_SKEW_DIFFERENCE_RULE : PEGEN_SKEW_UPPER_RULE, f->raw);
  pegen_cayley((int)n, f->raw, basis);
  for (int64_t k = 0; k < n; k++)
    for (int64_t i = 0; i < n; i++) columns[k * n + i] = (float)basis[i * n + k];
  f->has_basis = g->n_heads == 1;
}

static void start_head(const maker *f, int64_t head) {
  if (!f->code->prepare) return;
  const pegen_dense *d = f->dense;
  pegen_gather_leaves(d->leaves, d->n_leaves, d->leaf_blocks, d->leaf_lanes, f->args, head, f->leaves);
  f->code->prepare(f->leaves, f->prepared);
}

/* Gathers what blocks [begin, begin + unit) of a head need. */
static void start_unit(maker *f, int64_t head, int64_t begin) {
  const pegen_dense *d = f->dense;
  if (d->basis) {
    put_cayley(f, head);
    return;
  }
  if (d->schur) {
    put_basis(f, head, begin);
    return;
  }
  int64_t elements = generator_bytes(d, f->code) / element_bytes(d);
  for (int64_t i = 0; i < elements; i++) put_element(f, i, 0);
  for (int64_t lane = 0; lane < f->code->unit && begin + lane < d->n_blocks; lane++)
    for (int64_t term = 0; term < d->terms; term++) put_generator(f, term, head, begin + lane, lane);
}

/* Bounds of the norms of the generators of a block. */
static void start_norms(maker *f) {
  const pegen_dense *d = f->dense;
  for (int64_t i = 0; i < d->terms * d->angle_lanes; i++) f->angles[i] = 0;
  for (int64_t term = 0; term < d->terms; term++) {
    f->angles[term * d->angle_lanes] = 1;
    f->code->bound(f->generators, f->angles, &f->norms[term]);
    f->angles[term * d->angle_lanes] = 0;
  }
}

static void transpose(int64_t n, float *matrix) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++) {
      float value = matrix[i * n + j];
      matrix[i * n + j] = matrix[j * n + i];
      matrix[j * n + i] = value;
    }
}

/* The matrix of a token in the basis of the others that is not turned itself. */
static void make_unturned(const maker *f, char *out) {
  const pegen_dense *d = f->dense;
  if (d->basis) {
    for (int64_t i = 0; i < d->size * d->size; i++) ((float *)out)[i] = ((const float *)f->generators)[i];
    return;
  }
  for (int64_t i = 0; i < d->terms * d->angle_lanes; i++) f->angles[i] = 0;
  f->code->matrix(f->generators, f->angles, out);
}

static void token_angles(const maker *f, const pegen_loop *loop, int64_t grid, int64_t token) {
  double position[MOST_AXES];
  if (grid) pegen_grid_position(f->driver->kernel, token, position);
  else pegen_driver_position(loop, token, f->driver->kernel->n_axes, position);
  f->code->angles(position, f->prepared, f->angles);
}

/* Forms the unit's matrices for a token of a stream whose positions begin at loop->positions. */
static void make_unit(const maker *f, const pegen_loop *loop, int64_t grid, int64_t token, int64_t begin, char *out) {
  if (token < f->driver->kernel->skip_tokens) {
    make_unturned(f, out);
  } else {
    token_angles(f, loop, grid, token);
    int whole = begin + f->code->unit <= f->dense->n_blocks;
    (whole ? f->code->matrix : f->code->matrix_rest)(f->generators, f->angles + begin, out);
  }
  if (f->dense->basis && f->dense->inverse) transpose(f->dense->size, (float *)out);
}

/* ---- prepare ---- */

static void prepare_section(maker *f, const pegen_stream *stream, const pegen_table_header *h, int s, int part,
                            int parts) {
  int64_t begin, end, skip = f->driver->kernel->skip_tokens, unit = f->code->unit;
  char *section = (char *)f->args->table + pegen_table_section(h, s);
  pegen_loop loop;
  if (!pegen_share(h->batches[s] * h->tokens[s], part, parts, &begin, &end)) return;
  for (int64_t head = 0; head < h->heads; head++) {
    start_head(f, head);
    for (int64_t block = 0; block < f->dense->n_blocks; block += unit) {
      start_unit(f, head, block);
      for (int64_t item = begin; item < end; item++) {
        int64_t batch = item / h->tokens[s], token = item - batch * h->tokens[s];
        if (token < skip && !is_rebased(f->dense)) continue;
        pegen_set_positions(&loop, stream, batch);
        make_unit(f, &loop, stream->grid, token, block,
                  section + (item * h->heads + head) * h->row_bytes + block * f->matrix_bytes);
      }
    }
  }
}

int pegen_dense_prepare(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  const pegen_dense *dense = driver->form;
  pegen_call call;
  pegen_table_header header;
  maker f;
  int target, error = pegen_table_begin(driver, args, part, parts, row_bytes(dense), &call, &header, &target);
  if (error) return error;
  FORMER_START(&f, driver, &dense->targets[target], args);
  for (int s = 0; s < header.sections; s++) prepare_section(&f, &call.stream[s], &header, s, part, parts);
  return 0;
}

size_t pegen_dense_table_bytes(const pegen_driver *driver, const pegen_args *args) {
  return pegen_table_size(driver, args, row_bytes(driver->form));
}

/* ---- encode ---- */

/* The streams that share tokens and matrices. */
typedef struct dense_pass {
  const pegen_driver *driver;
  const pegen_dense_code *code;
  const pegen_args *args;
  pegen_apply_function *apply, *act;
  const pegen_stream *streams[2];
  int n, tabled, section;
  pegen_apply work;
  maker *maker; /* without a table: what forms a unit's matrices of one token at a time */
  char *matrices; /* of that unit */
} dense_pass;

/* Tokens that are not turned, in every batch of the work. */
static int64_t copy_prefix(dense_pass *p, int64_t begin, int64_t end) {
  int64_t skip = p->driver->kernel->skip_tokens, stop = end < skip ? end : skip;
  if (begin >= stop || is_rebased(p->driver->form)) return begin;
  for (int i = 0; i < p->n; i++)
    for (int64_t batch = p->work.batch_begin; batch < p->work.batch_end && !p->streams[i]->in_place; batch++)
      pegen_copy_tokens(p->streams[i], batch, begin, stop);
  return stop;
}

static void run_tabled(dense_pass *p, int64_t begin, int64_t end) {
  const pegen_table_header *h = p->args->table;
  const pegen_dense *dense = p->driver->form;
  int64_t batch = h->batches[p->section] > 1 ? p->work.batch_begin : 0;
  p->work.matrix_head = h->row_bytes;
  p->work.matrix_token = h->heads * h->row_bytes;
  p->work.matrices = (const char *)p->args->table + pegen_table_section(h, p->section) +
                     batch * h->tokens[p->section] * p->work.matrix_token;
  p->work.token_begin = begin;
  p->work.token_end = end;
  p->work.block_begin = 0;
  p->work.block_end = dense->n_blocks;
  p->apply(&p->work);
}

/* Coefficients of Chebyshev's series of exp(M) - 1, 2 J_k(norm) and J_0(norm) - 1, by Miller's algorithm: Bessel
 * functions by their recurrence from where they vanish downwards, then scaled by J_0 + 2 (J_2 + J_4 + ...) = 1. Gives
 * their number: what is left out is less than 2^-26. */
static int64_t chebyshev(double norm, float *c) {
  double bessel[PEGEN_ACTION_TERMS], above = 0, at = 0x1p-960, sum = 0, left = 0;
  int64_t last = (int64_t)(norm + 4 * __builtin_sqrt(norm)) + 24;
  for (int64_t k = last; k >= 0; k--) {
    bessel[k] = at;
    if (k % 2 == 0) sum += k ? 2 * at : at;
    double below = (double)(2 * k) / norm * at - above;
    above = at;
    at = below;
  }
  for (int64_t k = 0; k <= last; k++) c[k] = (float)(k ? 2 * (bessel[k] / sum) : bessel[0] / sum - 1);
  for (; last > 1; last--) {
    left += c[last] < 0 ? -c[last] : c[last];
    if (left > 0x1p-26) break;
  }
  return last + 1;
}

/* The action of the exponential for a token's block, where it costs less than forming: 0 where it does not. */
static int run_action(dense_pass *p, const pegen_loop *loop, int64_t token, int64_t block) {
  enum { LEAST = 0x100000 };
  maker *f = p->maker;
  const pegen_dense *d = f->dense;
  float coefficients[PEGEN_ACTION_TERMS];
  double norm = 1.0 / LEAST;
  token_angles(f, loop, p->streams[0]->grid, token);
  for (int64_t term = 0; term < d->terms; term++) {
    double angle = f->angles[term * d->angle_lanes + block];
    norm += (angle < 0 ? -angle : angle) * f->norms[term] * (1 + 1.0 / LEAST);
  }
  /* Rows of q and k, whichever are given: the result is not to depend on it. */
  if (!pegen_acts(norm, 2 * (p->work.batch_end - p->work.batch_begin), d->size)) return 0;
  for (int64_t term = 0; term < d->terms; term++) f->angles[term * d->angle_lanes + block] *= 2 / norm;
  f->code->sum(f->generators, f->angles + block, p->matrices);
  p->work.terms = chebyshev(norm, coefficients);
  p->work.coefficients = coefficients;
  p->act(&p->work);
  return 1;
}

static void run_made(dense_pass *p, int64_t begin, int64_t end) {
  const pegen_dense *dense = p->driver->form;
  const pegen_stream *first = p->streams[0];
  int64_t heads = p->work.head_end, unit = p->code->unit;
  maker *f = p->maker;
  pegen_loop loop;
  pegen_set_positions(&loop, first, p->work.batch_begin);
  p->work.matrix_head = p->work.matrix_token = 0;
  for (int64_t head = 0; head < heads; head++) {
    p->work.head_begin = head;
    p->work.head_end = head + 1;
    start_head(f, head);
    for (int64_t block = 0; block < dense->n_blocks; block += unit) {
      start_unit(f, head, block);
      if (p->act) start_norms(f);
      p->work.block_begin = block;
      p->work.block_end = block + unit < dense->n_blocks ? block + unit : dense->n_blocks;
      p->work.matrices = p->matrices - block * f->matrix_bytes;
      for (int64_t token = begin; token < end; token++) {
        p->work.token_begin = token;
        p->work.token_end = token + 1;
        if (p->act && run_action(p, &loop, token, block)) continue;
        make_unit(f, &loop, first->grid, token, block, p->matrices);
        p->apply(&p->work);
      }
    }
  }
  p->work.head_begin = 0;
  p->work.head_end = heads;
}

static void run_tokens(dense_pass *p, int64_t batch_begin, int64_t batch_end, int64_t begin, int64_t end) {
  p->work.batch_begin = batch_begin;
  p->work.batch_end = batch_end;
  begin = copy_prefix(p, begin, end);
  if (begin >= end) return;
  if (p->tabled) run_tabled(p, begin, end);
  else run_made(p, begin, end);
}

static void run_pass(dense_pass *p, int part, int parts) {
  if (p->n == 0) return;
  const pegen_stream *first = p->streams[0];
  const pegen_table_header *h = p->args->table;
  for (int i = 0; i < 2; i++) pegen_set_rows(&p->work.rows[i], p->streams[i < p->n ? i : 0]);
  if (p->n == 1) p->work.rows[1].heads = 0;
  p->work.head_begin = 0;
  p->work.head_end = p->driver->per_head ? p->driver->kernel->heads : 1;
  p->section = p->tabled && h->sections > 1 && first->keys;
  int64_t batches = first->in.size[PEGEN_BATCH], tokens = first->in.size[PEGEN_TOKEN], begin, end;
  int shared =
      p->tabled ? h->batches[p->section] == 1 : first->grid || first->positions.stride[PEGEN_POSITION_BATCH] == 0;
  if (!pegen_share(tokens * (shared ? 1 : batches), part, parts, &begin, &end)) return;
  maker f;
  if (!p->tabled) { /* once for all batches: a change of basis is dear */
    FORMER_START(&f, p->driver, p->code, p->args);
    p->maker = &f;
    p->matrices = __builtin_alloca_with_align((size_t)(p->code->unit * f.matrix_bytes), CACHE_LINE_BITS);
  }
  if (shared) {
    run_tokens(p, 0, batches, begin, end);
    return;
  }
  pegen_run run;
  while (pegen_next_run(tokens, &begin, end, &run)) run_tokens(p, run.batch, run.batch + 1, run.begin, run.end);
}

/* Whether rows by a table are stored past the caches: as encode.c decides it. */
static int is_streamed(const pegen_call *call, const pegen_tuning *tuning) {
  int64_t touched = 0;
  for (int s = 0; s < 2; s++) {
    const pegen_stream *stream = &call->stream[s];
    if (!stream->given || stream->in.empty) continue;
    if (stream->in_place || !pegen_streams_aligned(stream, 64)) return 0;
    touched += pegen_view_bytes(&stream->in) + pegen_view_bytes(stream->out);
  }
  return touched > tuning->stream_above;
}

int pegen_dense_encode(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  const pegen_dense *dense = driver->form;
  pegen_call call;
  dense_pass p;
  pegen_tuning tuning;
  int error = pegen_check(driver, args, part, parts, row_bytes(dense), &call);
  if (error) return error;
  int target = pegen_dispatch(driver, &tuning);
  if (target < 0) return PEGEN_ERROR_PROCESSOR;
  p.driver = driver;
  p.code = &dense->targets[target];
  p.args = args;
  p.apply = p.code->apply[call.type];
  p.act = p.code->act[call.type];
  p.tabled = call.tabled != 0;
  if (!p.apply) return PEGEN_ERROR_DTYPE;
  int streamed = p.tabled && p.code->stream && call.type == 0 && is_streamed(&call, &tuning);
  if (streamed) p.apply = p.code->stream;
  p.n = 0;
  for (int s = 0; s < 2; s++) {
    if (call.stream[s].given && !call.stream[s].in.empty) p.streams[p.n++] = &call.stream[s];
    if (!call.joint || s == 1) {
      run_pass(&p, part, parts);
      p.n = 0;
    }
  }
  pegen_order_stores(streamed);
  return 0;
}
