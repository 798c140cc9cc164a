/* fuzz_pages: see fuzz_pages.h. */
#include "fuzz_pages.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE_STEP = 16, MOST_PAGES = 4 };

/* A page has the tokens of a batch, as many as are a multiple of 16, or its first one again and again. */
static bool place_pool(const fuzz_tensor *of, int rank, DLTensor *pool, int64_t *shape, int64_t *stride) {
  *pool = of->dl;
  if (of->dl.ndim != rank || !of->shape || !of->strides) return false;
  int64_t tokens = of->shape[2], page = tokens >= PAGE_STEP ? tokens / PAGE_STEP * PAGE_STEP : PAGE_STEP;
  memcpy(shape, (int64_t[]){of->shape[0], page, of->shape[1]}, 3 * sizeof *shape);
  memcpy(stride, (int64_t[]){of->strides[0], tokens >= PAGE_STEP ? of->strides[2] : 0, of->strides[1]},
         3 * sizeof *stride);
  if (rank == 4) shape[3] = of->shape[3], stride[3] = of->strides[3];
  pool->shape = shape;
  pool->strides = stride;
  return tokens > 0;
}

/* Inputs of keys; false: one is not of the pages that k has. */
static bool place_inputs(fuzz_call *c, fuzz_pages *p) {
  bool sound = true;
  for (int i = 0; i < c->kernel->n_inputs; i++) {
    fuzz_tensor *of = &c->tensor[FUZZ_INPUT + i];
    if (!(c->kernel->key_inputs >> i & 1)) continue;
    sound = place_pool(of, c->kernel->inputs[i].size ? 4 : 3, &p->inputs[i], p->input_shape[i], p->input_stride[i]) &&
            p->input_shape[i][0] == p->shape[0][0] && sound;
    if (c->inputs[i] == &of->dl) c->inputs[i] = &p->inputs[i];
  }
  return sound;
}

/* Keys that a sequence may have. */
static int64_t most_keys(const fuzz_call *c, int64_t room) {
  int64_t points = c->kernel->skip_tokens, grid = 1;
  if (!c->of.attention->placed) return room;
  if (c->args.k_positions) {
    const DLTensor *places = c->args.k_positions;
    int64_t tokens = (places->ndim == 2 || places->ndim == 3) && places->shape ? places->shape[places->ndim - 2] : 0;
    return tokens < room ? tokens : room;
  }
  if (c->args.positions || !c->kernel->grid) return -1;
  for (int i = 0; i < c->kernel->n_axes; i++) grid *= c->kernel->grid[i];
  return points + grid < room ? points + grid : room;
}

static void edit_input(reader *r, const fuzz_call *c, fuzz_pages *p) {
  if (!c->kernel->n_inputs) return;
  unsigned i = below(r, (unsigned)c->kernel->n_inputs);
  (byte(r) % 2 ? p->input_shape : p->input_stride)[i][below(r, 4)] = number(r);
}

static void edit(reader *r, fuzz_pages *p, int32_t *table, int64_t entries, int32_t *lengths, int64_t sequences) {
  DLTensor *of = byte(r) % 2 ? &p->table : &p->lengths;
  switch (below(r, 11)) {
  case 0:
    if (entries) table[below(r, (unsigned)entries)] = (int32_t)number(r);
    break;
  case 1:
    if (sequences) lengths[below(r, (unsigned)sequences)] = (int32_t)number(r);
    break;
  case 2: of->dtype.bits = 64; break;
  case 3: of->ndim = (int32_t)below(r, 3); break;
  case 4: of->device.device_type = kDLCUDA; break;
  case 5: of->shape = NULL; break;
  case 6: p->table_stride[below(r, 2)] = 0; break; /* any other may leave the table */
  case 7: of->shape[0] = number(r); break;
  case 8: p->table_shape[1] = -(int64_t)below(r, 3); break;
  case 9: p->shape[below(r, 2)][below(r, 4)] = number(r); break;
  case 10: p->stride[below(r, 2)][below(r, 4)] = number(r); break;
  }
}

void fuzz_pages_make(reader *r, fuzz_call *c, fuzz_pages *p) {
  memset(p, 0, sizeof *p);
  bool has_k = place_pool(&c->tensor[FUZZ_K], 4, &p->k, p->shape[0], p->stride[0]),
       has_v = place_pool(&c->tensor[FUZZ_V], 4, &p->v, p->shape[1], p->stride[1]);
  int64_t sequences = c->sound ? c->tensor[FUZZ_Q].shape[0] : below(r, 4), most = below(r, MOST_PAGES + 1),
          page = p->shape[0][1], pages = p->shape[0][0],
          keys = has_k ? most_keys(c, most * (page < 1 << 20 ? page : 1 << 20)) : -1;
  int32_t *table = malloc(sizeof(int32_t) * (size_t)(sequences * most)),
          *lengths = malloc(sizeof(int32_t) * (size_t)sequences);
  bool has_inputs = place_inputs(c, p);
  if ((!table && sequences * most) || (!lengths && sequences)) abort();
  p->sound = c->sound && has_k && has_v && has_inputs && keys >= 0 && pages > 0 && sequences > 0;
  for (int64_t i = 0; i < sequences; i++) lengths[i] = p->sound ? (int32_t)below(r, (unsigned)keys + 1) : byte(r) % 40;
  for (int64_t i = 0; i < sequences * most; i++) /* behind a sequence's last page anything */
    table[i] = p->sound && i % most * page < lengths[i / most] ? (int32_t)below(r, (unsigned)pages) : byte(r) % 4 - 1;
  memcpy(p->table_shape, (int64_t[]){sequences, most}, sizeof p->table_shape);
  memcpy(p->table_stride, (int64_t[]){most, 1}, sizeof p->table_stride);
  p->lengths_shape[0] = sequences;
  DLTensor numbers = {.device = {kDLCPU, 0}, .dtype = {kDLInt, 32, 1}};
  p->table = p->lengths = numbers;
  p->table.data = table;
  p->table.ndim = 2;
  p->table.shape = p->table_shape;
  p->table.strides = p->table_stride;
  p->lengths.data = lengths;
  p->lengths.ndim = 1;
  p->lengths.shape = p->lengths_shape;
  if (byte(r) % 4 == 0) {
    if (c->kernel->key_inputs && byte(r) % 2) edit_input(r, c, p);
    else edit(r, p, table, sequences * most, lengths, sequences);
    p->sound = false;
  }
  if (c->args.struct_size == PEGEN_ARGS_FIRST_SIZE) c->args.struct_size = sizeof c->args;
  if (c->args.k == &c->tensor[FUZZ_K].dl) c->args.k = &p->k;
  if (c->args.v == &c->tensor[FUZZ_V].dl) c->args.v = &p->v;
  c->args.block_table = &p->table;
  c->args.lengths = &p->lengths;
}

void fuzz_pages_free(fuzz_pages *p) {
  free(p->table.data);
  free(p->lengths.data);
}

/* ---- slots ---- */

void fuzz_slots_make(reader *r, fuzz_call *c, fuzz_slots *s) {
  const fuzz_tensor *k = &c->tensor[FUZZ_K], *out = &c->tensor[FUZZ_K_OUT];
  memset(s, 0, sizeof *s);
  bool has_rows = k->dl.ndim == 4 && k->shape && out->dl.ndim == 4 && out->shape && out->strides;
  int64_t tokens = has_rows ? k->shape[2] : 0, batches = has_rows ? k->shape[0] : 0,
          is_small = batches >= 0 && batches < 64 && tokens >= 0 && tokens < 64,
          count = is_small ? batches * tokens : 0;
  int64_t *at = malloc(sizeof(int64_t) * (size_t)count), shift = byte(r);
  if (!at && count) abort();
  for (int64_t i = 0; i < count; i++) at[i] = byte(r) % 8 ? (i + shift) % count : -1;
  if (count && byte(r) % 4 == 0) {
    int64_t any = number(r); /* not one that another token has: which of the two is written last is nobody's promise */
    at[below(r, (unsigned)count)] = any >= 0 && any < count ? -1 : any;
  }
  s->k_out = out->dl;
  if (has_rows) {
    static const int from[] = {0, 2, 1, 3};
    for (int i = 0; i < 4; i++) s->shape[i] = out->shape[from[i]], s->stride[i] = out->strides[from[i]];
    s->k_out.shape = s->shape;
    s->k_out.strides = s->stride;
    if (byte(r) % 4 == 0) (byte(r) % 2 ? s->shape : s->stride)[below(r, 4)] = number(r);
    if (c->args.k_out == &out->dl) c->args.k_out = &s->k_out;
  }
  memcpy(s->slots_shape, byte(r) % 2 ? (int64_t[]){count, 1} : (int64_t[]){batches, tokens}, sizeof s->slots_shape);
  s->slots = (DLTensor){.data = at, .device = {kDLCPU, 0}, .dtype = {kDLInt, 64, 1}, .shape = s->slots_shape};
  s->slots.ndim = s->slots_shape[1] == tokens && s->slots_shape[0] == batches ? 2 : 1;
  if (!is_small) s->slots_shape[0] = 0, s->slots.ndim = 1;
  if (c->args.struct_size == PEGEN_ARGS_FIRST_SIZE) c->args.struct_size = sizeof c->args;
  c->args.slots = &s->slots;
}

void fuzz_slots_free(fuzz_slots *s) { free(s->slots.data); }

/* ---- append ---- */

enum { GUARD = 64 };

static void edit_append(reader *r, fuzz_call *c, fuzz_append *a) {
  DLTensor *norm = &a->norms[byte(r) % 2];
  int which = norm != a->norms;
  switch (below(r, 10)) {
  case 0: norm->shape = NULL; break;
  case 1: norm->ndim = (int32_t)below(r, 3); break;
  case 2: norm->dtype.bits = (uint8_t)(8 * below(r, 10)); break;
  case 3: a->width[which] = number(r); break;
  case 4: a->step[which] = number(r); break;
  case 5: c->args.norm_epsilon = (double)number(r); break;
  case 6: norm->data = byte(r) % 2 && a->bytes ? a->cache + GUARD : NULL; break;
  case 7: c->args.v_out = byte(r) % 2 ? NULL : c->args.k_out; break;
  case 8: a->shape[below(r, 4)] -= below(r, 3); break;
  case 9: a->v_out.dtype.bits = (uint8_t)(8 * below(r, 6)); break;
  }
}

void fuzz_append_make(reader *r, fuzz_call *c, fuzz_append *a) {
  const fuzz_tensor *k = &c->tensor[FUZZ_K];
  int64_t width = c->kernel->head_dim;
  memset(a, 0, sizeof *a);
  for (int i = 0; i < 2; i++) {
    float *weights = malloc((size_t)width * sizeof(double)); /* of any type */
    if (!weights) abort();
    for (int64_t j = 0; j < 2 * width; j++) weights[j] = (float)(j % 5) - 1;
    a->weights[i] = weights;
    a->width[i] = width;
    a->step[i] = 1;
    a->norms[i] = (DLTensor){.data = weights, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}};
    a->norms[i].shape = &a->width[i];
    a->norms[i].strides = &a->step[i];
  }
  bool has_rows = k->dl.ndim == 4 && k->shape;
  for (int i = 0; i < 4; i++) { /* a page for each batch */
    static const int from[] = {0, 2, 1, 3};
    int64_t size = has_rows ? k->shape[from[i]] : 1;
    a->shape[i] = size >= 0 && size < 64 ? size : 1;
  }
  a->bytes = (size_t)(a->shape[0] * a->shape[1] * a->shape[2] * a->shape[3]) * (k->dl.dtype.bits / 8);
  a->cache = malloc(a->bytes + 2 * GUARD);
  if (!a->cache) abort();
  memset(a->cache, 0x5a, a->bytes + 2 * GUARD);
  a->v_out = (DLTensor){.data = a->cache + GUARD, .device = {kDLCPU, 0}, .ndim = 4, .dtype = k->dl.dtype};
  a->v_out.shape = a->shape;
  c->args.v = &k->dl;
  c->args.v_out = &a->v_out;
  if (byte(r) % 4) c->args.q_norm = &a->norms[0];
  if (byte(r) % 4) c->args.k_norm = &a->norms[1];
  c->args.norm_epsilon = byte(r) / 64.;
  if (byte(r) % 4 == 0) edit_append(r, c, a);
  c->appends = true;
}

void fuzz_append_check(const fuzz_append *a) {
  for (size_t i = 0; i < GUARD; i++) EXPECT(a->cache[i] == 0x5a && a->cache[GUARD + a->bytes + i] == 0x5a);
}

void fuzz_append_free(fuzz_append *a) {
  for (int i = 0; i < 2; i++) free(a->weights[i]);
  free(a->cache);
}
