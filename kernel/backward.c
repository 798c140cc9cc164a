/* backward.c: gradients of encodings whose rows are turned by rotors or added to.
 *
 * Gradients of rows go the way that rows went, by the transposed matrices: an encode call of other functions. What is
 * added to a row changes no gradient of it.
 */
#include "backward.h"

/* Rows as they are. */
static void copy_rows(const pegen_call *call, int part, int parts) {
  for (int s = 0; s < 2; s++) {
    const pegen_stream *stream = &call->stream[s];
    int64_t begin, end;
    if (!stream->given || stream->in.empty || stream->in_place) continue;
    int64_t tokens = stream->in.size[PEGEN_TOKEN];
    pegen_run run;
    if (!pegen_share(stream->in.size[PEGEN_BATCH] * tokens, part, parts, &begin, &end)) continue;
    while (pegen_next_run(tokens, &begin, end, &run)) pegen_copy_tokens(stream, run.batch, run.begin, run.end);
  }
}

int pegen_driver_encode_backward(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  const pegen_blades *blades = driver->form;
  pegen_backward_call call;
  pegen_tuning tuning;
  int error = pegen_check_backward(driver, args, part, parts, blades->values_bytes, &call);
  if (error) return error;
  int chosen = pegen_dispatch(driver, &tuning);
  if (chosen < 0) return PEGEN_ERROR_PROCESSOR;
  if (blades->backward)
    return pegen_encode_checked(driver, &call.args, &call.rows, &blades->backward[chosen], &tuning, part, parts);
  copy_rows(&call.rows, part, parts);
  return 0;
}

int pegen_driver_encode_backward_finish(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  pegen_backward_call call;
  return pegen_check_backward(driver, args, part, parts, ((const pegen_blades *)driver->form)->values_bytes, &call);
}

size_t pegen_driver_encode_backward_workspace(const pegen_driver *driver, const pegen_args *args) {
  (void)driver;
  (void)args;
  return 0;
}
