/* view.c: the bytes that a tensor covers, and whether two tensors share any of them.
 *
 * Ranges of addresses are not enough: q and k that are slices of one fused
 * [B,N,3,H,D] buffer interleave without sharing an element, and an engine wants to
 * encode both in place. So where ranges overlap, the question is answered exactly, as
 * a search in a small lattice of strides.
 */
#include "driver.h"

int pegen_one_of(const DLTensor *tensor, int code, int bits) {
  return tensor->dtype.code == code && tensor->dtype.bits == bits && tensor->dtype.lanes == 1;
}

int pegen_on_host(const DLTensor *tensor) {
#ifdef PEGEN_CHECK_ANY_DEVICE /* the GPU's launcher asks by itself */
  (void)tensor;
  return 1;
#else
  return tensor->device.device_type == kDLCPU || tensor->device.device_type == kDLCUDAHost;
#endif
}

/* No stride and no size is longer than any address space of today; sums of a few stay far from overflow. */
#define ADDRESSABLE ((int64_t)1 << 56)

/* Advances *low, *high by the reach of one dimension. 1 where that leaves the address space. */
static int widen(int64_t size, int64_t stride, int64_t *low, int64_t *high) {
  int64_t span;
  if (__builtin_mul_overflow(size - 1, stride, &span) || span > ADDRESSABLE || span < -ADDRESSABLE) return 1;
  if (span < 0) *low += span;
  else *high += span;
  return 0;
}

/* Turns base and the reach [low, high) around it into addresses. */
static int place(const DLTensor *tensor, int64_t element, int64_t low, int64_t high, pegen_view *view) {
  uintptr_t data = (uintptr_t)tensor->data;
  if (!tensor->data) return PEGEN_ERROR_NULL_DATA;
  if (__builtin_add_overflow(data, (uintptr_t)tensor->byte_offset, &view->base)) return PEGEN_ERROR_SIZE_OVERFLOW;
  if ((uintptr_t)-low > view->base || __builtin_add_overflow(view->base, (uintptr_t)high, &view->high))
    return PEGEN_ERROR_SIZE_OVERFLOW;
  view->low = view->base - (uintptr_t)-low;
  if (view->base & (uintptr_t)(element - 1)) /* elements are of 1, 2, 4 or 8 bytes */
    return PEGEN_ERROR_ALIGNMENT;
  return 0;
}

int pegen_view_of(const DLTensor *tensor, int run, pegen_view *view) {
  const int64_t *shape = tensor->shape, *strides = tensor->strides;
  int64_t element = tensor->dtype.bits / 8, low = 0, high = element, count = 1;
  int rank = tensor->ndim, outer = rank - run;
  view->empty = 0;
  view->width = element;
  view->base = view->low = view->high = 0;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) {
    int from = i - (PEGEN_VIEW_DIMS - outer);
    view->size[i] = from < 0 ? 1 : shape[from];
    view->stride[i] = 0;
    view->empty |= view->size[i] == 0;
  }
  if (run) { /* the last dimension is never empty: it is the kernel's head_dim */
    count = shape[outer];
    view->width = high = count * element;
  }
  if (view->empty) /* its strides mean nothing: NumPy's are all 0 */
    return 0;
  if (run && strides && count > 1 && strides[outer] != 1) return PEGEN_ERROR_CHANNEL_STRIDE;
  for (int i = outer - 1; i >= 0; i--) {
    int64_t size = shape[i], stride = strides ? strides[i] : count;
    if (size == 1) continue;
    if (__builtin_mul_overflow(count, size, &count) || count > ADDRESSABLE) return PEGEN_ERROR_SIZE_OVERFLOW;
    if (__builtin_mul_overflow(stride, element, &stride) || widen(size, stride, &low, &high))
      return PEGEN_ERROR_SIZE_OVERFLOW;
    view->stride[i + PEGEN_VIEW_DIMS - outer] = stride;
  }
  return place(tensor, element, low, high, view);
}

static void exchange(int64_t *a, int64_t *b) {
  int64_t held = *a;
  *a = *b;
  *b = held;
}

/* [..,N,H] as [..,H,N]. */
static void exchange_tokens(pegen_view *view) {
  exchange(&view->size[PEGEN_HEAD], &view->size[PEGEN_TOKEN]);
  exchange(&view->stride[PEGEN_HEAD], &view->stride[PEGEN_TOKEN]);
}

int pegen_view_like_rows(const DLTensor *tensor, int run, pegen_view *view) {
  int error = pegen_view_of(tensor, run, view);
  if (!error && tensor->ndim - run < PEGEN_VIEW_DIMS) exchange_tokens(view);
  return error;
}

int pegen_view_pages(const DLTensor *cache, pegen_view *view) {
  int error = pegen_view_of(cache, 1, view);
  if (!error) exchange_tokens(view);
  return error;
}

int pegen_view_positions(const DLTensor *positions, int64_t is_bare, pegen_view *view) {
  int error = pegen_view_of(positions, 0, view);
  for (int i = 0; i < PEGEN_VIEW_DIMS && is_bare; i++) {
    view->size[i] = i + 1 < PEGEN_VIEW_DIMS ? view->size[i + 1] : 1;
    view->stride[i] = i + 1 < PEGEN_VIEW_DIMS ? view->stride[i + 1] : 0;
  }
  return error;
}

int pegen_view_contiguous(const DLTensor *tensor, pegen_view *view) {
  int64_t element = tensor->dtype.bits / 8, count = 1, empty = 0;
  for (int i = 0; i < tensor->ndim; i++) empty |= tensor->shape[i] == 0;
  for (int i = 0; i < tensor->ndim && !empty; i++)
    if (__builtin_mul_overflow(count, tensor->shape[i], &count) || count > ADDRESSABLE / 8)
      return PEGEN_ERROR_SIZE_OVERFLOW;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) {
    view->size[i] = 1;
    view->stride[i] = 0;
  }
  view->empty = empty;
  view->width = count * element;
  view->base = view->low = view->high = 0;
  return empty ? 0 : place(tensor, element, 0, view->width, view);
}

int pegen_views_equal(const pegen_view *a, const pegen_view *b) {
  if (a->base != b->base || a->width != b->width) return 0;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++)
    if (a->size[i] != b->size[i] || a->stride[i] != b->stride[i]) return 0;
  return 1;
}

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

int pegen_view_nests(const pegen_view *view) {
  int64_t inside = view->width, done = 0;
  /* A selection sort's three rounds: the shortest stride that is left must step over what is inside. */
  for (int round = 0; round < PEGEN_VIEW_DIMS; round++) {
    int best = -1;
    for (int i = 0; i < PEGEN_VIEW_DIMS; i++)
      if (view->size[i] > 1 && !(done >> i & 1) &&
          (best < 0 || magnitude(view->stride[i]) < magnitude(view->stride[best])))
        best = i;
    if (best < 0) break;
    int64_t stride = magnitude(view->stride[best]);
    if (stride < inside) return 0;
    inside += stride * (view->size[best] - 1);
    done |= (int64_t)1 << best;
  }
  return 1;
}

/* ---- the lattice ----
 *
 * Row i of a and row j of b share a byte where
 *
 *     a.base + sum i_d s_d  -  b.base - sum j_d t_d   lies in [-(a.width - 1), b.width - 1].
 *
 * Each dimension is a term: a stride > 0 and the range of its factor. Terms of equal
 * stride add up to one, and for two views of one buffer that leaves at most three.
 * Longest stride first, what the inner terms can reach leaves one to three candidates
 * for each factor, so the search ends after a few steps. */
typedef struct term {
  int64_t stride, low, high;
  int64_t reach_low, reach_high; /* of the terms after this one */
} term;

enum { SEARCH_STEPS = 512 };

typedef struct search {
  term terms[2 * PEGEN_VIEW_DIMS];
  int n;
  int steps;                /* left */
  int64_t window_low, window_high;
} search;

static void add_term(search *s, int64_t stride, int64_t low, int64_t high) {
  int at = s->n;
  if (stride < 0) {
    int64_t swap = -low;
    low = -high;
    high = swap;
    stride = -stride;
  }
  if (stride == 0) /* size 1, or a repeated input: no other bytes */
    return;
  for (int i = 0; i < s->n; i++) {
    if (s->terms[i].stride == stride) {
      s->terms[i].low += low;
      s->terms[i].high += high;
      return;
    }
  }
  for (; at > 0 && s->terms[at - 1].stride < stride; at--) {
    s->terms[at].stride = s->terms[at - 1].stride;
    s->terms[at].low = s->terms[at - 1].low;
    s->terms[at].high = s->terms[at - 1].high;
  }
  s->terms[at].stride = stride;
  s->terms[at].low = low;
  s->terms[at].high = high;
  s->n++;
}

static int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static int reaches_window(search *s, int at, int64_t offset) {
  if (at == s->n) return offset >= s->window_low && offset <= s->window_high;
  const term *t = &s->terms[at];
  int64_t first = -floor_divide(-(s->window_low - t->reach_high - offset), t->stride);
  int64_t last = floor_divide(s->window_high - t->reach_low - offset, t->stride);
  if (first < t->low) first = t->low;
  if (last > t->high) last = t->high;
  for (int64_t factor = first; factor <= last; factor++) {
    if (--s->steps < 0) return 1;
    if (reaches_window(s, at + 1, offset + factor * t->stride)) return 1;
  }
  return 0;
}

int pegen_view_memory(const void *at, int64_t bytes, pegen_view *view) {
  view->empty = bytes == 0;
  view->base = view->low = (uintptr_t)at;
  view->width = bytes;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) {
    view->size[i] = 1;
    view->stride[i] = 0;
  }
  return __builtin_add_overflow(view->low, (uint64_t)bytes, &view->high) ? PEGEN_ERROR_SIZE_OVERFLOW : 0;
}

int pegen_views_share(const pegen_view *a, const pegen_view *b) {
  search s;
  s.n = 0;
  s.steps = SEARCH_STEPS;
  s.window_low = -(a->width - 1);
  s.window_high = b->width - 1;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) {
    add_term(&s, a->stride[i], 0, a->size[i] - 1);
    add_term(&s, b->stride[i], -(b->size[i] - 1), 0);
  }
  int64_t low = 0, high = 0;
  for (int i = s.n - 1; i >= 0; i--) {
    s.terms[i].reach_low = low;
    s.terms[i].reach_high = high;
    low += s.terms[i].low * s.terms[i].stride;
    high += s.terms[i].high * s.terms[i].stride;
  }
  return reaches_window(&s, 0, (int64_t)(a->base - b->base));
}
