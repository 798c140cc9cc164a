/* Calls of gradients of no description in particular: what is refused, positions of k alone, gradients that repeat, no
 * rows, and finishing in parts.
 */
#include "described.h"
#include "fixture.h"
#include "variants.h"

#include <math.h>
#include <string.h>

/* ---- refusals ---- */

#define REFUSED(error, change) \
  do { \
    grad = sound_grad; \
    args = sound; \
    args.grad = &grad; \
    change; \
    assert_int_equal(kernel->encode_backward(&args, 0, 1), PEGEN_ERROR_##error); \
  } while (0)

TEST(refusals) {
  arena *a = arena_create();
  loaded_kernel *loaded;
  const spec *s = described(a, "rope_mixed");
  const pegen_kernel *kernel = load(a, s, NULL, VARIANT_DTYPES, &loaded);
  fixture f = open_fixture(s, kernel, NUMBER_F32);
  const pegen_grad_args sound_grad = {
      .struct_size = sizeof sound_grad, .q_out = f.g[0], .k_out = f.g[1], .q = f.back[0], .k = f.back[1]};
  const pegen_args sound = {
      .struct_size = sizeof sound, .n_operands = 1, .operands = f.operands.tensors, .positions = f.positions};
  pegen_grad_args grad;
  pegen_args args;
  REFUSED(OK, (void)0);
  REFUSED(MISSING_GRADIENT, args.grad = NULL);
  REFUSED(MISSING_GRADIENT, args.struct_size = offsetof(pegen_args, grad));
  REFUSED(STRUCT_SIZE, grad.struct_size = 8);
  REFUSED(GRADIENT_FLAGS, grad.flags = 4);
  REFUSED(MISSING_GRADIENT, (grad.q_out = grad.k_out = NULL, grad.q = grad.k = NULL));
  REFUSED(NO_GRADIENT, grad.v = f.back[0]);
  REFUSED(NO_GRADIENT, grad.lse = f.back[0]);
  REFUSED(MISSING_GRADIENT, grad.k_out = NULL);
  REFUSED(MISSING_POSITIONS, args.positions = NULL);
  DLTensor *gained[] = {full_of(f.memory, NUMBER_F64, f.operands.tensors[0], 0)};
  DLTensor *places = full_of(f.memory, NUMBER_F64, f.positions, 0);
#define REFUSED_OPERAND(error, change) \
  REFUSED(error, (grad.operands = gained, args.q = f.x[0], args.k = f.x[1], args.workspace = room, change))
  double *room = arena_alloc(f.memory, 1 << 20);
  REFUSED_OPERAND(OK, (void)0);
  REFUSED_OPERAND(MISSING_KEPT, args.k = NULL);
  REFUSED_OPERAND(SHAPE_MISMATCH, args.k = f.x[0]);
  REFUSED_OPERAND(WORKSPACE, args.workspace = NULL);
  REFUSED_OPERAND(WORKSPACE, args.workspace_bytes = 8);
  REFUSED_OPERAND(ALIGNMENT, args.workspace = (char *)room + 4);
  REFUSED_OPERAND(OVERLAP, args.workspace = f.back[0]->data);
  REFUSED_OPERAND(OVERLAP, args.workspace = f.x[0]->data);
  REFUSED_OPERAND(OVERLAP, args.workspace = gained[0]->data);
  REFUSED_OPERAND(OVERLAP, (grad.positions = places, args.workspace = places->data));
  /* Not an element of grad->operands is read where there are fewer operands. */
  REFUSED_OPERAND(MISSING_OPERAND, (args.n_operands = 0, grad.operands = (DLTensor *const *)(uintptr_t)64));
  REFUSED_OPERAND(MISSING_POSITIONS, args.positions = NULL);
  REFUSED_OPERAND(NO_GRADIENT, grad.k_positions = places);
  DLTensor wrong = *gained[0], *changed[] = {&wrong};
  wrong.ndim--;
  REFUSED_OPERAND(GRADIENT_SHAPE, grad.operands = changed);
  wrong = *gained[0], wrong.dtype.bits = 16;
  REFUSED_OPERAND(GRADIENT_DTYPE, grad.operands = changed);
  wrong = *gained[0], wrong.data = f.operands.tensors[0]->data;
  REFUSED_OPERAND(OVERLAP, grad.operands = changed);
  wrong = *gained[0], wrong.data = f.x[1]->data;
  REFUSED_OPERAND(OVERLAP, grad.operands = changed);
  wrong = *gained[0], wrong.device.device_type = kDLCUDA;
  REFUSED_OPERAND(DEVICE, grad.operands = changed);
  DLTensor *kept = tensor_copy(f.memory, f.x[0]);
  kept->data = f.back[0]->data;
  REFUSED_OPERAND(OVERLAP, args.q = kept);
  wrong = *places, wrong.shape = (int64_t[]){BATCH, TOKENS, s->n_axes + 1};
  REFUSED_OPERAND(GRADIENT_SHAPE, grad.positions = &wrong);
  wrong = *places, wrong.strides = (int64_t[]){0, s->n_axes, 1};
  REFUSED_OPERAND(STRIDE, grad.positions = &wrong);
  wrong = *places, wrong.data = gained[0]->data;
  REFUSED_OPERAND(OVERLAP, grad.positions = &wrong);
  REFUSED(MISSING_OPERAND, args.n_operands = 0);
  DLTensor shifted = *f.g[0];
  shifted.byte_offset = 4;
  REFUSED(OVERLAP, grad.q = &shifted);
  REFUSED(SHAPE_MISMATCH, grad.q = f.back[1]);
  assert_int_equal(kernel->encode_backward(NULL, 0, 1), PEGEN_ERROR_NULL_ARGS);
  assert_int_equal(kernel->encode_backward(&sound, 1, 1), PEGEN_ERROR_PART);
  run_unload(loaded);
  arena_destroy(f.memory);
  arena_destroy(a);
}

/* What grad->table is refused for, in the call that fills it and in the one that reads it. */
TEST(refusals_of_tables) {
  arena *a = arena_create();
  loaded_kernel *loaded;
  const spec *s = described(a, "rope_mixed");
  const pegen_kernel *kernel = load(a, s, NULL, VARIANT_DTYPES, &loaded);
  fixture f = open_fixture(s, kernel, NUMBER_F32);
  pegen_args prepare = {
      .struct_size = sizeof prepare, .n_operands = 1, .operands = f.operands.tensors, .positions = f.positions};
  size_t bytes = prepare.table_bytes = kernel->table_bytes(&prepare), gained = kernel->gradient_table_bytes(&prepare);
  char *room = arena_alloc(a, bytes + gained + 256), *torques;
  room += (64 - (uintptr_t)room % 64) % 64;
  torques = room + (bytes + 63) / 64 * 64;
  memset(torques, 0x5a, gained);
  prepare.table = room;
  assert_int_equal(kernel->prepare(&prepare, 0, 1), 0);
  DLTensor *of_operands[] = {full_of(a, NUMBER_F64, f.operands.tensors[0], 0)}, *none[] = {NULL};
  DLTensor *places = full_of(a, NUMBER_F64, f.positions, 0);
  pegen_grad_args sound_grad = {
      .struct_size = sizeof sound_grad, .q_out = f.g[0], .q = f.back[0], .table = torques, .table_bytes = gained};
  pegen_args sound = {.struct_size = sizeof sound, .q = f.x[0], .table = room, .table_bytes = bytes}, args;
  pegen_grad_args grad;
  REFUSED(MISSING_TABLE, args.table = NULL);
  REFUSED(NO_GRADIENT, (args.n_operands = 1, grad.operands = of_operands));
  REFUSED(NO_GRADIENT, (args.positions = f.positions, grad.positions = places));
  REFUSED(MISSING_KEPT, args.q = NULL);
  REFUSED(ALIGNMENT, grad.table = torques + 8);
  REFUSED(TABLE_BYTES, grad.table_bytes--);
  REFUSED(OVERLAP, grad.table = room);
  REFUSED(GRADIENT_TABLE, grad.flags = PEGEN_GRAD_ACCUMULATE);
  DLTensor inside = *f.x[0];
  inside.data = torques + 128;
  REFUSED(OVERLAP, args.q = &inside);
  for (size_t i = 0; i < gained; i++) assert_int_equal(torques[i], 0x5a);
  REFUSED(OK, grad.struct_size = PEGEN_GRAD_ARGS_FIRST_SIZE); /* where there is no such field */
  for (size_t i = 0; i < gained; i++) assert_int_equal(torques[i], 0x5a);
  REFUSED(OK, args.n_operands = 0);
  REFUSED(OK, (grad.flags = PEGEN_GRAD_ACCUMULATE, grad.operands = none, args.n_operands = 1));
  REFUSED(GRADIENT_TABLE, grad.flags = PEGEN_GRAD_ACCUMULATE | PEGEN_GRAD_FROM_INPUT);
  /* prepare_backward */
  sound_grad = (pegen_grad_args){
      .struct_size = sizeof sound_grad, .operands = of_operands, .table = torques, .table_bytes = gained};
  sound = prepare;
  sound.table = NULL;
  sound.workspace = arena_alloc(a, 1 << 20);
#define REFUSED_PREPARE(error, change) \
  do { \
    grad = sound_grad; \
    args = sound; \
    args.grad = &grad; \
    change; \
    assert_int_equal(kernel->prepare_backward(&args, 0, 1), PEGEN_ERROR_##error); \
    assert_int_equal(kernel->prepare_backward_finish(&args, 0, 1), PEGEN_ERROR_##error); \
  } while (0)
  REFUSED_PREPARE(OK, (void)0);
  REFUSED_PREPARE(OK, grad.operands = NULL); /* nothing is asked for */
  REFUSED_PREPARE(MISSING_GRADIENT, args.grad = NULL);
  REFUSED_PREPARE(MISSING_TABLE, grad.table = NULL);
  REFUSED_PREPARE(MISSING_TABLE, grad.struct_size = PEGEN_GRAD_ARGS_FIRST_SIZE);
  REFUSED_PREPARE(STRUCT_SIZE, grad.struct_size = PEGEN_GRAD_ARGS_FIRST_SIZE - 8);
  REFUSED_PREPARE(NO_GRADIENT, grad.q_out = f.g[0]);
  REFUSED_PREPARE(NO_GRADIENT, grad.k_positions = places);
  REFUSED_PREPARE(MISSING_OPERAND, args.n_operands = 0);
  REFUSED_PREPARE(MISSING_POSITIONS, args.positions = NULL);
  REFUSED_PREPARE(TABLE_BYTES, grad.table_bytes--);
  REFUSED_PREPARE(WORKSPACE, args.workspace = NULL);
  REFUSED_PREPARE(OVERLAP, args.workspace = torques + 128);
  REFUSED_PREPARE(OVERLAP, args.workspace = torques); /* its header, too */
  inside = *of_operands[0];
  inside.data = torques + gained - 64;
  DLTensor *inside_of[] = {&inside};
  REFUSED_PREPARE(OVERLAP, grad.operands = inside_of);
  DLTensor shared = *f.positions;
  shared.ndim = 2;
  shared.shape++;
  shared.strides = NULL;
  REFUSED_PREPARE(GRADIENT_TABLE, (args.positions = &shared, grad.table = torques)); /* made for two batches */
  torques[16] ^= 1;
  REFUSED_PREPARE(GRADIENT_TABLE, (void)0);
  torques[16] ^= 1;
  REFUSED_PREPARE(GRADIENT_TABLE, (grad.table = room, grad.table_bytes = bytes + gained)); /* a table of prepare */
  assert_int_equal(kernel->gradient_table_bytes(NULL), 0);
  sound.n_operands = 0;
  assert_int_equal(kernel->gradient_table_bytes(&sound), 0);
  run_unload(loaded);
  arena_destroy(f.memory);
  arena_destroy(a);
}

/* ---- what is unusual of a call ---- */

typedef struct unusual {
  arena *memory;
  loaded_kernel *loaded;
  fixture f;
  pegen_grad_args grad;
  pegen_args args;
  DLTensor *gained[2], *places[2]; /* gradients of the operand, of positions of q and k */
} unusual;

/* A sound call for the gradients of rows, of the operand and of positions. */
static void open_unusual(unusual *u, const char *name) {
  u->memory = arena_create();
  const spec *s = described(u->memory, "%s head_dim=16", name);
  const pegen_kernel *kernel = load(u->memory, s, NULL, VARIANT_DTYPES, &u->loaded);
  u->f = open_fixture(s, kernel, NUMBER_F32);
  fixture *f = &u->f;
  f->positions = tensor_contiguous(f->memory, NUMBER_F64, 2, (int64_t[]){TOKENS, s->n_axes}, f->position_values);
  u->gained[0] = full_of(f->memory, NUMBER_F64, f->operands.tensors[0], NAN);
  for (int i = 0; i < 2; i++) u->places[i] = full_of(f->memory, NUMBER_F64, f->positions, NAN);
  u->grad = (pegen_grad_args){.struct_size = sizeof u->grad,
                              .flags = PEGEN_GRAD_FROM_INPUT,
                              .q_out = f->g[0],
                              .k_out = f->g[1],
                              .q = f->back[0],
                              .k = f->back[1],
                              .operands = u->gained,
                              .positions = u->places[0]};
  u->args = (pegen_args){.struct_size = sizeof u->args,
                         .n_operands = 1,
                         .operands = f->operands.tensors,
                         .positions = f->positions,
                         .q = f->x[0],
                         .k = f->x[1],
                         .workspace = arena_alloc(f->memory, 1 << 20),
                         .workspace_bytes = 1 << 20,
                         .grad = &u->grad};
}

static void close_unusual(unusual *u) {
  run_unload(u->loaded);
  arena_destroy(u->f.memory);
  arena_destroy(u->memory);
}

static void run_unusual(unusual *u) {
  memset(u->args.workspace, 0xff, u->args.workspace_bytes); /* NaN */
  for (int part = 2; part >= 0; part--) assert_int_equal(u->f.kernel->encode_backward(&u->args, part, 3), 0);
  assert_int_equal(u->f.kernel->encode_backward_finish(&u->args, 0, 1), 0);
}

static int64_t elements_of(const DLTensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->ndim; i++) count *= t->shape[i];
  return count;
}

static void same_elements(const DLTensor *a, const DLTensor *b) {
  assert_memory_equal(a->data, b->data, (size_t)elements_of(a) * sizeof(double));
}

/* One tensor given for the positions of q and for those of k is as two that are equal. */
TEST(positions_twice) {
  unusual u;
  open_unusual(&u, "rope_mixed");
  u.args.k_positions = tensor_copy(u.f.memory, u.f.positions);
  u.grad.k_positions = u.places[1];
  run_unusual(&u);
  DLTensor *apart[] = {u.places[0], u.places[1]}, *operand = u.gained[0];
  for (int i = 0; i < 2; i++) u.places[i] = full_of(u.f.memory, NUMBER_F64, u.f.positions, NAN);
  u.gained[0] = full_of(u.f.memory, NUMBER_F64, u.f.operands.tensors[0], NAN);
  u.args.k_positions = u.f.positions;
  u.grad.positions = u.places[0];
  u.grad.k_positions = u.places[1];
  run_unusual(&u);
  for (int i = 0; i < 2; i++) same_elements(u.places[i], apart[i]);
  same_elements(u.gained[0], operand);
  assert_true(element(u.places[0], 0) != element(u.places[1], 0));
  close_unusual(&u);
}

/* Gradients that come in and are written nowhere may repeat their elements, as those of sums do, and be what is kept.
 */
TEST(rows_repeat) {
  unusual u;
  open_unusual(&u, "rope_mixed");
  DLTensor once[2], *whole[2];
  int64_t strides[2][4];
  for (int i = 0; i < 2; i++) {
    whole[i] = tensor_copy(u.f.memory, u.f.g[i]);
    EACH(whole[i], b, h, n, c)
    memcpy(tensor_at(whole[i], b, h, n, c), tensor_at(u.f.g[i], 0, 0, 0, c), sizeof(float));
    once[i] = *u.f.g[i];
    once[i].strides = memcpy(strides[i], (int64_t[]){0, 0, 0, 1}, sizeof strides[i]);
  }
  u.grad.q = u.grad.k = NULL;
  u.grad.q_out = whole[0];
  u.grad.k_out = whole[1];
  run_unusual(&u);
  DLTensor *operand = u.gained[0], *places = u.places[0];
  u.gained[0] = full_of(u.f.memory, NUMBER_F64, operand, NAN);
  u.grad.positions = full_of(u.f.memory, NUMBER_F64, places, NAN);
  u.grad.q_out = &once[0];
  u.grad.k_out = &once[1];
  run_unusual(&u);
  same_elements(u.gained[0], operand);
  same_elements(u.grad.positions, places);
  u.grad.k_out = u.f.x[1]; /* also read as k */
  run_unusual(&u);
  u.grad.q = u.f.back[0]; /* but one that is written may not be */
  u.grad.k = &once[1];
  u.grad.k_out = &once[1];
  assert_int_equal(u.f.kernel->encode_backward(&u.args, 0, 1), PEGEN_ERROR_STRIDE);
  close_unusual(&u);
}

/* Without a batch nothing is gained, and that is what is written, or added. */
static void no_rows_of(const char *name) {
  unusual u;
  open_unusual(&u, name);
  DLTensor *all[] = {u.f.g[0], u.f.g[1], u.f.back[0], u.f.back[1], u.f.x[0], u.f.x[1]};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) all[i]->shape[0] = 0;
  for (int own = 0; own < 2; own++) {
    u.args.k_positions = own ? u.f.positions : NULL;
    u.grad.k_positions = own ? u.places[1] : NULL;
    run_unusual(&u);
    for (int64_t i = 0; i < elements_of(u.gained[0]); i++) assert_true(element(u.gained[0], i) == 0);
    for (int s = 0; s <= own; s++)
      for (int64_t i = 0; i < elements_of(u.places[s]); i++) assert_true(element(u.places[s], i) == 0);
    u.places[0] = u.grad.positions = full_of(u.f.memory, NUMBER_F64, u.f.positions, NAN);
  }
  u.grad.flags |= PEGEN_GRAD_ACCUMULATE;
  u.places[0] = u.grad.positions = full_of(u.f.memory, NUMBER_F64, u.f.positions, 3);
  run_unusual(&u);
  for (int64_t i = 0; i < elements_of(u.places[0]); i++) assert_true(element(u.places[0], i) == 3);
  close_unusual(&u);
}

TEST(no_rows) {
  no_rows_of("rope_mixed");
  no_rows_of("liere");
}

/* Each part of `finish` writes elements of its own, some but not all, and together they write all of them. */
TEST(finish_is_shared) {
  unusual u;
  open_unusual(&u, "rope_mixed");
  int64_t all = elements_of(u.gained[0]), written = 0;
  for (int part = 2; part >= 0; part--) assert_int_equal(u.f.kernel->encode_backward(&u.args, part, 3), 0);
  for (int part = 0; part < 3; part++) {
    int64_t before = written;
    assert_int_equal(u.f.kernel->encode_backward_finish(&u.args, part, 3), 0);
    written = 0;
    for (int64_t i = 0; i < all; i++) written += !isnan(element(u.gained[0], i));
    assert_true(written - before >= all / 3 && written - before <= all / 3 + 1);
  }
  assert_int_equal(written, all);
  close_unusual(&u);
}

int main(void) { return run_listed(); }
