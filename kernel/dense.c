/* dense.c: blocks that turn by exponentials of skew matrices. Matrices are formed from positions and operands and
 * multiplied with rows, or formed into a table first; results are the same to the bit however the work is parted.
 * Without a table a matrix that serves few rows need not be formed: its exponential then acts on them, within the same
 * bounds.
 */
#include "dense_maker.h"
#include "pages.h"
#include "table.h"

/* ---- prepare ---- */

static void prepare_section(pegen_maker *f, const pegen_stream *stream, const pegen_table_header *h, int s, int part,
                            int parts) {
  int64_t begin, end, skip = f->driver->kernel->skip_tokens, unit = f->code->unit;
  char *section = (char *)f->args->table + pegen_table_section(h, s);
  pegen_loop loop;
  if (!pegen_share(h->batches[s] * h->tokens[s], part, parts, &begin, &end)) return;
  for (int64_t head = 0; head < h->heads; head++) {
    pegen_maker_start_head(f, head);
    for (int64_t block = 0; block < f->dense->n_blocks; block += unit) {
      pegen_maker_start_unit(f, head, block);
      for (int64_t item = begin; item < end; item++) {
        int64_t batch = item / h->tokens[s], token = item - batch * h->tokens[s];
        if (token < skip && !pegen_dense_is_rebased(f->dense)) continue;
        pegen_set_positions(&loop, stream, batch);
        pegen_maker_unit(f, &loop, stream->grid, token, block,
                         section + (item * h->heads + head) * h->row_bytes + block * f->matrix_bytes);
      }
    }
  }
}

int pegen_dense_prepare(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  const pegen_dense *dense = driver->form;
  pegen_call call;
  pegen_table_header header;
  pegen_maker f;
  int target;
  PEGEN_TRY(pegen_table_begin(driver, args, part, parts, pegen_dense_row_bytes(dense), &call, &header, &target));
  PEGEN_MAKER_START(&f, driver, &dense->targets[target], args, 0);
  for (int s = 0; s < header.sections; s++) prepare_section(&f, &call.stream[s], &header, s, part, parts);
  return 0;
}

size_t pegen_dense_table_bytes(const pegen_driver *driver, const pegen_args *args) {
  return pegen_table_size(driver, args, pegen_dense_row_bytes(driver->form));
}

/* ---- encode ---- */

/* The streams that share tokens and matrices. */
typedef struct dense_pass {
  const pegen_driver *driver;
  const pegen_dense_code *code;
  const pegen_args *args;
  pegen_apply_function *apply, *act;
  const pegen_stream *streams[2];
  pegen_stream *slotted; /* whose rows go to slots, the last of the pass; NULL: none */
  int n, tabled, section;
  int by_token;   /* 1: parts are of the tokens of every batch */
  int transposed; /* 1: rows are multiplied with the transposes of the matrices that encode multiplies them with */
  pegen_apply work;
  pegen_maker *maker; /* what forms a unit's matrices of one token at a time; NULL: they come of a table */
  char *matrices; /* of that unit */
} dense_pass;

/* The work, row by row where those of k go to slots: what is outside of its matrices is its address alone. */
static void run_rows(dense_pass *p, pegen_apply_function *function) {
  const pegen_stream *k = p->slotted;
  pegen_apply *work = &p->work;
  if (!k) {
    function(work);
    return;
  }
  pegen_rows *rows = &work->rows[p->n - 1];
  int64_t batch_begin = work->batch_begin, batch_end = work->batch_end, begin = work->token_begin,
          end = work->token_end, page = 0;
  for (int64_t batch = batch_begin; batch < batch_end; batch++)
    for (int64_t token = begin; token < end; token++) {
      int64_t bytes = pegen_slot_bytes(k, batch, token, &page), has_row = bytes != PEGEN_NO_ROW;
      if (!has_row && p->n == 1) continue;
      rows->heads = has_row ? k->in.size[PEGEN_HEAD] : 0;
      rows->out = (char *)(k->cache + (uintptr_t)(has_row ? bytes : 0));
      work->batch_begin = batch;
      work->batch_end = batch + 1;
      work->token_begin = token;
      work->token_end = token + 1;
      function(work);
    }
  work->batch_begin = batch_begin;
  work->batch_end = batch_end;
  work->token_begin = begin;
  work->token_end = end;
}

/* Tokens that are not turned, in every batch of the work. */
static int64_t copy_prefix(dense_pass *p, int64_t begin, int64_t end) {
  int64_t skip = p->driver->kernel->skip_tokens, stop = end < skip ? end : skip;
  if (begin >= stop || pegen_dense_is_rebased(p->driver->form)) return begin;
  for (int i = 0; i < p->n; i++)
    for (int64_t batch = p->work.batch_begin; batch < p->work.batch_end && !p->streams[i]->in_place; batch++)
      if (p->streams[i] == p->slotted) pegen_copy_to_slots(p->slotted, batch, begin, stop);
      else pegen_copy_tokens(p->streams[i], batch, begin, stop);
  return stop;
}

/* A table's matrices of token 0 of the batches at hand. */
static const char *tabled_matrices(const dense_pass *p) {
  const pegen_table_header *h = p->args->table;
  int64_t batch = h->batches[p->section] > 1 ? p->work.batch_begin : 0;
  return (const char *)p->args->table + pegen_table_section(h, p->section) +
         batch * h->tokens[p->section] * h->heads * h->row_bytes;
}

static void run_tabled(dense_pass *p, int64_t begin, int64_t end) {
  const pegen_table_header *h = p->args->table;
  const pegen_dense *dense = p->driver->form;
  p->work.matrix_head = h->row_bytes;
  p->work.matrix_token = h->heads * h->row_bytes;
  p->work.matrices = tabled_matrices(p);
  p->work.token_begin = begin;
  p->work.token_end = end;
  p->work.block_begin = 0;
  p->work.block_end = dense->n_blocks;
  run_rows(p, p->apply);
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
  pegen_maker *f = p->maker;
  const pegen_dense *d = f->dense;
  float coefficients[PEGEN_ACTION_TERMS];
  double norm = 1.0 / LEAST;
  pegen_maker_angles(f, loop, p->streams[0]->grid, token);
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
  run_rows(p, p->act);
  return 1;
}

/* One unit of blocks at a time, whose matrices are formed token by token. */
static void run_made(dense_pass *p, int64_t begin, int64_t end) {
  const pegen_dense *dense = p->driver->form;
  const pegen_stream *first = p->streams[0];
  int64_t heads = p->work.head_end, unit = p->code->unit;
  pegen_maker *f = p->maker;
  pegen_loop loop;
  pegen_set_positions(&loop, first, p->work.batch_begin);
  p->work.matrix_head = p->work.matrix_token = 0;
  for (int64_t head = 0; head < heads; head++) {
    p->work.head_begin = head;
    p->work.head_end = head + 1;
    pegen_maker_start_head(f, head);
    for (int64_t block = 0; block < dense->n_blocks; block += unit) {
      pegen_maker_start_unit(f, head, block);
      if (p->act) pegen_maker_start_norms(f);
      p->work.block_begin = block;
      p->work.block_end = block + unit < dense->n_blocks ? block + unit : dense->n_blocks;
      p->work.matrices = p->matrices - block * f->matrix_bytes;
      for (int64_t token = begin; token < end; token++) {
        p->work.token_begin = token;
        p->work.token_end = token + 1;
        if (p->act && run_action(p, &loop, token, block)) continue;
        pegen_maker_unit(f, &loop, first->grid, token, block, p->matrices);
        run_rows(p, p->apply);
      }
    }
  }
  p->work.head_begin = 0;
  p->work.head_end = heads;
}

/* The transposes of a table's matrices, one unit of blocks at a time in the order of the table. */
static void run_transposed(dense_pass *p, int64_t begin, int64_t end) {
  const pegen_table_header *h = p->args->table;
  const pegen_dense *d = p->driver->form;
  int64_t heads = p->work.head_end, unit = p->code->unit, bytes = d->size * d->size * 4;
  p->work.matrix_head = p->work.matrix_token = 0;
  for (int64_t token = begin; token < end; token++) {
    p->work.token_begin = token;
    p->work.token_end = token + 1;
    for (int64_t head = 0; head < heads; head++) {
      const char *row = tabled_matrices(p) + (token * h->heads + head) * h->row_bytes;
      p->work.head_begin = head;
      p->work.head_end = head + 1;
      for (int64_t block = 0; block < d->n_blocks; block += unit) {
        p->work.block_begin = block;
        p->work.block_end = block + unit < d->n_blocks ? block + unit : d->n_blocks;
        p->work.matrices = p->matrices - block * bytes;
        p->code->transpose(row + block * bytes, p->work.block_end - block, p->matrices);
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
  if (!p->tabled) run_made(p, begin, end);
  else if (p->transposed) run_transposed(p, begin, end);
  else run_tabled(p, begin, end);
}

static void run_pass(dense_pass *p, const pegen_part *part) {
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
  if (!pegen_share_of(tokens * (shared || p->by_token ? 1 : batches), part, &begin, &end)) return;
  const pegen_dense *dense = p->driver->form;
  pegen_maker f;
  p->maker = 0;
  if (!p->tabled) { /* once for all batches: a change of basis is dear */
    PEGEN_MAKER_START(&f, p->driver, p->code, p->args, p->transposed);
    p->maker = &f;
  }
  p->matrices = PEGEN_STACK(p->code->unit * dense->size * dense->size * 4);
  if (shared) {
    run_tokens(p, 0, batches, begin, end);
    return;
  }
  for (int64_t batch = 0; batch < batches && p->by_token; batch++) run_tokens(p, batch, batch + 1, begin, end);
  pegen_run run;
  while (!p->by_token && pegen_next_run(tokens, &begin, end, &run))
    run_tokens(p, run.batch, run.batch + 1, run.begin, run.end);
}

/* Whether rows by a table are stored past the caches: as encode.c decides it. */
static int is_streamed(const pegen_call *call, const pegen_tuning *tuning) {
  int64_t touched = 0;
  for (int s = 0; s < 2; s++) {
    const pegen_stream *stream = &call->stream[s];
    if (!stream->given || stream->in.empty) continue;
    if (stream->in_place || stream->slots || !pegen_streams_aligned(stream, 64)) return 0;
    touched += pegen_view_bytes(&stream->in) + pegen_view_bytes(stream->out);
  }
  return touched > tuning->stream_above;
}

int pegen_dense_run(const pegen_driver *driver, const pegen_args *args, pegen_call *call, int target,
                    const pegen_tuning *tuning, int transposed, int by_token, const pegen_part *part) {
  const pegen_dense *dense = driver->form;
  dense_pass p;
  p.driver = driver;
  p.code = &dense->targets[target];
  p.args = args;
  p.apply = p.code->apply[call->type];
  p.act = p.code->act[call->type];
  p.tabled = call->tabled != 0;
  p.transposed = transposed;
  p.by_token = by_token;
  if (!p.apply) return PEGEN_ERROR_DTYPE;
  if (call->type == PEGEN_NUMBER_BF16 && tuning->rounds && p.code->rounding) p.apply = p.code->rounding;
  int streamed = p.tabled && !transposed && p.code->stream && call->type == 0 && is_streamed(call, tuning);
  if (streamed) p.apply = p.code->stream;
  p.n = 0;
  pegen_head_groups groups;
  int64_t rounds = pegen_group_heads(call, 0, &groups);
  for (int64_t round = 0; round < rounds; round++) {
    pegen_take_group(&groups, round);
    for (int s = 0; s < (round ? 1 : 2); s++) {
      pegen_stream *stream = &call->stream[s];
      int has_rows = stream->given && !stream->in.empty;
      if (has_rows) p.streams[p.n++] = stream;
      p.slotted = has_rows && stream->slots ? stream : 0;
      if (!call->joint || s == 1) {
        run_pass(&p, part);
        p.n = 0;
      }
    }
  }
  pegen_order_stores(streamed);
  return 0;
}

int pegen_dense_encode(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  pegen_call call;
  pegen_tuning tuning;
  PEGEN_TRY(pegen_check(driver, args, part, parts, pegen_dense_row_bytes(driver->form), &call));
  int target = pegen_dispatch(driver, &tuning);
  if (target < 0) return PEGEN_ERROR_PROCESSOR;
  return pegen_dense_run(driver, args, &call, target, &tuning, 0, 0, &(pegen_part){part, part + 1, parts});
}
