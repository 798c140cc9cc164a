/* rows.c: rows of q and k as addresses and strides, and tokens that pass through. */
#include "driver.h"

/* ---- tokens that pass through ---- */

static void copy_row(char *out, const char *in, int64_t in_bytes, int64_t out_bytes) {
  int64_t common = in_bytes < out_bytes ? in_bytes : out_bytes, i = 0;
  for (; i + 8 <= common; i += 8) {
    uint64_t word; /* rows are aligned to their elements only */
    __builtin_memcpy(&word, in + i, 8);
    __builtin_memcpy(out + i, &word, 8);
  }
  for (; i < common; i++) out[i] = in[i];
  for (; i < out_bytes; i++) /* an encoding that widens: what it adds is zero here */
    out[i] = 0;
}

static float read_number(int64_t type, const char *at) {
  union {
    float value;
    uint32_t bits;
  } u;
  uint16_t half;
  if (type == PEGEN_NUMBER_F32) {
    __builtin_memcpy(&u.value, at, 4);
    return u.value;
  }
  __builtin_memcpy(&half, at, 2);
  return (float)(type == PEGEN_NUMBER_F16 ? pegen_f16_load(half) : pegen_bf16_load(half));
}

static void convert_row(char *out, const char *in, const pegen_stream *stream) {
  for (int64_t i = 0, bytes = pegen_number_at(stream->in_type)->bits / 8; i < stream->out->width; i++)
    ((uint8_t *)out)[i] =
        pegen_number_narrow(stream->out_type, read_number(stream->in_type, in + i * bytes) * (float)stream->gain);
}

void pegen_copy_row(const pegen_stream *stream, char *to, const char *from) {
  if (pegen_converts(stream)) convert_row(to, from, stream);
  else copy_row(to, from, stream->in.width, stream->out->width);
}

void pegen_copy_tokens(const pegen_stream *stream, int64_t batch, int64_t token_begin, int64_t token_end) {
  const pegen_view *in = &stream->in, *out = stream->out;
  for (int64_t token = token_begin; token < token_end; token++)
    for (int64_t head = 0; head < in->size[PEGEN_HEAD]; head++) {
      const char *from = pegen_at(in, batch, head, token);
      pegen_copy_row(stream, pegen_at(out, batch, head, token), from);
    }
}

void pegen_set_kept(pegen_input_rows *rows, const pegen_view *kept) {
  rows->data = (const char *)kept->base;
  rows->batch = kept->stride[PEGEN_BATCH];
  rows->token = kept->stride[PEGEN_TOKEN];
  rows->head = kept->stride[PEGEN_HEAD];
}

static const int64_t no_slot = 0;

void pegen_set_rows(pegen_rows *rows, const pegen_stream *stream) {
  rows->in = (const char *)stream->in.base;
  rows->out = (char *)stream->out->base;
  rows->heads = stream->in.size[PEGEN_HEAD];
  rows->in_batch = stream->in.stride[PEGEN_BATCH];
  rows->in_token = stream->in.stride[PEGEN_TOKEN];
  rows->in_head = stream->in.stride[PEGEN_HEAD];
  rows->out_batch = stream->out->stride[PEGEN_BATCH];
  rows->out_token = stream->out->stride[PEGEN_TOKEN];
  rows->out_head = stream->out->stride[PEGEN_HEAD];
  rows->converts = pegen_converts(stream);
  rows->gain = stream->gain;
  rows->norm = stream->norm;
  rows->epsilon = stream->epsilon;
  rows->slot = (const char *)&no_slot;
  rows->slot_batch = rows->slot_token = 0;
}

void pegen_set_positions(pegen_loop *loop, const pegen_stream *stream, int64_t batch) {
  loop->positions = 0;
  loop->position_type = loop->position_token = loop->position_axis = 0;
  if (stream->grid) return;
  loop->position_type = stream->position_type;
  loop->position_token = stream->positions.stride[PEGEN_POSITION_TOKEN];
  loop->position_axis = stream->positions.stride[PEGEN_POSITION_AXIS];
  loop->positions = pegen_at(&stream->positions, batch, 0, 0);
}

int64_t pegen_view_bytes(const pegen_view *view) { return view->size[0] * view->size[1] * view->size[2] * view->width; }

int pegen_streams_aligned(const pegen_stream *stream, int64_t bytes) {
  uint64_t bits = (uint64_t)stream->out->base | (uint64_t)stream->out->width;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) bits |= (uint64_t)stream->out->stride[i];
  return !stream->in_place && (bits & (uint64_t)(bytes - 1)) == 0;
}
