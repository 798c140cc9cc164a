/* attention.c: the entries of attention: a checked call goes by sequences, or by its items. */
#include "attention_items.h"
#include "attention_sequences.h"
#include "gradient.h"

/* A call that has begun. */
typedef struct began {
  pegen_attention_call call;
  pegen_attention_walk w;
  pegen_attention_work work;
  int target;
} began;

static int begin_call(began *b, const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  pegen_tuning tuning;
  int error = pegen_check_attention(driver, args, part, parts, &b->call);
  if (error) return error;
  b->target = pegen_dispatch(driver, &tuning);
  if (b->target < 0) return PEGEN_ERROR_PROCESSOR;
  pegen_attention_begin(&b->w, driver, args, &b->call, b->target, &tuning);
  pegen_attention_work_of(&b->w, b->target, &b->work);
  return 0;
}

static int run_call(const pegen_driver *driver, const pegen_args *args, int part, int parts, int finishes) {
  began b;
  int64_t begin, end;
  int error = begin_call(&b, driver, args, part, parts);
  if (error) return error;
  if (!b.w.attend) return PEGEN_ERROR_DTYPE;
  if (b.work.bytes < 0) return PEGEN_ERROR_SIZE_OVERFLOW;
  if ((error = pegen_check_split(driver, args, &b.call, b.work.bytes)) != 0) return error;
  if (b.call.out.empty || (finishes && !b.work.bytes)) return 0;
  if (pegen_share(finishes ? b.work.items : b.work.chunks, part, parts, &begin, &end))
    pegen_attention_run_work(&b.w, b.target, &b.work, begin, end, finishes);
  return 0;
}

int pegen_driver_attention(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  if (pegen_has_sequences(args)) return pegen_attention_sequences(driver, args, part, parts, 0);
  return run_call(driver, args, part, parts, 0);
}

int pegen_driver_attention_finish(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  if (pegen_has_sequences(args)) return pegen_attention_sequences(driver, args, part, parts, 1);
  return run_call(driver, args, part, parts, 1);
}

size_t pegen_driver_attention_workspace(const pegen_driver *driver, const pegen_args *args) {
  began b;
  if (pegen_has_sequences(args)) return pegen_attention_sequences_workspace(driver, args);
  return begin_call(&b, driver, args, 0, 1) || b.work.bytes < 0 ? 0 : (size_t)b.work.bytes;
}
