/* walk.c: how work is cut into parts and runs, whatever the form. */
#include "driver.h"

/* The first `more` parts have one more. */
int pegen_share_of(int64_t items, const pegen_part *of, int64_t *begin, int64_t *end) {
  int64_t each = items / of->parts, more = items - each * of->parts;
  *begin = of->first * each + (of->first < more ? of->first : more);
  *end = of->last * each + (of->last < more ? of->last : more);
  return *begin < *end;
}

int pegen_share(int64_t items, int part, int parts, int64_t *begin, int64_t *end) {
  return pegen_share_of(items, &(pegen_part){part, part + 1, parts}, begin, end);
}

int pegen_next_run(int64_t tokens, int64_t *item, int64_t end, pegen_run *run) {
  if (*item >= end) return 0;
  run->batch = *item / tokens;
  run->begin = *item - run->batch * tokens;
  run->end = tokens - run->begin < end - *item ? tokens : run->begin + (end - *item);
  *item += run->end - run->begin;
  return 1;
}

static int64_t distance(int64_t stride) { return stride < 0 ? -stride : stride; }

int pegen_by_head(const pegen_stream *stream) {
  return distance(stream->in.stride[PEGEN_HEAD]) > distance(stream->in.stride[PEGEN_TOKEN]);
}

void pegen_set_prefetch(pegen_loop *loop, const pegen_tuning *tuning, int broken, int64_t touched) {
  loop->prefetch = touched > tuning->prefetch_above ? tuning->prefetch_bytes : 0;
  loop->prefetch_built = 0;
  loop->prefetch_second = !loop->prefetch && broken && touched > tuning->prefetch_broken ? tuning->prefetch_bytes : 0;
}

void pegen_set_own_rows(pegen_loop *loop, const pegen_tuning *tuning, int by_head) {
  loop->tile_tokens = by_head ? tuning->tile_tokens : 1;
  loop->group_rows = by_head ? 1 : INT32_MAX;
}

void pegen_prefetch_built(pegen_loop *loop, const pegen_tuning *tuning, const pegen_stream *of, int64_t touched) {
  if (of->in_type != PEGEN_NUMBER_F32 || touched <= tuning->prefetch_above || touched > tuning->prefetch_built) return;
  loop->prefetch = loop->prefetch_second = 0;
  loop->prefetch_built = 1;
}

void pegen_order_stores(int streamed) {
  (void)streamed;
#if defined(__x86_64__)
  if (streamed) __asm__ volatile("sfence" ::: "memory");
#endif
}

size_t pegen_driver_workspace(const pegen_driver *driver, const pegen_args *args) {
  (void)driver;
  (void)args;
  return 0; /* what is prepared lives on the stack */
}
