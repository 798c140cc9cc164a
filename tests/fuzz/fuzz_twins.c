/* fuzz_twins: kernels by hand behind the drivers of attention and of columns, so that the address sanitizer sees each
 * access that the driver's view of a call leads to; tests/interface/twin.c has those of rotors.
 *
 * attend: softmax of q k^T less slope * |displacement| plus a number read by the displacement, one query after the
 * other. widen: two columns of q, from its inputs and its head's rate, and two of k, from its position.
 */
#include "fuzz_twins.h"

#include "driver.h"
#include "fuzz_twin_parts.h"
#include "twin.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* ---- attention ---- */

enum { LANES = 4 };

static float product(const twin_number *type, const char *q, const char *k) {
  float sum = 0;
  for (int d = 0; d < HEAD_DIM; d++) sum += type->load(q + d * type->bytes) * type->load(k + d * type->bytes);
  return sum;
}

static double bias(const pegen_attention_tile *t, int lane, int64_t key, bool learned) {
  double at[PEGEN_MAX_ROTOR_AXES], distance = 0;
  pegen_attention_rows(t->keys, key, 1, 1, at);
  for (int axis = 0; axis < AXES; axis++) distance += fabs(at[axis] - t->positions[axis][lane]);
  double slope = learned ? t->leaves[0] : 1;
  const float *numbers = learned ? t->operands[1] : NULL;
  int index = distance < NUMBERS - 1 ? (int)distance : NUMBERS - 1;
  return (numbers ? numbers[index] : 0) - slope * distance;
}

static void attend_lane(const pegen_attention_tile *t, const twin_number *type, bool learned, int64_t head, int lane) {
  double sum = 0, out[VALUE_DIM] = {0};
  for (int64_t key = 0; key < t->end && key < t->limits[lane]; key++) {
    double score = t->scale * product(type, t->q[head] + t->tokens[lane] * t->q_token, t->k[head] + key * t->k_token);
    if (key >= t->plain) score += bias(t, lane, key, learned);
    double weight = exp2(score > 60 ? 60 : score < -60 ? -60 : score);
    sum += weight;
    for (int d = 0; d < VALUE_DIM; d++) out[d] += weight * type->load(t->v[head] + key * t->v_token + d * type->bytes);
  }
  for (int d = 0; d < VALUE_DIM; d++)
    type->store(t->out[head] + t->tokens[lane] * t->out_token + d * type->bytes, sum > 0 ? (float)(out[d] / sum) : 0);
}

static void attend(const pegen_attention_tile *t, const twin_number *type, bool learned) {
  for (int64_t head = 0; head < t->heads; head++)
    for (int lane = 0; lane < LANES * VECTORS; lane++)
      if (t->tokens[lane] >= 0) attend_lane(t, type, learned, head, lane);
}

static void learned_f32(const pegen_attention_tile *t) { attend(t, &twin_f32, true); }
static void learned_bf16(const pegen_attention_tile *t) { attend(t, &twin_bf16, true); }
static void rows_f32(const pegen_attention_tile *t) { attend(t, &twin_f32, false); }
static void rows_bf16(const pegen_attention_tile *t) { attend(t, &twin_bf16, false); }

/* All that a look may read. */
static void look(const pegen_attention_tile *t, const twin_number *type) {
  float sum = 0;
  for (int64_t key = 0; key < t->n_keys; key++) {
    for (int d = 0; d < HEAD_DIM; d++) sum += type->load(t->k[0] + key * t->k_token + d * type->bytes);
    for (int d = 0; d < VALUE_DIM; d++) sum += type->load(t->v[0] + key * t->v_token + d * type->bytes);
  }
  *t->spoilt = !isfinite(sum);
}

static void look_f32(const pegen_attention_tile *t) { look(t, &twin_f32); }
static void look_bf16(const pegen_attention_tile *t) { look(t, &twin_bf16); }

static const pegen_attention_code learned_code[] = {{.lanes = LANES,
                                                     .vectors = VECTORS,
                                                     .heads = 1,
                                                     .attend = {learned_f32, learned_bf16},
                                                     .look = {look_f32, look_bf16}}};
static const pegen_attention_code rows_code[] = {{.lanes = LANES,
                                                  .vectors = VECTORS,
                                                  .heads = PEGEN_ATTENTION_HEADS,
                                                  .by_rows = 1,
                                                  .attend = {rows_f32, rows_bf16},
                                                  .look = {look_f32, look_bf16}}};
const pegen_attention fuzz_learned_form = {.value_dim = VALUE_DIM,
                                           .paired = 1,
                                           .placed = 1,
                                           .hides = 1,
                                           .n_blocks = 1,
                                           .lanes = 1,
                                           .n_leaves = 1,
                                           .leaves = slope_leaf,
                                           .indexed = 2,
                                           .targets = learned_code};
const pegen_attention fuzz_rows_form = {
    .value_dim = VALUE_DIM, .paired = 1, .placed = 1, .by_rows = 1, .n_blocks = 1, .lanes = 1, .targets = rows_code};

static int32_t learned_chosen, rows_chosen;
static const pegen_driver learned_driver = {.kernel = &fuzz_learned_kernel,
                                            .per_head = PEGEN_PER_HEAD_ALL,
                                            .n_targets = 1,
                                            .levels = level,
                                            .chosen = &learned_chosen,
                                            .form = &fuzz_learned_form};
static const pegen_driver rows_driver = {
    .kernel = &fuzz_rows_kernel, .n_targets = 1, .levels = level, .chosen = &rows_chosen, .form = &fuzz_rows_form};
static int learned_attention(const pegen_args *args, int part, int parts) {
  return pegen_driver_attention(&learned_driver, args, part, parts);
}
static int rows_attention(const pegen_args *args, int part, int parts) {
  return pegen_driver_attention(&rows_driver, args, part, parts);
}
const pegen_kernel fuzz_learned_kernel = {TITLE("twin_learned_attention"),
                                          .head_dim = HEAD_DIM,
                                          .out_dim = HEAD_DIM,
                                          .heads = HEADS,
                                          .skip_tokens = 1,
                                          .grid = grid_sizes,
                                          .n_operands = 2,
                                          .operands = slope_and_numbers,
                                          .attention = learned_attention};
const pegen_kernel fuzz_rows_kernel = {TITLE("twin_rows_attention"), .head_dim = HEAD_DIM,
                                       .out_dim = HEAD_DIM,          .skip_tokens = 2,
                                       .grid = grid_sizes,           .attention = rows_attention};

/* ---- columns ---- */

enum { COLUMNS = 2, INPUT = 3, WIDE_DIM = HEAD_DIM + COLUMNS };

static void prepare_rate(const double *leaves, char *prepared) { memcpy(prepared, leaves, sizeof *leaves); }

static const char *row_of(const pegen_input_rows *rows, int64_t batch, int64_t head, int64_t token) {
  return rows->data + batch * rows->batch + head * rows->head + token * rows->token;
}

static void query_columns(const pegen_widen_loop *w, const twin_number *type, int64_t batch, int64_t head,
                          int64_t token, float *columns) {
  const double *rate = (const double *)(w->loop.prepared + head * w->loop.prepared_stride);
  const char *values = row_of(&w->input[0], batch, head, token);
  columns[0] = type->load(row_of(&w->input[1], batch, head, token));
  columns[1] = 0;
  for (int i = 0; i < INPUT; i++) columns[1] += (float)*rate * type->load(values + i * type->bytes);
}

static void key_columns(const pegen_loop *loop, int64_t token, float *columns) {
  double at[PEGEN_MAX_ROTOR_AXES];
  pegen_driver_position(loop, token, AXES, at);
  for (int axis = 0; axis < COLUMNS; axis++) columns[axis] = (float)at[axis];
}

static void widen_row(const pegen_rows *rows, const twin_number *type, int64_t batch, int64_t head, int64_t token,
                      const float *columns) {
  const char *in = rows->in + batch * rows->in_batch + head * rows->in_head + token * rows->in_token;
  char *out = rows->out + batch * rows->out_batch + head * rows->out_head + token * rows->out_token;
  for (int d = 0; d < HEAD_DIM; d++) type->store(out + d * type->bytes, type->load(in + d * type->bytes));
  for (int d = 0; d < COLUMNS; d++) type->store(out + (HEAD_DIM + d) * type->bytes, columns[d]);
}

static void widen(const pegen_widen_loop *w, const twin_number *type, const twin_number *input) {
  const pegen_loop *loop = &w->loop;
  float columns[COLUMNS];
  for (int64_t batch = loop->batch_begin; batch < loop->batch_end; batch++)
    for (int64_t token = loop->token_begin; token < loop->token_end; token++) {
      for (int64_t head = 0; head < loop->rows[0].heads; head++) {
        query_columns(w, input, batch, head, token, columns);
        widen_row(&loop->rows[0], type, batch, head, token, columns);
      }
      if (loop->rows[1].heads) key_columns(loop, token, columns);
      for (int64_t head = 0; head < loop->rows[1].heads; head++)
        widen_row(&loop->rows[1], type, batch, head, token, columns);
    }
}

static void widen_f32(const pegen_widen_loop *w) { widen(w, &twin_f32, &twin_f32); }
static void widen_bf16(const pegen_widen_loop *w) { widen(w, &twin_bf16, &twin_bf16); }
static void widen_bf16_wide(const pegen_widen_loop *w) { widen(w, &twin_bf16, &twin_f32); }

static const pegen_operand rate[] = {{"rate", "", "1", "", 1, slope_shape, slope_dimension}};
static const pegen_input inputs[] = {{"a", "", "1", INPUT}, {"b", "", "1", 0}};
static const pegen_widen_code widen_code[] = {
    {prepare_rate,
     {{{widen_f32, NULL}, {NULL, NULL}}, {{widen_bf16, NULL}, {widen_bf16_wide, NULL}}, {{NULL, NULL}, {NULL, NULL}}}}};
static const pegen_widen widen_form = {
    .n_blocks = 1, .lanes = 1, .n_leaves = 1, .leaves = slope_leaf, .prepared_bytes = 64, .targets = widen_code};
static int32_t widen_chosen;
static const pegen_driver widen_driver = {.kernel = &fuzz_widen_twin_kernel,
                                          .per_head = PEGEN_PER_HEAD_QUERIES,
                                          .n_targets = 1,
                                          .levels = level,
                                          .chosen = &widen_chosen,
                                          .form = &widen_form};
static int widen_encode(const pegen_args *args, int part, int parts) {
  return pegen_enter(&widen_driver, args, part, parts, pegen_driver_widen);
}
static const char *const column_names[] = {"b", "a"};
const pegen_kernel fuzz_widen_twin_kernel = {TITLE("twin_widen"),    .head_dim = HEAD_DIM,   .out_dim = WIDE_DIM,
                                             .heads = HEADS,         .n_operands = 1,        .operands = rate,
                                             .encode = widen_encode, .n_inputs = 2,          .inputs = inputs,
                                             .n_columns = COLUMNS,   .columns = column_names};
