/* dense_backward.c: gradients of dense blocks and of changes of basis.
 *
 * Gradients of rows go the way that rows went, by the transposed matrices: of exponentials those of what is turned
 * back, of a table's matrices, of Schur forms and of changes of basis their transposes.
 *
 * Where an operand or positions have a gradient, tokens are cut into chunks, whose number the call's sizes alone
 * decide, and a part takes whole chunks: first what their tokens' matrices gain of rows, unit by unit of blocks, then
 * the rows, which may lie where what comes in does. What generators gain, and operands that angles are made of, is
 * summed chunk by chunk, and added in order by `finish` (dense_finish.c).
 *
 * Calls by a table keep the torques of a token's units instead, in a table of their own (gradient_table.h).
 * encode_backward adds to it, and prepare_backward goes on from there as encode_backward does from rows.
 *
 * Generators of exponentials are gathered again for every tile of a few tokens. Bases are dear: a part's chunks are one
 * tile then, whose angles' gradients have room in the workspace.
 */
#include "dense_backward.h"

/* TILE: tokens whose angles' gradients are kept until all blocks of a head are done. MOST_TERMS: of a float32 sum. */
enum { TILE = 8, MOST_TERMS = 64 };

/* ---- torques ---- */

/* The streams that share tokens and positions, and what is worked on. */
typedef struct torques {
  const pegen_driver *driver;
  const pegen_args *args;
  const pegen_backward_call *call;
  const pegen_dense *dense;
  const pegen_dense_code *code;
  const pegen_stream *streams[2];
  int n, which; /* of grad->positions and k_positions; -1: neither */
  unsigned given; /* bits of those that passes over the chunks at hand gave to */
  pegen_head_groups groups;
  int64_t rounds; /* of groups */
  int64_t row_bytes;
  int64_t chunks, first, last; /* chunks [first, last) are walked together */
  char *sums; /* of all chunks; NULL: no operand gains */
  int reads;  /* 1: torques are those of a table */
  pegen_torque_rows table; /* its section, where there is one */
  pegen_maker maker;
  int64_t units; /* whose generators it has at a time */
  pegen_gradient_loop loop;
  char *outer, *total; /* of a unit, and of rows before */
  int64_t tile;        /* its first token */
  double *gains;       /* [tokens of a tile][gain_terms][gain_lanes] */
  double *of_angles;   /* [gain_terms][leaf_lanes] */
  double *gained;      /* [tokens of a tile][axes] */
  double *leaves;
  char *prepared; /* for `gain` */
} torques;

static void add_floats(float *to, const float *from, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] += from[i];
}

/* Prefetches a row of the next tile, which is far from the last one where heads or batches lie between. */
static void prefetch_row(const torques *t, const char *row) {
  enum { LINE = 64 };
  for (int64_t at = 0; at < t->row_bytes; at += LINE) __builtin_prefetch(row + at, 0, 3);
}

/* What the rows of batches [begin, end) that share the matrices of a unit make: t->outer. */
static void add_rows(torques *t, int64_t begin, int64_t end, int64_t head, int64_t block, int64_t token) {
  const pegen_dense *d = t->dense;
  int64_t bytes = pegen_dense_outer_bytes(d, t->code), left = d->n_blocks - block, rows = 0, flushed = 0;
  int64_t count = left < t->code->unit ? left : t->code->unit;
  pegen_wedge_function *wedge = t->code->wedge[t->call->rows.type];
  pegen_clear(t->outer, bytes);
  for (int i = 0; i < t->n; i++) {
    const pegen_stream *stream = t->streams[i];
    const pegen_view *kept = &t->call->kept[stream->keys];
    int64_t first = t->driver->per_head ? head : 0, last = t->driver->per_head ? head + 1 : stream->in.size[PEGEN_HEAD];
    for (int64_t batch = begin; batch < end; batch++)
      for (int64_t h = first; h < last; h++) {
        if (rows == MOST_TERMS && !d->is_f64) {
          if (!flushed) pegen_clear(t->total, bytes);
          add_floats((float *)t->total, (const float *)t->outer, bytes / 4);
          pegen_clear(t->outer, bytes);
          flushed = 1;
          rows = 0;
        }
        wedge(pegen_at(&stream->in, batch, h, token), pegen_at(kept, batch, h, token), block, count, t->outer);
        if (block == 0 && token + TILE < stream->in.size[PEGEN_TOKEN]) {
          prefetch_row(t, pegen_at(&stream->in, batch, h, token + TILE));
          prefetch_row(t, pegen_at(kept, batch, h, token + TILE));
        }
        rows++;
      }
  }
  if (flushed) add_floats((float *)t->outer, (const float *)t->total, bytes / 4);
}

/* ---- tables of torques ---- */

/* Returns the address of one unit's torques in the row of a table. */
static char *torques_at(const torques *t, int64_t batch, int64_t head, int64_t block, int64_t token) {
  return t->table.at + batch * t->table.batch + token * t->table.token + head * t->table.head +
         block / t->code->unit * pegen_dense_outer_bytes(t->dense, t->code);
}

static void open_table(torques *t) {
  pegen_torque_rows_of(t->call, pegen_torque_section(t->call, t->streams[0]), &t->table);
}

/* What a table has: t->outer, which is worked on. */
static void load_torques(torques *t, int64_t batch, int64_t head, int64_t block, int64_t token) {
  const double *from = (const double *)torques_at(t, batch, head, block, token);
  double *to = (double *)t->outer;
  for (int64_t i = 0; i < pegen_dense_outer_bytes(t->dense, t->code) / 8; i++) to[i] = from[i];
}

/* Adds what rows of a token make in batches [begin, end), which share a row of the table. */
static void fill_token(torques *t, int64_t begin, int64_t end, int64_t token) {
  const pegen_dense *d = t->dense;
  for (int64_t head = 0; head < pegen_heads_apart(t->driver); head++)
    for (int64_t block = 0; block < d->n_blocks; block += t->code->unit) {
      add_rows(t, begin, end, head, block, token);
      t->code->collect(t->outer, torques_at(t, begin, head, block, token));
    }
}

/* Tokens [begin, end) of the streams at hand. is_first: none of the call's rows were added yet. */
static void fill_tokens(torques *t, int64_t begin, int64_t end, int is_first) {
  const pegen_stream *first = t->streams[0];
  int64_t batches = first->in.size[PEGEN_BATCH], skip = t->dense->basis ? 0 : t->driver->kernel->skip_tokens;
  int64_t step = pegen_batches_share(t->call, first) ? batches : 1;
  if (is_first && !(t->call->grad->flags & PEGEN_GRAD_ACCUMULATE))
    pegen_clear_torques(&t->table, 0, t->table.batches, begin, end);
  for (int64_t token = begin < skip ? skip : begin; token < end; token++)
    for (int64_t batch = 0; batch < batches; batch += step) fill_token(t, batch, batch + step, token);
}

/* ---- what torques give ---- */

static double *gains_of(const torques *t, int64_t token) {
  return t->gains + (token - t->tile) * t->dense->gain_terms * t->dense->gain_lanes;
}

/* Tokens of one chunk. */
typedef struct span {
  int64_t chunk, begin, end; /* of the tile's tokens */
  double *sums; /* of the chunk and head; NULL: not wanted */
} span;

static void start_spans(const torques *t, int64_t begin, span *s) {
  s->chunk = t->first;
  s->begin = s->end = begin;
}

/* The next one before `end`; 0: there is none. */
static int next_span(const torques *t, int64_t head, int64_t end, span *s) {
  int64_t begin = 0, stop = 0, tokens = t->streams[0]->in.size[PEGEN_TOKEN];
  if (s->end >= end) return 0;
  while (!pegen_share(tokens, (int)s->chunk, (int)t->chunks, &begin, &stop) || stop <= s->end) s->chunk++;
  s->begin = s->end;
  s->end = stop < end ? stop : end;
  int64_t at = s->chunk * t->call->facts->sums_bytes + head * pegen_dense_head_sums(t->dense, t->code) * 8;
  s->sums = t->sums ? (double *)(t->sums + at) : 0;
  return 1;
}

/* What a token's torques give. Tokens that are skipped have gone through a change of basis, too. */
static void run_adjoint(torques *t, int64_t token, int64_t block, double *sums) {
  pegen_maker *f = &t->maker;
  const pegen_dense_code *code = t->code;
  int64_t grid = t->streams[0]->grid, from_input = t->call->from_input;
  const double *angles = token < t->driver->kernel->skip_tokens ? 0 : f->angles + block;
  pegen_angles_function *of_adjoint = code->back ? code->back : code->angles;
  pegen_angles_function *of_turn = t->dense->inverse ? of_adjoint : code->angles;
  if (from_input) {
    if (angles) pegen_maker_numbers(f, &t->loop.loop, grid, token, of_turn);
    code->turn(f->generators, angles, t->outer);
  }
  if (angles && (!from_input || of_turn != of_adjoint)) pegen_maker_numbers(f, &t->loop.loop, grid, token, of_adjoint);
  code->adjoint(f->generators, angles, t->outer, gains_of(t, token) + block, sums);
}

/* Computes what the torques of a unit's tokens [begin, end) give to sums and angles, chunk by chunk. */
static void run_unit(torques *t, int64_t batch_begin, int64_t batch_end, int64_t head, int64_t block, int64_t begin,
                     int64_t end) {
  int64_t each = t->dense->terms * pegen_dense_gained(t->dense, t->code);
  span s;
  start_spans(t, begin, &s);
  while (next_span(t, head, end, &s)) {
    double *sums = s.sums ? s.sums + block / t->code->unit * each : 0;
    for (int64_t token = s.begin; token < s.end; token++) {
      if (t->reads) load_torques(t, batch_begin, head, block, token);
      else add_rows(t, batch_begin, batch_end, head, block, token);
      run_adjoint(t, token, block, sums);
    }
  }
}

/* What tokens [begin, end) of a head give its generators, and their angles: of so many units at a time as there is room
 * for, a few tokens after the others, whose rows stay in the nearest cache. */
static void run_units(torques *t, int64_t batch_begin, int64_t batch_end, int64_t head, int64_t begin, int64_t end) {
  const pegen_dense *d = t->dense;
  pegen_maker *f = &t->maker;
  char *generators = f->generators;
  int64_t bytes = pegen_maker_generator_bytes(d, t->code), unit = t->code->unit, length = t->units * unit;
  for (int64_t first = 0; first < d->n_blocks; first += length) {
    int64_t stop = first + length < d->n_blocks ? first + length : d->n_blocks;
    for (int64_t block = first; block < stop; block += unit) {
      f->generators = generators + (block - first) / unit * bytes;
      pegen_maker_start_unit(f, head, block);
    }
    for (int64_t tile = begin; tile < end; tile += TILE)
      for (int64_t block = first; block < stop; block += unit) {
        f->generators = generators + (block - first) / unit * bytes;
        run_unit(t, batch_begin, batch_end, head, block, tile, tile + TILE < end ? tile + TILE : end);
      }
  }
  f->generators = generators;
}

/* From what a token's angles gain to operands and coordinates. */
static void run_token_angles(torques *t, int64_t token, const double *gains, double *sums, double *gained) {
  const pegen_dense *d = t->dense;
  const pegen_kernel *kernel = t->driver->kernel;
  double position[PEGEN_MAX_ROTOR_AXES];
  for (int64_t term = 0; term < d->gain_terms; term++)
    for (int64_t block = 0; block < d->leaf_lanes; block++)
      t->of_angles[term * d->leaf_lanes + block] = block < d->leaf_blocks ? gains[term * d->gain_lanes + block] : 0;
  if (t->streams[0]->grid) pegen_grid_position(kernel, token, position);
  else pegen_driver_position(&t->loop.loop, token, kernel->n_axes, position);
  t->code->gain(position, t->prepared, t->of_angles, sums ? (int64_t)(uintptr_t)sums : 0, t->which >= 0, gained);
}

static void run_angles(torques *t, int64_t head, int64_t begin, int64_t end) {
  const pegen_dense *d = t->dense;
  const pegen_gradient *of = d->gradient;
  if (!t->code->gain) return;
  const pegen_gradient_code *code = &of->targets[t->code - d->targets];
  if (code->prepare) {
    pegen_gather_leaves(of->leaves, of->n_leaves, d->leaf_blocks, d->leaf_lanes, t->args, head, t->leaves);
    code->prepare(t->leaves, t->prepared);
  }
  span s;
  start_spans(t, begin, &s);
  while (next_span(t, head, end, &s))
    for (int64_t token = s.begin; token < s.end; token++)
      run_token_angles(t, token, gains_of(t, token), s.sums ? s.sums + pegen_dense_generator_sums(d, t->code) : 0,
                       t->gained + (token - t->tile) * t->driver->kernel->n_axes);
}

/* Tokens [begin, end) of batches that share their positions. */
static void run_tile(torques *t, int64_t batch_begin, int64_t batch_end, int64_t begin, int64_t end) {
  int64_t axes = t->driver->kernel->n_axes, skip = t->driver->kernel->skip_tokens;
  const pegen_view *positions = t->which < 0 ? 0 : &t->call->positions[t->which];
  int64_t first = begin < skip ? skip : begin;
  t->tile = begin;
  pegen_set_positions(&t->loop.loop, t->streams[0], batch_begin);
  pegen_clear((char *)t->gained, (end - begin) * axes * 8);
  for (int64_t head = 0; head < pegen_heads_apart(t->driver); head++) {
    pegen_maker_start_head(&t->maker, head);
    run_units(t, batch_begin, batch_end, head, t->dense->basis ? begin : first, end);
    run_angles(t, head, first, end);
  }
  if (!positions) return;
  static const double nothing[PEGEN_MAX_ROTOR_AXES] = {0}; /* of tokens that are skipped */
  t->loop.positions = pegen_at(positions, batch_begin, 0, 0);
  for (int64_t token = begin; token < end; token++)
    pegen_driver_position_gradient(&t->loop, token, axes, token < first ? nothing : t->gained + (token - begin) * axes);
}

/* ---- the walk ---- */

/* Tokens of the chunks at hand; 0: there are none. */
static int share_of_chunks(const torques *t, const pegen_stream *stream, int64_t *begin, int64_t *end) {
  pegen_part chunks = {(int)t->first, (int)t->last, (int)t->chunks};
  return pegen_share_of(stream->in.size[PEGEN_TOKEN], &chunks, begin, end);
}

/* What the tokens of the chunks at hand give. */
static void run_torques(torques *t) {
  const pegen_stream *first = t->streams[0];
  int64_t batches = first->in.size[PEGEN_BATCH], step = pegen_batches_share(t->call, first) ? batches : 1, begin, end;
  if (!share_of_chunks(t, first, &begin, &end)) return;
  int64_t length = pegen_dense_is_rebased(t->dense) ? end - begin : TILE;
  for (int64_t tile = begin; tile < end; tile += length)
    for (int64_t batch = 0; batch < batches; batch += step)
      run_tile(t, batch, batch + step, tile, tile + length < end ? tile + length : end);
}

/* is_first: tokens of the chunks at hand have given to none before. */
static void set_positions(torques *t, int is_first) {
  const pegen_backward_call *call = t->call;
  if (is_first) t->given = 0;
  t->which = pegen_gaining_positions(call, t->streams[0]);
  if (t->which < 0) return;
  t->loop.position_is_f64 = call->position_is_f64[t->which];
  t->loop.position_token = call->positions[t->which].stride[PEGEN_POSITION_TOKEN];
  t->loop.position_axis = call->positions[t->which].stride[PEGEN_POSITION_AXIS];
  t->loop.position_adds = (call->grad->flags & PEGEN_GRAD_ACCUMULATE) != 0 || (t->given >> t->which & 1);
  t->given |= 1u << t->which;
}

/* Room for a tile's gradients of angles and coordinates, of q's tokens and behind them of k's, if they are in the
 * workspace: that of other parts is theirs. */
static void set_room(torques *t, int s) {
  const pegen_dense *d = t->dense;
  int64_t begin, end, axes = t->driver->kernel->n_axes, numbers = d->gain_terms * d->gain_lanes + axes;
  if (!pegen_dense_is_rebased(d)) return;
  if (!share_of_chunks(t, t->streams[0], &begin, &end)) return;
  char *behind = (char *)t->args->workspace + pegen_backward_sums(t->driver, t->call);
  double *room = (double *)behind + begin * numbers;
  if (s == 1 && !t->call->rows.joint && pegen_has_rows(t->call, 0))
    room += t->call->rows.stream[0].in.size[PEGEN_TOKEN] * numbers;
  t->gains = room;
  t->gained = room + (end - begin) * (numbers - axes);
}

/* What is done of the streams at hand; is_first: nothing of what they belong to was done before. */
typedef void pass_function(torques *t, int s, int is_first);

/* Passes over q and k of the chunks at hand: of both together, or of one after the other. */
static void each_pass(torques *t, pass_function *pass) {
  const pegen_backward_call *call = t->call;
  t->n = 0;
  for (int64_t round = 0, passes = 0; round < t->rounds; round++) {
    pegen_take_group(&t->groups, round);
    for (int s = 0; s < (round ? 1 : 2); s++) {
      if (pegen_has_rows(call, s)) t->streams[t->n++] = &call->rows.stream[s];
      if (t->n == 0 || (call->rows.joint && s == 0)) continue;
      pass(t, s, passes++ == 0);
      t->n = 0;
    }
  }
}

static void run_pass(torques *t, int s, int is_first) {
  set_positions(t, is_first);
  set_room(t, s);
  if (t->reads) open_table(t);
  run_torques(t);
}

static void fill_pass(torques *t, int s, int is_first) {
  int64_t begin, end;
  (void)s;
  open_table(t);
  is_first |= pegen_torque_section(t->call, t->streams[0]) == 1;
  if (share_of_chunks(t, t->streams[0], &begin, &end)) fill_tokens(t, begin, end, is_first);
}

/* Bases are found once for all tokens of the part; other generators are gathered again. */
static int64_t units_at_once(const pegen_dense *d, const pegen_dense_code *code) {
  int64_t most = PEGEN_STACK_PREPARED / pegen_maker_generator_bytes(d, code);
  int64_t units = (d->n_blocks + code->unit - 1) / code->unit;
  if (!pegen_dense_is_rebased(d) || most < 1) return 1;
  return units < most ? units : most;
}

/* The rows whose gradients go out, of the chunks at hand. */
static void run_rows(torques *t, int target, const pegen_tuning *tuning) {
  const pegen_backward_call *call = t->call;
  pegen_part part = {(int)t->first, (int)t->last, (int)t->chunks};
  pegen_call written;
  for (int64_t round = 0; round < t->rounds; round++) {
    pegen_take_group(&t->groups, round);
    pegen_copy_bytes(&written, &call->rows, sizeof written);
    for (int s = 0; s < 2; s++)
      written.stream[s].given = pegen_has_rows(call, s) && call->is_written[s] && (round == 0 || s == 0);
    pegen_dense_run(t->driver, &call->args, &written, target, tuning, 1, 1, &part);
  }
}

/* All chunks [t->first, t->last) of the part: first a chunk's torques, for its rows may be written where they are. */
static void fill_chunks(torques *t, int target, const pegen_tuning *tuning) {
  int64_t bytes = pegen_dense_outer_bytes(t->dense, t->code);
  t->outer = PEGEN_STACK(bytes);
  t->total = PEGEN_STACK(bytes);
  int64_t last = t->last;
  for (; t->first < last; t->first++) {
    t->last = t->first + 1;
    each_pass(t, fill_pass);
    run_rows(t, target, tuning);
  }
}

/* All chunks [t->first, t->last) of the part, whose room is on the stack of the call. */
static void run_chunks(torques *t, int target, const pegen_tuning *tuning) {
  const pegen_dense *d = t->dense;
  const pegen_backward_call *call = t->call;
  int64_t bytes = pegen_dense_outer_bytes(d, t->code), axes = t->driver->kernel->n_axes;
  int64_t sums = call->facts->sums_bytes;
  PEGEN_MAKER_START(&t->maker, t->driver, t->code, t->args, 0);
  t->units = units_at_once(d, t->code);
  if (t->units > 1) t->maker.generators = PEGEN_STACK(t->units * pegen_maker_generator_bytes(d, t->code));
  t->outer = PEGEN_STACK(bytes);
  t->total = PEGEN_STACK(bytes);
  t->of_angles = PEGEN_STACK((d->gain_terms * d->leaf_lanes * 8) + 64);
  if (!pegen_dense_is_rebased(d)) {
    t->gains = PEGEN_STACK(TILE * d->gain_terms * d->gain_lanes * 8);
    t->gained = PEGEN_STACK(TILE * axes * 8);
  }
  int64_t leaves = d->gradient ? d->gradient->n_leaves * d->leaf_lanes * 8 : 0;
  int64_t prepared = d->gradient ? d->gradient->prepared_bytes : 0;
  t->leaves = PEGEN_STACK(leaves + 64);
  t->prepared = PEGEN_STACK(prepared + 64);
  int64_t last = t->last, step = pegen_dense_is_rebased(d) ? last - t->first : 1;
  for (; t->first < last; t->first += step) {
    t->last = t->first + step;
    if (t->sums) pegen_clear(t->sums + t->first * sums, step * sums);
    each_pass(t, run_pass);
    if (!t->reads) run_rows(t, target, tuning);
  }
}

/* ---- the entries ---- */

/* The part's chunks; false: there are none. */
static int begin_torques(torques *t, const pegen_driver *driver, const pegen_args *args,
                         const pegen_backward_call *call, int target, int part, int parts) {
  t->driver = driver;
  t->args = args;
  t->call = call;
  t->dense = driver->form;
  t->code = &t->dense->targets[target];
  t->row_bytes = 0;
  t->chunks = pegen_backward_chunks(call);
  t->sums = call->of_operands ? args->workspace : 0;
  t->reads = 0;
  t->rounds = 1;
  t->groups.n = 0;
  return pegen_share(t->chunks, part, parts, &t->first, &t->last);
}

static int encode_backward(const pegen_driver *driver, const pegen_args *args, pegen_backward_call *call, int target,
                           int part, int parts) {
  const pegen_dense *d = driver->form;
  pegen_part all = {part, part + 1, parts};
  if (!call->of_operands && !call->of_positions && !call->of_table)
    return pegen_dense_run(driver, &call->args, &call->rows, target, &call->tuning, 1, 0, &all);
  if (!d->targets[target].wedge[call->rows.type]) return PEGEN_ERROR_DTYPE;
  pegen_gain_without_rows(call, part, parts);
  if (call->of_table && !(call->grad->flags & PEGEN_GRAD_ACCUMULATE)) {
    if (part == 0) pegen_gradient_table_sign(call);
    pegen_clear_torques_without_rows(call, part, parts);
  }
  torques t;
  if (!begin_torques(&t, driver, args, call, target, part, parts)) return 0;
  t.row_bytes = driver->kernel->head_dim * pegen_number_at((int)call->rows.type)->bits / 8;
  t.rounds = pegen_group_heads(&call->rows, &call->kept[0], &t.groups);
  if (call->of_table) fill_chunks(&t, target, &call->tuning);
  else run_chunks(&t, target, &call->tuning);
  return 0;
}

static int prepare_backward(const pegen_driver *driver, const pegen_args *args, pegen_backward_call *call, int target,
                            int part, int parts) {
  if (!call->of_operands && !call->of_positions) return 0;
  pegen_gain_without_rows(call, part, parts);
  torques t;
  if (!begin_torques(&t, driver, args, call, target, part, parts)) return 0;
  t.reads = 1;
  run_chunks(&t, target, 0);
  return 0;
}

PEGEN_BACKWARD_ENTRY(pegen_dense_encode_backward, pegen_dense_facts, pegen_check_backward, encode_backward)
PEGEN_BACKWARD_ENTRY(pegen_dense_prepare_backward, pegen_dense_facts, pegen_check_prepare_backward, prepare_backward)
