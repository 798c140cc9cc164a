/* fuzz_gradient_twins: kernels by hand behind the drivers of gradients, so that the address sanitizer sees each access
 * that the driver's view of a call leads to: rows coming in and going out, what was kept, sums of chunks.
 *
 * turn: pairs of channels by the sum of position times rate, of which a table has the angles. attend: softmax of q k^T
 * less slope * |displacement| plus a number read by the displacement. What operands and positions gain is rounded to
 * whole numbers, so that a sum is the same in any order and copies of tensors with other strides give the same bits.
 */
#include "fuzz_gradient_twins.h"

#include "driver.h"
#include "fuzz_twin_parts.h"
#include "twin.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* A whole number; what is none, or too large to be added exactly, is 0. */
static double whole(double x) { return fabs(x) < 0x1p20 ? rint(x) : 0; }

/* ---- turn ---- */

enum { BLOCKS = 2, LANES = 4 }; /* of HEAD_DIM channels 2 are left over */

static void coordinates(const pegen_loop *loop, int64_t skip, int64_t token, double *at) {
  if (loop->positions) pegen_driver_position(loop, token, AXES, at);
  else pegen_cell(grid_sizes, AXES, token - skip, at);
}

static void prepare_rates(const double *leaves, char *prepared) { memcpy(prepared, leaves, AXES * LANES * 8); }

enum { VALUES_BYTES = 64 }; /* of a table's row */

/* One row, x turned by the angle or back. */
static void turn(const twin_number *type, const char *in, char *out, const double *angle, double sense) {
  float x[HEAD_DIM];
  for (int d = 0; d < HEAD_DIM; d++) x[d] = type->load(in + d * type->bytes);
  for (int b = 0; b < BLOCKS; b++) {
    float c = (float)cos(angle[b]), s = (float)(sense * sin(angle[b])), u = x[2 * b], v = x[2 * b + 1];
    x[2 * b] = c * u - s * v;
    x[2 * b + 1] = s * u + c * v;
  }
  for (int d = 0; d < HEAD_DIM; d++) type->store(out + d * type->bytes, x[d]);
}

static void angles(const double *rates, const double *at, double *angle) {
  for (int b = 0; b < BLOCKS; b++) angle[b] = at[0] * rates[b] + at[1] * rates[LANES + b];
}

static const double *rates_of(const char *prepared, int64_t stride, int64_t head) {
  return (const double *)(prepared + head * stride);
}

static void table_values(const double *position, const char *prepared, char *values) {
  double angle[VALUES_BYTES / 8] = {0};
  angles(rates_of(prepared, 0, 0), position, angle);
  memcpy(values, angle, sizeof angle);
}

/* Angles of a table's row, or of a token's position. */
static void loop_angles(const pegen_loop *loop, bool per_head, int64_t head, int64_t token, double *angle) {
  double at[PEGEN_MAX_ROTOR_AXES];
  if (loop->table) {
    memcpy(angle, loop->table + token * loop->table_token + (per_head ? head : 0) * loop->table_head, BLOCKS * 8);
    return;
  }
  coordinates(loop, !per_head, token, at);
  angles(rates_of(loop->prepared, loop->prepared_stride, per_head ? head - loop->head_begin : 0), at, angle);
}

static const char *in_row(const pegen_rows *r, int64_t batch, int64_t head, int64_t token) {
  return r->in + batch * r->in_batch + head * r->in_head + token * r->in_token;
}

static char *out_row(const pegen_rows *r, int64_t batch, int64_t head, int64_t token) {
  return r->out + batch * r->out_batch + head * r->out_head + token * r->out_token;
}

/* Calls do(batch, head, token, r) for the rows of a loop; heads that share their rates are all walked. */
#define FOR_ROWS(loop, per_head) \
  for (int64_t token = (loop)->token_begin; token < (loop)->token_end; token++) \
    for (int64_t batch = (loop)->batch_begin; batch < (loop)->batch_end; batch++) \
      for (int r = 0; r < 2; r++) \
        for (int64_t head = (per_head) ? (loop)->head_begin : 0; \
             head < \
             ((per_head) && (loop)->head_end < (loop)->rows[r].heads ? (loop)->head_end : (loop)->rows[r].heads); \
             head++)

static void turn_rows(const pegen_loop *loop, const twin_number *type, bool per_head, double sense) {
  FOR_ROWS(loop, per_head) {
    double angle[BLOCKS];
    loop_angles(loop, per_head, head, token, angle);
    turn(type, in_row(&loop->rows[r], batch, head, token), out_row(&loop->rows[r], batch, head, token), angle, sense);
  }
}

static void row_torques(const twin_number *type, const char *row, const char *kept, double *torque) {
  for (int b = 0; b < BLOCKS; b++) {
    float y[2], of_y[2];
    for (int i = 0; i < 2; i++) {
      of_y[i] = type->load(row + (2 * b + i) * type->bytes);
      y[i] = type->load(kept + (2 * b + i) * type->bytes);
    }
    torque[b] = whole((double)y[0] * of_y[1] - (double)y[1] * of_y[0]);
  }
}

/* What torques give: sums of their head, and shares of their token's coordinates. */
static void gain(const double *at, const char *rates, const double *torque, int64_t sums, int64_t positions,
                 double *gained) {
  double *of_head = (double *)(uintptr_t)sums;
  for (int b = 0; b < BLOCKS; b++)
    for (int axis = 0; axis < AXES; axis++) {
      if (of_head) of_head[axis * LANES + b] += whole(at[axis] * torque[b]);
      if (positions) gained[axis] += whole(((const double *)(const void *)rates)[axis * LANES + b] * torque[b]);
    }
}

/* What rows give goes on to operands and positions, or into a table of torques. */
static void turn_back(const pegen_gradient_loop *g, const twin_number *type, bool per_head) {
  const pegen_loop *loop = &g->loop;
  double gained[64][AXES] = {{0}}; /* by token of the call */
  FOR_ROWS(loop, per_head) {
    double at[PEGEN_MAX_ROTOR_AXES], angle[BLOCKS], torque[BLOCKS];
    int64_t local = per_head ? head - loop->head_begin : 0;
    const char *row = in_row(&loop->rows[r], batch, head, token);
    const pegen_input_rows *kept = &loop->kept[r];
    row_torques(type, row, kept->data + batch * kept->batch + head * kept->head + token * kept->token, torque);
    loop_angles(loop, per_head, head, token, angle);
    if (g->torques) {
      double *sums = (double *)(void *)(g->torques + token * g->torque_token + local * g->torque_head);
      for (int b = 0; b < BLOCKS; b++) sums[b] += torque[b];
    } else {
      char *sums = g->sums ? g->sums + local * g->sums_stride + token / g->chunk_tokens * g->chunk_bytes : NULL;
      coordinates(loop, !per_head, token, at);
      gain(at, g->prepared + local * g->prepared_stride, torque, (int64_t)(uintptr_t)sums, 1,
           gained[(token - loop->token_begin) & 63]);
    }
    turn(type, row, out_row(&loop->rows[r], batch, head, token), angle, -1);
  }
  for (int64_t token = loop->token_begin; token < loop->token_end && g->positions; token++)
    pegen_driver_position_gradient(g, token, AXES, gained[(token - loop->token_begin) & 63]);
}

static void scatter(const double *leaves, const double *sums, double *gained) {
  (void)leaves;
  memcpy(gained, sums, AXES * LANES * 8);
}

#define TYPES(X) X(f32) X(bf16)
#define FUNCTIONS(type) \
  static void turned_##type(const pegen_loop *l) { turn_rows(l, &twin_##type, true, 1); } \
  static void turned_back_##type(const pegen_loop *l) { turn_rows(l, &twin_##type, true, -1); } \
  static void turned_torques_##type(const pegen_gradient_loop *l) { turn_back(l, &twin_##type, true); } \
  static void shared_##type(const pegen_loop *l) { turn_rows(l, &twin_##type, false, 1); } \
  static void shared_back_##type(const pegen_loop *l) { turn_rows(l, &twin_##type, false, -1); } \
  static void shared_torques_##type(const pegen_gradient_loop *l) { turn_back(l, &twin_##type, false); }
TYPES(FUNCTIONS)

/* rate: [axes][heads][blocks], [axes][blocks]. */
static const int32_t apart[AXES][HEADS * BLOCKS] = {{0, 1, 2, 3}, {4, 5, 6, 7}};
static const int32_t together[AXES][BLOCKS] = {{0, 1}, {2, 3}};
static const pegen_leaf turned_leaves[] = {{0, HEADS, apart[0], NULL}, {0, HEADS, apart[1], NULL}};
static const pegen_leaf shared_leaves[] = {{0, 1, together[0], NULL}, {0, 1, together[1], NULL}};
static const int64_t apart_shape[] = {AXES, HEADS, BLOCKS}, together_shape[] = {AXES, BLOCKS};
static const char *const apart_dimension[] = {"axes", "heads", "blocks"}, *const together_dimension[] = {"axes",
                                                                                                         "blocks"};
static const pegen_operand turned_rate[] = {{"rate", "", "1", "", 3, apart_shape, apart_dimension}};
static const pegen_operand shared_rate[] = {{"rate", "", "1", "", 2, together_shape, together_dimension}};

/* Entries that compute, and those of sizes. */
#define CALLED(title, word) \
  static int title##_##word(const pegen_args *args, int part, int parts) { \
    return pegen_enter(&title##_driver, args, part, parts, pegen_driver_##word); \
  }
#define SIZED(title, word) \
  static size_t title##_##word(const pegen_args *args) { return pegen_driver_##word(&title##_driver, args); }

/* turned: 40 KiB of prepared values a head, so that two heads go in two tiles. */
#define TURNING(title, PER_HEAD, N_HEADS, SKIP, BYTES) \
  static const pegen_target_code title##_code[] = { \
      {.prepare = prepare_rates, \
       .rows.encode = {{title##_f32, NULL}, {title##_bf16, NULL}, {NULL, NULL}}, \
       .values = table_values}}; \
  static const pegen_target_code title##_back_code[] = { \
      {.prepare = prepare_rates, .rows.encode = {{title##_back_f32, NULL}, {title##_back_bf16, NULL}, {NULL, NULL}}}}; \
  static const pegen_gradient_code title##_gradient_code[] = { \
      {.prepare = prepare_rates, \
       .encode = {title##_torques_f32, title##_torques_bf16, NULL}, \
       .scatter = scatter, \
       .gain = {gain, gain}}}; \
  static const pegen_gradient title##_gradient = {.n_leaves = AXES, \
                                                  .prepared_bytes = 64, \
                                                  .leaves = title##_leaves, \
                                                  .n_sums = AXES, \
                                                  .n_scatter_leaves = AXES, \
                                                  .scatter_leaves = title##_leaves, \
                                                  .n_scatters = AXES, \
                                                  .scatters = title##_leaves, \
                                                  .has_positions = 1, \
                                                  .n_torques = 1, \
                                                  .targets = title##_gradient_code}; \
  static const pegen_blades title##_form = {.n_blocks = BLOCKS, \
                                            .lanes = LANES, \
                                            .n_leaves = AXES, \
                                            .leaves = title##_leaves, \
                                            .prepared_bytes = BYTES, \
                                            .targets = title##_code, \
                                            .values_bytes = VALUES_BYTES, \
                                            .backward = title##_back_code, \
                                            .gradient = &title##_gradient}; \
  static int32_t title##_chosen; \
  static const pegen_driver title##_driver = {.kernel = &fuzz_##title##_kernel, \
                                              .per_head = PER_HEAD, \
                                              .n_targets = 1, \
                                              .levels = level, \
                                              .chosen = &title##_chosen, \
                                              .form = &title##_form}; \
  CALLED(title, encode_backward) \
  CALLED(title, encode_backward_finish) \
  CALLED(title, prepare) \
  CALLED(title, prepare_backward) \
  CALLED(title, prepare_backward_finish) \
  SIZED(title, encode_backward_workspace) \
  SIZED(title, table_bytes) \
  SIZED(title, gradient_table_bytes) \
  SIZED(title, prepare_backward_workspace) \
  const pegen_kernel fuzz_##title##_kernel = {TITLE("twin_" #title), \
                                              .head_dim = HEAD_DIM, \
                                              .out_dim = HEAD_DIM, \
                                              .heads = N_HEADS, \
                                              .skip_tokens = SKIP, \
                                              .grid = grid_sizes, \
                                              .n_operands = 1, \
                                              .operands = title##_rate, \
                                              .encode_backward = title##_encode_backward, \
                                              .encode_backward_finish = title##_encode_backward_finish, \
                                              .encode_backward_workspace = title##_encode_backward_workspace, \
                                              .prepare = title##_prepare, \
                                              .table_bytes = title##_table_bytes, \
                                              .prepare_backward = title##_prepare_backward, \
                                              .prepare_backward_finish = title##_prepare_backward_finish, \
                                              .prepare_backward_workspace = title##_prepare_backward_workspace, \
                                              .gradient_table_bytes = title##_gradient_table_bytes}
TURNING(turned, PEGEN_PER_HEAD_ALL, HEADS, 0, 40 * 1024);
TURNING(shared, PEGEN_PER_HEAD_NONE, 0, 1, 64);

/* ---- attend ---- */

enum { QUERY_LANES = 4, STEP = 4 };

/* What a query and a key are to each other. */
typedef struct pair {
  double distance, probability, of_score; /* of_score: the gradient of the score */
  int index;
} pair;

static double dot(const twin_number *type, const char *x, const char *y, int channels) {
  double sum = 0;
  for (int d = 0; d < channels; d++) sum += (double)type->load(x + d * type->bytes) * type->load(y + d * type->bytes);
  return sum;
}

static float float_at(const char *at) {
  float value;
  memcpy(&value, at, sizeof value);
  return value;
}

/* Scaled products of a lane's query, of one tile, with a key of another. */
static double product(const pegen_attention_tile *of_q, const pegen_attention_tile *of_k, const twin_number *type,
                      int lane, int64_t key) {
  const char *q = of_q->q[0] + of_q->tokens[lane] * of_q->q_token, *k = of_k->k[0] + key * of_k->k_token;
  return of_q->scale * M_LN2 * dot(type, q, k, HEAD_DIM);
}

static pair weigh_pair(const pegen_attention_tile *t, const twin_number *type, int lane, int64_t key) {
  double at[PEGEN_MAX_ROTOR_AXES], score = product(t, t, type, lane, key);
  pair p = {.distance = 0, .index = -1};
  if (key >= t->plain) {
    pegen_attention_rows(t->keys, key, 1, 1, at);
    for (int axis = 0; axis < AXES; axis++) p.distance += fabs(at[axis] - t->positions[axis][lane]);
    p.index = p.distance < NUMBERS - 1 ? (int)p.distance : NUMBERS - 1;
    score += ((const float *)t->operands[1])[p.index] - t->leaves[0] * p.distance;
  }
  p.probability = exp(fmin(score - float_at(t->lse[0] + t->tokens[lane] * t->lse_token), 60));
  return p;
}

static pair meet(const pegen_attention_gradient_tile *g, const twin_number *type, int lane, int64_t key) {
  const pegen_attention_tile *t = &g->tile;
  int64_t token = t->tokens[lane];
  const char *row = g->g_out + token * g->g_out_token;
  double delta = dot(type, row, t->out[0] + token * t->out_token, VALUE_DIM),
         of_lse = g->g_lse ? float_at(g->g_lse + token * g->g_lse_token) : 0;
  pair p = weigh_pair(t, type, lane, key);
  p.of_score = p.probability * (dot(type, row, t->v[0] + key * t->v_token, VALUE_DIM) - delta + of_lse);
  return p;
}

static void give_key(const pegen_attention_gradient_tile *g, const twin_number *type, int lane, int64_t key, pair p) {
  const pegen_attention_tile *t = &g->tile;
  const char *q = t->q[0] + t->tokens[lane] * t->q_token, *row = g->g_out + t->tokens[lane] * g->g_out_token;
  for (int d = 0; d < HEAD_DIM && g->key_sums; d++)
    g->key_sums[key * PEGEN_ATTENTION_PITCH + d] += (float)(p.of_score * type->load(q + d * type->bytes));
  for (int d = 0; d < VALUE_DIM && g->value_sums; d++)
    g->value_sums[key * PEGEN_ATTENTION_PITCH + d] += (float)(p.probability * type->load(row + d * type->bytes));
  if (!g->operand_sums || p.index < 0) return;
  g->operand_sums[0] -= whole(p.of_score * p.distance);
  g->tables[1][p.index] += whole(p.of_score);
}

static void attend_back(const pegen_attention_gradient_tile *g, const twin_number *type) {
  const pegen_attention_tile *t = &g->tile;
  for (int lane = 0; lane < QUERY_LANES * VECTORS; lane++) {
    double gained[HEAD_DIM] = {0};
    if (t->tokens[lane] < 0) continue;
    for (int64_t key = g->begin; key < t->end && key < t->limits[lane]; key++) {
      pair p = meet(g, type, lane, key);
      give_key(g, type, lane, key, p);
      for (int d = 0; d < HEAD_DIM; d++)
        gained[d] += t->scale * M_LN2 * p.of_score * type->load(t->k[0] + key * t->k_token + d * type->bytes);
    }
    for (int d = 0; d < HEAD_DIM && g->g_q; d++)
      type->store(g->g_q + t->tokens[lane] * g->g_q_token + d * type->bytes, (float)whole(gained[d]));
  }
}

static void attend_tangents(const pegen_attention_tangent_tile *g, const twin_number *type) {
  const pegen_attention_tile *t = &g->tile, *tangents = g->tangents;
  for (int lane = 0; lane < QUERY_LANES * VECTORS; lane++)
    for (int64_t key = g->begin; t->tokens[lane] >= 0 && key < t->end && key < t->limits[lane]; key++) {
      pair p = weigh_pair(t, type, lane, key);
      double of_score = p.probability * (product(tangents, t, type, lane, key) + product(t, tangents, type, lane, key));
      g->sums[lane] += (float)of_score;
      for (int d = 0; d < VALUE_DIM; d++)
        g->columns[d * QUERY_LANES * VECTORS + lane] +=
            (float)(of_score * type->load(t->v[0] + key * t->v_token + d * type->bytes) +
                    p.probability * type->load(tangents->v[0] + key * tangents->v_token + d * type->bytes));
    }
}

static void store(const twin_number *type, int channels, const float *sums, char *to, int64_t token, int64_t count,
                  double factor) {
  for (int64_t i = 0; i < count; i++)
    for (int d = 0; d < channels; d++)
      type->store(to + i * token + d * type->bytes, (float)whole(sums[i * PEGEN_ATTENTION_PITCH + d] * factor));
}

/* All that a look may read. */
static void look(const pegen_attention_tile *t, const twin_number *type) {
  double sum = 0;
  for (int64_t key = 0; key < t->n_keys; key++) {
    for (int d = 0; d < HEAD_DIM; d++) sum += type->load(t->k[0] + key * t->k_token + d * type->bytes);
    for (int d = 0; d < VALUE_DIM; d++) sum += type->load(t->v[0] + key * t->v_token + d * type->bytes);
  }
  *t->spoilt = !isfinite(sum);
}

#define ATTEND(type) \
  static void attend_##type(const pegen_attention_gradient_tile *g) { attend_back(g, &twin_##type); } \
  static void tangent_##type(const pegen_attention_tangent_tile *g) { attend_tangents(g, &twin_##type); } \
  static void look_##type(const pegen_attention_tile *t) { look(t, &twin_##type); } \
  static void keys_##type(const float *sums, char *to, int64_t token, int64_t count, double factor) { \
    store(&twin_##type, HEAD_DIM, sums, to, token, count, factor); \
  } \
  static void values_##type(const float *sums, char *to, int64_t token, int64_t count, double factor) { \
    store(&twin_##type, VALUE_DIM, sums, to, token, count, factor); \
  }
TYPES(ATTEND)

static const pegen_attention_code attended_code[] = {
    {.lanes = QUERY_LANES, .vectors = VECTORS, .heads = 1, .look = {look_f32, look_bf16}}};
static const pegen_attention_gradient_code attended_gradients[] = {{.attend = {attend_f32, attend_bf16},
                                                                    .store_keys = {keys_f32, keys_bf16},
                                                                    .store_values = {values_f32, values_bf16},
                                                                    .step = STEP,
                                                                    .tangent = {tangent_f32, tangent_bf16}}};
const pegen_attention fuzz_attended_form = {.value_dim = VALUE_DIM,
                                            .paired = 1,
                                            .placed = 1,
                                            .hides = 1,
                                            .n_blocks = 1,
                                            .lanes = 1,
                                            .n_leaves = 1,
                                            .leaves = slope_leaf,
                                            .indexed = 2,
                                            .targets = attended_code,
                                            .gradients = attended_gradients,
                                            .n_scatters = 1,
                                            .scatters = slope_leaf,
                                            .gaining = 3};
static int32_t attended_chosen;
static const pegen_driver attended_driver = {.kernel = &fuzz_attended_kernel,
                                             .per_head = PEGEN_PER_HEAD_ALL,
                                             .n_targets = 1,
                                             .levels = level,
                                             .chosen = &attended_chosen,
                                             .form = &fuzz_attended_form};
static int attended_backward(const pegen_args *args, int part, int parts) {
  return pegen_enter(&attended_driver, args, part, parts, pegen_driver_attention_backward);
}
static int attended_finish(const pegen_args *args, int part, int parts) {
  return pegen_enter(&attended_driver, args, part, parts, pegen_driver_attention_backward_finish);
}
static int attended_tangent(const pegen_args *args, int part, int parts) {
  return pegen_enter(&attended_driver, args, part, parts, pegen_driver_attention_tangent);
}
static size_t attended_workspace(const pegen_args *args) {
  return pegen_driver_attention_backward_workspace(&attended_driver, args);
}
const pegen_kernel fuzz_attended_kernel = {TITLE("twin_attended"),
                                           .head_dim = HEAD_DIM,
                                           .out_dim = HEAD_DIM,
                                           .heads = HEADS,
                                           .skip_tokens = 1,
                                           .grid = grid_sizes,
                                           .n_operands = 2,
                                           .operands = slope_and_numbers,
                                           .attention_backward = attended_backward,
                                           .attention_backward_finish = attended_finish,
                                           .attention_backward_workspace = attended_workspace,
                                           .attention_tangent = attended_tangent};
