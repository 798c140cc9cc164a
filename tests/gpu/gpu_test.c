/* One spec's kernels on the GPU: every number type, memory order, position type, in place and out of place, odd
 * sizes, against the slow reference; bytes between rows must stay. Whether the bits are those of
 * the threads run on the host is printed: they should be, and no bound depends on it.
 *
 * Over the stand-in for libcuda (tests/ptx/fake_cuda.c) the same program runs on any machine.
 */
#include "gpu_case.h"
#include "scoped.h"

#include "device.h"
#include "fake_cuda.h"
#include "gpu/target.h"
#include "loader.h"
#include "pegen/cuda.h"
#include "verify/oracle.h"
#include "verify/run_threads.h"
#include "verify/trial_sums.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 3, ANY_HEADS = 5, ANY_K_HEADS = 2, TOKENS = 37, SKIPPED = 77, MOST_DEFINES = 8 };
static const long double ROW_BOUND = 0x1p-20L;

static loaded_kernel *threads;

static void run(const char *entry, unsigned grid_x, unsigned grid_y, unsigned block, const int64_t *parameters) {
  void *symbol = run_find(threads, entry);
  thread_function *thread;
  memcpy(&thread, &symbol, sizeof thread);
  run_threads_grid(thread, grid_x, grid_y, (int)block, true, false, parameters);
}

/* The best row that the device runs. */
static const char *target_of(int chip) {
  const char *best = NULL;
  const gpu_target *t;
  for (int i = 0; (t = gpu_target_at(i)); i++)
    if (t->vendor->is_embedded && t->level <= chip) best = t->name;
  return best;
}

DLTensor *gpu_positions(gpu_case *c, int64_t batch, int64_t tokens, number_type type, double reach, double **values) {
  bool by_batch = batch > 0;
  int64_t axes = c->spec->n_axes, batches = by_batch ? batch : 1, count = batches * tokens * axes,
          shape[] = {batches, tokens, axes};
  *values = arena_array(c->memory, double, count);
  for (int64_t i = 0; i < count; i++) {
    double value = random_uniform(&c->random, -reach, reach);
    (*values)[i] = number_round(type, type == NUMBER_I32 || type == NUMBER_I64 ? rint(value) : value);
  }
  return tensor_contiguous(c->memory, type, by_batch ? 3 : 2, shape + !by_batch, *values);
}

int gpu_launch(gpu_case *c, const char *entry, const pegen_args *args) {
  int error = pegen_launch(c->kernel, entry, args, NULL);
  if (error) printf("refused: %s %s\n", pegen_error_name(error), pegen_cuda_error_name());
  return error;
}

static int call(gpu_case *c, int set, const DLTensor *positions, DLTensor *q, DLTensor *q_out, DLTensor *k,
                DLTensor *k_out) {
  DLTensor *moved[] = {device_upload(c->memory, positions), device_upload(c->memory, q), device_upload(c->memory, k),
                       NULL, NULL};
  moved[3] = q_out == q ? moved[1] : device_upload(c->memory, q_out);
  moved[4] = k_out == k ? moved[2] : device_upload(c->memory, k_out);
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = c->kernel->n_operands,
                     .positions = moved[0],
                     .q = moved[1],
                     .k = moved[2],
                     .q_out = moved[3],
                     .k_out = moved[4],
                     .operands = c->device_operands[set]};
  int error = gpu_launch(c, "encode", &args);
  device_download(moved[3], q_out);
  device_download(moved[4], k_out);
  for (int i = 0; i < 5; i++)
    if ((i != 3 || q_out != q) && (i != 4 || k_out != k)) device_free(moved[i]);
  return error;
}

/* rows: of q and of k, before and after. */
static void compare(gpu_case *c, const double *values, bool by_batch, const trial_operands *operands,
                    const DLTensor *const rows[2][2], trial_error *worst) {
  oracle *o = c->spec->additive ? NULL /* there are no rotors */
                                : oracle_create(c->memory, c->spec, by_batch ? BATCH : 1, TOKENS, values, operands);
  for (int i = 0; i < 2; i++) {
    if (o) trial_compare_rows(o, rows[i][0], rows[i][1], worst);
    else trial_compare_sums(c->spec, values, by_batch, operands, rows[i][0], rows[i][1], worst);
  }
}

static void one(gpu_case *c, number_type type, row_order order, bool in_place, bool by_batch, number_type position_type,
                double reach) {
  int set = c->calls % OPERAND_TYPES;
  int64_t heads = c->spec->heads > 1 ? c->spec->heads : ANY_HEADS, k_heads = c->spec->heads > 1 ? heads : ANY_K_HEADS;
  double *values;
  DLTensor *positions = gpu_positions(c, by_batch ? BATCH : 0, TOKENS, position_type, reach, &values);
  DLTensor *q = tensor_rows(c->memory, type, order, BATCH, heads, TOKENS, c->spec->head_dim);
  DLTensor *k = tensor_rows(c->memory, type, order, BATCH, k_heads, TOKENS, c->spec->head_dim);
  tensor_randomize(q, &c->random);
  tensor_randomize(k, &c->random);
  DLTensor *q_before = tensor_copy(c->memory, q), *k_before = tensor_copy(c->memory, k);
  DLTensor *q_out = in_place ? q : tensor_copy(c->memory, q), *k_out = in_place ? k : tensor_copy(c->memory, k);
  DLTensor *q_host = tensor_copy(c->memory, q), *k_host = tensor_copy(c->memory, k);
  c->calls++;
  if (call(c, set, positions, q, q_out, k, k_out)) {
    c->failed++;
    return;
  }
  trial_error worst = {0};
  const DLTensor *rows[][2] = {{q_before, q_out}, {k_before, k_out}};
  compare(c, values, by_batch, &c->operands[set], rows, &worst);
  bool gaps = tensor_gaps_identical(q_out, q_before) && tensor_gaps_identical(k_out, k_before);
  if (worst.spoilt || worst.error > ROW_BOUND || !gaps) {
    c->failed++;
    printf("%s order %d %s positions %s: %s%s\n", number_type_info(type)->name, (int)order,
           in_place ? "in place" : "out of place", number_type_info(position_type)->name,
           trial_error_text(c->memory, &worst), gaps ? "" : "; bytes between rows were written");
  }
  if (trial_call(c->kernel, positions, &c->operands[set], q_host, q_host, k_host, k_host, 1) == 0)
    c->other_bits += !tensor_identical(q_host, q_out) || !tensor_identical(k_host, k_out);
}

static void all(gpu_case *c) {
  static const number_type position_types[] = {NUMBER_F32, NUMBER_F64, NUMBER_I32, NUMBER_I64};
  double reach = c->spec->algebra.q || c->spec->algebra.r ? 0.5 : 1000;
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
    for (int order = 0; order < ROW_ORDER_COUNT; order++)
      for (int in_place = 0; in_place < 2; in_place++)
        for (int by_batch = 0; by_batch < 2; by_batch++)
          one(c, (number_type)type, (row_order)order, in_place, by_batch,
              position_types[(type + order + in_place + by_batch) % 4], reach);
}

static bool has_option(const char *name, int count, const loader_define *defines, const char *option) {
  SCOPED arena *a = arena_create();
  const spec *s = loader_load(a, arena_printf(a, "%s/%s.lua", SPECS_DIR, name), DSL_DIR, count, defines);
  bool found = false;
  for (int i = 0; s && i < s->n_options; i++) found = found || strcmp(s->option[i].name, option) == 0;
  return found;
}

static int run_spec(const char *name, int count, const loader_define *defines) {
  SCOPED gpu_case c = {.memory = arena_create(), .random = 11};
  c.spec = loader_load(c.memory, arena_printf(c.memory, "%s/%s.lua", SPECS_DIR, name), DSL_DIR, count, defines);
  const char *target = target_of(device_chip());
  bool gradients = c.spec && c.spec->polynomial; /* of columns */
  threads = c.spec && target ? run_load_threads(c.memory, c.spec, target, 0, 2, 4096, gradients) : NULL;
  if (!threads) {
    printf("%s: no kernel for this device\n", name);
    return 1;
  }
  c.kernel = run_kernel(threads);
  fake_cuda_state *fake = device_symbol("fake_cuda");
  if (fake) {
    fake->run = run;
    fake->n_parameters =
        c.kernel->ptx->attention ? c.kernel->ptx->attention->n_parameters : c.kernel->ptx->n_parameters;
  }
  for (int set = 0; set < OPERAND_TYPES; set++) {
    static const number_type types[OPERAND_TYPES] = {NUMBER_F32, NUMBER_F64, NUMBER_F16, NUMBER_BF16};
    c.operands[set] = trial_random_operands(c.memory, c.spec, types[set], &c.random);
    c.device_operands[set] = arena_array(c.memory, const DLTensor *, c.kernel->n_operands + 1);
    for (int i = 0; i < c.kernel->n_operands; i++)
      c.device_operands[set][i] = device_upload(c.memory, c.operands[set].tensors[i]);
  }
  if (c.spec->pairwise) gpu_attention(&c);
  else if (c.spec->polynomial) gpu_widen(&c);
  else all(&c);
  for (int set = 0; set < OPERAND_TYPES; set++)
    for (int i = 0; i < c.kernel->n_operands; i++) device_free((DLTensor *)c.device_operands[set][i]);
  printf("%s, %s: %d of %d calls failed; %d with other bits than on the host\n", name, target, c.failed, c.calls,
         c.other_bits);
  run_unload(threads);
  return c.failed != 0;
}

int main(int argc, char **argv) {
  loader_define defines[MOST_DEFINES + 2];
  int count = 0;
  if (argc < 2 || argc > 2 + MOST_DEFINES) return fputs("gpu_test SPEC [NAME=VALUE ...]\n", stderr), 2;
  for (int i = 2; i < argc; i++) {
    char *equals = strchr(argv[i], '=');
    if (!equals) return fputs("gpu_test SPEC [NAME=VALUE ...]\n", stderr), 2;
    *equals = 0;
    defines[count++] = (loader_define){argv[i], equals + 1};
  }
  if (!device_open()) return SKIPPED;
  int failed = run_spec(argv[1], count, defines);
  defines[count++] = (loader_define){"skip_tokens", "3"};
  if (has_option(argv[1], count, defines, "inverse")) defines[count++] = (loader_define){"inverse", "true"};
  failed |= run_spec(argv[1], count, defines);
  device_close();
  return failed;
}
