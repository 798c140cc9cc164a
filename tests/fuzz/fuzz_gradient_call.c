/* fuzz_gradient_call: see fuzz_gradient_call.h. */
#include "fuzz_gradient_call.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- the table of entries ---- */

enum { CALL, FINISH, SIZE, ALWAYS, GRADIENT, TANGENT };

static const struct row {
  pegen_entry_kind of;
  int role, option;
  size_t field; /* of pegen_kernel */
} rows[] = {
#define X(name, role, of, option, text) {PEGEN_ENTRY_##of, role, option, offsetof(pegen_kernel, name)},
    PEGEN_ENTRIES(X)
#undef X
};

/* The function of the entry's row with that role. */
static void *function_of(const pegen_kernel *kernel, pegen_entry_kind entry, int role) {
  void *function = NULL;
  for (int i = 0; i < PEGEN_ENTRY_COUNT; i++)
    if (rows[i].of == entry && rows[i].role == role && rows[i].field + sizeof function <= kernel->struct_size)
      memcpy(&function, (const char *)kernel + rows[i].field, sizeof function);
  return function;
}

pegen_entry *fuzz_gradient_entry(const pegen_kernel *kernel, pegen_entry_kind entry) {
  return (pegen_entry *)(uintptr_t)function_of(kernel, entry, CALL);
}

pegen_entry *fuzz_gradient_finish(const pegen_kernel *kernel, pegen_entry_kind entry) {
  return (pegen_entry *)(uintptr_t)function_of(kernel, entry, FINISH);
}

pegen_workspace_entry *fuzz_gradient_size(const pegen_kernel *kernel, pegen_entry_kind entry) {
  return (pegen_workspace_entry *)(uintptr_t)function_of(kernel, entry, SIZE);
}

/* ---- tables ---- */

enum { TABLE_ROOM = 512 * 1024 };

/* Prepares args->table from the forward call's positions and operands, with room for torques at grad->table. Returns
 * false where the kernel has no tables, or they are too large. */
static bool place_tables(fuzz_gradient_call *c) {
  static _Alignas(64) unsigned char room[2][TABLE_ROOM];
  const pegen_kernel *kernel = c->forward.kernel;
  pegen_args *args = &c->forward.args;
  if (!kernel->prepare_backward) return false;
  args->struct_size = sizeof *args;
  args->table_bytes = kernel->table_bytes(args);
  c->grad.table_bytes = kernel->gradient_table_bytes(args);
  EXPECT(args->table_bytes && c->grad.table_bytes);
  args->table = room[0] + (TABLE_ROOM - args->table_bytes) / 64 * 64; /* which ends where the room does */
  c->grad.table = room[1] + (TABLE_ROOM - c->grad.table_bytes) / 64 * 64;
  bool fits = args->table_bytes <= TABLE_ROOM && c->grad.table_bytes <= TABLE_ROOM;
  c->forward.table_words = args->table_bytes / 8 < 16 ? args->table_bytes / 8 : 16;
  if (fits) EXPECT(kernel->prepare(args, 0, 1) == PEGEN_ERROR_OK);
  else args->table = c->grad.table = NULL;
  return fits;
}

/* ---- sound calls ---- */

static const int in_order[FUZZ_RANK] = {0, 1, 2, 3, 4, 5}, tokens_first[3] = {0, 2, 1};

static DLDataType real(unsigned wide) { return (DLDataType){kDLFloat, (uint8_t)(wide ? 64 : 32), 1}; }

static DLTensor *place_gradient_rows(reader *r, fuzz_gradient_call *c, fuzz_layout *l, int which, int64_t channels,
                                     int tensor) {
  fuzz_place_rows(r, &c->forward.tensor[tensor], l, which, channels);
  return &c->forward.tensor[tensor].dl;
}

static DLTensor *place_lse(reader *r, fuzz_gradient_call *c, fuzz_layout *l, int tensor) {
  const int64_t shape[3] = {l->batch, l->heads[0], l->tokens[0]};
  fuzz_place(r, &c->forward.tensor[tensor], l, 3, shape, real(0), byte(r) & 1 ? in_order : tokens_first);
  return &c->forward.tensor[tensor].dl;
}

/* Places a gradient of positions or k_positions, in float32 or float64. */
static DLTensor *place_positions(reader *r, fuzz_gradient_call *c, fuzz_layout *l, const DLTensor *of, int tensor) {
  fuzz_place(r, &c->forward.tensor[tensor], l, of->ndim, of->shape, real(byte(r) & 1), in_order);
  return &c->forward.tensor[tensor].dl;
}

static void place_operands(reader *r, fuzz_gradient_call *c, fuzz_layout *l) {
  const pegen_kernel *kernel = c->forward.kernel;
  unsigned wanted = byte(r) & c->of.operands;
  reader none = {NULL, 0}; /* no gaps */
  for (int i = 0; i < kernel->n_operands; i++) {
    const pegen_operand *of = &kernel->operands[i];
    fuzz_tensor *t = &c->forward.tensor[FUZZ_G_OPERAND + i];
    if (!(wanted >> i & 1)) continue;
    fuzz_place(&none, t, l, of->rank, of->shape, real(byte(r) & 1), in_order);
    c->operands[i] = &t->dl;
  }
  if (wanted || (byte(r) & 1)) c->grad.operands = c->operands;
}

/* Places gradients of some inputs, which have the inputs' shapes and type. */
static void place_inputs(reader *r, fuzz_gradient_call *c, fuzz_layout *l) {
  unsigned wanted = byte(r);
  for (int i = 0; i < c->forward.kernel->n_inputs; i++) {
    const DLTensor *of = c->forward.inputs[i];
    fuzz_tensor *t = &c->forward.tensor[FUZZ_G_INPUT + i];
    if (!(wanted >> i & 1)) continue;
    fuzz_place(r, t, l, of->ndim, of->shape, of->dtype, in_order);
    c->inputs[i] = &t->dl;
  }
  if (wanted) c->grad.inputs = c->inputs;
}

static void read_encode(reader *r, fuzz_gradient_call *c, fuzz_layout *l) {
  pegen_args *args = &c->forward.args;
  const pegen_kernel *kernel = c->forward.kernel;
  int64_t channels = kernel->head_dim, written = fuzz_out_dim(kernel, l->type);
  bool widens = written != channels;
  bool of_q = args->q != NULL, of_k = args->k != NULL;
  unsigned places = byte(r), gains = c->of.positions ? byte(r) : 0;
  place_operands(r, c, l);
  if ((gains & 1) && args->positions && (of_q || (of_k && !args->k_positions)))
    c->grad.positions = place_positions(r, c, l, args->positions, FUZZ_G_POSITIONS);
  if ((gains & 2) && args->k_positions && of_k)
    c->grad.k_positions = place_positions(r, c, l, args->k_positions, FUZZ_G_K_POSITIONS);
  if (of_q && kernel->n_inputs) place_inputs(r, c, l);
  bool torques = c->grad.positions || c->grad.k_positions;
  for (int i = 0; i < FUZZ_INPUTS; i++) torques = torques || c->inputs[i];
  for (int i = 0; i < FUZZ_OPERANDS; i++) torques = torques || c->operands[i];
  if (of_q) {
    DLTensor *in = place_gradient_rows(r, c, l, 0, written, FUZZ_G_Q_OUT);
    c->grad.q_out = in;
    c->grad.q = (places & 1) && !widens ? in : place_gradient_rows(r, c, l, 0, channels, FUZZ_G_Q);
  }
  if (of_k) {
    DLTensor *in = place_gradient_rows(r, c, l, 1, written, FUZZ_G_K_OUT);
    c->grad.k_out = in;
    c->grad.k = (places & 2) && !widens ? in : place_gradient_rows(r, c, l, 1, channels, FUZZ_G_K);
  }
  if (!torques && c->of.operands && byte(r) % 4 == 0) torques = place_tables(c);
  if (torques && (places & 12) == 12) c->grad.q = NULL;
  if (torques && (places & 48) == 48) c->grad.k = NULL;
  if (!torques && (places & 64)) args->q = args->k = NULL; /* nor are they looked at */
  if (places & 128) args->q_out = args->k_out = NULL;
  c->grad.flags = below(r, 4);
  if (c->grad.table) c->grad.flags &= PEGEN_GRAD_FROM_INPUT; /* nothing is there to be added to */
}

/* The table is what gradients of q or k, which are q's or k's own rows, begin. */
static void read_prepare(reader *r, fuzz_gradient_call *c, fuzz_layout *l) {
  pegen_args *args = &c->forward.args;
  unsigned gains = c->of.positions ? byte(r) : 0;
  if (place_tables(c)) {
    pegen_grad_args begins = {.struct_size = sizeof begins,
                              .flags = byte(r) & PEGEN_GRAD_FROM_INPUT,
                              .q_out = (DLTensor *)(uintptr_t)args->q,
                              .k_out = (DLTensor *)(uintptr_t)args->k,
                              .table = c->grad.table,
                              .table_bytes = c->grad.table_bytes};
    pegen_args fills = *args;
    fills.struct_size = sizeof fills;
    fills.grad = &begins;
    EXPECT(c->forward.kernel->encode_backward(&fills, 0, 1) == PEGEN_ERROR_OK);
  }
  args->q = args->k = NULL;
  args->q_out = args->k_out = NULL;
  args->table = NULL;
  place_operands(r, c, l);
  if ((gains & 1) && args->positions) c->grad.positions = place_positions(r, c, l, args->positions, FUZZ_G_POSITIONS);
  if ((gains & 2) && args->k_positions)
    c->grad.k_positions = place_positions(r, c, l, args->k_positions, FUZZ_G_K_POSITIONS);
  c->grad.flags = below(r, 4);
}

static void read_attention(reader *r, fuzz_gradient_call *c, fuzz_layout *l) {
  int64_t values = c->forward.of.attention->value_dim, channels = c->forward.kernel->head_dim;
  unsigned wanted = ~byte(r);
  c->forward.args.lse = place_lse(r, c, l, FUZZ_LSE);
  c->grad.out = place_gradient_rows(r, c, l, 0, values, FUZZ_G_OUT);
  if (wanted & 1) c->grad.q = place_gradient_rows(r, c, l, 0, channels, FUZZ_G_Q);
  if (wanted & 2) c->grad.k = place_gradient_rows(r, c, l, 1, channels, FUZZ_G_K);
  if (wanted & 4) c->grad.v = place_gradient_rows(r, c, l, 1, values, FUZZ_G_V);
  if (!(wanted & 8)) c->grad.lse = place_lse(r, c, l, FUZZ_G_LSE);
  place_operands(r, c, l);
  c->grad.flags = below(r, 2);
}

static void read_tangent(reader *r, fuzz_gradient_call *c, fuzz_layout *l) {
  int64_t values = c->forward.of.attention->value_dim, channels = c->forward.kernel->head_dim;
  c->forward.args.lse = place_lse(r, c, l, FUZZ_LSE);
  c->grad.q = place_gradient_rows(r, c, l, 0, channels, FUZZ_G_Q);
  c->grad.k = place_gradient_rows(r, c, l, 1, channels, FUZZ_G_K);
  c->grad.v = place_gradient_rows(r, c, l, 1, values, FUZZ_G_V);
  c->grad.out = place_gradient_rows(r, c, l, 0, values, FUZZ_G_OUT);
  if (byte(r) & 1) c->grad.lse = place_lse(r, c, l, FUZZ_G_LSE);
}

static const struct {
  fuzz_entry forward;
  void (*read)(reader *r, fuzz_gradient_call *c, fuzz_layout *l);
} makers[PEGEN_ENTRY_COUNT] = {
    [PEGEN_ENTRY_encode_backward] = {FUZZ_ENCODE, read_encode},
    [PEGEN_ENTRY_attention_backward] = {FUZZ_ATTENTION, read_attention},
    [PEGEN_ENTRY_prepare_backward] = {FUZZ_ENCODE, read_prepare},
    [PEGEN_ENTRY_attention_tangent] = {FUZZ_ATTENTION, read_tangent},
};

/* One of the kernel's; an entry that nobody makes calls of is a hole in this file. */
static pegen_entry_kind choose_entry(reader *r, const pegen_kernel *kernel) {
  int has[PEGEN_ENTRY_COUNT], count = 0;
  for (int i = 0; i < PEGEN_ENTRY_COUNT; i++) {
    if (rows[i].role != CALL || rows[i].option == ALWAYS) continue;
    EXPECT(makers[i].read);
    if (fuzz_gradient_entry(kernel, (pegen_entry_kind)i)) has[count++] = i;
  }
  EXPECT(count > 0);
  return (pegen_entry_kind)has[below(r, (unsigned)count)];
}

/* Memory that ends where the next access faults. */
static unsigned char *guarded_end(void) {
  static unsigned char *end;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (end) return end;
  unsigned char *memory = mmap(NULL, FUZZ_WORKSPACE + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory + FUZZ_WORKSPACE, page, PROT_NONE)) abort();
  return end = memory + FUZZ_WORKSPACE;
}

static void place_workspace(reader *r, fuzz_gradient_call *c) {
  pegen_args *args = &c->forward.args;
  pegen_workspace_entry *size = fuzz_gradient_size(c->forward.kernel, c->entry); /* NULL: the entry needs none */
  size_t bytes = size ? size(args) : 0;
  EXPECT(bytes <= FUZZ_WORKSPACE);
  c->placed_bytes = bytes;
  c->placed = guarded_end() - (bytes + 7) / 8 * 8;
  if (!bytes) return;
  args->workspace = c->placed;
  unsigned told = below(r, 3);
  args->workspace_bytes = told == 0 ? 0 : bytes + (told - 1) * 8;
}

/* ---- edits ---- */

static void edit_pointers(reader *r, fuzz_gradient_call *c) {
  pegen_grad_args *grad = &c->grad;
  DLTensor *any = byte(r) & 1 ? &c->forward.tensor[below(r, FUZZ_ALL_TENSORS)].dl : NULL;
  switch (below(r, 14)) {
  case 0: grad->q_out = any; break;
  case 1: grad->k_out = any; break;
  case 2: grad->out = any; break;
  case 3: grad->lse = any; break;
  case 4: grad->q = any; break;
  case 5: grad->k = any; break;
  case 6: grad->v = any; break;
  case 7: grad->operands = any ? c->operands : NULL; break;
  case 8: grad->inputs = any ? c->inputs : NULL; break;
  case 9: grad->positions = any; break;
  case 10: grad->k_positions = any; break;
  case 11: c->operands[below(r, FUZZ_OPERANDS)] = any; break;
  case 12: c->inputs[below(r, FUZZ_INPUTS)] = any; break;
  case 13: c->forward.args.lse = any; break;
  }
}

static void edit_struct(reader *r, fuzz_gradient_call *c) {
  switch (below(r, 8)) {
  case 0: c->grad.struct_size = (uint32_t)number(r); break;
  case 1: c->grad.flags = (uint32_t)number(r); break;
  case 2: c->forward.args.grad = NULL; break;
  case 3: c->grad.struct_size = sizeof c->grad + 8 * below(r, 64); break; /* a later version's */
  case 4: c->room[sizeof c->grad + below(r, 64) * 8] = (unsigned char)byte(r); break;
  case 5: c->grad.table = byte(r) & 1 || !c->room_of_table ? NULL : c->room_of_table + 8 * below(r, 8); break;
  case 6: c->grad.table_bytes -= below(r, 255); break;
  case 7:
    if (c->room_of_table) c->room_of_table[below(r, 128)] ^= 1u << below(r, 8);
    break;
  }
}

static void edit_workspace(reader *r, fuzz_gradient_call *c) {
  pegen_args *args = &c->forward.args;
  const DLTensor *any = &c->forward.tensor[below(r, FUZZ_ALL_TENSORS)].dl;
  switch (below(r, 6)) {
  case 0: args->workspace = NULL; break;
  case 1: args->workspace = world + (size_t)(number(r) & 0x3ffff); break;
  case 2: args->workspace = (void *)((uintptr_t)any->data & ~(uintptr_t)7); break;
  case 3: args->workspace = (void *)((uintptr_t)args->workspace - below(r, 64)); break;
  case 4: args->workspace = (void *)(UINTPTR_MAX - (uintptr_t)below(r, 255)); break;
  case 5: args->workspace_bytes = (size_t)number(r); break;
  }
}

/* A gradient that goes out begins at or near another tensor that there is. */
static void edit_overlap(reader *r, fuzz_gradient_call *c) {
  fuzz_tensor *of = c->forward.tensor, *placed[FUZZ_ALL_TENSORS], *out[FUZZ_ALL_TENSORS];
  unsigned n_placed = 0, n_out = 0;
  for (int i = 0; i < FUZZ_ALL_TENSORS; i++) {
    if (!of[i].dl.data) continue;
    placed[n_placed++] = &of[i];
    if (i >= FUZZ_G_Q) out[n_out++] = &of[i];
  }
  if (!n_out) return;
  DLTensor *moved = &out[below(r, n_out)]->dl;
  const DLTensor *other = &placed[below(r, n_placed)]->dl;
  moved->data = (void *)((uintptr_t)other->data + 8 * (uintptr_t)below(r, 4));
  moved->byte_offset = other->byte_offset;
}

static void edit(reader *r, fuzz_gradient_call *c) {
  switch (below(r, 9)) {
  case 0: edit_struct(r, c); break;
  case 1: edit_workspace(r, c); break;
  case 2:
  case 3: edit_pointers(r, c); break;
  case 4: edit_overlap(r, c); break;
  default: fuzz_call_edit(r, &c->forward); break;
  }
}

/* ---- all of it ---- */

void fuzz_gradient_call_read(fuzz_gradient_call *c, const uint8_t *data, size_t size) {
  reader r = {data, size};
  fuzz_layout l = {0};
  fuzz_call *forward = &c->forward;
  memset(c, 0, sizeof *c);
  c->of = fuzz_gradient_kernel_at(below(&r, fuzz_gradient_kernels()));
  forward->of = c->of.of;
  c->entry = choose_entry(&r, forward->of.kernel);
  forward->n_tensors = FUZZ_ALL_TENSORS;
  forward->entry = makers[c->entry].forward;
  fuzz_call_read_sound(&r, forward, &l);
  c->grad.struct_size = sizeof c->grad;
  makers[c->entry].read(&r, c, &l);
  c->room_of_table = c->grad.table;
  forward->args.grad = &c->grad;
  bool older = forward->entry == FUZZ_ENCODE && (byte(&r) & 1);
  forward->args.struct_size = older ? offsetof(pegen_args, lse) : sizeof(pegen_args);
  place_workspace(&r, c);
  unsigned edits = below(&r, 8);
  forward->sound = edits == 0;
  for (unsigned i = 0; i < edits; i++) edit(&r, c);
}
