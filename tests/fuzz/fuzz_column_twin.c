/* fuzz_column_twin: a kernel by hand behind the driver of columns' gradients; see fuzz_gradient_twins.c.
 *
 * Two columns: of q b and rate * sum(a), of k its coordinates. Each is a weight of its own, and what everything gains
 * of it is rounded to whole numbers, so that a sum is the same in any order.
 */
#include "fuzz_gradient_twins.h"

#include "driver.h"
#include "fuzz_twin_parts.h"
#include "twin.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { COLUMNS = 2, INPUT = 3, WIDE_DIM = HEAD_DIM + COLUMNS };

static double whole(double x) { return fabs(x) < 0x1p10 ? rint(x) : 0; }

static double column_of(const char *row, const twin_number *type, int column) {
  return whole(type->load(row + (HEAD_DIM + column) * type->bytes));
}

static const char *token_row(const pegen_rows *rows, int64_t head, int64_t token) {
  return rows->in + head * rows->in_head + token * rows->in_token;
}

static void weights_gain(const pegen_column_gains *c, const twin_number *type) {
  const pegen_loop *loop = &c->loop;
  for (int64_t token = loop->token_begin; token < loop->token_end; token++)
    for (int w = 0; w < COLUMNS; w++)
      c->weights[w * PEGEN_WEIGHT_QUERIES + (token - loop->token_begin)] =
          (float)column_of(token_row(&loop->rows[0], 0, token), type, w);
}

/* All that may be read of a query; its positions gain of the first column what its input is. */
static void queries_gain(const pegen_column_gains *c, const twin_number *type, const twin_number *input) {
  const pegen_loop *loop = &c->loop;
  for (int64_t token = loop->token_begin; token < loop->token_end; token++) {
    const char *a = c->input[0] + token * c->input_step[0], *b = c->input[1] + token * c->input_step[1];
    double at[PEGEN_MAX_ROTOR_AXES], sum = whole(*(const double *)(const void *)loop->prepared);
    pegen_driver_position(loop, token, AXES, at);
    for (int i = 0; i < INPUT; i++) sum += whole(input->load(a + i * input->bytes));
    const char *row = token_row(&loop->rows[0], 0, token);
    double *places = c->places + (token - loop->token_begin) * AXES;
    places[0] += whole(input->load(b)) * column_of(row, type, 0);
    places[1] += whole(sum) * column_of(row, type, 1) + whole(at[0]);
  }
}

static void keys_gain(const pegen_column_gains *c, const twin_number *type) {
  const pegen_loop *loop = &c->loop;
  for (int64_t token = loop->token_begin; token < loop->token_end; token++)
    for (int64_t head = 0; head < loop->rows[1].heads; head++)
      for (int axis = 0; axis < AXES; axis++)
        c->places[(token - loop->token_begin) * AXES + axis] +=
            column_of(token_row(&loop->rows[1], head, token), type, axis);
}

static void give(char *at, const twin_number *type, int64_t adds, double gained) {
  type->store(at, (float)(gained + (adds ? type->load(at) : 0)));
}

static void unweigh(const pegen_weight_gains *g, const twin_number *type) {
  double rate = whole(*(const double *)(const void *)g->prepared);
  for (int64_t query = 0; query < g->count; query++) {
    const char *a = g->input[0] + query * g->input_step[0];
    double sum = 0, of_b = g->weights[query], of_a = g->weights[PEGEN_WEIGHT_QUERIES + query];
    for (int i = 0; i < INPUT; i++) sum += whole(type->load(a + i * type->bytes));
    if (g->sums) g->sums[0] += sum * of_a;
    for (int i = 0; i < INPUT && g->gain[0]; i++)
      give(g->gain[0] + query * g->gain_step[0] + i * type->bytes, type, g->adds, rate * of_a);
    if (g->gain[1]) give(g->gain[1] + query * g->gain_step[1], type, g->adds, of_b);
  }
}

static void prepare_rate(const double *leaves, char *prepared) { memcpy(prepared, leaves, sizeof *leaves); }

static void scatter(const double *leaves, const double *sums, double *gained) {
  (void)leaves;
  gained[0] = sums[0];
}

#define TYPES(X) X(f32) X(bf16)
#define FUNCTIONS(type) \
  static void weights_##type(const pegen_column_gains *c) { weights_gain(c, &twin_##type); } \
  static void queries_##type(const pegen_column_gains *c) { queries_gain(c, &twin_##type, &twin_##type); } \
  static void keys_##type(const pegen_column_gains *c) { keys_gain(c, &twin_##type); } \
  static void unweigh_##type(const pegen_weight_gains *g) { unweigh(g, &twin_##type); }
TYPES(FUNCTIONS)
static void queries_bf16_wide(const pegen_column_gains *c) { queries_gain(c, &twin_bf16, &twin_f32); }

static const int64_t rate_shape[] = {HEADS};
static const char *const rate_dimension[] = {"heads"};
static const pegen_operand rate[] = {{"rate", "", "1", "", 1, rate_shape, rate_dimension}};
static const pegen_input inputs[] = {{"a", "", "1", INPUT}, {"b", "", "1", 0}};
static const int32_t rate_offsets[] = {0, 1};
static const pegen_leaf rate_leaf[] = {{0, HEADS, rate_offsets, NULL}};

static const pegen_widen_code code[] = {{.prepare = prepare_rate}};
static const pegen_widen_gradient_code gradient_code[] = {
    {.weights = {weights_f32, weights_bf16},
     .queries = {{queries_f32}, {queries_bf16, queries_bf16_wide}},
     .keys = {keys_f32, keys_bf16}}};
static const pegen_gradient_code sums_code[] = {
    {.prepare = prepare_rate, .scatter = scatter, .unweigh = {unweigh_f32, unweigh_bf16}}};
static const pegen_gradient gradient = {.n_leaves = 1,
                                        .prepared_bytes = 64,
                                        .leaves = rate_leaf,
                                        .n_sums = 1,
                                        .n_scatter_leaves = 1,
                                        .scatter_leaves = rate_leaf,
                                        .n_scatters = 1,
                                        .scatters = rate_leaf,
                                        .targets = sums_code};
static const pegen_widen form = {.n_blocks = 1,
                                 .lanes = 1,
                                 .n_leaves = 1,
                                 .leaves = rate_leaf,
                                 .prepared_bytes = 64,
                                 .targets = code,
                                 .n_weights = COLUMNS,
                                 .backward = gradient_code,
                                 .gradient = &gradient};
static int32_t chosen;
static const pegen_driver driver = {.kernel = &fuzz_widened_kernel,
                                    .per_head = PEGEN_PER_HEAD_QUERIES,
                                    .n_targets = 1,
                                    .levels = level,
                                    .chosen = &chosen,
                                    .form = &form};
static int backward(const pegen_args *args, int part, int parts) {
  return pegen_enter(&driver, args, part, parts, pegen_driver_widen_backward);
}
static int finish(const pegen_args *args, int part, int parts) {
  return pegen_enter(&driver, args, part, parts, pegen_driver_widen_backward_finish);
}
static size_t workspace(const pegen_args *args) { return pegen_driver_widen_backward_workspace(&driver, args); }
static const char *const column_names[] = {"b", "a"};
const pegen_kernel fuzz_widened_kernel = {TITLE("twin_widened"),
                                          .head_dim = HEAD_DIM,
                                          .out_dim = WIDE_DIM,
                                          .heads = HEADS,
                                          .skip_tokens = 1,
                                          .n_operands = 1,
                                          .operands = rate,
                                          .n_inputs = 2,
                                          .inputs = inputs,
                                          .n_columns = COLUMNS,
                                          .columns = column_names,
                                          .encode_backward = backward,
                                          .encode_backward_finish = finish,
                                          .encode_backward_workspace = workspace};
