/* append.c: what serves a token, in one call: RMS norms of its rows of q and k, where there are any, their encoding, q
 * to q_out, k to its cache at slots, and v to a cache of its own at the same.
 *
 * q and k are a call of encode with slots and are checked as one (check.c), and walked as one (encode.c), whose
 * functions normalise rows as they load them. v, of k's shape, is checked beside them, and moved here. All is checked
 * before a byte is written.
 */
#include "append.h"
#include "backward.h"
#include "memory.h"

#include <float.h>

/* A checked call. */
typedef struct append_call {
  pegen_call rows;
  pegen_stream values;
  pegen_view norms[2]; /* weights of q, of k; empty: none */
} append_call;

/* ---- checks ---- */

static int check_norm(const pegen_driver *driver, const DLTensor *norm, int is_given, pegen_view *view) {
  view->empty = 1;
  if (!norm) return 0;
  if (!is_given || norm->ndim != 1 || !norm->shape || norm->shape[0] != driver->kernel->head_dim ||
      !pegen_number_is_operand(norm->dtype) || (norm->strides && norm->shape[0] > 1 && norm->strides[0] != 1))
    return PEGEN_ERROR_NORM;
  return pegen_on_host(norm) ? pegen_view_contiguous(norm, view) : PEGEN_ERROR_DEVICE;
}

static int check_values(const pegen_driver *driver, const pegen_args *args, append_call *call) {
  const DLTensor *k = args->k, *v = args->v;
  call->values.given = v != 0;
  if (!v != !PEGEN_GIVEN(args, v_out)) return PEGEN_ERROR_MISSING_OUTPUT;
  if (!v) return 0;
  if (v->ndim != k->ndim) return PEGEN_ERROR_RANK;
  if (!v->shape) return PEGEN_ERROR_NULL_SHAPE;
  if (!pegen_same_rows(k, 4, v, 4)) return PEGEN_ERROR_SHAPE_MISMATCH;
  if (!pegen_same_type(v, k)) return PEGEN_ERROR_DTYPE_MISMATCH;
  return pegen_check_values(driver, args, &call->values);
}

/* Rows that are encoded were checked without v and the norms. */
static int check_memory(const pegen_driver *driver, const pegen_args *args, const append_call *call) {
  const pegen_stream *q = &call->rows.stream[0], *k = &call->rows.stream[1], *v = &call->values;
  const pegen_view *const written[2] = {q->out, k->out};
  pegen_memory memory;
  pegen_memory_of_rows(&memory, driver, args, &call->rows, written);
  pegen_memory_reads(&memory, &k->slot_view);
  for (int i = 0; i < 2; i++) pegen_memory_reads(&memory, &call->norms[i]);
  if (v->given) {
    pegen_memory_reads(&memory, &v->in);
    pegen_memory_reads(&memory, &v->scale);
    pegen_memory_writes(&memory, v->out);
  }
  return pegen_check_memory(&memory);
}

static int check(const pegen_driver *driver, const pegen_args *args, int part, int parts, append_call *call) {
  static const int64_t is_written[2] = {1, 1};
  int64_t row_bytes = ((const pegen_blades *)driver->form)->values_bytes;
  PEGEN_TRY(pegen_check_part(args, part, parts, PEGEN_USE_append));
  double epsilon = PEGEN_GIVEN(args, norm_epsilon);
  if (!PEGEN_GIVEN(args, slots)) return PEGEN_ERROR_SLOTS;
  PEGEN_TRY(pegen_check_written(driver, args, row_bytes, is_written, 0, &call->rows));
  PEGEN_TRY(check_values(driver, args, call));
  PEGEN_TRY(check_norm(driver, PEGEN_GIVEN(args, q_norm), args->q != 0, &call->norms[0]));
  PEGEN_TRY(check_norm(driver, PEGEN_GIVEN(args, k_norm), 1, &call->norms[1]));
  if (!(epsilon >= 0 && epsilon <= DBL_MAX)) return PEGEN_ERROR_NORM;
  PEGEN_TRY(check_memory(driver, args, call));
  pegen_go_to_page(&call->rows.stream[1]);
  if (call->values.given) pegen_go_to_page(&call->values);
  return 0;
}

/* ---- rows that are not encoded ---- */

static void copy_bytes(char *to, const char *from, int64_t bytes) {
  int64_t i = 0;
  for (; i + 64 <= bytes; i += 64) {
    uint64_t line[8]; /* rows are aligned to their elements only */
    __builtin_memcpy(line, from + i, 64);
    __builtin_memcpy(to + i, line, 64);
  }
  for (; i < bytes; i++) to[i] = from[i];
}

typedef void copy_function(char *to, const char *from, int64_t bytes);

#if defined(__x86_64__)
/* The baseline's 16 bytes at a time are not as fast as the caches. */
__attribute__((target("avx"))) static void copy_by_avx(char *to, const char *from, int64_t bytes) {
  typedef uint64_t vector __attribute__((vector_size(32), aligned(1), may_alias));
  int64_t i = 0;
  for (; i + 64 <= bytes; i += 64) {
    vector first = *(const vector *)(from + i), second = *(const vector *)(from + i + 32);
    *(vector *)(to + i) = first;
    *(vector *)(to + i + 32) = second;
  }
  for (; i < bytes; i++) to[i] = from[i];
}

static copy_function *copy_of(int64_t level) { return level >= PEGEN_LEVEL_X86_64_V3 ? copy_by_avx : copy_bytes; }
#else
static copy_function *copy_of(int64_t level) {
  (void)level;
  return copy_bytes;
}
#endif

/* Rows of one token; heads that follow each other on both sides are one run of bytes. */
static void copy_heads(const pegen_plain_rows *rows, int64_t width, copy_function *copy) {
  int64_t runs = rows->rows, bytes = width;
  if (rows->in_step == width && rows->out_step == width) {
    bytes *= runs;
    runs = 1;
  }
  for (int64_t run = 0; run < runs; run++)
    copy(rows->out + run * rows->out_step, rows->in + run * rows->in_step, bytes);
}

static void move_values(const pegen_stream *v, pegen_plain_function *convert, copy_function *copy, int part,
                        int parts) {
  const pegen_view *in = &v->in, *out = v->out;
  int64_t tokens = in->size[PEGEN_TOKEN], begin, end;
  if (!pegen_share(in->size[PEGEN_BATCH] * tokens, part, parts, &begin, &end)) return;
  pegen_plain_rows rows;
  rows.rows = in->size[PEGEN_HEAD];
  rows.in_step = in->stride[PEGEN_HEAD];
  rows.out_step = out->stride[PEGEN_HEAD];
  rows.gain = v->gain;
  rows.norm = 0;
  rows.epsilon = 0;
  for (int64_t item = begin; item < end; item++) {
    int64_t slot = v->slots[item], batch = item / tokens, token = item - batch * tokens;
    if (slot < 0) continue;
    int64_t page = slot / v->page_size;
    rows.in = pegen_at(in, batch, 0, token);
    rows.out =
        (char *)(v->cache + (uintptr_t)(page * v->page + (slot - page * v->page_size) * out->stride[PEGEN_TOKEN]));
    if (convert) convert(&rows);
    else copy_heads(&rows, in->width, copy);
  }
}

/* ---- the entry ---- */

/* Weights as float32, [head_dim]: where they are, or in `weights`. */
static void set_norm(pegen_stream *stream, const DLTensor *norm, double epsilon, int64_t head_dim, float *weights) {
  double some[64];
  if (!norm) return;
  stream->epsilon = epsilon;
  if (pegen_one_of(norm, kDLFloat, 32)) {
    stream->norm = (const float *)(const void *)((const char *)norm->data + norm->byte_offset);
    return;
  }
  for (int64_t first = 0; first < head_dim; first += 64) {
    int64_t count = head_dim - first < 64 ? head_dim - first : 64;
    pegen_gather_run(norm, first, count, some);
    for (int64_t i = 0; i < count; i++) weights[first + i] = (float)some[i];
  }
  stream->norm = weights;
}

int pegen_driver_append(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  append_call call;
  pegen_tuning tuning;
  PEGEN_TRY(check(driver, args, part, parts, &call));
  int chosen = pegen_dispatch(driver, &tuning);
  if (chosen < 0) return PEGEN_ERROR_PROCESSOR;
  const pegen_target_code *target = &((const pegen_blades *)driver->form)->targets[chosen];
  const pegen_stream *v = &call.values;
  pegen_plain_function *convert = v->given && pegen_converts(v) ? pegen_converter(target, v) : 0;
  if (v->given && pegen_converts(v) && !convert) return PEGEN_ERROR_DTYPE;

  int64_t head_dim = driver->kernel->head_dim;
  float *weights = PEGEN_STACK(sizeof(float) * 2 * (size_t)head_dim);
  pegen_stream *q = &call.rows.stream[0], *k = &call.rows.stream[1];
  if (!call.norms[0].empty) set_norm(q, args->q_norm, args->norm_epsilon, head_dim, weights);
  if (!call.norms[1].empty) set_norm(k, args->k_norm, args->norm_epsilon, head_dim, weights + head_dim);
  PEGEN_TRY(pegen_encode_checked(driver, args, &call.rows, target, &tuning, 0, part, parts));
  if (v->given && !v->in.empty) move_values(v, convert, copy_of(driver->levels[chosen]), part, parts);
  return 0;
}
