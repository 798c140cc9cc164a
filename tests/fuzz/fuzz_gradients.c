/* fuzz_gradients: any arguments for a kernel's backward entries, those of every row of kernel/entries.h.
 *
 * In: bytes that are read as a sound call (fuzz_gradient_call) and a few edits of it: all that fuzz_arguments does to
 * tensors, and the structs, lists, flags and the workspace of gradients. What must hold:
 *
 *   - an entry, its finish and the size of its workspace write nothing where the entry refuses, nor do parts without a
 *     share; the entry and its finish answer the same;
 *   - no accepted tensor leaves the address space; no element of an output is also another element, or another
 *     tensor's that is read, but its own input's by the same index; nor is the workspace anything else's;
 *   - what is accepted has the shapes, types and flags that pegen.h names;
 *   - an accepted call writes its outputs and its workspace and nothing else, whatever the workspace held, and they are
 *     bit for bit those of one part, and those of contiguous copies (of emitted kernels: rows are);
 *   - a sound call is accepted.
 *
 * Nothing of this asks the driver's checks: what is accepted is judged by what pegen.h says.
 */
#include "fuzz_gradient_call.h"
#include "fuzz_sequences.h"
#include "fuzz_world.h"

#include <string.h>

/* ---- what a call reads and writes ---- */

enum { READS = 12 + FUZZ_OPERANDS + FUZZ_INPUTS, WRITES = 5 + FUZZ_OPERANDS + FUZZ_INPUTS };

/* A pointer in args or in grad, which a call on copies replaces. */
typedef const DLTensor **slot;

typedef struct fuzz_args {
  pegen_args args;
  pegen_grad_args grad;
  const DLTensor *operands[FUZZ_OPERANDS], *inputs[FUZZ_INPUTS];
  DLTensor *of_operands[FUZZ_OPERANDS], *of_inputs[FUZZ_INPUTS];
} fuzz_args;

typedef struct roles {
  slot read[READS];
  int n_read;
  struct {
    slot in; /* in whose place it may be; NULL: none */
    slot out;
    bool is_rows;
  } write[WRITES];
  int n_write;
} roles;

#define SLOT(field) ((slot)(void *)&(field))

static void reads(roles *r, slot at) {
  if (*at) r->read[r->n_read++] = at;
}

static void writes(roles *r, slot in, slot out, bool is_rows) {
  if (!*out) return;
  r->write[r->n_write].in = in;
  r->write[r->n_write].is_rows = is_rows;
  r->write[r->n_write++].out = out;
}

static bool any_operand(const fuzz_args *a, const pegen_kernel *kernel) {
  bool any = false;
  for (int i = 0; i < kernel->n_operands && a->grad.operands; i++) any = any || a->of_operands[i];
  return any;
}

static void write_parameters(const fuzz_gradient_call *c, fuzz_args *a, roles *r) {
  for (int i = 0; i < c->forward.kernel->n_operands && a->grad.operands; i++)
    writes(r, NULL, SLOT(a->of_operands[i]), false);
  for (int i = 0; i < c->forward.kernel->n_inputs && a->grad.inputs; i++) writes(r, NULL, SLOT(a->of_inputs[i]), true);
  writes(r, NULL, SLOT(a->grad.positions), false);
  writes(r, NULL, SLOT(a->grad.k_positions), false);
}

static bool any_input(const fuzz_args *a, const pegen_kernel *kernel) {
  bool any = false;
  for (int i = 0; i < kernel->n_inputs && a->grad.inputs; i++) any = any || a->of_inputs[i];
  return any;
}

/* Finds what an accepted call of prepare_backward reads and writes; the table lies elsewhere. */
static void prepare_roles(const fuzz_gradient_call *c, fuzz_args *a, roles *r) {
  reads(r, SLOT(a->args.positions));
  reads(r, SLOT(a->args.k_positions));
  for (int i = 0; i < c->forward.kernel->n_operands; i++) reads(r, SLOT(a->operands[i]));
  write_parameters(c, a, r);
}

/* Finds what an accepted call of encode_backward reads and writes; pegen.h says what is looked at. */
static void encode_roles(const fuzz_gradient_call *c, fuzz_args *a, roles *r) {
  const pegen_kernel *kernel = c->forward.kernel;
  bool made = any_operand(a, kernel) || any_input(a, kernel) || a->grad.positions || a->grad.k_positions,
       torques = made || a->grad.table, widens = kernel->n_inputs > 0;
  bool of_q = a->grad.q_out && (torques || a->grad.q), of_k = a->grad.k_out && (torques || a->grad.k);
  bool tabled = a->args.table && !made;
  if (of_q && !a->grad.q) reads(r, SLOT(a->grad.q_out));
  if (of_k && !a->grad.k) reads(r, SLOT(a->grad.k_out));
  if (torques && !c->of.keeps_nothing && of_q) reads(r, SLOT(a->args.q));
  if (torques && !c->of.keeps_nothing && of_k) reads(r, SLOT(a->args.k));
  if (!tabled && (of_q || !a->args.k_positions)) reads(r, SLOT(a->args.positions));
  if (!tabled && of_k) reads(r, SLOT(a->args.k_positions));
  for (int i = 0; i < kernel->n_operands && !tabled; i++) reads(r, SLOT(a->operands[i]));
  for (int i = 0; i < kernel->n_inputs && of_q && made; i++) reads(r, SLOT(a->inputs[i]));
  if (widens && of_q && a->grad.q) reads(r, SLOT(a->grad.q_out)); /* of other rows than they are */
  if (widens && of_k && a->grad.k) reads(r, SLOT(a->grad.k_out));
  if (of_q) writes(r, widens ? NULL : SLOT(a->grad.q_out), SLOT(a->grad.q), true);
  if (of_k) writes(r, widens ? NULL : SLOT(a->grad.k_out), SLOT(a->grad.k), true);
  write_parameters(c, a, r);
}

static void attention_roles(const fuzz_gradient_call *c, fuzz_args *a, roles *r) {
  const pegen_kernel *kernel = c->forward.kernel;
  slot of_rows[] = {SLOT(a->args.q),   SLOT(a->args.k),   SLOT(a->args.v),  SLOT(a->args.out),
                    SLOT(a->args.lse), SLOT(a->grad.out), SLOT(a->grad.lse)};
  for (size_t i = 0; i < sizeof of_rows / sizeof *of_rows; i++) reads(r, of_rows[i]);
  if (c->forward.of.attention->placed) {
    reads(r, SLOT(a->args.positions));
    reads(r, SLOT(a->args.k_positions));
  }
  for (int i = 0; i < kernel->n_operands; i++) reads(r, SLOT(a->operands[i]));
  for (int i = 0; i < kernel->n_inputs; i++) reads(r, SLOT(a->inputs[i]));
  writes(r, NULL, SLOT(a->grad.q), true);
  writes(r, NULL, SLOT(a->grad.k), true);
  writes(r, NULL, SLOT(a->grad.v), true);
  write_parameters(c, a, r);
}

static void tangent_roles(const fuzz_gradient_call *c, fuzz_args *a, roles *r) {
  slot of_rows[] = {SLOT(a->args.q),   SLOT(a->args.k), SLOT(a->args.v), SLOT(a->args.out),
                    SLOT(a->args.lse), SLOT(a->grad.q), SLOT(a->grad.k), SLOT(a->grad.v)};
  for (size_t i = 0; i < sizeof of_rows / sizeof *of_rows; i++) reads(r, of_rows[i]);
  if (c->forward.of.attention->placed) {
    reads(r, SLOT(a->args.positions));
    reads(r, SLOT(a->args.k_positions));
  }
  for (int i = 0; i < c->forward.kernel->n_operands; i++) reads(r, SLOT(a->operands[i]));
  for (int i = 0; i < c->forward.kernel->n_inputs; i++) reads(r, SLOT(a->inputs[i]));
  writes(r, NULL, SLOT(a->grad.out), true);
  writes(r, NULL, SLOT(a->grad.lse), true);
}

/* What the structs say, as far as they reach, with lists of their own. */
static void copy_args(const fuzz_gradient_call *c, fuzz_args *a) {
  const pegen_args *given = c->forward.given;
  const pegen_kernel *kernel = c->forward.kernel;
  memset(a, 0, sizeof *a);
  memcpy(&a->args, given, given->struct_size < sizeof a->args ? given->struct_size : sizeof a->args);
  memcpy(&a->grad, &c->grad, sizeof a->grad);
  a->args.struct_size = sizeof a->args; /* what is behind them is 0: the entry took it */
  a->grad.struct_size = sizeof a->grad;
  for (int i = 0; i < kernel->n_operands && given->operands; i++) a->operands[i] = given->operands[i];
  for (int i = 0; i < kernel->n_inputs && a->args.inputs; i++) a->inputs[i] = a->args.inputs[i];
  for (int i = 0; i < kernel->n_operands && a->grad.operands; i++) a->of_operands[i] = a->grad.operands[i];
  for (int i = 0; i < kernel->n_inputs && a->grad.inputs; i++) a->of_inputs[i] = a->grad.inputs[i];
  a->args.operands = a->operands;
  a->args.inputs = a->inputs;
  a->args.grad = &a->grad;
  if (a->grad.operands) a->grad.operands = a->of_operands;
  if (a->grad.inputs) a->grad.inputs = a->of_inputs;
}

static void find_roles(const fuzz_gradient_call *c, fuzz_args *a, roles *r) {
  memset(r, 0, sizeof *r);
  copy_args(c, a);
  if (c->entry == PEGEN_ENTRY_prepare_backward) prepare_roles(c, a, r);
  else if (c->entry == PEGEN_ENTRY_attention_tangent) tangent_roles(c, a, r);
  else (c->forward.entry == FUZZ_ATTENTION ? attention_roles : encode_roles)(c, a, r);
}

/* ---- what is accepted ---- */

static bool same_shape(const DLTensor *x, const DLTensor *y) {
  bool same = x->ndim == y->ndim;
  for (int i = 0; same && i < x->ndim; i++) same = x->shape[i] == y->shape[i];
  return same;
}

static bool same_type(const DLTensor *x, const DLTensor *y) {
  return x->dtype.code == y->dtype.code && x->dtype.bits == y->dtype.bits && x->dtype.lanes == y->dtype.lanes;
}

/* x, where it is given, is a gradient of y: rows and inputs of its type, the others in float32 or float64. */
static void expect_gradient(const DLTensor *x, const DLTensor *y, bool is_rows) {
  if (!x) return;
  EXPECT(y && same_shape(x, y));
  if (is_rows) EXPECT(same_type(x, y));
  else EXPECT(x->dtype.code == kDLFloat && (x->dtype.bits == 32 || x->dtype.bits == 64) && x->dtype.lanes == 1);
}

/* Channels that encode moves, of rows that it may have widened. */
static void expect_moved(const pegen_kernel *kernel, const DLTensor *x, const DLTensor *y) {
  if (!x) return;
  int last = x->ndim - 1;
  EXPECT(y && (x->ndim == 4 || x->ndim == 3) && y->ndim == x->ndim && same_type(x, y));
  for (int i = 0; i < last; i++) EXPECT(x->shape[i] == y->shape[i]);
  EXPECT(x->shape[last] == kernel->head_dim && y->shape[last] == fuzz_out_dim(kernel, y->dtype));
}

static void expect_lse(const DLTensor *lse, const DLTensor *q) {
  EXPECT(lse->ndim == q->ndim - 1 && lse->dtype.code == kDLFloat && lse->dtype.bits == 32 && lse->dtype.lanes == 1);
  for (int i = 0; i < lse->ndim; i++) EXPECT(lse->shape[i] == q->shape[i]); /* [B,H,N], or [N,H] */
}

static void expect_parameters(const fuzz_gradient_call *c, const fuzz_args *a) {
  const pegen_kernel *kernel = c->forward.kernel;
  for (int i = 0; i < kernel->n_operands && a->grad.operands; i++)
    expect_gradient(a->of_operands[i], a->operands[i], false);
  for (int i = 0; i < kernel->n_inputs && a->grad.inputs; i++) expect_gradient(a->of_inputs[i], a->inputs[i], true);
  expect_gradient(a->grad.positions, a->args.positions, false);
  expect_gradient(a->grad.k_positions, a->args.k_positions, false);
}

static void expect_prepare(const fuzz_gradient_call *c, const fuzz_args *a) {
  EXPECT(a->grad.flags <= (PEGEN_GRAD_ACCUMULATE | PEGEN_GRAD_FROM_INPUT));
  EXPECT(!a->grad.q_out && !a->grad.k_out && !a->grad.out && !a->grad.lse && !a->grad.q && !a->grad.k && !a->grad.v);
  EXPECT(a->grad.table && (uintptr_t)a->grad.table % 64 == 0);
  expect_parameters(c, a);
}

static void expect_encode(const fuzz_gradient_call *c, const fuzz_args *a) {
  const pegen_kernel *kernel = c->forward.kernel;
  bool torques = any_operand(a, kernel) || a->grad.positions || a->grad.k_positions || a->grad.table;
  EXPECT(a->grad.flags <= (PEGEN_GRAD_ACCUMULATE | PEGEN_GRAD_FROM_INPUT));
  EXPECT(!a->grad.out && !a->grad.lse && !a->grad.v);
  EXPECT(a->grad.q_out || a->grad.k_out);
  expect_moved(kernel, a->grad.q, a->grad.q_out);
  expect_moved(kernel, a->grad.k, a->grad.k_out);
  expect_parameters(c, a);
  if (!torques || c->of.keeps_nothing) return;
  if (a->grad.q_out) expect_gradient(a->args.q, a->grad.q_out, true);
  if (a->grad.k_out) expect_gradient(a->args.k, a->grad.k_out, true);
}

static void expect_attention(const fuzz_gradient_call *c, const fuzz_args *a) {
  EXPECT(a->grad.flags <= PEGEN_GRAD_ACCUMULATE);
  EXPECT(!a->grad.q_out && !a->grad.k_out);
  EXPECT(a->args.q && a->args.k && a->args.v && a->args.out && a->args.lse && a->grad.out);
  expect_gradient(a->grad.out, a->args.out, true);
  expect_gradient(a->grad.q, a->args.q, true);
  expect_gradient(a->grad.k, a->args.k, true);
  expect_gradient(a->grad.v, a->args.v, true);
  expect_lse(a->args.lse, a->args.q);
  if (a->grad.lse) expect_lse(a->grad.lse, a->args.q);
  expect_parameters(c, a);
}

static void expect_tangent(const fuzz_args *a) {
  EXPECT(!a->grad.flags && !a->grad.q_out && !a->grad.k_out && !a->grad.operands && !a->grad.inputs);
  EXPECT(!a->grad.positions && !a->grad.k_positions && !a->grad.table);
  EXPECT(a->args.q && a->args.k && a->args.v && a->args.out && a->args.lse);
  EXPECT(a->grad.q && a->grad.k && a->grad.v && a->grad.out);
  expect_gradient(a->grad.q, a->args.q, true);
  expect_gradient(a->grad.k, a->args.k, true);
  expect_gradient(a->grad.v, a->args.v, true);
  expect_gradient(a->grad.out, a->args.out, true);
  expect_lse(a->args.lse, a->args.q);
  if (a->grad.lse) expect_lse(a->grad.lse, a->args.q);
}

/* ---- where they are ---- */

static bool all_in_world(const roles *r) {
  bool inside = true;
  for (int i = 0; i < r->n_read; i++) inside = world_holds(*r->read[i]) && inside;
  for (int i = 0; i < r->n_write; i++) {
    inside = world_holds(*r->write[i].out) && inside;
    if (r->write[i].in) inside = world_holds(*r->write[i].in) && inside;
  }
  return inside;
}

/* The workspace as a tensor of bytes. */
typedef struct workspace {
  DLTensor tensor;
  int64_t bytes;
  bool in_world, is_reached; /* is_reached: all of it is memory that the call may use */
} workspace;

static void find_workspace(const fuzz_gradient_call *c, size_t bytes, workspace *w) {
  unsigned char *at = c->forward.given->workspace;
  w->bytes = (int64_t)bytes;
  w->tensor = (DLTensor){.data = at, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &w->bytes};
  w->in_world = bytes > 0 && at >= world && at < world + WORLD && bytes <= (size_t)(world + WORLD - at);
  const unsigned char *end = c->placed + (c->placed_bytes + 7) / 8 * 8, *begin = end - FUZZ_WORKSPACE;
  w->is_reached = bytes == 0 || w->in_world || (at >= begin && at < end && bytes <= (size_t)(end - at));
}

/* False where an output's element is also another one's, but its own input's. */
static bool own_all(const roles *r, const workspace *w) {
  bool apart = true;
  world_clear();
  for (int i = 0; i < r->n_read; i++) world_read(*r->read[i]);
  for (int i = 0; i < r->n_write; i++)
    if (r->write[i].in && !world_same_elements(*r->write[i].in, *r->write[i].out)) world_read(*r->write[i].in);
  for (int i = 0; i < r->n_write; i++) apart = world_write(*r->write[i].out) && apart;
  return (!w->in_world || world_write(&w->tensor)) && apart;
}

/* ---- an accepted call ---- */

typedef struct copies {
  DLTensor *copy[READS + 2 * WRITES];
  int count;
} copies;

/* Batches that share positions share them in the copy, too: sums go another way where they do not. */
static void keep_shared(const DLTensor *t, DLTensor *copy, int64_t *strides) {
  if (t->ndim != 3 || !t->strides || t->strides[0] != 0) return;
  strides[0] = 0;
  strides[1] = t->shape[2];
  strides[2] = 1;
  copy->strides = strides;
}

static DLTensor *copied(copies *c, const DLTensor *t) { return c->copy[c->count++] = world_copy(t); }

static void free_copies(copies *c) {
  for (int i = 0; i < c->count; i++) world_copy_free(c->copy[i]);
}

typedef struct entries {
  pegen_entry *call, *finish;
  pegen_workspace_entry *size;
} entries;

static entries entries_of(const fuzz_gradient_call *c) {
  const pegen_kernel *kernel = c->forward.kernel;
  return (entries){fuzz_gradient_entry(kernel, c->entry), fuzz_gradient_finish(kernel, c->entry),
                   fuzz_gradient_size(kernel, c->entry)};
}

static void expect_done(const char *what, int answer) {
  if (answer) fprintf(stderr, "%s, which was to be done, answers %d\n", what, answer);
  EXPECT(answer == PEGEN_ERROR_OK);
}

/* All parts, the last one first, and all of finish. */
static void run_parts(const entries *e, const pegen_args *args, int parts) {
  for (int part = parts - 1; part >= 0; part--) expect_done("a part", e->call(args, part, parts));
  for (int part = parts; part >= 0 && e->finish; part--) expect_done("finish", e->finish(args, part, parts + 1));
}

/* Runs the call on contiguous copies, none in the place of another; out: its outputs in the order of roles.write. */
static void run_copies(const fuzz_gradient_call *call, const entries *e, copies *c, const DLTensor **out) {
  static int64_t strides[READS][3];
  fuzz_args a;
  roles r;
  c->count = 0;
  find_roles(call, &a, &r);
  for (int i = 0; i < r.n_write; i++)
    if (r.write[i].in) *r.write[i].in = copied(c, *r.write[i].in);
  for (int i = 0; i < r.n_write; i++) *r.write[i].out = out[i] = copied(c, *r.write[i].out);
  for (int i = 0; i < r.n_read; i++) {
    DLTensor *copy = copied(c, *r.read[i]);
    if (r.read[i] == SLOT(a.args.positions) || r.read[i] == SLOT(a.args.k_positions))
      keep_shared(*r.read[i], copy, strides[i]);
    *r.read[i] = copy;
  }
  size_t bytes = e->size ? e->size(&a.args) : 0;
  a.args.workspace_bytes = bytes;
  a.args.workspace = bytes ? malloc(bytes) : NULL;
  if (bytes) memset(a.args.workspace, 0xff, bytes);
  run_parts(e, &a.args, 1);
  free(a.args.workspace);
}

/* The workspace as nobody left it. */
static void spoil(const workspace *w, int with) {
  if (w->bytes && !w->in_world) memset(w->tensor.data, with, (size_t)w->bytes);
}

static void run_accepted(const fuzz_gradient_call *c, const entries *e, const roles *r, const workspace *w) {
  const DLTensor *out[WRITES];
  copies apart, first = {.count = 0};
  int parts =
      c->forward.part < 0 || c->forward.part >= c->forward.parts || c->forward.parts > 64 ? 1 : c->forward.parts;
  run_copies(c, e, &apart, out);
  for (int again = 0; again < 2; again++) {
    spoil(w, again ? 0x3f : 0xff);
    world_restore();
    world_poison();
    run_parts(e, c->forward.given, again ? 1 : parts);
    world_unpoison();
    world_expect_unchanged(true);
    for (int i = 0; i < r->n_write; i++) {
      if (again) world_expect_same(*r->write[i].out, first.copy[i]);
      else copied(&first, *r->write[i].out);
      if (c->of.is_twin || r->write[i].is_rows) world_expect_same(*r->write[i].out, out[i]);
    }
  }
  free_copies(&apart);
  free_copies(&first);
}

/* ---- any call ---- */

static const int64_t MOST_ITEMS = 1 << 28;

static void run_call(const fuzz_gradient_call *c) {
  entries e = entries_of(c);
  const pegen_args *given = c->forward.given;
  bool is_part = c->forward.part >= 0 && c->forward.part < c->forward.parts;
  size_t bytes = e.size ? e.size(given) : 0;
  world_expect_unchanged(false);
  if (fuzz_any_huge(&c->forward, MOST_ITEMS)) return;
  int answer = e.call(given, FUZZ_NO_SHARE, FUZZ_PARTS);
  world_expect_unchanged(false);
  if (e.finish) EXPECT(e.finish(given, FUZZ_NO_SHARE, FUZZ_PARTS) == answer);
  world_expect_unchanged(false);
  if (c->forward.sound && answer) fprintf(stderr, "%s refuses with %d\n", c->forward.kernel->name, answer);
  if (c->forward.sound) EXPECT(answer == PEGEN_ERROR_OK);
  if (answer || !is_part) EXPECT(e.call(given, c->forward.part, c->forward.parts) != PEGEN_ERROR_OK);
  if ((answer || !is_part) && e.finish) EXPECT(e.finish(given, c->forward.part, c->forward.parts) != PEGEN_ERROR_OK);
  world_expect_unchanged(false);
  if (answer) return;
  fuzz_args a;
  roles r;
  workspace w;
  find_roles(c, &a, &r);
  find_workspace(c, bytes, &w);
  if (c->entry == PEGEN_ENTRY_prepare_backward) expect_prepare(c, &a);
  else if (c->entry == PEGEN_ENTRY_attention_tangent) expect_tangent(&a);
  else (c->forward.entry == FUZZ_ATTENTION ? expect_attention : expect_encode)(c, &a);
  if (bytes) EXPECT(given->workspace && (uintptr_t)given->workspace % 8 == 0);
  if (!all_in_world(&r) || !w.is_reached) return; /* the caller's lie, which nobody can see */
  EXPECT(own_all(&r, &w));
  run_accepted(c, &e, &r, &w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  enum { TAIL = 16, SEQUENCES = 160 }; /* the tail says what sequences there are */
  static fuzz_gradient_call call;
  fuzz_sequences sequences = {0};
  fuzz_gradient_call_read(&call, data, size);
  world_remember();
  if (call.entry != PEGEN_ENTRY_prepare_backward && call.forward.given && size > TAIL && data[0] >= SEQUENCES) {
    reader tail = {data + size - TAIL, TAIL};
    fuzz_sequences_make(&tail, &call.forward, &sequences);
    call.forward.sound = false;
  }
  run_call(&call);
  if (sequences.of[0].data) fuzz_sequences_free(&sequences);
  fuzz_call_free(&call.forward);
  return 0;
}
