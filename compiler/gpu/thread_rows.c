/* gpu/thread_rows: addresses, accesses of 16 bytes, and the blocks between them; see gpu/thread_rows.h. */
#include "gpu/thread_rows.h"

#include "mlir/arith.h"

#include "mlir/number.h"

#include "kernel/launch.h"

#include <float.h>
#include <math.h>

enum { MAX_LANES = 8, WORD = 4 };

static ir_value wide(ir *b, ir_value x) { return ir_cast(b, "arith.extui", x, b->i64); }

/* ---- places ---- */

static ir_value heads_of(ir *b, const ir_value *parameter, int tensor) {
  return ir_cast(b, "arith.trunci", parameter[tensor + PEGEN_PTX_TENSOR_HEADS], b->i32);
}

ir_value row_streams(ir *b, const ir_value *parameter) {
  return ir_select(b, ir_compare_int(b, "ne", heads_of(b, parameter, PEGEN_PTX_K), i32(b, 0)), i32(b, 2), i32(b, 1));
}

void emit_row_accesses(row_thread *r) {
  ir *b = r->b;
  const thread_tile *t = r->t;
  r->streams = row_streams(b, r->parameter);
  r->delta = arena_array(r->memory, ir_value, t->n_accesses);
  r->present = arena_array(r->memory, ir_value, t->n_accesses);
  int *distance = arena_array(r->memory, int, t->n_units);
  for (int k = 0; k < t->n_accesses; k++) {
    for (int u = 0; u < t->n_units; u++)
      distance[u] = t->access_at[k * t->n_units + u] < 0
                        ? -1
                        : (t->access_at[k * t->n_units + u] - (k ? t->access_at[u] : 0)) * t->element;
    r->present[k] = emit_thread_present(r->exprs, distance);
    r->delta[k] = emit_thread_index(r->exprs, distance);
    /* What is absent loads the first access again and stores nothing. */
    if (r->present[k].ptr) r->delta[k] = ir_select(b, r->present[k], r->delta[k], i32(b, 0));
    r->delta[k] = wide(b, r->delta[k]);
  }
}

/* Bytes of a row that is written for those of one that is read. */
static ir_value out_bytes(row_thread *r, ir_value bytes) {
  int ratio = r->other ? number_bytes(r->dtype) / number_bytes(r->other) : 1;
  return ratio == 1 ? bytes : ir_op2(r->b, "arith.divui", bytes, ir_int(r->b, r->b->i64, ratio));
}

/* 1 / scale, or NaN of what is no positive, finite, normal number, as kernel/check.c has it; 1 where there is none. */
static ir_value gain_of(ir *b, ir_value address) {
  ir_value scale, one = ir_float(b, b->f32, 1);
  ir_choice choice = ir_choose(b, ir_compare_int(b, "eq", address, ir_int(b, b->i64, 0)), 1, &b->f32);
  ir_choose_else(b, &choice, 1, &one);
  scale = ir_load(b, b->f32, ir_pointer(b, address), 4);
  ir_end_choose(b, choice, 1, &scale, &scale);
  ir_value least = ir_compare_float(b, "oge", scale, ir_float(b, b->f32, FLT_MIN)),
           most = ir_compare_float(b, "ole", scale, ir_float(b, b->f32, FLT_MAX));
  return ir_select(b, ir_op2(b, "arith.andi", least, most), ir_op2(b, "arith.divf", one, scale),
                   ir_float(b, b->f32, NAN));
}

void emit_row_gains(row_thread *r, const ir_value *scales) {
  r->gain[0] = gain_of(r->b, scales[PEGEN_PTX_SCALE_Q]);
  r->gain[1] = gain_of(r->b, scales[PEGEN_PTX_SCALE_K]);
}

row_origin emit_row_origin(row_thread *r, const row_owner *owner, ir_value offset) {
  ir *b = r->b;
  bool by_head = r->per_head;
  row_origin o;
  for (int tensor = 0; tensor < 2; tensor++)
    for (int side = 0; side < 2; side++) {
      const ir_value *of = r->parameter + (tensor ? PEGEN_PTX_K : PEGEN_PTX_Q);
      const ir_value *strides =
          of + (side ? PEGEN_PTX_TENSOR_OUT_BATCH : PEGEN_PTX_TENSOR_IN_BATCH); /* batch, token, head */
      ir_value fixed = by_head ? mul(b, wide(b, owner->head), strides[2]) : mul(b, wide(b, owner->batch), strides[0]);
      ir_value base =
          add(b, of[side ? PEGEN_PTX_TENSOR_OUT : PEGEN_PTX_TENSOR_IN], side ? out_bytes(r, offset) : offset);
      o.base[side][tensor] = add(b, base, add(b, fixed, mul(b, wide(b, owner->token), strides[1])));
      o.stride[side][tensor] = strides[by_head ? 0 : 2];
    }
  return o;
}

void emit_row_blocks(row_thread *r) {
  const thread_tile *t = r->t;
  r->block_present = arena_array(r->memory, ir_value, t->n_blocks + 1);
  for (int slot = 0; slot < t->n_blocks; slot++)
    r->block_present[slot] = emit_thread_present(r->exprs, t->block_at + slot * t->n_units);
}

row_place emit_row_place(row_thread *r, const row_origin *o, ir_value row) {
  ir *b = r->b;
  ir_value is_k, index;
  if (r->per_head) { /* batch by batch, k's row after q's */
    ir_value both = ir_compare_int(b, "eq", r->streams, i32(b, 2));
    ir_value odd = ir_compare_int(b, "ne", ir_op2(b, "arith.andi", row, i32(b, 1)), i32(b, 0));
    is_k = ir_op2(b, "arith.andi", both, odd);
    index = ir_select(b, both, ir_op2(b, "arith.shrui", row, i32(b, 1)), row);
  } else {
    ir_value heads = heads_of(b, r->parameter, PEGEN_PTX_Q);
    is_k = ir_compare_int(b, "sge", row, heads);
    index = sub(b, row, ir_select(b, is_k, heads, i32(b, 0)));
  }
  ir_value at[2];
  for (int side = 0; side < 2; side++) {
    ir_value stride = ir_select(b, is_k, o->stride[side][1], o->stride[side][0]);
    at[side] =
        ir_pointer(b, add(b, ir_select(b, is_k, o->base[side][1], o->base[side][0]), mul(b, wide(b, index), stride)));
  }
  ir_value gain = r->other ? ir_select(b, is_k, r->gain[1], r->gain[0]) : (ir_value){NULL};
  return (row_place){
      .in = at[0], .out = at[1], .gain = gain, .raw = arena_array(r->memory, ir_value, r->t->n_accesses)};
}

/* ---- accesses ---- */

static MlirType access_type(const row_thread *r) {
  ir *b = r->b;
  int words = r->t->access / WORD;
  if (r->t->access < WORD) return number_bits(b, r->dtype);
  MlirType word = r->t->element == 4 ? b->f32 : b->i32;
  return words > 1 ? ir_vector(b, words, word) : word;
}

static ir_value access_pointer(row_thread *r, ir_value row, int k) {
  return k ? ir_offset(r->b, row, r->delta[k]) : row;
}

void emit_row_load(row_thread *r, row_place *place) {
  for (int k = 0; k < r->t->n_accesses; k++)
    place->raw[k] = ir_load(r->b, access_type(r), access_pointer(r, place->in, k), r->t->access);
}

/* ---- number types ---- */

static ir_value word_of(ir *b, ir_value access, int index) {
  return ir_lanes(access) ? ir_extract(b, access, index) : access;
}

/* The numbers of an access of 32-bit words, or the one of a smaller access. */
static void unpack(row_thread *r, ir_value raw, ir_value *x) {
  ir *b = r->b;
  int per_word = WORD / r->t->element;
  if (r->t->access < WORD) {
    x[0] = emit_number_value(b, r->native, r->dtype, raw);
    return;
  }
  for (int w = 0; w < r->t->access / WORD; w++)
    emit_unpack_word(b, r->native, r->dtype, word_of(b, raw, w), x + w * per_word);
}

/* An access from its encoded channels; words of which no channel changes stay as they were loaded, to the bit. */
static ir_value pack(row_thread *r, ir_value raw, const ir_value *y, const bool *changed) {
  ir *b = r->b;
  const thread_tile *t = r->t;
  ir_value words[MAX_LANES];
  int count = t->access / WORD, per_word = WORD / t->element;
  if (count == 0) return changed[0] ? emit_row_number(r, y[0]) : raw;
  for (int w = 0; w < count; w++) {
    const ir_value *of = y + w * per_word;
    bool some = changed[w * per_word] || changed[w * per_word + per_word - 1];
    words[w] = !some ? word_of(b, raw, w) : t->element == 4 ? of[0] : emit_pack_word(b, r->native, r->dtype, of);
  }
  return count > 1 ? ir_elements(b, access_type(r), count, words) : words[0];
}

ir_value emit_row_pack(row_thread *r, const ir_value *y) {
  static const bool changed[MAX_LANES] = {true, true, true, true, true, true, true, true};
  return pack(r, (ir_value){NULL}, y, changed);
}

ir_value emit_row_number(row_thread *r, ir_value x) { return emit_number_bits(r->b, r->native, r->dtype, x); }

/* ---- blocks ---- */

void emit_row_unpack(row_thread *r, const row_place *place, ir_value *x) {
  const thread_tile *t = r->t;
  for (int k = 0; k < t->n_accesses; k++) {
    if (t->element < WORD) unpack(r, place->raw[k], x + k * t->lanes);
    else
      for (int i = 0; i < t->lanes; i++) x[k * t->lanes + i] = word_of(r->b, place->raw[k], i);
  }
}

/* Adds a coefficient times a channel to sum (null: nothing), rounded as the description says. */
static ir_value emit_term(row_thread *r, ir_value coefficient, ir_value channel, ir_value sum) {
  ir *b = r->b;
  spec_products kind = r->p->spec->products;
  if (kind == PRODUCTS_FUSED) return sum.ptr ? ir_fma(b, coefficient, channel, sum) : mul(b, coefficient, channel);
  if (kind == PRODUCTS_ROUNDED) coefficient = emit_rounded(b, r->native, r->dtype, coefficient);
  ir_value product = mul(b, coefficient, channel);
  if (kind == PRODUCTS_ROUNDED) product = emit_rounded(b, r->native, r->dtype, product);
  return sum.ptr ? add(b, sum, product) : product;
}

/* Row `component` of a block's matrix, or of its transpose, times the block's channels x[component]; adds: it
 * begins with a sum. */
static ir_value times(row_thread *r, bool adds, bool transposed, int slot, int component, const ir_value *x) {
  int n = r->p->spec->n_components;
  ir_value sum = {NULL};
  for (int j = 0; j < n; j++) {
    ir_value c = r->coefficient[(slot * n + (transposed ? j : component)) * n + (transposed ? component : j)];
    if (!c.ptr || !x[j].ptr) continue;
    sum = adds && !sum.ptr ? add(r->b, c, x[j]) : emit_term(r, c, x[j], sum);
  }
  return sum.ptr ? sum : ir_float(r->b, r->b->f32, 0);
}

/* Channel `component` as the op encodes it: a row of its matrix times the channels. A sum has its number plus the
 * channel. */
static ir_value encoded(row_thread *r, int slot, int component, const ir_value *x) {
  return times(r, r->turn->kind == OP_ADD, false, slot, component, x);
}

void emit_row_transposed(row_thread *r, int slot, const ir_value *x, ir_value *y) {
  for (int i = 0; i < r->p->spec->n_components; i++)
    if (x[i].ptr) y[i] = times(r, false, true, slot, i, x);
}

/* Functions that threads have as sums of two float32 are computed so and rounded once. */
static ir_value mapped(row_thread *r, const program_op *map, const ir_value *channels) {
  arithmetic_context context = {r->b, true};
  return emit_expr_map(r->memory, &expr_of_threads, context, 0, r->p->spec->pool, map->expr[0], channels);
}

ir_value emit_row_mapped(row_thread *r, ir_value x) { return r->map ? mapped(r, r->map, &x) : x; }

static bool is_identity_row(const plan *p, int component) {
  if (p->spec->pre) return false;
  for (int j = 0; j < p->spec->n_components; j++)
    if (!expr_is_const(p->program->matrix.entry[component * p->spec->n_components + j], j == component)) return false;
  return true;
}

/* kept: what encode read, where map_back asks for it. */
static void encode(row_thread *r, const ir_value *x, const ir_value *kept, ir_value *y, bool *changed) {
  const thread_tile *t = r->t;
  int width = t->n_accesses * t->lanes;
  for (int i = 0; i < width; i++) y[i] = x[i];
  for (int slot = 0; slot < t->n_blocks; slot++) {
    ir_value of_block[SPEC_MAX_BLADES] = {{NULL}};
    for (int i = 0; i < width; i++)
      if (t->role_block[i] == slot) /* on the way back the map is of what was read */
        of_block[t->role_component[i]] = r->map_back ? x[i] : emit_row_mapped(r, x[i]);
    for (int i = 0; i < width; i++) {
      if (t->role_block[i] != slot || is_identity_row(r->p, t->role_component[i])) continue;
      changed[i] = true;
      y[i] = encoded(r, slot, t->role_component[i], of_block);
      if (r->map_back) {
        ir_value both[] = {kept[i], y[i]};
        y[i] = mapped(r, r->map_back, both);
      }
      if (r->block_present[slot].ptr) y[i] = ir_select(r->b, r->block_present[slot], y[i], x[i]);
    }
  }
}

/* The `lanes` numbers of an access in the other type: whole words where there are any, else one by one. */
static void store_converted(row_thread *r, const row_place *place, int access, const ir_value *y) {
  ir *b = r->b;
  int lanes = r->t->lanes, per_word = WORD / number_bytes(r->other), words = lanes / per_word;
  ir_value at = access ? ir_offset(b, place->out, out_bytes(r, r->delta[access])) : place->out, part[MAX_LANES];
  for (int i = 0; i < lanes; i++) part[i] = mul(b, y[i], place->gain);
  if (words == 0) {
    for (int i = 0; i < lanes; i++)
      ir_store(b, emit_number_bits(b, r->native, r->other, part[i]), ir_offset_const(b, at, i), 1, false);
    return;
  }
  for (int w = 0; w < words; w++) part[w] = emit_pack_word(b, r->native, r->other, part + w * per_word);
  ir_value all = words > 1 ? ir_elements(b, ir_vector(b, words, b->i32), words, part) : part[0];
  ir_store(b, all, at, words * WORD, false);
}

void emit_row_store(row_thread *r, const row_place *place, ir_value valid) {
  bool copy = !r->turn;
  ir *b = r->b;
  const thread_tile *t = r->t;
  int width = t->n_accesses * t->lanes;
  ir_value *x = arena_array(r->memory, ir_value, 3 * width), *y = x + width, *kept = y + width;
  bool *changed = arena_array(r->memory, bool, width);
  ir_branch branch;
  if (!copy || r->other) emit_row_unpack(r, place, x);
  if (r->map_back) emit_row_unpack(r, place->kept, kept);
  if (!copy) encode(r, x, kept, y, changed);
  const ir_value *written = copy ? x : y; /* of rows that are converted */
  if (valid.ptr) branch = ir_if(b, valid);
  for (int k = 0; k < t->n_accesses; k++) {
    ir_branch inner;
    ir_value access = {NULL};
    if (!r->other) access = copy ? place->raw[k] : pack(r, place->raw[k], y + k * t->lanes, changed + k * t->lanes);
    if (r->present[k].ptr) inner = ir_if(b, r->present[k]);
    if (r->other) store_converted(r, place, k, written + k * t->lanes);
    else ir_store(b, access, access_pointer(r, place->out, k), t->access, false);
    if (r->present[k].ptr) ir_end_if(b, inner);
  }
  if (valid.ptr) ir_end_if(b, branch);
}
