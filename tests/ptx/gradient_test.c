/* Gradients of operands and positions by a GPU's threads, against those of the processor's kernel, which are held
 * against the reference: calls of every shape that moves a sum to another thread, launch or chunk, and refusals. (What
 * `pegen check` compares with the reference, it compares for threads, too.)
 *
 * gradient_test [NAME]: that of its tests alone */
#include "described.h"
#include "test.h"
#include "verify/oracle.h"
#include "verify/run_threads.h"

#include "runtime/launch.h"

#include <math.h>
#include <string.h>

enum { BATCH = 3, HEADS = 2, K_HEADS = 5, TOKENS = 25, K_TOKENS = 4, MOST_OPERANDS = 4 };

typedef struct fixture {
  arena *memory;
  const spec *spec;
  const char *name;
  trial_operands operands;
  uint64_t random;
  loaded_kernel *loaded[2]; /* the processor's, the threads' */
} fixture;

/* What a call has and asks for. */
typedef struct shape {
  const char *name;
  number_type rows, sums;
  bool by_batch, own_positions, of_input, accumulate, no_rows, without_operands, without_positions;
  bool without_q, without_k, q_unwritten, k_unwritten;
  row_order order;
  bool one_batch;
  int64_t group; /* heads of q for one of k, where operands are of heads; 0: 1 */
} shape;

typedef struct rows {
  DLTensor *x, *y, *g, *positions;
} rows;

typedef struct answer {
  DLTensor *back[2], *operand[MOST_OPERANDS], *position[2];
} answer;

static DLTensor *random_positions(fixture *f, bool by_batch, int64_t tokens) {
  int64_t axes = f->spec->n_axes, sizes[] = {BATCH, tokens, axes};
  double *values = arena_array(f->memory, double, BATCH * tokens * axes);
  for (int64_t i = 0; i < BATCH * tokens * axes; i++) values[i] = random_uniform(&f->random, -4, 4);
  return tensor_contiguous(f->memory, NUMBER_F64, by_batch ? 3 : 2, by_batch ? sizes : sizes + 1, values);
}

static DLTensor *random_rows(fixture *f, const shape *s, int tensor, int64_t tokens) {
  int64_t heads = f->spec->heads > 1 ? f->spec->heads : tensor ? K_HEADS : HEADS;
  int64_t batches = s->no_rows ? 0 : s->one_batch ? 1 : BATCH;
  if (tensor == 0 && s->group) heads *= s->group;
  DLTensor *t = tensor_rows(f->memory, s->rows, s->order, batches, heads, tokens, f->spec->head_dim);
  tensor_randomize(t, &f->random);
  return t;
}

static int64_t elements_of(const DLTensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->ndim; i++) count *= t->shape[i];
  return count;
}

static DLTensor *filled(fixture *f, number_type type, const DLTensor *like, double value) {
  double *values = arena_array(f->memory, double, elements_of(like) + 1);
  for (int64_t i = 0; i < elements_of(like); i++) values[i] = value;
  return tensor_contiguous(f->memory, type, like->ndim, like->shape, values);
}

static double element(const DLTensor *t, int64_t i) {
  number_type type = number_type_of(t->dtype);
  return number_load(type, (const char *)t->data + i * number_bytes(type));
}

typedef struct call {
  pegen_args args;
  pegen_grad_args grad;
} call;

static void make_call(fixture *f, const shape *s, const rows *r, answer *out, call *c) {
  double before = s->accumulate ? 2 : NAN;
  bool given[2] = {!s->without_q, !s->without_k}, written[2] = {!s->q_unwritten, !s->k_unwritten};
  for (int i = 0; i < 2; i++) out->back[i] = given[i] && written[i] ? tensor_copy(f->memory, r[i].g) : NULL;
  for (int i = 0; i < f->spec->n_operands; i++) out->operand[i] = filled(f, s->sums, f->operands.tensors[i], before);
  for (int i = 0; i < 2; i++) out->position[i] = filled(f, s->sums, r[i].positions, before);
  c->grad = (pegen_grad_args){.struct_size = sizeof c->grad,
                              .flags = (s->of_input ? (uint32_t)PEGEN_GRAD_FROM_INPUT : 0) |
                                       (s->accumulate ? (uint32_t)PEGEN_GRAD_ACCUMULATE : 0),
                              .q_out = given[0] ? r[0].g : NULL,
                              .k_out = given[1] ? r[1].g : NULL,
                              .q = out->back[0],
                              .k = out->back[1],
                              .operands = f->spec->n_operands && !s->without_operands ? out->operand : NULL,
                              .positions =
                                  s->without_positions || (s->own_positions && s->without_q) ? NULL : out->position[0],
                              .k_positions = s->own_positions && !s->without_positions ? out->position[1] : NULL};
  c->args = (pegen_args){.struct_size = sizeof c->args,
                         .n_operands = f->spec->n_operands,
                         .operands = f->operands.tensors,
                         .positions = r[0].positions,
                         .k_positions = s->own_positions ? r[1].positions : NULL,
                         .q = given[0] ? (s->of_input ? r[0].x : r[0].y) : NULL,
                         .k = given[1] ? (s->of_input ? r[1].x : r[1].y) : NULL,
                         .grad = &c->grad};
}

static void give_workspace(fixture *f, const pegen_kernel *kernel, call *c) {
  size_t bytes = kernel->encode_backward_workspace(&c->args);
  if (!bytes) return;
  c->args.workspace = arena_alloc(f->memory, bytes);
  c->args.workspace_bytes = bytes;
  memset(c->args.workspace, 0xff, bytes); /* NaN */
}

static void run(fixture *f, const shape *s, const rows *r, const pegen_kernel *kernel, answer *out) {
  call c;
  make_call(f, s, r, out, &c);
  c.args.grad = &c.grad;
  give_workspace(f, kernel, &c);
  int error = kernel->encode_backward(&c.args, 0, 1);
  if (!error) error = kernel->encode_backward_finish(&c.args, 0, 1);
  if (error) fail_msg("%s, %s: error %d", f->name, s->name, error);
}

static void compare(const fixture *f, const shape *s, const char *what, const DLTensor *got, const DLTensor *expected) {
  double size = 0, error = 0;
  for (int64_t i = 0; i < elements_of(got); i++) {
    double difference = fabs(element(got, i) - element(expected, i));
    size = fmax(size, fabs(element(expected, i)));
    error = isnan(difference) && !isnan(element(expected, i)) ? INFINITY : fmax(error, difference);
  }
  if (!(error <= 0x1p-17 * size))
    fail_msg("%s, %s: gradients of %s differ by %.3g of %.3g", f->name, s->name, what, error, size);
}

static void compare_rows(const fixture *f, const shape *s, const DLTensor *got, const DLTensor *expected) {
  number_type type = number_type_of(got->dtype);
  for (int64_t b = 0; b < got->shape[0]; b++)
    for (int64_t h = 0; h < got->shape[1]; h++)
      for (int64_t n = 0; n < got->shape[2]; n++)
        for (int64_t c = 0; c < got->shape[3]; c++) {
          double x = number_load(type, tensor_at(got, b, h, n, c)),
                 y = number_load(type, tensor_at(expected, b, h, n, c));
          if (!(fabs(x - y) <= (type == NUMBER_F32 ? 0x1p-18 : 0x1p-7) * fmax(1, fabs(y))))
            fail_msg("%s, %s: gradients of rows", f->name, s->name);
        }
}

static void forward(fixture *f, const shape *s, rows *r) {
  const pegen_kernel *kernel = run_kernel(f->loaded[0]);
  for (int i = 0; i < 2; i++) {
    const DLTensor *positions = i && s->own_positions ? r[1].positions : r[0].positions;
    r[i].y = tensor_copy(f->memory, r[i].x);
    assert_int_equal(trial_call(kernel, positions, &f->operands, r[i].x, r[i].y, NULL, NULL, 1), 0);
  }
}

static void is_the_processors(fixture *f, const shape *s) {
  rows r[2];
  answer of[3];
  int64_t tokens[] = {TOKENS, s->own_positions ? K_TOKENS : TOKENS};
  for (int i = 0; i < 2; i++) {
    r[i].positions = random_positions(f, s->by_batch, tokens[i]);
    r[i].x = random_rows(f, s, i, tokens[i]);
    r[i].g = random_rows(f, s, i, tokens[i]);
  }
  if (s->by_batch && s->no_rows)
    for (int i = 0; i < 2; i++) r[i].positions->shape[0] = 0;
  forward(f, s, r);
  for (int i = 0; i < 3; i++) run(f, s, r, run_kernel(f->loaded[i > 0]), &of[i]); /* threads twice, in both orders */
  for (int i = 0; i < 2; i++) {
    bool is_gained = !s->without_positions && (i == 0 ? !s->own_positions || !s->without_q : s->own_positions);
    if (of[1].back[i]) compare_rows(f, s, of[1].back[i], of[0].back[i]);
    if (of[1].back[i]) assert_true(tensor_identical(of[1].back[i], of[2].back[i]));
    if (!is_gained) continue;
    compare(f, s, "positions", of[1].position[i], of[0].position[i]);
    assert_memory_equal(of[1].position[i]->data, of[2].position[i]->data,
                        (size_t)(elements_of(of[1].position[i]) * number_bytes(s->sums)));
  }
  for (int i = 0; i < f->spec->n_operands && !s->without_operands; i++) {
    compare(f, s, f->spec->operand[i].name, of[1].operand[i], of[0].operand[i]);
    assert_memory_equal(of[1].operand[i]->data, of[2].operand[i]->data,
                        (size_t)(elements_of(of[1].operand[i]) * number_bytes(s->sums)));
  }
}

static const shape shapes[] = {
    {.name = "as check has it", .sums = NUMBER_F64},
    {.name = "positions of batches", .sums = NUMBER_F64, .by_batch = true, .order = ROWS_BNHD},
    {.name = "added in float32", .sums = NUMBER_F32, .accumulate = true, .of_input = true, .by_batch = true},
    {.name = "k's own positions", .sums = NUMBER_F64, .own_positions = true, .accumulate = true},
    {.name = "k's own positions of batches", .sums = NUMBER_F32, .own_positions = true, .by_batch = true},
    {.name = "anywhere in memory", .rows = NUMBER_BF16, .sums = NUMBER_F64, .order = ROWS_GAPS, .of_input = true},
    {.name = "16 bits", .rows = NUMBER_BF16, .sums = NUMBER_F64, .of_input = true},
    {.name = "of k alone", .sums = NUMBER_F64, .without_q = true},
    {.name = "of k alone, at its own", .sums = NUMBER_F64, .without_q = true, .own_positions = true},
    {.name = "of q alone", .sums = NUMBER_F32, .without_k = true, .by_batch = true},
    {.name = "sums alone", .sums = NUMBER_F64, .q_unwritten = true, .k_unwritten = true},
    {.name = "rows of k and sums", .sums = NUMBER_F64, .q_unwritten = true, .order = ROWS_GAPS},
    {.name = "positions alone", .sums = NUMBER_F64, .without_operands = true},
    {.name = "operands alone", .sums = NUMBER_F64, .without_positions = true},
    {.name = "rows alone", .sums = NUMBER_F64, .without_operands = true, .without_positions = true},
    {.name = "no rows", .sums = NUMBER_F64, .no_rows = true},
    {.name = "no rows, added", .sums = NUMBER_F32, .no_rows = true, .accumulate = true, .own_positions = true}};

/* more: options that the GPU's kernel alone has. */
static fixture open_both(const char *line, const char *more) {
  fixture f = {.memory = arena_create(), .random = 5, .name = line};
  f.spec = described(f.memory, "%s %s", line, more);
  assert_in_range(f.spec->n_operands, 0, MOST_OPERANDS);
  f.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
  unsigned dtypes = PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16;
  const spec *of_processor = *more ? described(f.memory, "%s", line) : f.spec;
  f.loaded[0] = trial_load_gradients(f.memory, of_processor, "native", dtypes, 1);
  f.loaded[1] = run_load_threads(f.memory, f.spec, "sm_80", dtypes, 1, 64, true);
  for (int i = 0; i < 2; i++) assert_non_null(f.loaded[i]);
  return f;
}

static fixture open_spec(const char *line) { return open_both(line, ""); }

static void close_spec(fixture *f) {
  for (int i = 0; i < 2; i++) run_unload(f->loaded[i]);
  arena_destroy(f->memory);
}

static void these_shapes(fixture *f, const shape *of, size_t count) {
  for (size_t i = 0; i < count; i++) {
    shape s = of[i];
    bool is_nothing = f->spec->n_operands == 0 && s.without_positions && !s.without_operands;
    s.of_input = s.of_input || run_kernel(f->loaded[0])->needs_input;
    if (!is_nothing) is_the_processors(f, &s);
  }
}

static void all_shapes_of_both(const char *line, const char *more) {
  fixture f = open_both(line, more);
  these_shapes(&f, shapes, sizeof shapes / sizeof *shapes);
  close_spec(&f);
}

static void all_shapes(const char *line) { all_shapes_of_both(line, ""); }

TEST(planes) {
  all_shapes("rope_mixed");
  all_shapes("rope_mixed heads=3 skip_tokens=2");
}

TEST(vectors) {
  all_shapes("geope3d skip_tokens=1");
  all_shapes("quatro heads=3 inverse=true");
}

TEST(multivectors) { all_shapes("care heads=3"); }

/* Amplitudes that are functions, of q and k alike in one pass, of each in two that give to the same positions. */
TEST(amplitudes) {
  all_shapes("../tests/check/amplitude skip_tokens=1");
  all_shapes("../tests/check/amplitude sides=true inverse=true");
  all_shapes("../tests/check/amplitude sides=true kind=still");
  all_shapes("more/xpos skip_tokens=2");
}

TEST(of_four) { all_shapes("liere block=4 heads=3 head_dim=18"); }

/* Exponentials, by teams of threads: sizes that are padded, channels of no block, heads that differ, turned back. */
TEST(exponentials) {
  all_shapes("liere block=6 heads=3 head_dim=14 skip_tokens=2");
  all_shapes("liere block=12 head_dim=26 axes=3 inverse=true");
}

/* In float64, by warps. */
TEST(exponentials_in_float64) { all_shapes("liere block=5 heads=3 head_dim=37 prepare=float64"); }

/* Schur forms have gradients as exponentials do; threads have their rows in the channels' basis. */
TEST(schur_forms) {
  all_shapes_of_both("comrope_ld block=7 heads=3 skip_tokens=2", "basis=schur");
  all_shapes_of_both("comrope_ap block=12 head_dim=26", "basis=schur");
}

/* A change of basis: teams that are more than chunks, heads that share it or differ, turned back, rotations and what
 * leaves no length alone. */
TEST(bases) {
  all_shapes("string_cayley heads=3 head_dim=14 skip_tokens=2");
  all_shapes("string_cayley head_dim=18 axes=3 inverse=true");
  all_shapes("../tests/check/basis kind=screw heads=2 each=true");
}

TEST(sums) { all_shapes("sincos skip_tokens=1"); }

/* Blocks of several kinds, with axes of their own each, heads that differ, channels of no part. */
TEST(parts) { all_shapes("../tests/spec/good/head_parts heads=3 skip_tokens=2"); }

/* Channels that are mapped: of what encode read, those of rows alone, too. */
TEST(maps) {
  all_shapes("../tests/maps/mapped kind=vectors skip_tokens=1");
  all_shapes("../tests/maps/mapped kind=parts map=wave");
  all_shapes("../tests/maps/mapped kind=sides");
}

/* Heads of q that share operands with one of k: by rounds, and of one batch as batches. */
TEST(grouped_heads) {
  static const shape grouped[] = {
      {.name = "groups", .sums = NUMBER_F64, .group = 3},
      {.name = "groups of one batch", .sums = NUMBER_F32, .group = 2, .one_batch = true, .accumulate = true},
      {.name = "groups of batches' positions", .sums = NUMBER_F64, .group = 2, .by_batch = true, .of_input = true},
      {.name = "groups of q alone, in 16 bits",
       .rows = NUMBER_BF16,
       .sums = NUMBER_F64,
       .group = 2,
       .without_k = true,
       .order = ROWS_GAPS,
       .of_input = true},
      {.name = "groups, k's own positions", .sums = NUMBER_F64, .group = 2, .own_positions = true},
      {.name = "groups, sums alone", .sums = NUMBER_F64, .group = 2, .q_unwritten = true},
      {.name = "groups, no rows", .sums = NUMBER_F64, .group = 2, .no_rows = true}};
  static const char *const lines[] = {"rope_mixed heads=2 head_dim=12 skip_tokens=1",
                                      "liere heads=2 head_dim=11 block=5"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    fixture f = open_spec(lines[i]);
    these_shapes(&f, grouped, sizeof grouped / sizeof *grouped);
    close_spec(&f);
  }
}

/* Matrices that descriptions write, of q and of k: entries gain of what encode read. */
TEST(matrices) { all_shapes("../tests/linear/linear kind=sides heads=2"); }

/* A prefix of rotary channels and blocks that leave some over: units without blocks. */
TEST(leftovers) { all_shapes("rope layout=split head_dim=128 rotary_dim=20"); }

/* Chunks of several tokens, and more of them than are added up at once. */
TEST(many_tokens) {
  fixture f = open_spec("rope_mixed head_dim=4");
  enum { MANY = 5000 };
  const shape s = {.name = "many tokens", .sums = NUMBER_F64, .of_input = true, .without_k = true};
  rows r[2];
  answer of[2];
  double *values = arena_array(f.memory, double, MANY *f.spec->n_axes);
  for (int64_t i = 0; i < MANY * f.spec->n_axes; i++) values[i] = random_uniform(&f.random, -4, 4);
  for (int i = 0; i < 2; i++) {
    r[i].positions = tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){MANY, f.spec->n_axes}, values);
    r[i].x = r[i].y = tensor_rows(f.memory, NUMBER_F32, ROWS_BHND, 2, 1, MANY, 4);
    tensor_randomize(r[i].x, &f.random);
    r[i].g = tensor_rows(f.memory, NUMBER_F32, ROWS_BHND, 2, 1, MANY, 4);
    tensor_randomize(r[i].g, &f.random);
  }
  for (int i = 0; i < 2; i++) run(&f, &s, r, run_kernel(f.loaded[i]), &of[i]);
  compare(&f, &s, "frequencies", of[1].operand[0], of[0].operand[0]);
  compare(&f, &s, "positions", of[1].position[0], of[0].position[0]);
  close_spec(&f);
}

#define REFUSED(error, change) \
  do { \
    c = sound; \
    c.args.grad = &c.grad; \
    change; \
    assert_int_equal(kernel->encode_backward(&c.args, 0, 1), PEGEN_ERROR_##error); \
  } while (0)

TEST(refusals) {
  static _Alignas(64) char room[64];
  fixture f = open_spec("rope_mixed");
  const pegen_kernel *kernel = run_kernel(f.loaded[1]);
  const shape s = {.name = "refusals", .sums = NUMBER_F64, .of_input = true};
  rows r[2];
  answer out;
  call sound, c;
  for (int i = 0; i < 2; i++) {
    r[i].positions = random_positions(&f, false, TOKENS);
    r[i].x = r[i].y = random_rows(&f, &s, i, TOKENS);
    r[i].g = random_rows(&f, &s, i, TOKENS);
  }
  make_call(&f, &s, r, &out, &sound);
  sound.args.grad = &sound.grad;
  give_workspace(&f, kernel, &sound);
  const char *before = run_threads_entry(kernel);
  REFUSED(WORKSPACE, c.args.workspace = NULL);
  REFUSED(WORKSPACE, c.args.workspace_bytes--);
  REFUSED(ALIGNMENT, c.args.workspace = (char *)c.args.workspace + 4);
  REFUSED(OVERLAP, c.args.workspace = r[1].x->data);
  REFUSED(MISSING_KEPT, c.args.k = NULL);
  REFUSED(NO_GRADIENT, c.grad.v = r[0].g);
  REFUSED(NO_GRADIENT, c.grad.table = room); /* GPUs have no tables */
  REFUSED(NO_GRADIENT, (c.grad.table = room, c.grad.operands = NULL, c.grad.positions = NULL));
  REFUSED(GRADIENT_FLAGS, c.grad.flags = 64);
  DLTensor elsewhere = *out.operand[0], *given[] = {&elsewhere};
  elsewhere.device.device_type = kDLCUDA;
  REFUSED(DEVICE, c.grad.operands = given);
  elsewhere = *out.position[0];
  elsewhere.device.device_type = kDLCUDA;
  REFUSED(DEVICE, c.grad.positions = &elsewhere);
  elsewhere = *r[1].x;
  elsewhere.device.device_type = kDLCUDA;
  REFUSED(DEVICE, c.args.k = &elsewhere);
  assert_ptr_equal(run_threads_entry(kernel), before); /* no thread has run */
  /* A workspace is asked for by positions, too, and by rows alone none is. */
  c = sound;
  c.args.grad = &c.grad;
  c.grad.operands = NULL;
  assert_true(kernel->encode_backward_workspace(&c.args) > 0);
  assert_int_equal(kernel->encode_backward_finish(&c.args, 0, 1), 0);
  c.grad.positions = NULL;
  assert_int_equal(kernel->encode_backward_workspace(&c.args), 0);
  assert_ptr_equal(run_threads_entry(kernel), before);
  REFUSED(OK, (void)0);
  assert_non_null(strstr(run_threads_entry(kernel), "_encode_gradient_positions"));
  close_spec(&f);
}

/* Memory that is named and not touched: `tokens` of as many batches, all of which are the same one. */
static DLTensor *vast(fixture *f, int64_t batches, int64_t tokens, int64_t channels, uintptr_t address) {
  DLTensor *t = arena_new(f->memory, DLTensor);
  int64_t shape[] = {batches, 1, tokens, channels}, strides[] = {0, channels, channels, 1};
  *t = (DLTensor){.data = (void *)address, .device = {kDLCPU, 0}, .ndim = 4, .dtype = {kDLFloat, 32, 1}};
  t->shape = memcpy(arena_alloc(f->memory, sizeof shape), shape, sizeof shape);
  t->strides = memcpy(arena_alloc(f->memory, sizeof strides), strides, sizeof strides);
  return t;
}

static DLTensor *coordinates(fixture *f, int64_t tokens, uintptr_t address) {
  DLTensor *t = vast(f, 1, tokens, f->spec->n_axes, address);
  t->ndim = 2;
  t->shape += 2;
  t->strides = NULL;
  return t;
}

/* More items, coordinates or bytes than launches count: no workspace is asked for, and what is launched is nothing. */
TEST(too_large) {
  static const struct {
    int64_t batches, tokens;
  } sizes[] = {{1 << 20, 1 << 20}, {1 << 30, 3}, {1, (int64_t)1 << 31}, {0, (int64_t)1 << 31}};
  fixture f = open_spec("rope_mixed");
  const pegen_kernel *kernel = run_kernel(f.loaded[1]);
  const char *before = run_threads_entry(kernel);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    DLTensor *g = vast(&f, sizes[i].batches, sizes[i].tokens, f.spec->head_dim, (uintptr_t)1 << 50);
    pegen_grad_args grad = {
        .struct_size = sizeof grad, .q_out = g, .positions = coordinates(&f, sizes[i].tokens, (uintptr_t)2 << 50)};
    pegen_args args = {.struct_size = sizeof args,
                       .n_operands = kernel->n_operands,
                       .operands = f.operands.tensors,
                       .positions = coordinates(&f, sizes[i].tokens, (uintptr_t)3 << 50),
                       .q = vast(&f, sizes[i].batches, sizes[i].tokens, f.spec->head_dim, (uintptr_t)4 << 50),
                       .workspace = (void *)((uintptr_t)5 << 50),
                       .grad = &grad};
    assert_int_equal(kernel->encode_backward(&args, 0, 1), PEGEN_ERROR_SIZE_OVERFLOW);
    assert_int_equal(kernel->encode_backward_finish(&args, 0, 1), PEGEN_ERROR_SIZE_OVERFLOW);
    assert_int_equal(kernel->encode_backward_workspace(&args), 0);
  }
  assert_ptr_equal(run_threads_entry(kernel), before);
  close_spec(&f);
}

int main(int argc, char **argv) {
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return run_listed();
}
