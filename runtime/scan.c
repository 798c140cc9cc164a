/* scan.c: pegen_scan_tokens; see pegen/scan.h.
 *
 * A unit is up to 16 lanes (heads' channels) of one sequence, which goes through its tokens in order. Additions of a
 * lane wait for one another, those of 16 do not, and no sum depends on how units are dealt out.
 */
#include "pegen/scan.h"

#include "parallel.h"

#include "../kernel/driver.h"
#include "../kernel/float_state.h"

#include <string.h>

enum { LANES = 16, TENSORS = 4 };

typedef struct scanning {
  const pegen_scan *given;
  pegen_view in, out, state_in, state_out; /* states: of sequences and heads, in dimensions 1 and 2 */
  const int32_t *bounds;                   /* [sequences + 1]; NULL: a sequence is a batch */
  int64_t sequences, heads, channels, tokens;
} scanning;

/* A unit under way. */
typedef struct lanes {
  const char *in[LANES];
  char *out[LANES];
  int64_t in_step, out_step, tokens; /* bytes from token to token, against the order of memory where sums are */
  int count, adjacent; /* adjacent: each lane lies behind the one before it */
  double period, sum[LANES];
} lanes;

/* ---- checks ---- */

static int is_channelled(const scanning *s) { return s->given->in->ndim == 4; }

/* A tensor of that rank, whose sizes from the first are these. */
static int check_tensor(const DLTensor *t, int rank, const int64_t *sizes, int is_read, int is_state) {
  if (t->ndim != rank) return PEGEN_ERROR_RANK;
  if (!t->shape) return PEGEN_ERROR_NULL_SHAPE;
  if (t->device.device_type != kDLCPU) return PEGEN_ERROR_DEVICE;
  int64_t type = pegen_number_of(t->dtype);
  if (is_state  ? type != PEGEN_NUMBER_F64
      : is_read ? !pegen_number_is_operand(t->dtype)
                : type != PEGEN_NUMBER_F32 && type != PEGEN_NUMBER_F64)
    return PEGEN_ERROR_DTYPE;
  for (int d = 0; d < rank; d++) {
    if (t->shape[d] < 0) return PEGEN_ERROR_NEGATIVE_SIZE;
    if (t->shape[d] != sizes[d]) return PEGEN_ERROR_SHAPE_MISMATCH;
  }
  return 0;
}

/* A row of no channels is no element, whatever the view says of rows. */
static int view(const scanning *s, const DLTensor *t, pegen_view *v) {
  if (s->channels > 0) return pegen_view_of(t, is_channelled(s), v);
  v->empty = 1;
  return 0;
}

static int read_bounds(scanning *s) {
  const DLTensor *t = s->given->cu_seqlens;
  s->sequences = s->given->in->shape[0];
  if (!t) return 0;
  if (s->sequences != 1 || t->ndim != 1 || !t->shape || t->shape[0] < 1 || t->dtype.code != kDLInt ||
      t->dtype.bits != 32 || t->dtype.lanes != 1 || (t->strides && t->shape[0] > 1 && t->strides[0] != 1))
    return PEGEN_ERROR_SEQUENCES;
  if (t->device.device_type != kDLCPU) return PEGEN_ERROR_DEVICE;
  pegen_view v;
  int error = pegen_view_contiguous(t, &v);
  if (error) return error;
  s->bounds = (const int32_t *)v.base;
  s->sequences = t->shape[0] - 1;
  int wrong = s->bounds[0] != 0 || s->bounds[s->sequences] != s->tokens;
  for (int64_t i = 0; i < s->sequences; i++) wrong |= s->bounds[i] > s->bounds[i + 1];
  return wrong ? PEGEN_ERROR_BOUNDS : 0;
}

/* What is written shares no byte with anything but the input that it replaces, element for element. */
static int check_overlap(const scanning *s) {
  const pegen_scan *given = s->given;
  const pegen_view *views[TENSORS] = {&s->in, &s->out, &s->state_in, &s->state_out};
  const DLTensor *tensors[TENSORS] = {given->in, given->out, given->state_in, given->state_out};
  pegen_view bounds;
  if (given->cu_seqlens && pegen_view_contiguous(given->cu_seqlens, &bounds)) return PEGEN_ERROR_SEQUENCES;
  for (int i = 1; i < TENSORS; i += 2) {
    if (!tensors[i]) continue;
    if (!views[i]->empty && !pegen_view_nests(views[i])) return PEGEN_ERROR_STRIDE;
    if (given->cu_seqlens && pegen_views_meet(views[i], &bounds)) return PEGEN_ERROR_OVERLAP;
    for (int j = 0; j < TENSORS; j++) {
      int is_own = j == i - 1 && tensors[j] && tensors[j]->dtype.code == tensors[i]->dtype.code &&
                   tensors[j]->dtype.bits == tensors[i]->dtype.bits && pegen_views_equal(views[i], views[j]);
      if (j != i && tensors[j] && !is_own && pegen_views_meet(views[i], views[j])) return PEGEN_ERROR_OVERLAP;
    }
  }
  return 0;
}

static int check(scanning *s, int part, int parts) {
  const pegen_scan *given = s->given;
  int error;
  if (given->struct_size != sizeof *given) return PEGEN_ERROR_STRUCT_SIZE;
  if (part < 0 || part >= parts) return PEGEN_ERROR_PART;
  if (!given->in || !given->out || (given->flags & ~(uint32_t)PEGEN_SCAN_REVERSE) || !(given->period >= 0) ||
      given->period > 0x1p1000 || (given->in->ndim != 3 && given->in->ndim != 4))
    return PEGEN_ERROR_SCAN;
  if (!given->in->shape) return PEGEN_ERROR_NULL_SHAPE;
  int rank = given->in->ndim;
  const int64_t *shape = given->in->shape;
  if ((error = check_tensor(given->in, rank, shape, 1, 0)) != 0 ||
      (error = check_tensor(given->out, rank, shape, 0, 0)) != 0)
    return error;
  s->heads = shape[1];
  s->tokens = shape[2];
  s->channels = rank == 4 ? shape[3] : 1;
  if ((error = read_bounds(s)) != 0) return error;
  int64_t state[] = {s->sequences, s->heads, s->channels};
  if ((given->state_in && (error = check_tensor(given->state_in, rank - 1, state, 1, 1)) != 0) ||
      (given->state_out && (error = check_tensor(given->state_out, rank - 1, state, 0, 1)) != 0))
    return error;
  if ((error = view(s, given->in, &s->in)) != 0 || (error = view(s, given->out, &s->out)) != 0 ||
      (given->state_in && (error = view(s, given->state_in, &s->state_in)) != 0) ||
      (given->state_out && (error = view(s, given->state_out, &s->state_out)) != 0))
    return error;
  return check_overlap(s);
}

/* ---- sums ---- */

/* Less whole periods. The nearest whole number is that of a sum whose last place is 1, up to 2^51 periods. */
static inline __attribute__((always_inline)) double within(double sum, double period) {
  double turns = sum / period + 0x1.8p52;
  return sum - (turns - 0x1.8p52) * period;
}

/* All that is known when it is compiled: the types, whether lanes are adjacent, whether there is a period. */
static inline __attribute__((always_inline)) void walk(lanes *w, int64_t in_type, int64_t in_bytes, int is_wide,
                                                       int adjacent, int is_periodic) {
  int count = adjacent ? LANES : w->count;
  int64_t out_bytes = is_wide ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
  double sum[LANES], period = w->period;
  memcpy(sum, w->sum, sizeof sum);
  for (int64_t t = 0; t < w->tokens; t++) {
    int64_t from = t * w->in_step, to = t * w->out_step;
    for (int i = 0; i < count; i++) {
      sum[i] += pegen_number_load(in_type, adjacent ? w->in[0] + from + i * in_bytes : w->in[i] + from);
      double value = is_periodic ? within(sum[i], period) : sum[i];
      char *at = adjacent ? w->out[0] + to + i * out_bytes : w->out[i] + to;
      if (is_wide) *(double *)at = value;
      else *(float *)at = (float)value;
    }
  }
  memcpy(w->sum, sum, sizeof sum);
}

static void walk_as(lanes *w, int64_t in_type, int is_wide) {
#define WALK(type, bytes) \
  if (w->adjacent && w->period > 0) walk(w, type, bytes, is_wide, 1, 1); \
  else if (w->adjacent) walk(w, type, bytes, is_wide, 1, 0); \
  else if (w->period > 0) walk(w, type, bytes, is_wide, 0, 1); \
  else walk(w, type, bytes, is_wide, 0, 0);
  switch (in_type) {
  case PEGEN_NUMBER_F64: WALK(PEGEN_NUMBER_F64, 8) break;
  case PEGEN_NUMBER_F32: WALK(PEGEN_NUMBER_F32, 4) break;
  case PEGEN_NUMBER_F16: WALK(PEGEN_NUMBER_F16, 2) break;
  default: WALK(PEGEN_NUMBER_BF16, 2) break;
  }
#undef WALK
}

/* The lanes from `first` on of a sequence: of heads, and of channels in them. */
static void scan_unit(const scanning *s, int64_t sequence, int64_t first, int count) {
  const pegen_scan *given = s->given;
  lanes w = {.count = count, .period = given->period};
  int64_t batch = s->bounds ? 0 : sequence, begin = s->bounds ? s->bounds[sequence] : 0;
  w.tokens = s->bounds ? s->bounds[sequence + 1] - begin : s->tokens;
  int is_reversed = (given->flags & PEGEN_SCAN_REVERSE) != 0;
  int64_t from = is_reversed ? begin + w.tokens - 1 : begin, sign = is_reversed ? -1 : 1;
  int64_t in_bytes = given->in->dtype.bits / 8, out_bytes = given->out->dtype.bits / 8;
  double *state_out[LANES];
  w.in_step = sign * s->in.stride[PEGEN_TOKEN];
  w.out_step = sign * s->out.stride[PEGEN_TOKEN];
  w.adjacent = count == LANES && !s->in.empty;
  for (int i = 0; i < count; i++) {
    int64_t head = (first + i) / s->channels, channel = (first + i) % s->channels;
    int64_t state = channel * (int64_t)sizeof(double);
    if (!s->in.empty) {
      w.in[i] = (const char *)s->in.base + batch * s->in.stride[PEGEN_BATCH] + head * s->in.stride[PEGEN_HEAD] +
                from * s->in.stride[PEGEN_TOKEN] + channel * in_bytes;
      w.out[i] = (char *)s->out.base + batch * s->out.stride[PEGEN_BATCH] + head * s->out.stride[PEGEN_HEAD] +
                 from * s->out.stride[PEGEN_TOKEN] + channel * out_bytes;
      w.adjacent &= w.in[i] == w.in[0] + i * in_bytes && w.out[i] == w.out[0] + i * out_bytes;
    }
    w.sum[i] = given->state_in ? *(const double *)(s->state_in.base + (uintptr_t)(sequence * s->state_in.stride[1] +
                                                                                  head * s->state_in.stride[2] + state))
                               : 0;
    state_out[i] = given->state_out ? (double *)(s->state_out.base + (uintptr_t)(sequence * s->state_out.stride[1] +
                                                                                 head * s->state_out.stride[2] + state))
                                    : NULL;
  }
  if (w.tokens > 0) walk_as(&w, pegen_number_of(given->in->dtype), out_bytes == (int64_t)sizeof(double));
  for (int i = 0; i < count && given->state_out; i++) *state_out[i] = w.sum[i];
}

/* Units [*begin, *end) of a part: as many as of any other, or one more. */
static void share(int64_t units, int part, int parts, int64_t *begin, int64_t *end) {
  int64_t each = units / parts, more = units % parts;
  *begin = part * each + (part < more ? part : more);
  *end = *begin + each + (part < more);
}

/* Not inlined: no arithmetic of it may move past what sets its floating-point state. */
static __attribute__((noinline)) int scan_part(const pegen_scan *scan, int part, int parts) {
  scanning s;
  if (!scan) return PEGEN_ERROR_NULL_ARGS;
  memset(&s, 0, sizeof s);
  s.given = scan;
  int error = check(&s, part, parts);
  if (error) return error;
  if (s.in.empty && (!scan->state_out || s.state_out.empty)) return 0; /* and products of sizes may be anything */
  int64_t all = s.heads * s.channels, groups = all / LANES + (all % LANES != 0), begin, end;
  share(s.sequences * groups, part, parts, &begin, &end);
  for (int64_t unit = begin; unit < end; unit++) {
    int64_t first = unit % groups * LANES;
    scan_unit(&s, unit / groups, first, all - first < LANES ? (int)(all - first) : LANES);
  }
  return 0;
}

int pegen_scan_tokens(const pegen_scan *scan, int part, int parts) {
  uint64_t found = pegen_float_begin();
  int error = scan_part(scan, part, parts);
  pegen_float_end(found);
  return error;
}

static int run_scan(const void *of, int part, int parts) { return pegen_scan_tokens(of, part, parts); }

int pegen_scan_parallel(const pegen_scan *scan, int threads) { return pegen_run_parts(run_scan, scan, threads); }
