/* walk.c: how work is cut into parts and runs, whatever the form. */
#include "driver.h"

int pegen_share(int64_t items, int part, int parts, int64_t *begin, int64_t *end) {
  int64_t each = items / parts, more = items - each * parts; /* the first `more` parts have one more */
  *begin = part * each + (part < more ? part : more);
  *end = *begin + each + (part < more);
  return *begin < *end;
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

/* Zen 4's own prefetch keeps up with a walk in order of memory, and requests into the nearest cache cost more than they
 * bring (dispatch.c). A broken walk gains, from requests into the second-level cache alone, of which more can be under
 * way: geope3d and rope [8,4096,12,64] in [B,H,N,D] memory, share of the limit, in place .58 to .72 and .71 to .81,
 * elsewhere .68 to .81 and .82 to .87; PaPE's columns at [32,196,12,64] .36 without, .54 with the nearest cache, .70
 * with the second. */
void pegen_set_prefetch(pegen_loop *loop, int gains, int broken, int64_t touched) {
  loop->prefetch = gains && touched > PEGEN_PREFETCH_ABOVE ? PEGEN_PREFETCH_BYTES : 0;
  loop->prefetch_second = !gains && broken ? PEGEN_PREFETCH_BYTES : 0;
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
