/* attention.c: the entries of attention: a checked call goes by sequences, by chunks of keys, or by its items. */
#include "attention_items.h"
#include "attention_sequences.h"
#include "attention_split.h"
#include "gradient.h"

static int check_split(const pegen_attention_walk *w, int target) {
  const pegen_attention_call *c = w->call;
  int64_t bytes = pegen_attention_split_bytes(w, target);
  return bytes < 0 ? PEGEN_ERROR_SIZE_OVERFLOW : pegen_check_split(w->driver, w->args, c, bytes);
}

static int begin_call(pegen_attention_walk *w, pegen_attention_call *call, const pegen_driver *driver,
                      const pegen_args *args, int part, int parts, int *target) {
  pegen_tuning tuning;
  int error = pegen_check_attention(driver, args, part, parts, call);
  if (error) return error;
  *target = pegen_dispatch(driver, &tuning);
  if (*target < 0) return PEGEN_ERROR_PROCESSOR;
  pegen_attention_begin(w, driver, args, call, *target, &tuning);
  return w->attend ? check_split(w, *target) : PEGEN_ERROR_DTYPE;
}

int pegen_driver_attention(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  pegen_attention_call call;
  pegen_attention_walk w;
  int64_t begin, end;
  if (pegen_has_sequences(args)) return pegen_attention_sequences(driver, args, part, parts);
  int target, error = begin_call(&w, &call, driver, args, part, parts, &target);
  if (error || call.out.empty) return error;
  int is_split = pegen_attention_split_bytes(&w, target) != 0;
  int64_t items = is_split ? pegen_attention_split_items(&w, target) : pegen_attention_items(&w, target);
  if (!pegen_share(items, part, parts, &begin, &end)) return 0;
  if (is_split) pegen_attention_split_run(&w, target, begin, end);
  else pegen_attention_run_items(&w, target, begin, end);
  return 0;
}

int pegen_driver_attention_finish(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  pegen_attention_call call;
  pegen_attention_walk w;
  int64_t begin, end;
  if (pegen_has_sequences(args)) return pegen_attention_sequences_finish(driver, args, part, parts);
  int target, error = begin_call(&w, &call, driver, args, part, parts, &target);
  if (error || !pegen_attention_split_bytes(&w, target)) return error;
  if (pegen_share(pegen_attention_items(&w, target), part, parts, &begin, &end))
    pegen_attention_split_finish(&w, target, begin, end);
  return 0;
}

size_t pegen_driver_attention_workspace(const pegen_driver *driver, const pegen_args *args) {
  pegen_attention_call call;
  pegen_attention_walk w;
  pegen_tuning tuning;
  if (pegen_has_sequences(args)) return pegen_attention_sequences_workspace(driver, args);
  if (pegen_check_attention(driver, args, 0, 1, &call)) return 0;
  int target = pegen_dispatch(driver, &tuning);
  if (target < 0) return 0;
  pegen_attention_begin(&w, driver, args, &call, target, &tuning);
  int64_t bytes = pegen_attention_split_bytes(&w, target);
  return bytes < 0 ? 0 : (size_t)bytes;
}
