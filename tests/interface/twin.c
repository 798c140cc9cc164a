/* twin.c: what the compiler emits, by hand and in plain C: small kernels that turn
 * pairs of channels (2i, 2i + 1) by an angle that is linear in the position.
 *
 * It documents the border of loop.h from the emitted side, and lets sanitisers
 * see the driver at work. Slow, and exact enough: cos and sin of libm.
 */
#include "twin.h"

#include <math.h>
#include <string.h>

_Thread_local twin_trace twin_traced;

double twin_rate(int axis, int block) { return 1.0 / (1 << block) * (axis + 1); }

/* ---- elements ---- */

static float load_f32(const char *at) {
  float value;
  memcpy(&value, at, 4);
  return value;
}

static void store_f32(char *at, float value) { memcpy(at, &value, 4); }

static float load_bf16(const char *at) {
  uint16_t half;
  memcpy(&half, at, 2);
  uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

static void store_bf16(char *at, float value) { /* to nearest, ties to even; finite values only */
  uint32_t bits;
  memcpy(&bits, &value, 4);
  uint16_t half = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  memcpy(at, &half, 2);
}

const twin_number twin_f32 = {4, load_f32, store_f32}, twin_bf16 = {2, load_bf16, store_bf16};

/* ---- the loop ---- */

typedef struct twin_shape {
  int axes, skip;
  const int64_t *grid;
} twin_shape;

/* Layout of `prepared`, this kernel's own affair: rates [axis][block], then the phase at the origin [block]. */
static void prepare_rates(const double *leaves, char *prepared) {
  memset(prepared, 0x5a, 24 * 1024); /* all that prepared_bytes promised */
  memcpy(prepared, leaves, 3 * 8 * sizeof *leaves);
}

static void coordinates(const twin_shape *shape, const pegen_loop *loop, int64_t token, double *out) {
  if (loop->positions || !shape->grid) {
    pegen_driver_position(loop, token, shape->axes, out);
    return;
  }
  int64_t rest = token - shape->skip;
  for (int a = shape->axes - 1; a >= 0; a--) {
    out[a] = (double)(rest % shape->grid[a]);
    rest /= shape->grid[a];
  }
}

/* What channel d of a row is multiplied by before it is turned. */
static float norm_of(const pegen_rows *rows, const twin_number *type, const char *in, int d) {
  float sum = 0;
  if (!rows->norm) return 1;
  for (int i = 0; i < TWIN_HEAD_DIM; i++) sum += type->load(in + i * type->bytes) * type->load(in + i * type->bytes);
  return rows->norm[d] / sqrtf(sum / TWIN_HEAD_DIM + (float)rows->epsilon);
}

static void turn_row(const pegen_rows *rows, const twin_number *type, int64_t batch, int64_t head, int64_t token,
                     const float *c, const float *s) {
  const char *in = rows->in + batch * rows->in_batch + head * rows->in_head + token * rows->in_token;
  char *out = rows->out + batch * rows->out_batch + head * rows->out_head + token * rows->out_token;
  int64_t slot = *(const int64_t *)(rows->slot + batch * rows->slot_batch + token * rows->slot_token);
  if (slot == PEGEN_NO_ROW) return;
  out += slot;
  float factor[TWIN_HEAD_DIM]; /* rows may be written where they were read */
  for (int d = 0; d < TWIN_HEAD_DIM; d++) factor[d] = norm_of(rows, type, in, d);
  for (int d = 0; d < TWIN_HEAD_DIM; d += 2) {
    float x = type->load(in + d * type->bytes) * factor[d], y = type->load(in + (d + 1) * type->bytes) * factor[d + 1];
    int i = d / 2;
    float u = i < TWIN_BLOCKS ? c[i] * x - s[i] * y : x, v = i < TWIN_BLOCKS ? s[i] * x + c[i] * y : y;
    type->store(out + d * type->bytes, u);
    type->store(out + (d + 1) * type->bytes, v);
  }
}

static void rotor(const twin_shape *shape, const double *at, const double *rates, float *c, float *s) {
  for (int i = 0; i < TWIN_BLOCKS; i++) {
    double angle = rates ? rates[2 * 8 + i] : 0;
    for (int a = 0; a < shape->axes; a++) angle += at[a] * (rates ? rates[a * 8 + i] : twin_rate(a, i));
    c[i] = (float)cos(angle);
    s[i] = (float)sin(angle);
  }
}

/* A table's row: cosines, sines. */
static void read_table(const pegen_loop *loop, int64_t token, int64_t head, float *c, float *s) {
  const char *row = loop->table + token * loop->table_token + head * loop->table_head;
  memcpy(c, row, TWIN_BLOCKS * sizeof *c);
  memcpy(s, row + TWIN_BLOCKS * sizeof *c, TWIN_BLOCKS * sizeof *s);
}

static void run(const pegen_loop *loop, const twin_shape *shape, const twin_number *type, int streaming) {
  float c[TWIN_BLOCKS], s[TWIN_BLOCKS];
  double at[PEGEN_MAX_ROTOR_AXES];
  if (twin_traced.calls < TWIN_TRACE) {
    twin_traced.loop[twin_traced.calls] = *loop;
    twin_traced.streaming[twin_traced.calls] = streaming;
  }
  twin_traced.calls++;
  for (int64_t token = loop->token_begin; token < loop->token_end; token++) {
    if (loop->table) {
      read_table(loop, token, 0, c, s);
    } else {
      coordinates(shape, loop, token, at);
      if (!loop->prepared) rotor(shape, at, NULL, c, s);
    }
    for (int64_t head = loop->head_begin; head < loop->head_end; head++) {
      if (loop->prepared)
        rotor(shape, at, (const double *)(loop->prepared + (head - loop->head_begin) * loop->prepared_stride), c, s);
      for (int64_t batch = loop->batch_begin; batch < loop->batch_end; batch++)
        for (int r = 0; r < 2; r++)
          if (head < loop->rows[r].heads) turn_row(&loop->rows[r], type, batch, head, token, c, s);
    }
  }
}

/* ---- descriptors: constant data, as emitted ---- */

static const int64_t grid_sizes[] = {2, 3};
static const twin_shape plain = {1, 0, NULL}, grid = {2, 1, grid_sizes}, learned = {2, 0, NULL};

#define ENCODE(shape) \
  static void shape##_f32(const pegen_loop *loop) { run(loop, &shape, &twin_f32, 0); } \
  static void shape##_f32_streaming(const pegen_loop *loop) { run(loop, &shape, &twin_f32, 1); } \
  static void shape##_bf16(const pegen_loop *loop) { run(loop, &shape, &twin_bf16, 0); } \
  static void shape##_bf16_streaming(const pegen_loop *loop) { run(loop, &shape, &twin_bf16, 1); }
ENCODE(plain)
ENCODE(grid)
ENCODE(learned)

#define CODE(shape) \
  { \
    {shape##_f32, shape##_f32_streaming}, {shape##_bf16, shape##_bf16_streaming}, { NULL, NULL } \
  }
#define NEVER \
  { \
    {NULL, NULL}, {NULL, NULL}, { NULL, NULL } \
  }

/* Leaf a: rate[a][head][block]; offsets [head][block]. */
#define ROW(n) n, n + 1, n + 2, n + 3, n + 4, n + 5
static const int32_t leaf_0[] = {ROW(0), ROW(6), ROW(12)}, leaf_1[] = {ROW(18), ROW(24), ROW(30)};
/* The last leaf is of constants that differ from head to head. */
#define ORIGIN(head) \
  {TWIN_ORIGIN(head, 0), TWIN_ORIGIN(head, 1), TWIN_ORIGIN(head, 2), \
   TWIN_ORIGIN(head, 3), TWIN_ORIGIN(head, 4), TWIN_ORIGIN(head, 5)}
static const double origin[TWIN_HEADS][TWIN_BLOCKS] = {ORIGIN(0), ORIGIN(1), ORIGIN(2)};
static const pegen_leaf leaves[] = {
    {0, TWIN_HEADS, leaf_0, NULL}, {0, TWIN_HEADS, leaf_1, NULL}, {-1, TWIN_HEADS, NULL, origin[0]}};

/* The first target asks for more than any processor has, so the driver must pass it by. */
static const int64_t levels[] = {99, PEGEN_LEVEL_BASELINE};
#define KERNEL(title, AXES, HEADS, SKIP, GRID, N_OPERANDS, OPERANDS, N_LEAVES, LEAVES, PREPARE, BYTES) \
  static const pegen_target_code title##_targets[] = {{.rows.encode = NEVER}, \
                                                      {.prepare = PREPARE, .rows.encode = CODE(title)}}; \
  static const pegen_blades title##_blades = {.n_blocks = TWIN_BLOCKS, \
                                              .lanes = 8, \
                                              .n_leaves = N_LEAVES, \
                                              .leaves = LEAVES, \
                                              .prepared_bytes = BYTES, \
                                              .targets = title##_targets}; \
  static int32_t title##_chosen; \
  const pegen_driver twin_##title##_driver = {.kernel = &twin_##title##_kernel, \
                                              .per_head = (HEADS) > 0, \
                                              .n_targets = 2, \
                                              .levels = levels, \
                                              .chosen = &title##_chosen, \
                                              .form = &title##_blades}; \
  static int title##_encode(const pegen_args *args, int part, int parts) { \
    return pegen_enter(&twin_##title##_driver, args, part, parts, pegen_driver_encode); \
  } \
  static size_t title##_workspace(const pegen_args *args) { \
    return pegen_driver_workspace(&twin_##title##_driver, args); \
  } \
  const pegen_kernel twin_##title##_kernel = {.struct_size = sizeof(pegen_kernel), \
                                              .abi_version = PEGEN_ABI_VERSION, \
                                              .name = "twin_" #title, \
                                              .doc = "a hand-written twin of an emitted kernel", \
                                              .digest = "", \
                                              .options = "", \
                                              .targets = "native", \
                                              .dtypes = PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16, \
                                              .head_dim = TWIN_HEAD_DIM, \
                                              .out_dim = TWIN_HEAD_DIM, \
                                              .n_axes = AXES, \
                                              .axes = axis_names, \
                                              .heads = HEADS, \
                                              .skip_tokens = SKIP, \
                                              .grid = GRID, \
                                              .n_operands = N_OPERANDS, \
                                              .operands = OPERANDS, \
                                              .encode = title##_encode, \
                                              .attention = NULL, \
                                              .workspace = title##_workspace}

extern const pegen_driver twin_grid_driver;
static const char *const axis_names[] = {"row", "column"};
static const int64_t rate_shape[] = {2, TWIN_HEADS, TWIN_BLOCKS};
static const char *const rate_dimension[] = {"axes", "heads", "blocks"};
static const pegen_operand rate[] = {
    {"rate", "radians per unit of position", "radians per unit of position", "", 3, rate_shape, rate_dimension}};

KERNEL(plain, 1, 0, 0, NULL, 0, NULL, 0, NULL, NULL, 0);
KERNEL(grid, 2, 0, 1, grid_sizes, 0, NULL, 0, NULL, NULL, 0);
/* 16 KiB of prepared values a head: three heads go in two tiles. */
KERNEL(learned, 2, TWIN_HEADS, 0, NULL, 1, rate, 3, leaves, prepare_rates, 24 * 1024);

/* ---- a table, by hand ---- */

enum { TABLE_ROW = 64 };

static void tabled_values(const double *position, const char *prepared, char *values) {
  float c[TWIN_BLOCKS], s[TWIN_BLOCKS];
  (void)prepared;
  rotor(&plain, position, NULL, c, s);
  memcpy(values, c, sizeof c);
  memcpy(values + sizeof c, s, sizeof s);
  memset(values + 2 * sizeof c, 0, TABLE_ROW - 2 * sizeof c);
}

static const pegen_target_code tabled_targets[] = {{.rows.encode = CODE(plain), .values = tabled_values}};
static const pegen_blades tabled_blades = {
    .n_blocks = TWIN_BLOCKS, .lanes = 8, .targets = tabled_targets, .values_bytes = TABLE_ROW};
static int32_t tabled_chosen;
static const pegen_driver tabled_driver = {.kernel = &twin_tabled_kernel,
                                           .n_targets = 1,
                                           .levels = levels + 1,
                                           .chosen = &tabled_chosen,
                                           .form = &tabled_blades};
static int tabled_encode(const pegen_args *args, int part, int parts) {
  return pegen_enter(&tabled_driver, args, part, parts, pegen_driver_encode);
}
static int tabled_prepare(const pegen_args *args, int part, int parts) {
  return pegen_enter(&tabled_driver, args, part, parts, pegen_driver_prepare);
}
static size_t tabled_bytes(const pegen_args *args) { return pegen_driver_table_bytes(&tabled_driver, args); }
const pegen_kernel twin_tabled_kernel = {.struct_size = sizeof(pegen_kernel),
                                         .abi_version = PEGEN_ABI_VERSION,
                                         .name = "twin_tabled",
                                         .doc = "a hand-written twin of an emitted kernel",
                                         .digest = "0123456789abcdef0123456789abcdef",
                                         .options = "",
                                         .targets = "native",
                                         .dtypes = PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16,
                                         .head_dim = TWIN_HEAD_DIM,
                                         .out_dim = TWIN_HEAD_DIM,
                                         .n_axes = 1,
                                         .axes = axis_names,
                                         .encode = tabled_encode,
                                         .workspace = plain_workspace,
                                         .prepare = tabled_prepare,
                                         .table_bytes = tabled_bytes};
