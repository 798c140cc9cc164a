/* fuzz_edit: what may become of a sound call; see fuzz_call.h. */
#include "fuzz_call.h"
#include "table.h"

#include <math.h>
#include <string.h>

/* One field of what the table says of itself, sealed again or not. */
static void edit_header(pegen_table_header *header, unsigned word, int64_t value, bool sealed) {
  memcpy((char *)header + 8 * word, &value, 8);
  if (sealed) header->seal = pegen_table_seal(header);
}

/* Once a call: which sections there are and which batches share positions is the header's to say, and two edits could
 * make of it what prepare would have written for another call. */
static void edit_table(reader *r, fuzz_call *c) {
  if (c->entry != FUZZ_ENCODE || !c->args.table || c->table_edited) return;
  c->table_edited = true;
  int64_t value = number(r);
  switch (below(r, 4)) {
  case 0:
  case 1: edit_header(c->args.table, below(r, (unsigned)c->table_words), value, below(r, 2)); break;
  case 2: c->args.table_bytes = c->args.table_bytes > (uint64_t)value ? (uint64_t)value : c->args.table_bytes; break;
  case 3: c->args.table = (char *)c->args.table - (value & 63); break;
  }
}

static void resize(int64_t **list, int old, int rank) {
  int64_t *fresh = malloc(sizeof(int64_t) * (size_t)(rank > 0 ? rank : 0));
  for (int i = 0; i < rank; i++) fresh[i] = i < old ? (*list)[i] : 1;
  free(*list);
  *list = fresh;
}

static void edit_tensor(reader *r, fuzz_call *c, fuzz_tensor *t) {
  int rank = t->dl.ndim, at = rank > 0 && rank <= FUZZ_RANK ? (int)below(r, (unsigned)rank) : -1;
  switch (below(r, 12)) {
  case 0: {
    static const int32_t ranks[] = {0, 1, 2, 3, 4, 5, 6, -1, INT32_MAX, INT32_MIN};
    int32_t wanted = ranks[below(r, 10)], kept = wanted > FUZZ_RANK ? FUZZ_RANK : wanted,
            old = rank > FUZZ_RANK || rank < 0 ? 0 : rank;
    if (t->shape) resize(&t->shape, old, kept);
    if (t->strides) resize(&t->strides, old, kept);
    t->dl.ndim = wanted;
    break;
  }
  case 1:
    if (at >= 0 && t->shape) t->shape[at] = number(r);
    break;
  case 2:
    if (at >= 0 && t->strides) t->strides[at] = number(r);
    break;
  case 3: t->dl.data = world + (size_t)(number(r) & 0xffff); break; /* anywhere, other tensors' places too */
  case 4: t->dl.data = byte(r) & 1 ? NULL : (char *)(uintptr_t)number(r); break;
  case 5: t->dl.byte_offset = (uint64_t)number(r); break;
  case 6:
    t->dl.dtype =
        (DLDataType){(uint8_t)below(r, 8), (uint8_t)(8u << below(r, 5)), (uint16_t)(byte(r) % 16 ? 1 : byte(r))};
    break;
  case 7: t->dl.device.device_type = (DLDeviceType)below(r, 15); break;
  case 8: /* contiguous, and said so by nothing */
    free(t->strides);
    t->strides = NULL;
    break;
  case 9:
    free(t->shape);
    t->shape = NULL;
    break;
  case 10: { /* where another one is, with its strides: slices, overlaps, in place by another struct */
    const fuzz_tensor *other = &c->tensor[below(r, c->n_tensors)];
    if (!other->dl.data) break;
    t->dl.data = (char *)((uintptr_t)other->dl.data + (uintptr_t)(below(r, 2) ? number(r) : 0));
    t->dl.byte_offset = other->dl.byte_offset;
    if (other->strides && t->strides && other->dl.ndim == rank && rank <= FUZZ_RANK && rank > 0)
      memcpy(t->strides, other->strides, sizeof(int64_t) * (size_t)rank);
    break;
  }
  case 11: /* one fused buffer: every stride as long as all heads */
    for (int i = 0; t->strides && rank > 0 && rank <= FUZZ_RANK && i < rank - 1; i++)
      if (__builtin_mul_overflow(t->strides[i], 1 + (int64_t)below(r, 4), &t->strides[i])) t->strides[i] = 1;
    break;
  }
  t->dl.shape = t->shape;
  t->dl.strides = t->strides;
}

static void edit_call(reader *r, fuzz_call *c) {
  DLTensor *any = &c->tensor[below(r, c->n_tensors)].dl;
  pegen_args *args = &c->args;
  switch (below(r, 19)) {
  case 0: c->given = NULL; break;
  case 1: args->struct_size = (uint32_t)number(r); break;
  case 2: args->n_operands = (int32_t)number(r); break;
  case 3: args->operands = NULL; break;
  case 4: c->operands[below(r, FUZZ_OPERANDS)] = byte(r) & 1 ? any : NULL; break;
  case 5: args->q = byte(r) & 1 ? any : NULL; break;
  case 6: args->k = byte(r) & 1 ? any : NULL; break;
  case 7: args->q_out = byte(r) & 1 ? any : NULL; break;
  case 8: args->k_out = byte(r) & 1 ? any : NULL; break;
  case 9: args->positions = byte(r) & 1 ? any : NULL; break;
  case 10: args->k_positions = byte(r) & 1 ? any : NULL; break;
  case 11:
    c->part = (int)number(r);
    c->parts = (int)number(r);
    break;
  case 12: args->v = byte(r) & 1 ? any : NULL; break;
  case 13: args->out = byte(r) & 1 ? any : NULL; break;
  case 14: c->inputs[below(r, FUZZ_INPUTS)] = byte(r) & 1 ? any : NULL; break;
  case 15: args->n_inputs = (int32_t)number(r); break;
  case 16: {
    static const double scales[] = {0, -1, 1e300, INFINITY, -INFINITY, NAN, 0x1p-1074};
    args->scale = scales[below(r, 7)];
    args->causal = (int32_t)number(r);
    break;
  }
  case 17: args->inputs = NULL; break;
  case 18: args->origin = byte(r) & 1 ? any : NULL; break;
  }
}

/* Edits the table that prepare is to write: elsewhere, over another tensor, with more or less room. */
static void edit_room(reader *r, fuzz_call *c) {
  const DLTensor *any = &c->tensor[below(r, c->n_tensors)].dl;
  switch (below(r, 4)) {
  case 0: c->args.table = byte(r) & 1 ? NULL : world + (size_t)(number(r) & 0xffff); break;
  case 1: c->args.table = any->data; break;
  case 2: c->args.table = (void *)((uintptr_t)any->data & ~(uintptr_t)63); break;
  case 3: c->args.table_bytes = (size_t)number(r); break;
  }
}

void fuzz_call_edit(reader *r, fuzz_call *c) {
  fuzz_tensor *placed[FUZZ_ALL_TENSORS];
  unsigned count = 0;
  for (int i = 0; i < FUZZ_ALL_TENSORS; i++)
    if (c->tensor[i].dl.data || c->tensor[i].shape) placed[count++] = &c->tensor[i];
  unsigned what = below(r, count + 4);
  if (what < count) edit_tensor(r, c, placed[what]);
  else if (what < count + 2) edit_call(r, c);
  else if (c->entry == FUZZ_PREPARE) edit_room(r, c);
  else edit_table(r, c);
}
