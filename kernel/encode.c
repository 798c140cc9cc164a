/* encode.c: a checked call becomes calls of the emitted functions.
 *
 * Work is cut into items, one for each token of each batch, batch outermost: a part is
 * a contiguous run of items, and what is computed for an item does not depend on
 * the part it falls into, so results are the same to the bit however the work is parted.
 * Where rotors differ from head to head they are dear, and all batches with shared
 * positions go in one loop that builds each rotor once; there an item is a token. Such batches
 * go in one loop, too, where their data stay in caches that are faster than the arithmetic.
 */
#include "append.h"
#include "backward.h"
#include "pages.h"
#include "table.h"

/* ---- operands ---- */

static void prepare_head(const pegen_blades *blades, const pegen_args *args, pegen_prepare_function *prepare,
                         int64_t head, double *leaves, char *prepared) {
  pegen_gather_leaves(blades->leaves, blades->n_leaves, blades->n_blocks, blades->lanes, args, head, leaves);
  prepare(leaves, prepared);
}

/* ---- the walk over items ---- */

/* One pass: the streams that share tokens and positions. */
typedef struct pass {
  const pegen_driver *driver;
  pegen_encode_function *encode;
  const pegen_stream *streams[2];
  int n;
  int by_head;       /* a head's tokens are nearer in memory than a token's heads */
  const pegen_tuning *tuning;
  int64_t touched;   /* bytes read and written */
  const pegen_table_header *table; /* NULL: none */
  int section;       /* of the table */
  const pegen_view *inputs; /* of the call */
  const pegen_view *kept; /* [2]: rows of q and k that are read beside these; NULL: none */
  pegen_input_rows input[PEGEN_MAX_INPUTS];
  int of_tokens;     /* rows turn by inputs that heads share: a token's coefficients serve all its heads */
  int copy_prefix; /* once, though tiles of heads walk the tokens several times */
  pegen_stream *slotted; /* whose rows go to slots, the last of the pass; NULL: none */
  const pegen_target_code *target;
  pegen_loop loop;
} pass;

/* Where batches share their positions, whether they are walked together and each rotor is built once. Rotors of a tile
 * of tokens then serve all batches, at the price of shorter runs of memory: a gain where the caches feed the core
 * faster than it computes, a loss elsewhere. */
static int shares_batches(const pass *p) { return p->touched <= p->tuning->share_below; }

static void pass_rows(const pass *p, int i, int64_t batch, int64_t begin, int64_t end) {
  if (p->streams[i]->norm) pegen_normalise_tokens(p->target, p->streams[i], &p->loop.rows[i], batch, begin, end);
  else pegen_copy_tokens(p->streams[i], batch, begin, end);
}

/* Tokens of a batch, each to its slot. */
static void pass_to_slots(pass *p, int64_t batch, int64_t begin, int64_t end) {
  pegen_stream *k = p->slotted;
  pegen_rows *rows = &p->loop.rows[p->n - 1];
  int64_t page = 0;
  for (int64_t token = begin; token < end; token++) {
    int64_t bytes = pegen_slot_bytes(k, batch, token, &page);
    if (bytes == PEGEN_NO_ROW) continue;
    k->out_of_place.base = k->cache + (uintptr_t)bytes;
    rows->out = (char *)k->out_of_place.base;
    pass_rows(p, p->n - 1, batch, token, token + 1);
  }
  k->out_of_place.base = k->cache;
  rows->out = (char *)k->cache;
}

/* Tokens that no rotor turns. */
static void pass_through(pass *p, int64_t batch_begin, int64_t batch_end, int64_t begin, int64_t end) {
  for (int i = 0; i < p->n; i++) {
    const pegen_stream *stream = p->streams[i];
    if (stream->in_place && !stream->norm) continue;
    for (int64_t batch = batch_begin; batch < batch_end; batch++)
      if (stream->slots) pass_to_slots(p, batch, begin, end);
      else pass_rows(p, i, batch, begin, end);
  }
}

/* Tokens [begin, end) of batches [batch_begin, batch_end), which share their positions. */
static void run_rows(pass *p, int64_t batch_begin, int64_t batch_end, int64_t begin, int64_t end) {
  int64_t skip = p->driver->kernel->skip_tokens;
  if (begin < skip) {
    int64_t stop = end < skip ? end : skip;
    if (p->copy_prefix) pass_through(p, batch_begin, batch_end, begin, stop);
    begin = stop;
  }
  if (begin >= end) return;
  p->loop.token_begin = begin;
  p->loop.token_end = end;
  p->loop.batch_begin = batch_begin;
  p->loop.batch_end = batch_end;
  if (p->table) {
    int64_t batch = p->table->batches[p->section] > 1 ? batch_begin : 0;
    p->loop.table = (const char *)p->table + pegen_table_section(p->table, p->section) +
                    batch * p->table->tokens[p->section] * p->loop.table_token;
  }
  pegen_set_positions(&p->loop, p->streams[0], batch_begin);
  p->encode(&p->loop);
}

/* Encodes rows that go to slots, in runs of some batches and tokens: there is room for the slots of so many. */
static void run_slots(pass *p, int64_t batch_begin, int64_t batch_end, int64_t begin, int64_t end) {
  enum { ROOM = 1024 };
  int64_t bytes[ROOM];
  int64_t batches = batch_end - batch_begin, room = batches < ROOM ? ROOM / batches : 1, page = 0;
  pegen_rows *rows = &p->loop.rows[p->n - 1];
  for (int64_t first = batch_begin; first < batch_end; first += ROOM)
    for (int64_t from = begin; from < end; from += room) {
      int64_t last = batch_end - first < ROOM ? batch_end : first + ROOM, to = end - from < room ? end : from + room;
      int64_t tokens = to - from, some = p->n > 1;
      for (int64_t batch = first; batch < last; batch++)
        for (int64_t token = from; token < to; token++) {
          int64_t at = pegen_slot_bytes(p->slotted, batch, token, &page);
          bytes[(batch - first) * tokens + token - from] = at;
          some = some || at != PEGEN_NO_ROW;
        }
      rows->slot_token = (int64_t)sizeof *bytes;
      rows->slot_batch = tokens * rows->slot_token;
      rows->slot = (const char *)((uintptr_t)bytes - (uintptr_t)(first * rows->slot_batch + from * rows->slot_token));
      if (some) run_rows(p, first, last, from, to);
    }
}

static void run_tokens(pass *p, int64_t batch_begin, int64_t batch_end, int64_t begin, int64_t end) {
  (p->slotted ? run_slots : run_rows)(p, batch_begin, batch_end, begin, end);
}

/* Items [begin, end): tokens of all batches at once, or tokens of one batch after the other. */
static void run_items(pass *p, int by_batch, int64_t begin, int64_t end) {
  int64_t batches = p->streams[0]->in.size[PEGEN_BATCH], tokens = p->streams[0]->in.size[PEGEN_TOKEN];
  if (!by_batch) {
    run_tokens(p, 0, batches, begin, end);
    return;
  }
  pegen_run run;
  while (pegen_next_run(tokens, &begin, end, &run)) run_tokens(p, run.batch, run.batch + 1, run.begin, run.end);
}

/* Values that the emitted code prepares from operands, for as many heads at a time as fit on the stack. */
static void run_prepared(pass *p, const pegen_args *args, pegen_prepare_function *prepare, int by_batch, int64_t begin,
                         int64_t end) {
  const pegen_driver *driver = p->driver;
  const pegen_blades *blades = driver->form;
  int64_t bytes = blades->prepared_bytes > 0 ? blades->prepared_bytes : 64;
  int64_t heads = pegen_heads_apart(driver), tile = bytes;
  for (int64_t n = 1; n < heads && tile + bytes <= PEGEN_STACK_PREPARED; n++) tile += bytes;
  char *prepared = PEGEN_STACK(tile);
  double *leaves = PEGEN_STACK(sizeof(double) * (size_t)(blades->n_leaves * blades->lanes) + 64);
  p->loop.prepared = prepared;
  p->loop.prepared_stride = bytes;
  for (int64_t head = 0; head < heads;) {
    int64_t used = 0, first = head;
    for (; head < heads && used + bytes <= tile; head++, used += bytes)
      prepare_head(blades, args, prepare, head, leaves, prepared + used);
    /* Where heads are far apart, one after the other; else together, so that a token's rows are neighbours. */
    int64_t step = driver->per_head && p->by_head ? 1 : head - first;
    for (int64_t h = first; h < head; h += step) {
      if (driver->per_head) {
        p->loop.prepared = prepared + (h - first) * bytes;
        p->loop.head_begin = h;
        p->loop.head_end = h + step;
      }
      run_items(p, by_batch, begin, end);
      p->copy_prefix = 0;
    }
  }
}

/* Values of a table: no rotor is built. */
static void run_tabled(pass *p, int by_batch, int64_t begin, int64_t end) {
  int64_t heads = p->loop.head_end, step = p->driver->per_head && p->by_head ? 1 : heads;
  for (int64_t head = 0; head < heads; head += step) {
    p->loop.head_begin = head;
    p->loop.head_end = head + step;
    run_items(p, by_batch, begin, end);
    p->copy_prefix = 0;
  }
}

/* Rows of one token after the other stream best; where rotors are used again, many tokens at a time. */
static int64_t tile_tokens(const pass *p, int64_t heads) {
  int again = p->streams[0]->in.size[PEGEN_BATCH] > 1;
  if (p->driver->per_head) {
    int64_t tile = again ? p->tuning->tile_rotors / (p->by_head || heads < 1 ? 1 : heads) : 1;
    return tile < 1 ? 1 : tile;
  }
  return p->by_head || (again && shares_batches(p)) ? p->tuning->tile_tokens : p->tuning->tile_once;
}

static void set_inputs(pass *p) {
  for (int i = 0; i < p->driver->kernel->n_inputs; i++) pegen_set_kept(&p->input[i], &p->inputs[i]);
  p->loop.inputs = p->input;
}

static void run_pass(pass *p, const pegen_args *args, const pegen_target_code *target, int part, int parts) {
  if (p->n == 0) return;
  const pegen_stream *first = p->streams[0];
  int64_t heads = 0;
  for (int i = 0; i < p->n; i++) {
    pegen_set_rows(&p->loop.rows[i], p->streams[i]);
    if (p->streams[i]->in.size[PEGEN_HEAD] > heads) heads = p->streams[i]->in.size[PEGEN_HEAD];
  }
  if (p->n == 1) {
    pegen_set_rows(&p->loop.rows[1], first);
    p->loop.rows[1].heads = 0;
  }
  p->by_head = pegen_by_head(first);
  pegen_set_prefetch(&p->loop, p->tuning, p->by_head, p->touched);
  if (p->driver->per_head && !p->driver->turns_rows && !p->table)
    pegen_prefetch_built(&p->loop, p->tuning, first, p->touched);
  p->loop.tile_tokens = tile_tokens(p, heads);
  p->loop.group_rows = p->by_head ? p->tuning->group_rows : INT32_MAX;
  if (p->driver->turns_rows && !p->of_tokens) pegen_set_own_rows(&p->loop, p->tuning, p->by_head);
  p->loop.head_begin = 0;
  p->loop.head_end = heads;
  p->loop.prepared = 0;
  p->loop.prepared_stride = 0;
  p->loop.table = 0;
  p->loop.table_token = p->loop.table_head = 0;
  p->loop.rotor = target->rotor;
  p->loop.rotor_own = target->rotor_own;
  p->loop.unfold = target->unfold;
  p->loop.side = (double)first->keys;
  set_inputs(p);
  for (int i = 0; i < p->n && p->kept; i++) pegen_set_kept(&p->loop.kept[i], &p->kept[p->streams[i]->keys]);
  if (p->table) {
    p->section = p->table->sections > 1 && first->keys;
    p->loop.table_head = p->table->row_bytes;
    p->loop.table_token = p->table->heads * p->table->row_bytes;
  }

  int shared =
      p->table ? p->table->batches[p->section] == 1 : first->grid || first->positions.stride[PEGEN_POSITION_BATCH] == 0;
  int by_batch = !(shared && (p->driver->per_head || shares_batches(p)));
  int64_t items = first->in.size[PEGEN_TOKEN] * (by_batch ? first->in.size[PEGEN_BATCH] : 1);
  int64_t begin, end;
  if (!pegen_share(items, part, parts, &begin, &end)) return;
  p->copy_prefix = 1;
  if (p->table) run_tabled(p, by_batch, begin, end);
  else if (target->prepare) run_prepared(p, args, target->prepare, by_batch, begin, end);
  else run_items(p, by_batch, begin, end);
}

/* ---- the entries ---- */

/* What encodes the rows of streams that go together; 0: not compiled in. */
static pegen_encode_function *function_of(const pass *p, const pegen_stream *const *streams, int n, int *streaming) {
  const pegen_target_code *target = p->target;
  const pegen_row_code *code = p->of_tokens ? &target->of_tokens : &target->rows;
  int64_t type = streams[0]->in_type, other = type;
  int kind = *streaming ? PEGEN_ROUNDING_STREAMING : PEGEN_ROUNDING_CACHED;
  for (int i = 0; i < n; i++) {
    if (pegen_converts(streams[i])) other = streams[i]->out_type;
    if (streams[i]->norm) kind = PEGEN_ROUNDING_NORMALISED;
  }
  if (other == type) {
    int rounds = type == PEGEN_NUMBER_BF16 && p->tuning->rounds && code->rounding[kind];
    return rounds ? code->rounding[kind] : code->encode[type][*streaming];
  }
  *streaming = 0;
  if (!target->converting) return 0;
  return target->converting[type * (PEGEN_OUT_TYPES - PEGEN_ROW_TYPES) + other - PEGEN_ROW_TYPES];
}

/* Whether heads share the rows of all inputs that turn them, and there is code for it. */
static int shares_inputs(const pass *p, int64_t type) {
  if (!p->driver->turns_rows || !p->target->of_tokens.encode[type][0]) return 0;
  for (int i = 0; i < p->driver->kernel->n_inputs; i++)
    if (p->inputs[i].stride[PEGEN_HEAD] != 0) return 0;
  return 1;
}

int pegen_encode_checked(const pegen_driver *driver, const pegen_args *args, pegen_call *call,
                         const pegen_target_code *target, const pegen_tuning *tuning, pegen_view *kept, int part,
                         int parts) {
  pass p;
  int64_t touched = 0;
  int streaming = 1;
  for (int s = 0; s < 2; s++) {
    pegen_stream *stream = &call->stream[s];
    if (stream->given && stream->in.empty) stream->given = 0;
    if (!stream->given) continue;
    touched += pegen_view_bytes(&stream->in);
    if (!stream->in_place) touched += pegen_view_bytes(stream->out);
    streaming = streaming && !stream->slots && pegen_streams_aligned(stream, 64); /* whole lines */
  }
  p.tuning = tuning;
  p.target = target;
  streaming = streaming && touched > tuning->stream_above && target->rows.encode[call->type][1];
  p.driver = driver;
  p.table = call->tabled ? args->table : 0;
  p.section = 0;
  p.inputs = call->input;
  p.kept = kept;
  p.of_tokens = shares_inputs(&p, call->type);
  for (int s = 0; s < 2; s++) { /* before anything is written */
    const pegen_stream *alone = &call->stream[s];
    int cached = 0;
    if (alone->given && !function_of(&p, &alone, 1, &cached)) return PEGEN_ERROR_DTYPE;
    if (alone->given && alone->norm && !pegen_can_normalise(driver, target, alone)) return PEGEN_ERROR_DTYPE;
  }
  p.touched = touched;
  p.n = 0;
  pegen_head_groups groups;
  int64_t rounds = pegen_group_heads(call, kept, &groups);
  for (int64_t round = 0; round < rounds; round++) {
    pegen_take_group(&groups, round);
    for (int s = 0; s < (round ? 1 : 2); s++) {
      if (call->stream[s].given) p.streams[p.n++] = &call->stream[s];
      p.slotted = call->stream[s].given && call->stream[s].slots ? &call->stream[s] : 0;
      if (p.n > 0 && (!call->joint || s == 1)) {
        int past_caches = streaming;
        p.encode = function_of(&p, p.streams, p.n, &past_caches);
        run_pass(&p, args, target, part, parts);
        p.n = 0;
      }
    }
  }
  pegen_order_stores(streaming);
  return 0;
}

int pegen_driver_encode(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  pegen_call call;
  pegen_tuning tuning;
  int64_t row_bytes = ((const pegen_blades *)driver->form)->values_bytes;
  PEGEN_TRY(pegen_check(driver, args, part, parts, row_bytes, &call));
  int chosen = pegen_dispatch(driver, &tuning);
  if (chosen < 0) return PEGEN_ERROR_PROCESSOR;
  const pegen_target_code *target = &((const pegen_blades *)driver->form)->targets[chosen];
  return pegen_encode_checked(driver, args, &call, target, &tuning, 0, part, parts);
}

/* ---- tables ---- */

static void table_section(const pegen_driver *driver, const pegen_args *args, const pegen_target_code *target,
                          const pegen_stream *stream, const pegen_table_header *h, int s, int part, int parts) {
  const pegen_blades *blades = driver->form;
  int64_t begin, end;
  if (!pegen_share(h->batches[s] * h->tokens[s], part, parts, &begin, &end)) return;
  char *section = (char *)args->table + pegen_table_section(h, s);
  char *prepared = PEGEN_STACK(blades->prepared_bytes + 64);
  double *leaves = PEGEN_STACK(sizeof(double) * (size_t)(blades->n_leaves * blades->lanes) + 64);
  double position[PEGEN_MAX_PLACE];
  pegen_loop loop;
  position[driver->kernel->n_axes] = s;
  for (int64_t head = 0; head < h->heads; head++) {
    if (target->prepare) prepare_head(blades, args, target->prepare, head, leaves, prepared);
    for (int64_t item = begin; item < end; item++) {
      int64_t batch = item / h->tokens[s], token = item - batch * h->tokens[s];
      if (token < driver->kernel->skip_tokens) continue;
      if (stream->grid) {
        pegen_grid_position(driver->kernel, token, position);
      } else {
        pegen_set_positions(&loop, stream, batch);
        pegen_driver_position(&loop, token, driver->kernel->n_axes, position);
      }
      target->values(position, prepared, section + (item * h->heads + head) * h->row_bytes);
    }
  }
}

int pegen_driver_prepare(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  const pegen_blades *blades = driver->form;
  pegen_call call;
  pegen_table_header header;
  int target, error = pegen_table_begin(driver, args, part, parts, blades->values_bytes, &call, &header, &target);
  if (error) return error;
  for (int s = 0; s < header.sections && blades->targets[target].values; s++)
    table_section(driver, args, &blades->targets[target], &call.stream[s], &header, s, part, parts);
  return 0;
}

size_t pegen_driver_table_bytes(const pegen_driver *driver, const pegen_args *args) {
  return pegen_table_size(driver, args, ((const pegen_blades *)driver->form)->values_bytes);
}
