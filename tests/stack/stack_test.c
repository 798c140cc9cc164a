/* How much of a thread's stack each entry takes: no more than pegen.h says, for every kind of kernel at large sizes of
 * each promise, on the target with the widest registers that runs here, which works on the most. stack_test [--print]:
 * what was measured, too.
 *
 * A call runs on a thread whose stack was filled with a pattern: what it has left of that from the far end on it did
 * not reach. Entries are those of kernel/entries.h, so that a new one is measured, or the test says that it is not
 * called.
 */
#include "described.h"
#include "forms/form.h"
#include "plan/attention.h"
#include "scoped.h"
#include "verify/trial_attention_backward.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STACK = 8 << 20, PATTERN = 0x5a, BATCH = 2, TOKENS = 40, MORE_TOKENS = 208, KIB = 1024 };

/* A call's. Attention is called with more, too: with as many keys as have biases that batches keep in common. */
static int64_t tokens;

/* ---- a call on a stack of its own ---- */

typedef struct job {
  pegen_entry *entry; /* NULL: nothing */
  const pegen_args *args;
  int answer;
} job;

static void *run_job(void *context) {
  job *j = context;
  if (j->entry) j->answer = j->entry(j->args, 0, 1);
  return NULL;
}

/* Bytes that were written, the thread's own among them. */
static size_t touched(job *j) {
  static unsigned char *stack;
  pthread_attr_t attributes;
  pthread_t thread;
  size_t untouched = 0;
  if (!stack) stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) abort();
  memset(stack, PATTERN, STACK);
  if (pthread_attr_init(&attributes) || pthread_attr_setstack(&attributes, stack, STACK) ||
      pthread_create(&thread, &attributes, run_job, j) || pthread_join(thread, NULL))
    abort();
  pthread_attr_destroy(&attributes);
  while (untouched < STACK && stack[untouched] == PATTERN) untouched++;
  return STACK - untouched;
}

static size_t stack_of(pegen_entry *entry, const pegen_args *args, int *answer) {
  job nothing = {0}, j = {.entry = entry, .args = args};
  size_t own = touched(&nothing), all = touched(&j);
  *answer = j.answer;
  return all > own ? all - own : 0;
}

/* ---- what is promised ---- */

/* Offsets of the entries in pegen_kernel, in the order of entry_rows. */
static const size_t fields[] = {
#define X(name, role, of, option, text) offsetof(pegen_kernel, name),
    PEGEN_ENTRIES(X)
#undef X
};

/* A row of a table of promises: the first whose `most` the head's channels (or a dense block's) do not pass holds. */
typedef struct promise {
  int most, kib;
} promise;

static int promised(const promise *of, int size) {
  while (of->most && size > of->most) of++;
  return of->kib;
}

/* Returns the bytes of torques where pairs rotate off a grid: 128 for each block and each of its operands' numbers. */
static size_t torque_bytes(const spec *s) {
  SCOPED arena *a = arena_create();
  const attention_plan *p = s->pairwise->rotates && !s->grid[0] ? attention_plan_build(a, s) : NULL;
  size_t numbers = p && p->torques ? (size_t)p->torques->n_scatters * (size_t)s->n_blocks : 0;
  return 128 * numbers;
}

/* Whether a score has parts that are made of one coordinate of the key. */
static bool has_strips(const spec *s) {
  SCOPED arena *a = arena_create();
  const attention_plan *p = s->pairwise ? attention_plan_build(a, s) : NULL;
  return p && p->n_strips;
}

static size_t limit_of(const spec *s, const entry_row *entry) {
  static const promise of_rotors[] = {{256, 160}, {1024, 256}, {0, 1229}}, of_dense[] = {{32, 128}, {64, 384}, {0, 0}},
                       of_basis[] = {{64, 128}, {128, 448}, {0, 0}},
                       of_attention[] = {{64, 128}, {256, 192}, {1024, 512}, {0, 1741}},
                       of_rotated_pairs[] = {{256, 272}, {1024, 512}, {0, 1741}},
                       of_attention_backward[] = {{64, 160}, {256, 320}, {1024, 1024}, {0, 3328}},
                       of_rotated_pairs_backward[] = {{256, 512}, {1024, 1280}, {0, 4608}},
                       of_turned_values[] = {{256, 256}, {1024, 640}, {0, 2150}},
                       of_turned_values_backward[] = {{256, 512}, {1024, 1792}, {0, 6400}};
  bool is_gradient = entry->option != ENTRY_ALWAYS, rotates = s->pairwise && s->pairwise->rotates;
  bool is_attention = entry->of == PEGEN_ENTRY_attention || entry->of == PEGEN_ENTRY_attention_backward ||
                      entry->of == PEGEN_ENTRY_attention_tangent;
  bool turns_values = s->pairwise && s->pairwise->turns_values;
  const promise *attends = turns_values ? (is_gradient ? of_turned_values_backward : of_turned_values)
                           : rotates    ? (is_gradient ? of_rotated_pairs_backward : of_rotated_pairs)
                                        : (is_gradient ? of_attention_backward : of_attention);
  int widest = is_attention && s->pairwise->value_dim > s->head_dim ? s->pairwise->value_dim : s->head_dim;
  int kib = is_attention ? promised(attends, widest)
            : s->basis   ? promised(of_basis, s->head_dim)
            : s->dense   ? promised(of_dense, s->n_components)
                         : promised(of_rotors, s->head_dim);
  if (s->n_inputs) kib += 64;
  if (is_attention && has_strips(s)) kib += 128;
  if (entry->of == PEGEN_ENTRY_append) kib += 40;
  size_t bytes = (size_t)kib * KIB;
  if (is_gradient && is_attention) return bytes + torque_bytes(s);
  if (!is_gradient || is_attention) return bytes;
  bool is_wide = s->basis ? s->head_dim > 32 : s->dense && s->n_components > 32;
  return bytes + 64 * KIB + 80 * (size_t)s->n_blocks + (is_wide ? 256 * KIB : 0);
}

/* ---- the calls ---- */

typedef struct subject {
  arena *memory;
  const spec *spec;
  const pegen_kernel *kernel;
  uint64_t random;
  pegen_args args;
  pegen_grad_args grad;
} subject;

static DLTensor *new_rows(subject *t, number_type type, int64_t heads, int64_t channels) {
  DLTensor *rows = tensor_rows(t->memory, type, ROWS_BNHD, BATCH, heads, tokens, channels);
  tensor_randomize(rows, &t->random);
  return rows;
}

static void set_operands(subject *t, bool with_gradients) {
  const spec *s = t->spec;
  trial_operands operands = trial_random_operands(t->memory, s, NUMBER_F32, &t->random);
  DLTensor **gained = arena_array(t->memory, DLTensor *, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++) gained[i] = attention_gradients_operand(t->memory, s, i);
  t->args.operands = operands.tensors;
  t->args.n_operands = s->n_operands;
  t->grad.operands = with_gradients && s->n_operands ? gained : NULL;
}

static void set_positions(subject *t, bool with_gradients) {
  int64_t shape[] = {tokens, t->spec->n_axes}, count = tokens * t->spec->n_axes;
  double *values = arena_array(t->memory, double, count);
  for (int64_t i = 0; i < count; i++) values[i] = random_uniform(&t->random, -4, 4);
  t->args.positions = tensor_contiguous(t->memory, NUMBER_F64, 2, shape, values);
  if (with_gradients) t->grad.positions = tensor_contiguous(t->memory, NUMBER_F64, 2, shape, values);
}

static DLTensor *const *input_gradients(subject *t, int64_t heads, number_type type) {
  trial_inputs rows =
      trial_pair_inputs(t->memory, t->spec, type, (int64_t[]){BATCH, heads, tokens}, tokens, &t->random);
  return (DLTensor *const *)(uintptr_t)rows.tensors;
}

/* A call of everything that the kernel has, of rows of a type; `gains`: also what operands and positions gain. */
static void set_call(subject *t, number_type type, bool gains, bool of_positions) {
  const spec *s = t->spec;
  int64_t heads = s->heads > 1 ? s->heads : 2, channels = s->head_dim,
          wide = t->kernel->widths ? t->kernel->widths[type].out_dim : t->kernel->out_dim;
  bool attends = t->kernel->attention != NULL;
  int64_t values = attends ? s->pairwise->value_dim : channels;
  memset(&t->args, 0, sizeof t->args);
  memset(&t->grad, 0, sizeof t->grad);
  t->args.struct_size = sizeof t->args;
  t->grad.struct_size = sizeof t->grad;
  t->args.grad = &t->grad;
  t->args.q = new_rows(t, type, heads, channels), t->args.k = new_rows(t, type, heads, channels);
  if (s->n_inputs) {
    trial_inputs inputs = trial_pair_inputs(t->memory, s, type, (int64_t[]){BATCH, heads, tokens}, tokens, &t->random);
    t->args.inputs = inputs.tensors;
    t->args.n_inputs = s->n_inputs;
  }
  t->grad.q = new_rows(t, type, heads, channels), t->grad.k = new_rows(t, type, heads, channels);
  if (attends) {
    t->args.v = new_rows(t, type, heads, values), t->args.out = new_rows(t, type, heads, values);
    t->args.lse = tensor_contiguous(t->memory, NUMBER_F32, 3, (int64_t[]){BATCH, heads, tokens},
                                    arena_array(t->memory, double, BATCH * heads * tokens));
    t->grad.out = new_rows(t, type, heads, values), t->grad.v = new_rows(t, type, heads, values);
  } else {
    t->args.q_out = new_rows(t, type, heads, wide), t->args.k_out = new_rows(t, type, heads, wide);
    t->grad.q_out = new_rows(t, type, heads, wide), t->grad.k_out = new_rows(t, type, heads, wide);
    if (gains && s->n_inputs) t->grad.inputs = input_gradients(t, heads, type);
  }
  set_operands(t, gains);
  set_positions(t, gains && of_positions);
}

static void *room(subject *t, size_t bytes) {
  uintptr_t at = (uintptr_t)arena_alloc(t->memory, bytes + 64);
  return (void *)((at + 63) / 64 * 64);
}

static pegen_workspace_entry *size_of(const subject *t, pegen_entry_kind of) {
  pegen_workspace_entry *function = NULL;
  for (int i = 0; i < PEGEN_ENTRY_COUNT; i++)
    if (entry_rows[i].of == of && entry_rows[i].role == ENTRY_SIZE)
      memcpy(&function, (const char *)t->kernel + fields[i], sizeof function);
  return function;
}

/* What calls of encode_backward have left of a table, and no rows. */
static bool fill_gradients(subject *t) {
  const pegen_kernel *kernel = t->kernel;
  pegen_args *args = &t->args;
  pegen_grad_args *grad = &t->grad, gained = *grad;
  args->table_bytes = kernel->table_bytes(args);
  args->table = room(t, args->table_bytes);
  grad->table_bytes = kernel->gradient_table_bytes(args);
  grad->table = room(t, grad->table_bytes);
  grad->operands = NULL;
  grad->positions = NULL;
  bool is_filled = grad->table_bytes && !kernel->prepare(args, 0, 1) && !kernel->encode_backward(args, 0, 1);
  grad->operands = gained.operands;
  grad->positions = gained.positions;
  grad->q_out = grad->k_out = grad->q = grad->k = NULL;
  return is_filled;
}

/* k and v into caches, of rows with norms. */
static void set_append(subject *t) {
  static int64_t slots[BATCH * TOKENS], count = BATCH * TOKENS;
  const DLTensor *k = t->args.k;
  int64_t width = t->spec->head_dim, shape[] = {1, count, k->shape[1], width};
  DLTensor *at = arena_new(t->memory, DLTensor);
  *at = (DLTensor){.data = slots, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 64, 1}, .shape = &count};
  double *ones = arena_array(t->memory, double, count * k->shape[1] * width);
  for (int64_t i = 0; i < count; i++) slots[i] = count - 1 - i;
  for (int64_t i = 0; i < width; i++) ones[i] = 1;
  t->args.slots = at;
  t->args.v = k;
  t->args.k_out = tensor_contiguous(t->memory, number_type_of(k->dtype), 4, shape, ones);
  t->args.v_out = tensor_contiguous(t->memory, number_type_of(k->dtype), 4, shape, ones);
  t->args.q_norm = t->args.k_norm = tensor_contiguous(t->memory, NUMBER_F32, 1, &width, ones);
}

static bool is_printed;
static int failed, measured[PEGEN_ENTRY_COUNT];

/* 0: the entry has no such gradients. */
static int measure(subject *t, pegen_entry_kind kind, const char *target, const char *what) {
  const entry_row *entry = &entry_rows[kind];
  pegen_entry *function;
  int answer;
  memcpy(&function, (const char *)t->kernel + fields[kind], sizeof function);
  if (!function || entry->role == ENTRY_SIZE) return 1;
  pegen_workspace_entry *size = size_of(t, entry->of);
  if (entry->of == PEGEN_ENTRY_prepare_backward && !fill_gradients(t)) return 0;
  if (size && entry->of == PEGEN_ENTRY_prepare) {
    t->args.table_bytes = size(&t->args);
    t->args.table = room(t, t->args.table_bytes);
  } else if (size) t->args.workspace = room(t, size(&t->args));
  if (entry->of == PEGEN_ENTRY_append) set_append(t);
  size_t bytes = stack_of(function, &t->args, &answer), limit = limit_of(t->spec, entry);
  t->args.table = NULL;
  t->args.table_bytes = 0;
  if (answer == PEGEN_ERROR_NO_GRADIENT) return 0;
  if (is_printed || answer || bytes > limit)
    printf("%s%s, head_dim %d, %s, %s, %d tokens: answer %d, %zu bytes of %zu\n", t->spec->name, what,
           t->spec->head_dim, target, entry->name, (int)tokens, answer, bytes, limit);
  failed += answer || bytes > limit || bytes == 0;
  measured[kind]++;
  return 1;
}

static void measure_call(const spec *s, const char *target, const pegen_kernel *kernel, pegen_entry_kind kind,
                         number_type type, bool gains) {
  SCOPED subject t = {.memory = arena_create(), .spec = s, .kernel = kernel, .random = 1};
  set_call(&t, type, gains, true);
  if (measure(&t, kind, target, gains ? " with operands" : "")) return;
  set_call(&t, type, gains, false);
  measure(&t, kind, target, gains ? " with operands alone" : "");
}

static void measure_kernel(const spec *s, const char *target, const pegen_kernel *kernel) {
  static const number_type types[] = {NUMBER_F32, NUMBER_BF16};
  for (int n = 0; n < 2 && kernel->dtypes & number_type_info(types[n])->dtype; n++)
    for (pegen_entry_kind i = 0; i < PEGEN_ENTRY_COUNT; i++)
      for (int gains = 0; gains <= (entry_rows[i].option == ENTRY_GRADIENT); gains++) {
        tokens = TOKENS;
        measure_call(s, target, kernel, i, types[n], gains);
        tokens = MORE_TOKENS;
        if (i == PEGEN_ENTRY_attention) measure_call(s, target, kernel, i, types[n], gains);
      }
}

/* The largest sizes of each promise; many heads of their own; what is learned as well as what is not. */
static const char *const lines[] = {
    "rope head_dim=256",
    "rope_mixed head_dim=256 heads=16 axes=3",
    "rope_mixed head_dim=1024 heads=8",
    "quatro head_dim=256 heads=12",
    "care head_dim=256 heads=12",
    "sincos channels=1024",
    "liere head_dim=64 block=32 heads=4",
    "liere head_dim=128 block=64",
    "comrope_ld head_dim=64 block=32 basis=schur heads=2",
    "comrope_ap head_dim=64 block=8 heads=2",
    "string_cayley head_dim=64 heads=2",
    "string_cayley head_dim=128",
    "pape head_dim=64",
    "pape head_dim=64 axes=3 parabolas=300 heads=8",
    "pape head_dim=64 role=pairwise",
    "attention head_dim=64",
    "attention head_dim=256",
    "attention head_dim=1024",
    "alibi head_dim=256 axes=3",
    "relative_bias_table head_dim=64 window_h=14 window_w=14",
    "relative_bias_table head_dim=256",
    "lingeope head_dim=64",
    "attention head_dim=4096",
    "attention head_dim=16 value_dim=256",
    "lingeope head_dim=1022",
    "lingeope head_dim=4095",
    "../tests/attention/turning head_dim=1022",
    "../tests/attention/rows_turned head_dim=64 value_dim=64",
    "../tests/attention/rows_turned head_dim=256 value_dim=256",
    "../tests/attention/rows_turned head_dim=1024 value_dim=1024",
    "../tests/attention/rows_turned head_dim=4096 value_dim=4096 heads=1",
    "more/gta head_dim=64",
    "more/gta head_dim=4096",
    "more/pair_bias head_dim=64",
    "more/decomposed_bias head_dim=64",
    "../tests/attention/strips",
};

static void run_case(const char *line) {
  SCOPED arena *memory = arena_create();
  const char **targets;
  if (trial_targets(memory, NULL, &targets) == 0) exit(1);
  const spec *s = described(memory, "%s", line);
  unsigned dtypes = s->head_dim > 64 ? PEGEN_DTYPE_F32 : PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16;
  SCOPED_KERNEL *loaded = held(trial_load_gradients(memory, s, targets[0], dtypes, 1));
  measure_kernel(s, targets[0], run_kernel(loaded));
}

int main(int argc, char **argv) {
  is_printed = argc > 1 && strcmp(argv[1], "--print") == 0;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) run_case(lines[i]);
  for (int i = 0; i < PEGEN_ENTRY_COUNT; i++) {
    if (entry_rows[i].role == ENTRY_SIZE || measured[i]) continue;
    printf("no case calls %s\n", entry_rows[i].name);
    failed++;
  }
  return failed ? 1 : 0;
}
