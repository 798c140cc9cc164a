/* verify/check_converted: rows that are written in another number type than they are read in, with a scale.
 *
 * The arithmetic is that of the kernel's own float32 rows, so what must come out is known to the bit: those rows times
 * the scale's reciprocal, rounded by the slow conversion of base/number. Float32 rows themselves are compared with the
 * reference beside this.
 */
#include "verify/check_kind.h"
#include "verify/trial.h"

#include <math.h>

/* What a pair's checks share. */
typedef struct converted {
  checker *c;
  const converted_call *call;
  number_type in, out;
  const char *name;
  DLTensor *q, *k, *q_f32, *k_f32; /* rows, and what float32 makes of them */
} converted;

static DLTensor *like(const converted *t, const DLTensor *rows, number_type type, row_order order) {
  return tensor_like(t->c->memory, rows, type, order);
}

/* What the rows must become: float32's, or, where `scale` is NULL, divided by nothing. */
static bool is_rounded(const converted *t, const DLTensor *of, const float *scale, const DLTensor *out) {
  float gain = scale ? 1 / *scale : 1;
  EACH_NUMBER(of, b, h, n, c) {
    unsigned char expected;
    number_store(t->out, &expected, (float)tensor_get(of, b, h, n, c) * gain);
    if (*(const unsigned char *)tensor_at(out, b, h, n, c) != expected) return false;
  }
  return true;
}

static int call(const converted *t, const DLTensor *q, DLTensor *q_out, const DLTensor *k, DLTensor *k_out,
                float *q_scale, float *k_scale, int parts) {
  DLTensor scale[2] = {{.data = q_scale, .device = {kDLCPU, 0}, .dtype = {kDLFloat, 32, 1}},
                       {.data = k_scale, .device = {kDLCPU, 0}, .dtype = {kDLFloat, 32, 1}}};
  return trial_call_scaled(t->c->kernel, t->call->positions, t->call->operands, q, q_out, k, k_out,
                           q_scale ? &scale[0] : NULL, k_scale ? &scale[1] : NULL, parts);
}

/* Scales that leave some elements subnormal, and make others too large. */
static void check_both(const converted *t) {
  static float scales[] = {0.0013f, 3.0f};
  DLTensor *q_out = like(t, t->q, t->out, ROWS_GAPS), *k_out = like(t, t->k, t->out, ROWS_BHND);
  if (!check_called(t->c, t->name, "q and k converted",
                    call(t, t->q, q_out, t->k, k_out, &scales[0], &scales[1], CHECK_PARTS)))
    return;
  check_report_bits(t->c, t->name, "float32's rows, scaled and rounded",
                    is_rounded(t, t->q_f32, &scales[0], q_out) && is_rounded(t, t->k_f32, &scales[1], k_out));
}

/* A cache of keys: k alone is converted, q stays what it is. */
static void check_keys(const converted *t) {
  if (!(t->c->kernel->dtypes & number_pair(t->in, t->in))) return;
  DLTensor *q_out = like(t, t->q, t->in, ROWS_BHND), *k_out = like(t, t->k, t->out, ROWS_BNHD),
           *alone = like(t, t->q, t->in, ROWS_BHND);
  if (!check_called(t->c, t->name, "k converted", call(t, t->q, q_out, t->k, k_out, NULL, NULL, 1)) ||
      !check_called(t->c, t->name, "q alone", call(t, t->q, alone, NULL, NULL, NULL, NULL, 1)))
    return;
  check_report_bits(t->c, t->name, "k converted beside q in its own type",
                    is_rounded(t, t->k_f32, NULL, k_out) && tensor_identical(q_out, alone));
}

/* What is no scale makes every element NaN. */
static void check_bad_scales(const converted *t) {
  static float bad[] = {0, -1, NAN, INFINITY, 0x1p-140f};
  bool all = true;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    DLTensor *out = like(t, t->k, t->out, ROWS_BHND);
    if (!check_called(t->c, t->name, "a bad scale", call(t, NULL, NULL, t->k, out, NULL, &bad[i], 1))) return;
    EACH_NUMBER(out, b, h, n, c) all = all && isnan(tensor_get(out, b, h, n, c));
  }
  check_report_bits(t->c, t->name, "NaN where the scale is none", all);
}

static void check_pair(checker *c, const converted_call *of, number_type in, number_type out) {
  enum { BATCH = 2 };
  arena *a = c->memory;
  int channels = c->spec->head_dim;
  converted t = {.c = c, .call = of, .in = in, .out = out, .name = number_name(out)};
  t.q = tensor_rows(a, in, ROWS_BHND, BATCH, of->heads, of->tokens, channels);
  t.k = tensor_rows(a, in, ROWS_BNHD, BATCH, of->k_heads, of->tokens, channels);
  tensor_randomize(t.q, &c->random);
  tensor_randomize(t.k, &c->random);
  t.q_f32 = tensor_converted(a, t.q, NUMBER_F32, ROWS_BHND, 1);
  t.k_f32 = tensor_converted(a, t.k, NUMBER_F32, ROWS_BHND, 1);
  if (!check_called(c, "f32", "rows to be converted",
                    trial_call(c->kernel, of->positions, of->operands, t.q_f32, t.q_f32, t.k_f32, t.k_f32, 1)))
    return;
  check_both(&t);
  check_keys(&t);
  check_bad_scales(&t);
}

void check_each_pair(checker *c, const converted_call *call) {
  for (int in = 0; in < NUMBER_CHANNEL_TYPES; in++)
    for (int out = NUMBER_CHANNEL_TYPES; out < NUMBER_OUT_TYPES; out++)
      if (c->kernel->dtypes & number_pair(in, out)) check_pair(c, call, (number_type)in, (number_type)out);
}
