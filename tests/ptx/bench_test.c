/* bench_test: what `pegen bench` launches of attention on a device, over a stand-in for libcuda (fake_cuda.c) whose
 * threads run on the host: results are those of the same entries called there, for every copy of k and v, and the loop
 * of products is PTX. usage: bench_test PTXAS */
#include "bench/attention_machine.h"
#include "bench/peak_gpu.h"
#include "fake_cuda.h"
#include "loader.h"
#include "scoped.h"
#include "test.h"
#include "verify/run_threads.h"

#include "kernel/launch.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_UPLOADS = 64, MOST_ENTRIES = 64 };

static fake_cuda_state *fake;
static const char *assembler;
static loaded_kernel *loaded;
static struct upload {
  const void *from;
  uint64_t to;
} uploads[MOST_UPLOADS];
static int n_uploads, n_entries;
static char entries[MOST_ENTRIES][64]; /* that were launched */
static int64_t keys[MOST_ENTRIES];     /* where they found k, of forward entries */

static void remember(const void *from, uint64_t to) {
  assert_true(n_uploads < MOST_UPLOADS);
  uploads[n_uploads++] = (struct upload){from, to};
}

static void run(const char *entry, unsigned grid_x, unsigned grid_y, unsigned block, const int64_t *parameters) {
  assert_true(n_entries < MOST_ENTRIES);
  snprintf(entries[n_entries], sizeof entries[0], "%s", entry);
  keys[n_entries++] = parameters[PEGEN_PTX_ATTENTION_K + PEGEN_PTX_ROWS_ADDRESS];
  void *symbol = run_find(loaded, entry);
  thread_function *thread;
  memcpy(&thread, &symbol, sizeof thread);
  run_threads_grid(thread, grid_x, grid_y, (int)block, true, false, parameters);
}

/* Bytes of the host's tensor become those on the device. */
static void fetch(DLTensor *host) {
  if (!host) return;
  int i = 0;
  while (i < n_uploads && uploads[i].from != host->data) i++;
  assert_true(i < n_uploads);
  memcpy(host->data, (const void *)(uintptr_t)uploads[i].to, tensor_bytes(host));
}

typedef struct trial_case {
  const char *spec, *option, *value;
  attention_sizes sizes;
  number_type type;
  bool backward;
  const char *launched; /* a word in the name of one of the entries */
} trial_case;

static attention_trial lay_trial(arena *a, const spec *s, const trial_case *c, uint64_t *random) {
  attention_sizes sizes = c->sizes;
  if (s->heads > 1) sizes.heads = sizes.k_heads = s->heads;
  attention_trial t = {.spec = s, .operands = trial_random_operands(a, s, NUMBER_F32, random)};
  attention_trial_fill(a, &t, &sizes, c->type, ROWS_BHND, random);
  double *places = arena_array(a, double, sizes.keys * s->n_axes);
  for (int64_t i = 0; i < sizes.keys * s->n_axes; i++) places[i] = (double)(i % 23);
  t.positions = tensor_contiguous(a, NUMBER_F32, 2, (int64_t[]){sizes.tokens, s->n_axes}, places);
  if (sizes.keys != sizes.tokens)
    t.k_positions = tensor_contiguous(a, NUMBER_F32, 2, (int64_t[]){sizes.keys, s->n_axes}, places);
  return t;
}

static void outputs_are_right(arena *a, attention_machine *m, const attention_trial *t) {
  const pegen_kernel *kernel = run_kernel(loaded);
  DLTensor *out = attention_trial_out(a, t, ROWS_BHND);
  for (int call = 0; call < 2; call++) { /* of the first copies of k and v, and of the next ones */
    trial_error worst = {0};
    assert_int_equal(m->forward(m, kernel, t, out), 0);
    fetch(out);
    attention_trial_compare(a, kernel, t, out, 1, &worst);
    if (worst.spoilt || worst.error > 0x1p-18L) fail_msg("%s: %s", kernel->name, trial_error_text(a, &worst));
  }
}

static void gradients_are_right(arena *a, attention_machine *m, const attention_trial *t, uint64_t *random) {
  const pegen_kernel *kernel = run_kernel(loaded);
  attention_gradients g;
  attention_gradients_lay(a, &g, t, kernel, false, 1, ROWS_BHND, random);
  attention_gradients expected = attention_gradients_room(a, &g);
  expected.out = tensor_copy(a, g.out);
  assert_int_equal(m->forward(m, kernel, &g.forward, g.out), 0);
  for (int call = 0; call < 2; call++) {
    int error = m->backward(m, kernel, &g);
    if (error) fail_msg("%s: %s", kernel->options, pegen_strerror(error));
  }
  DLTensor *rows[] = {g.out, g.forward.lse, g.q, g.k, g.v};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) fetch(rows[i]);
  for (int i = 0; g.operands && i < t->spec->n_operands; i++) fetch(g.operands[i]);
  for (int i = 0; g.inputs && i < t->spec->n_inputs; i++) fetch(g.inputs[i]);
  assert_int_equal(attention_trial_call(kernel, &expected.forward, expected.out, 1), 0); /* the threads, on the host */
  assert_int_equal(attention_gradients_call(kernel, &expected, 1), 0);
  assert_true(attention_gradients_same(&g, &expected));
}

static bool was_launched(const char *word) {
  for (int i = 0; i < n_entries; i++)
    if (strstr(entries[i], word)) return true;
  return false;
}

TEST(calls_are_right) {
  static const trial_case cases[] = {
      {SPECS_DIR "/alibi.lua", "head_dim", "16", {1, 8, 8, 33, 33}, NUMBER_BF16, true, "backward_queries_bf16_mma"},
      {SPECS_DIR "/alibi.lua", "head_dim", "16", {1, 8, 8, 20, 20}, NUMBER_F32, false, "alibi_attention_few_f32_simt"},
      {SPECS_DIR "/attention.lua", "head_dim", "16", {2, 4, 2, 1, 600}, NUMBER_BF16, false, "attention_finish"},
      {SPECS_DIR "/relative_bias_table.lua", "head_dim", "16", {1, 2, 2, 20, 20}, NUMBER_F16, true, "backward_total"},
      {TESTS_DIR "/attention/score_inputs.lua",
       "kind",
       "mixed",
       {2, 2, 2, 20, 20},
       NUMBER_BF16,
       true,
       "backward_inputs"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const trial_case *c = &cases[i];
    SCOPED arena *a = arena_create();
    uint64_t random = 5;
    n_uploads = n_entries = 0;
    const spec *s = loader_load(a, c->spec, DSL_DIR, 1, &(loader_define){c->option, c->value});
    assert_non_null(s);
    loaded = run_load_threads(a, s, "sm_80", number_type_info(c->type)->dtype, 0, 64, c->backward);
    attention_machine *m = attention_device(a, "sm_80");
    assert_non_null(m);
    assert_string_equal(m->device, "stand-in");
    assert_int_equal(m->open(m, a, c->type), 0);
    attention_trial t = lay_trial(a, s, c, &random);
    outputs_are_right(a, m, &t);
    assert_int_not_equal(keys[0], keys[n_entries / 2]);
    if (c->backward) gradients_are_right(a, m, &t, &random);
    if (!was_launched(c->launched)) fail_msg("%s: no entry is %s", s->name, c->launched);
    m->clear(m);
    m->close(m);
    run_unload(loaded);
  }
  assert_int_equal(fake->retained, 0);
}

/* The assembler takes the loop of products, with registers for all sums. */
TEST(products_are_ptx) {
  static const char *const chips[] = {"sm_75", "sm_80"};
  for (int i = 0; i < 2; i++) {
    SCOPED arena *a = arena_create();
    attention_machine *m = attention_device(a, chips[i]);
    for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
      assert_int_equal(m->open(m, a, (number_type)type), 0);
      assert_non_null(strstr(fake->module, m->peak_name(m, (number_type)type)));
      bool by_mma = strstr(m->peak_name(m, (number_type)type), "mma.sync") != NULL;
      assert_int_equal(by_mma, i == 1 && type != NUMBER_F32);
      if (access(assembler, X_OK) == 0) {
        FILE *pipe = popen(arena_printf(a, "%s -arch=sm_80 -o /dev/null -", assembler), "w");
        assert_non_null(pipe);
        fputs(fake->module, pipe);
        assert_int_equal(pclose(pipe), 0);
      }
      m->clear(m);
    }
    m->close(m);
  }
  assert_int_equal(fake->retained, 0);
}

/* Errors of the driver end a bench with words, and leave nothing behind. */
TEST(errors_are_told) {
  SCOPED arena *a = arena_create();
  assert_null(attention_device(a, "sm_90")); /* the stand-in is of sm_80 */
  attention_machine *m = attention_device(a, "sm_80");
  fake->fail_in = "cuModuleLoadData";
  fake->fail_with = 209;
  assert_int_equal(m->open(m, a, NUMBER_BF16), ATTENTION_TOLD);
  m->clear(m);
  assert_int_equal(m->open(m, a, NUMBER_BF16), 0);
  fake->fail_in = "cuEventSynchronize";
  fake->fail_with = 700;
  double seconds;
  assert_int_equal(m->start(m), 0);
  assert_int_equal(m->stop(m, &seconds), ATTENTION_TOLD);
  m->clear(m);
  m->close(m);
  assert_int_equal(fake->retained, 0);
}

static int set_up(void **state) {
  (void)state;
  if (!(fake = fake_cuda_find())) return -1; /* a real driver, or none: nothing to test here */
  fake->run = run;
  fake->uploaded = remember;
  fake->n_parameters = PEGEN_PTX_MAX_PARAMETERS;
  return 0;
}

int main(int argc, char **argv) {
  assembler = argc > 1 ? argv[1] : "";
  return run_listed_between(set_up, NULL);
}
