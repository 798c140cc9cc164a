/* pegen_launch over a stand-in for libcuda (fake_cuda.c): contexts, modules, streams, errors; the launched threads
 * give the bits that run_threads gives. */
#include "described.h"
#include "fake_cuda.h"
#include "gpu/entries.h"
#include "loader.h"
#include "pegen/cuda.h"
#include "scoped.h"
#include "test.h"
#include "verify/run_threads.h"
#include "verify/trial.h"

#include "kernel/launch.h"

#include <string.h>

enum { BATCH = 2, HEADS = 3, TOKENS = 11 };

static fake_cuda_state *fake;
static arena *memory;
static loaded_kernel *loaded;
static const pegen_kernel *kernel;
static const spec *quatro;
static DLTensor *q, *expected, *positions;
static trial_operands operands;

static void run(const char *entry, unsigned grid_x, unsigned grid_y, unsigned block, const int64_t *parameters) {
  void *symbol = run_find(loaded, entry);
  thread_function *thread;
  memcpy(&thread, &symbol, sizeof thread);
  run_threads_grid(thread, grid_x, grid_y, (int)block, true, false, parameters);
}

/* All tensors as the device's: its memory is the host's here. */
static DLTensor *on_device(const DLTensor *host) {
  DLTensor *t = tensor_copy(memory, host);
  t->device = (DLDevice){kDLCUDA, 0};
  return t;
}

static pegen_args arguments_with(const trial_operands *operands, DLTensor *in, DLTensor *out) {
  const DLTensor **moved = arena_array(memory, const DLTensor *, kernel->n_operands + 1);
  for (int i = 0; i < kernel->n_operands; i++) {
    DLTensor *t = arena_new(memory, DLTensor);
    *t = *operands->tensors[i];
    t->device = (DLDevice){kDLCUDA, 0};
    moved[i] = t;
  }
  DLTensor *coordinates = arena_new(memory, DLTensor);
  *coordinates = *positions;
  coordinates->device = (DLDevice){kDLCUDA, 0};
  return (pegen_args){.struct_size = sizeof(pegen_args),
                      .n_operands = kernel->n_operands,
                      .q = in,
                      .q_out = out,
                      .positions = coordinates,
                      .operands = moved};
}

static pegen_args arguments(DLTensor *in, DLTensor *out) { return arguments_with(&operands, in, out); }

static int set_up(void **state) {
  (void)state;
  if (!(fake = fake_cuda_find())) return -1; /* a real driver, or none: nothing to test here */
  fake->run = run;
  memory = arena_create();
  uint64_t random = 5;
  spec *s = loader_load(memory, SPECS_DIR "/quatro.lua", DSL_DIR, 0, NULL);
  quatro = s;
  loaded = run_load_threads(memory, s, "sm_80", 0, 1, 64, false);
  kernel = run_kernel(loaded);
  fake->n_parameters = kernel->ptx->n_parameters;
  operands = trial_random_operands(memory, s, NUMBER_F32, &random);
  double values[TOKENS * 2];
  for (int i = 0; i < TOKENS * s->n_axes; i++) values[i] = random_uniform(&random, -5, 5);
  positions = tensor_contiguous(memory, NUMBER_F32, 2, (int64_t[]){TOKENS, s->n_axes}, values);
  q = tensor_rows(memory, NUMBER_BF16, ROWS_BNHD, BATCH, HEADS, TOKENS, s->head_dim);
  tensor_randomize(q, &random);
  expected = tensor_copy(memory, q);
  return trial_call(kernel, positions, &operands, q, expected, NULL, NULL, 1);
}

static int tear_down(void **state) {
  (void)state;
  run_unload(loaded);
  arena_destroy(memory);
  return 0;
}

TEST(launches) {
  for (int round = 0; round < 3; round++) {
    DLTensor *in = on_device(q), *out = round == 1 ? in : on_device(q);
    pegen_args args = arguments(in, out);
    fake->context_id = round == 2;
    assert_int_equal(pegen_launch(kernel, round ? "encode" : NULL, &args, (void *)(uintptr_t)(16 * round)), 0);
    assert_true(tensor_identical(out, expected));
    assert_ptr_equal(fake->stream, (void *)(uintptr_t)(16 * round));
    assert_string_equal(fake->entry, "quatro_encode_bf16");
    assert_int_equal(fake->launches, round + 1);
    assert_int_equal(fake->modules, round == 2 ? 2 : 1); /* one a context */
    assert_int_equal(fake->retained, 0);
  }
  assert_int_equal(pegen_cuda_device_count(), 1);
  assert_string_equal(pegen_cuda_error_name(), "");
}

/* The driver is given what is launched alone, so that it assembles no more. */
TEST(entries_are_loaded_alone) {
  DLTensor *in = on_device(q), *narrow = on_device(q);
  pegen_args aligned = arguments(in, in), unaligned = arguments(narrow, narrow);
  narrow->byte_offset += 2;
  fake->context_id = 50;
  fake->run = NULL;
  int before = fake->modules;
  for (int round = 0; round < 2; round++) {
    assert_int_equal(pegen_launch(kernel, NULL, &aligned, NULL), 0);
    assert_string_equal(fake->entry, "quatro_encode_bf16");
    assert_int_equal(fake->modules, before + 1 + round);
    assert_int_equal(fake->loaded_in, 2); /* as CUDA numbers what is allowed beside a capture */
    assert_int_equal(pegen_launch(kernel, NULL, &unaligned, NULL), 0);
    assert_string_equal(fake->entry, "quatro_encode_bf16_narrow");
    assert_int_equal(fake->modules, before + 2);
    assert_int_equal(fake->capture_mode, 0);
  }
  const char *entry = strstr(fake->module, ".visible .entry ");
  assert_non_null(strstr(fake->module, ".target "));
  assert_non_null(strstr(entry, "quatro_encode_bf16_narrow("));
  assert_null(strstr(entry + sizeof ".visible .entry", ".entry"));
  fake->run = run;
}

/* Each type of operands through the driver's API: the bits of the threads run here. */
TEST(operand_types) {
  static const number_type types[] = {NUMBER_F32, NUMBER_F64, NUMBER_F16, NUMBER_BF16};
  for (int i = 0; i < 4; i++) {
    trial_operands rounded = trial_rounded_operands(memory, quatro, operands.values, types[i]);
    DLTensor *host = tensor_copy(memory, q), *out = on_device(q);
    assert_int_equal(trial_call(kernel, positions, &rounded, q, host, NULL, NULL, 1), 0);
    pegen_args args = arguments_with(&rounded, out, out);
    assert_int_equal(pegen_launch(kernel, NULL, &args, NULL), 0);
    assert_true(tensor_identical(out, host));
    assert_int_equal(tensor_identical(out, expected), types[i] == NUMBER_F32 || types[i] == NUMBER_F64);
  }
}

TEST(errors_have_names) {
  static const struct {
    const char *function;
    int error;
    const char *name;
  } cases[] = {{"cuModuleLoadData", 209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
               {"cuModuleGetFunction", 700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
               {"cuLaunchKernel", 12345, "CUDA_ERROR_UNKNOWN"}};
  int before = fake->modules, launched = fake->launches;
  for (int i = 0; i < 3; i++) {
    DLTensor *in = on_device(q);
    pegen_args args = arguments(in, in);
    fake->context_id = 100;
    fake->fail_in = cases[i].function;
    fake->fail_with = cases[i].error;
    assert_int_equal(pegen_launch(kernel, NULL, &args, NULL), PEGEN_ERROR_CUDA);
    assert_string_equal(pegen_cuda_error_name(), cases[i].name);
    assert_int_equal(fake->launches, launched);
    assert_int_equal(fake->retained, 0);
  }
  assert_int_equal(fake->modules, before + 1); /* what failed to load is not kept */
}

TEST(refusals) {
  int launched = fake->launches;
  DLTensor *in = on_device(q);
  pegen_args args = arguments(in, in);
  const char *const of_processors[] = {"attention", "prepare", "prepare_backward", "prepare_backward_finish"};
  for (size_t i = 0; i < sizeof of_processors / sizeof *of_processors; i++) {
    assert_int_equal(pegen_launch(kernel, of_processors[i], &args, NULL), PEGEN_ERROR_ENTRY);
    assert_int_equal(pegen_cuda_workspace(kernel, of_processors[i], &args), 0);
  }
  assert_int_equal(pegen_launch(NULL, NULL, &args, NULL), PEGEN_ERROR_KERNEL);
  pegen_kernel bare = *kernel;
  bare.abi_version++;
  assert_int_equal(pegen_launch(&bare, NULL, &args, NULL), PEGEN_ERROR_KERNEL);
  bare = *kernel;
  bare.ptx = NULL;
  assert_int_equal(pegen_launch(&bare, NULL, &args, NULL), PEGEN_ERROR_NO_PTX);
  bare = *kernel;
  bare.struct_size = offsetof(pegen_kernel, ptx); /* made before there was PTX */
  assert_int_equal(pegen_launch(&bare, NULL, &args, NULL), PEGEN_ERROR_NO_PTX);
  assert_int_equal(pegen_launch(kernel, NULL, NULL, NULL), PEGEN_ERROR_NULL_ARGS);
  in->device = (DLDevice){kDLCPU, 0};
  assert_int_equal(pegen_launch(kernel, NULL, &args, NULL), PEGEN_ERROR_DEVICE);
  in->device = (DLDevice){kDLCUDA, 1};
  assert_int_equal(pegen_launch(kernel, NULL, &args, NULL), PEGEN_ERROR_DEVICE);
  assert_int_equal(fake->launches, launched);
}

/* A kernel whose entries all need so many bytes of shared memory. */
typedef struct sharing_kernel {
  pegen_kernel kernel;
  pegen_ptx ptx;
  int32_t shared[GPU_MAX_ENTRIES];
} sharing_kernel;

static void make_sharing(const pegen_kernel *of, int32_t shared, sharing_kernel *k) {
  static uint64_t modules; /* each is another one to the launcher */
  k->kernel = *of;
  k->ptx = *of->ptx;
  k->kernel.ptx = &k->ptx;
  k->ptx.digest[0] += ++modules;
  k->ptx.shared = k->shared;
  for (int i = 0; i < of->ptx->n_entries; i++) k->shared[i] = shared;
}

static int launch_rows(const pegen_kernel *of) {
  DLTensor *in = on_device(q);
  pegen_args args = arguments(in, in);
  return pegen_launch(of, NULL, &args, NULL);
}

TEST(shared_memory) {
  enum { KIB = 1024, MOST = 163 * KIB };
  const struct {
    int32_t bytes;
    int allowed; /* more than 48 KiB must be asked for, once an entry */
  } cases[] = {{0, 0}, {16, 0}, {48 * KIB, 0}, {48 * KIB + 16, 1}, {MOST, 1}};
  sharing_kernel k;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    make_sharing(kernel, cases[i].bytes, &k);
    fake->allowed = 0;
    for (int round = 0; round < 2; round++) {
      assert_int_equal(launch_rows(&k.kernel), 0);
      assert_int_equal(fake->shared, cases[i].bytes);
      assert_int_equal(fake->allowed, cases[i].allowed);
    }
  }
  int before = fake->modules, launched = fake->launches;
  make_sharing(kernel, MOST, &k);
  fake->fail_in = "cuFuncSetAttribute";
  fake->fail_with = 700;
  assert_int_equal(launch_rows(&k.kernel), PEGEN_ERROR_CUDA);
  assert_int_equal(fake->modules, before);
  make_sharing(kernel, MOST + 16, &k); /* entries of which none is left to take are the driver's to refuse */
  assert_int_equal(launch_rows(&k.kernel), PEGEN_ERROR_CUDA);
  assert_int_equal(fake->launches, launched);
  /* Kernels of before that field. */
  make_sharing(kernel, MOST, &k);
  k.kernel.ptx_size = offsetof(pegen_ptx, shared);
  assert_int_equal(launch_rows(&k.kernel), 0);
  assert_int_equal(fake->shared, 0);
  make_sharing(kernel, MOST, &k);
  k.kernel.struct_size = offsetof(pegen_kernel, ptx_size);
  assert_int_equal(launch_rows(&k.kernel), 0);
  assert_int_equal(fake->shared, 0);
}

/* An entry of attention that needs more than the device has gives way to the next one of its type. */
TEST(attention_that_fits) {
  /* Tensor cores' tiles of 128 channels do not fit every device. */
  spec *s = described(memory, "attention head_dim=128");
  SCOPED_KERNEL *of_attention = run_load_threads(memory, s, "sm_80", PEGEN_DTYPE_BF16, 0, 64, true);
  const pegen_kernel *attention = run_kernel(of_attention);
  DLTensor *rows[6];
  uint64_t random = 3;
  for (int i = 0; i < 6; i++) {
    DLTensor *t = tensor_rows(memory, NUMBER_BF16, ROWS_BNHD, BATCH, HEADS, TOKENS, s->head_dim);
    tensor_randomize(t, &random);
    rows[i] = on_device(t);
  }
  double none[BATCH * HEADS * TOKENS] = {0};
  DLTensor *lse = on_device(tensor_contiguous(memory, NUMBER_F32, 3, (int64_t[]){BATCH, HEADS, TOKENS}, none));
  pegen_grad_args grad = {.struct_size = sizeof grad, .out = rows[4], .lse = NULL, .q = rows[5]};
  pegen_args args = {
      .struct_size = sizeof args, .q = rows[0], .k = rows[1], .v = rows[2], .out = rows[3], .lse = lse, .grad = &grad};
  const int parameters = fake->n_parameters;
  fake->run = NULL;
  fake->n_parameters = PEGEN_PTX_MAX_PARAMETERS;
  static const char *const calls[] = {"attention", "attention_backward"};
  for (int c = 0; c < 2; c++)
    for (int fits = 0; fits < 2; fits++) {
      sharing_kernel k;
      make_sharing(attention, 0, &k);
      size_t bytes = pegen_cuda_workspace(&k.kernel, calls[c], &args);
      args.workspace = arena_array(memory, char, bytes + 1), args.workspace_bytes = bytes;
      for (int i = 0; i < k.ptx.n_entries; i++)
        if (strstr(k.ptx.entries[i].name, "_mma")) k.shared[i] = 100 << 10;
      fake->most_shared = fits ? 100 << 10 : 99 << 10;
      assert_int_equal(pegen_launch(&k.kernel, calls[c], &args, NULL), 0);
      assert_int_equal(fake->shared, fits ? 100 << 10 : 0);
      assert_int_equal(strstr(fake->entry, "_simt") == NULL, fits);
    }
  fake->run = run;
  fake->n_parameters = parameters;
  fake->most_shared = 163 << 10;
}

int main(void) { return run_listed_between(set_up, tear_down); }
