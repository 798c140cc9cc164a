/* converted: calls whose outputs are float8, as a cache of keys is held: what is accepted and what is refused, callers
 * of older headers, outputs of two types in one call. That the numbers are right, `pegen check` and unit_math say.
 *
 * Linked with a kernel of f32, bf16, f32:f8e4m3, f32:f8e5m2 and bf16:f8e4m3.
 */
#include "pegen/pegen.h"
#include "test.h"

#include <string.h>

extern const pegen_kernel rope_kernel;

enum { HEADS = 2, TOKENS = 5, CHANNELS = 64, ELEMENTS = HEADS * TOKENS * CHANNELS };

static const DLDataType f32 = {kDLFloat, 32, 1}, bf16 = {kDLBfloat, 16, 1}, f16 = {kDLFloat, 16, 1},
                        e4m3 = {PEGEN_DL_FLOAT8_E4M3FN, 8, 1}, e5m2 = {PEGEN_DL_FLOAT8_E5M2, 8, 1};

typedef struct world {
  float q[ELEMENTS], k[ELEMENTS], positions[TOKENS], scale[2];
  unsigned char q_out[4 * ELEMENTS], k_out[4 * ELEMENTS];
  int64_t rows[4], places[2], one[2];
  DLTensor tq, tk, tq_out, tk_out, at, q_scale, k_scale;
  pegen_args args;
} world;

static DLTensor tensor(void *data, DLDataType type, int rank, int64_t *shape) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = type, .shape = shape};
}

/* q and k of float32 to float8, q's divided by 1/4. */
static world *create(void) {
  world *w = calloc(1, sizeof *w);
  assert_non_null(w);
  memcpy(w->rows, (int64_t[]){1, HEADS, TOKENS, CHANNELS}, sizeof w->rows);
  memcpy(w->places, (int64_t[]){TOKENS, 1}, sizeof w->places);
  memcpy(w->one, (int64_t[]){1, 1}, sizeof w->one);
  for (int i = 0; i < ELEMENTS; i++) w->q[i] = (float)(i % 17 - 8) / 8, w->k[i] = (float)(i % 23 - 11) / 8;
  for (int i = 0; i < TOKENS; i++) w->positions[i] = (float)i;
  w->scale[0] = .25f, w->scale[1] = 1;
  w->tq = tensor(w->q, f32, 4, w->rows), w->tk = tensor(w->k, f32, 4, w->rows);
  w->tq_out = tensor(w->q_out, e4m3, 4, w->rows), w->tk_out = tensor(w->k_out, e4m3, 4, w->rows);
  w->at = tensor(w->positions, f32, 2, w->places);
  w->q_scale = tensor(&w->scale[0], f32, 0, NULL), w->k_scale = tensor(&w->scale[1], f32, 2, w->one);
  w->args = (pegen_args){.struct_size = sizeof w->args,
                         .q = &w->tq,
                         .k = &w->tk,
                         .q_out = &w->tq_out,
                         .k_out = &w->tk_out,
                         .positions = &w->at,
                         .q_scale = &w->q_scale,
                         .k_scale = &w->k_scale};
  return w;
}

static int call(world *w) { return rope_kernel.encode(&w->args, 0, 1); }

/* Position 0 turns nothing: the first token's rows are the inputs, divided by the scale. */
TEST(stores_quotients) {
  world *w = create();
  assert_int_equal(call(w), 0);
  assert_int_equal(w->q_out[0], 0xc0 | 0x08); /* -1 / .25 = -4 */
  assert_int_equal(w->k_out[0], 0xb8 | 0x03); /* -1.375 */
  assert_int_equal(w->q_out[8], 0);
  free(w);
}

static void refuses(int error, void (*mistake)(world *)) {
  world *w = create(), *before;
  mistake(w);
  before = malloc(sizeof *before);
  assert_non_null(before);
  memcpy(before, w, sizeof *w);
  assert_int_equal(call(w), error);
  assert_memory_equal(w, before, sizeof *w);
  free(before);
  free(w);
}

static void wide_scale(world *w) { w->q_scale.dtype = (DLDataType){kDLFloat, 64, 1}; }
static void two_scales(world *w) { w->one[1] = 2; }
static void scale_without_shape(world *w) { w->q_scale.ndim = 1; }
static void scale_without_data(world *w) { w->q_scale.data = NULL; }
static void crooked_scale(world *w) { w->k_scale.byte_offset = 2; }
static void scale_elsewhere(world *w) { w->k_scale.device.device_type = kDLCUDA; }
static void scale_of_float32(world *w) { w->tq_out.dtype = f32; }
static void scale_in_output(world *w) { w->q_scale.data = w->k_out; }
static void in_place(world *w) { w->tq_out.data = w->q; }
static void pair_not_there(world *w) { w->tq.dtype = w->tk.dtype = bf16, w->tk_out.dtype = e5m2; }
static void other_output(world *w) { w->tk_out.dtype = f16, w->args.k_scale = NULL; }
static void float8_inputs(world *w) { w->tq.dtype = w->tk.dtype = e4m3; }
static void not_compiled(world *w) { w->tq.dtype = w->tk.dtype = f16; }

TEST(refusals) {
  refuses(PEGEN_ERROR_OUTPUT_SCALE, wide_scale);
  refuses(PEGEN_ERROR_OUTPUT_SCALE, two_scales);
  refuses(PEGEN_ERROR_OUTPUT_SCALE, scale_without_shape);
  refuses(PEGEN_ERROR_NULL_DATA, scale_without_data);
  refuses(PEGEN_ERROR_ALIGNMENT, crooked_scale);
  refuses(PEGEN_ERROR_DEVICE, scale_elsewhere);
  refuses(PEGEN_ERROR_OUTPUT_SCALE, scale_of_float32);
  refuses(PEGEN_ERROR_OVERLAP, scale_in_output);
  refuses(PEGEN_ERROR_OVERLAP, in_place);
  refuses(PEGEN_ERROR_DTYPE, pair_not_there);
  refuses(PEGEN_ERROR_DTYPE_MISMATCH, other_output);
  refuses(PEGEN_ERROR_DTYPE, float8_inputs);
  refuses(PEGEN_ERROR_DTYPE, not_compiled);
}

/* A struct that ends before the scales has none, whatever lies behind it. */
TEST(older_callers) {
  const uint32_t sizes[] = {PEGEN_ARGS_FIRST_SIZE, offsetof(pegen_args, q_scale)};
  world *none = create();
  none->args.q_scale = none->args.k_scale = NULL;
  assert_int_equal(call(none), 0);
  for (int i = 0; i < 2; i++) {
    world *w = create();
    w->args.struct_size = sizes[i];
    memset(&w->args.q_scale, 0x5a, sizeof w->args - offsetof(pegen_args, q_scale));
    assert_int_equal(call(w), 0);
    assert_memory_equal(w->q_out, none->q_out, sizeof w->q_out);
    assert_memory_equal(w->k_out, none->k_out, sizeof w->k_out);
    free(w);
  }
  free(none);
}

/* q and k of one call in different types, any two: each as in a call of its own. */
TEST(two_types) {
  const DLDataType types[] = {f32, e4m3, e5m2};
  for (int q = 0; q < 3; q++)
    for (int k = 0; k < 3; k++) {
      world *both = create(), *apart = create(), *worlds[] = {both, apart};
      for (int i = 0; i < 2; i++) {
        worlds[i]->tq_out.dtype = types[q], worlds[i]->tk_out.dtype = types[k];
        if (q == 0) worlds[i]->args.q_scale = NULL;
        if (k == 0) worlds[i]->args.k_scale = NULL;
      }
      assert_int_equal(call(both), 0);
      apart->args.k = NULL, apart->args.k_out = NULL;
      assert_int_equal(call(apart), 0);
      apart->args.k = &apart->tk, apart->args.k_out = &apart->tk_out;
      apart->args.q = NULL, apart->args.q_out = NULL;
      assert_int_equal(call(apart), 0);
      assert_memory_equal(both->q_out, apart->q_out, sizeof both->q_out);
      assert_memory_equal(both->k_out, apart->k_out, sizeof both->k_out);
      free(both);
      free(apart);
    }
}

int main(void) { return run_listed(); }
