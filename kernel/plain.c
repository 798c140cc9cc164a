/* plain.c: rows that are not encoded, by functions that are compiled for them; see append.h. */
#include "append.h"

pegen_plain_function *pegen_converter(const pegen_target_code *target, const pegen_stream *stream) {
  if (!target->convert) return 0;
  return target->convert[stream->in_type * (PEGEN_OUT_TYPES - PEGEN_ROW_TYPES) + stream->out_type - PEGEN_ROW_TYPES];
}

static pegen_plain_function *function_of(const pegen_target_code *target, const pegen_stream *stream) {
  return pegen_converts(stream) ? pegen_converter(target, stream) : target->norm[stream->in_type];
}

int pegen_can_normalise(const pegen_driver *driver, const pegen_target_code *target, const pegen_stream *stream) {
  return driver->kernel->skip_tokens == 0 || function_of(target, stream);
}

void pegen_normalise_tokens(const pegen_target_code *target, const pegen_stream *stream, const pegen_rows *rows,
                            int64_t batch, int64_t begin, int64_t end) {
  pegen_plain_rows work;
  work.rows = rows->heads;
  work.in_step = rows->in_head;
  work.out_step = rows->out_head;
  work.gain = rows->gain;
  work.norm = rows->norm;
  work.epsilon = rows->epsilon;
  for (int64_t token = begin; token < end; token++) {
    work.in = rows->in + (batch * rows->in_batch + token * rows->in_token);
    work.out = rows->out + (batch * rows->out_batch + token * rows->out_token);
    function_of(target, stream)(&work);
  }
}
