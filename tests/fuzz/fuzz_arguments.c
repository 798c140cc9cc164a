/* fuzz_arguments: any arguments for a kernel's entries.
 *
 * In: bytes that are read as a sound call of encode, attention, prepare or the GPU's launcher and a few edits of it:
 * shapes, strides, types, pointers, overlaps, part of parts. All tensors lie in one small world whose other bytes are
 * poisoned for the address sanitizer while the kernel runs. The kernels are hand-written twins and some emitted ones,
 * all behind the real driver. What must hold:
 *
 *   - an entry answers what the driver's check answers, and a refusal writes nothing;
 *   - no accepted tensor leaves the address space; no element of an output is also another element, or another
 *   tensor's,
 *     but its own input's by the same index;
 *   - an accepted call writes its outputs and nothing else, and they are those of contiguous copies in one part;
 *   - a launch names every row of an accepted call once, at its tensors' addresses and as the entry's access demands;
 *   - a sound call is accepted;
 *   - a call of sequences, of keys in pages, or at slots (of append, too), writes what it accepts, the same for any
 * number of parts, and reads boundaries, block tables and lengths as long as they are;
 *   - all of it where some numbers are none, infinite or far from the others.
 */
#include "check_attention.h"
#include "driver.h"
#include "fuzz_pages.h"
#include "fuzz_sequences.h"
#include "fuzz_world.h"
#include "runtime/launch.h"

#include <string.h>

/* encode by a table: then nobody reads positions and operands. */
static bool is_tabled(const fuzz_call *c) {
  return c->entry == FUZZ_ENCODE && c->kernel->prepare && PEGEN_GIVEN(c->given, table);
}

/* prepare makes a table of positions and operands alone, whatever rows and inputs its caller's struct names. */
static bool reads_inputs(const fuzz_call *c) {
  return c->entry == FUZZ_ATTENTION || (c->entry != FUZZ_PREPARE && c->given->q);
}

/* ---- what a call reads and writes ---- */

enum { READS = 6 + FUZZ_OPERANDS + FUZZ_INPUTS, WRITES = 2 };

typedef struct roles {
  const DLTensor *read[READS];
  int n_read;
  struct {
    const DLTensor *in; /* in whose place it may be; NULL: none */
    const DLTensor *out;
  } write[WRITES];
  int n_write;
  DLTensor table; /* that prepare writes, as bytes */
  int64_t table_bytes;
} roles;

static void reads(roles *r, const DLTensor *t) {
  if (t) r->read[r->n_read++] = t;
}

static void writes(roles *r, const DLTensor *in, const DLTensor *out) {
  r->write[r->n_write].in = in;
  r->write[r->n_write++].out = out;
}

/* Finds what a call reads and writes. Its tensors have passed all checks, apart from those of prepare's table. */
static void find_roles(const fuzz_call *c, roles *r) {
  const pegen_args *args = c->given;
  const DLTensor *of_keys = args->k_positions ? args->k_positions : args->positions;
  bool rows = c->entry == FUZZ_ENCODE || c->entry == FUZZ_LAUNCH, tabled = is_tabled(c);
  memset(r, 0, sizeof *r);
  if (c->entry == FUZZ_ATTENTION) {
    reads(r, args->q), reads(r, args->k), reads(r, args->v);
    writes(r, NULL, args->out);
  }
  if (!tabled && (!rows || args->q)) reads(r, args->positions);
  if (!tabled && (!rows || args->k)) reads(r, c->entry == FUZZ_PREPARE ? args->k_positions : of_keys);
  if (rows) reads(r, PEGEN_GIVEN(args, origin));
  for (int i = 0; i < c->kernel->n_operands && !tabled; i++) reads(r, args->operands[i]);
  for (int i = 0; i < c->kernel->n_inputs && reads_inputs(c); i++) reads(r, args->inputs[i]);
  if (rows && args->q) writes(r, args->q, args->q_out);
  if (rows && args->k) writes(r, args->k, args->k_out);
  if (c->entry != FUZZ_PREPARE) return;
  r->table_bytes = (int64_t)c->kernel->table_bytes(args);
  r->table = (DLTensor){
      .data = args->table, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &r->table_bytes};
  writes(r, NULL, &r->table);
}

static bool all_in_world(const roles *r) {
  bool inside = true;
  for (int i = 0; i < r->n_read; i++) inside = world_holds(r->read[i]) && inside;
  for (int i = 0; i < r->n_write; i++) {
    inside = world_holds(r->write[i].out) && inside;
    if (r->write[i].in) inside = world_holds(r->write[i].in) && inside;
  }
  return inside;
}

/* False where an output's element is also another one's, but its own input's. */
static bool own_all(const roles *r) {
  bool apart = true;
  world_clear();
  for (int i = 0; i < r->n_read; i++) world_read(r->read[i]);
  for (int i = 0; i < r->n_write; i++)
    if (r->write[i].in && !world_same_elements(r->write[i].in, r->write[i].out)) world_read(r->write[i].in);
  for (int i = 0; i < r->n_write; i++) apart = world_write(r->write[i].out) && apart;
  return apart;
}

/* ---- the same call on contiguous copies ---- */

enum { COPIES = READS + 2 * WRITES };

typedef struct copies {
  DLTensor *copy[COPIES];
  int count;
  const DLTensor *out[WRITES]; /* in the order of roles.write */
} copies;

static const DLTensor *copied(copies *c, const DLTensor *t) { return t ? c->copy[c->count++] = world_copy(t) : NULL; }

/* Runs the call on copies before the world changes. What it does not look at is left out, and so is a sound table,
 * which says what positions and operands say. */
static void run_copies(const fuzz_call *call, const roles *r, copies *c) {
  const pegen_args *args = call->given;
  pegen_args apart = *args;
  const DLTensor *operands[FUZZ_OPERANDS], *inputs[FUZZ_INPUTS];
  bool rows = call->entry == FUZZ_ENCODE, tabled = is_tabled(call) && !call->sound;
  memset(c, 0, sizeof *c);
  apart.q = rows || call->entry == FUZZ_ATTENTION ? copied(c, args->q) : NULL;
  apart.k = rows || call->entry == FUZZ_ATTENTION ? copied(c, args->k) : NULL;
  apart.v = call->entry == FUZZ_ATTENTION ? copied(c, args->v) : NULL;
  apart.positions = tabled || (rows && !args->q && args->k_positions) ? NULL : copied(c, args->positions);
  apart.k_positions = tabled || (rows && !args->k) ? NULL : copied(c, args->k_positions);
  if (rows && PEGEN_GIVEN(args, origin)) apart.origin = copied(c, args->origin);
  for (int i = 0; i < call->kernel->n_operands && !tabled; i++) operands[i] = copied(c, args->operands[i]);
  for (int i = 0; i < call->kernel->n_inputs && reads_inputs(call); i++) inputs[i] = copied(c, args->inputs[i]);
  apart.operands = operands;
  apart.inputs = inputs;
  if (rows && !tabled) apart.table = NULL;
  if (apart.struct_size > sizeof apart) apart.struct_size = sizeof apart;
  for (int i = 0; i < r->n_write; i++) c->out[i] = copied(c, r->write[i].out);
  int out = 0;
  apart.q_out = rows && args->q ? (DLTensor *)c->out[out++] : NULL;
  apart.k_out = rows && args->k ? (DLTensor *)c->out[out++] : NULL;
  apart.out = call->entry == FUZZ_ATTENTION ? (DLTensor *)c->out[out] : NULL;
  if (call->entry == FUZZ_PREPARE) apart.table = c->out[out]->data;
  pegen_entry *const entries[] = {call->kernel->encode, call->kernel->attention, call->kernel->prepare};
  EXPECT(entries[call->entry](&apart, 0, 1) == PEGEN_ERROR_OK);
}

/* ---- calls of the kernel ---- */

static int enter(const fuzz_call *c, int part, int parts) {
  pegen_entry *const entries[] = {c->kernel->encode, c->kernel->attention, c->kernel->prepare};
  return c->appends ? c->kernel->append(c->given, part, parts) : entries[c->entry](c->given, part, parts);
}

static void run_accepted(const fuzz_call *call, const roles *r) {
  copies c;
  int parts = call->parts > 64 ? 1 : call->parts;
  run_copies(call, r, &c);
  world_poison();
  for (int part = parts - 1; part >= 0; part--) EXPECT(enter(call, part, parts) == PEGEN_ERROR_OK);
  world_unpoison();
  world_expect_unchanged(true);
  for (int i = 0; i < r->n_write; i++) world_expect_same(r->write[i].out, c.out[i]);
  for (int i = 0; i < c.count; i++) world_copy_free(c.copy[i]);
}

static void expect_answer(const fuzz_call *c, int answer, int expected) {
  if (answer != expected)
    fprintf(stderr, "%s, entry %d: answered %d, expected %d\n", c->kernel->name, c->entry, answer, expected);
  EXPECT(answer == expected);
}

/* The driver's view of the kernel, as far as its checks look. */
static int check(const fuzz_call *c) {
  static int32_t chosen;
  const pegen_driver driver = {
      .kernel = c->kernel, .per_head = c->of.per_head, .chosen = &chosen, .form = c->of.attention};
  pegen_call call;
  pegen_attention_call attention;
  if (c->entry == FUZZ_ATTENTION) return pegen_check_attention(&driver, c->given, c->part, c->parts, &attention);
  if (c->entry == FUZZ_ENCODE) return pegen_check(&driver, c->given, c->part, c->parts, c->row_bytes, &call);
  int error = pegen_check_prepare(&driver, c->given, c->part, c->parts, &call);
  if (error) return error;
  size_t bytes = c->kernel->table_bytes(c->given);
  if (!PEGEN_GIVEN(c->given, table)) return PEGEN_ERROR_MISSING_TABLE;
  if ((uintptr_t)c->given->table % 64) return PEGEN_ERROR_ALIGNMENT;
  if (bytes == 0 || (uintptr_t)c->given->table > UINTPTR_MAX - bytes) return PEGEN_ERROR_SIZE_OVERFLOW;
  return c->given->table_bytes < bytes ? PEGEN_ERROR_TABLE_BYTES : 0;
}

static void run_call(const fuzz_call *c) {
  roles r;
  int expected = check(c);
  bool inside = false;
  if (!expected) {
    find_roles(c, &r);
    inside = all_in_world(&r); /* elsewhere is the caller's lie, which nobody can see */
    bool apart = !inside || own_all(&r);
    if (c->entry == FUZZ_PREPARE && !apart) expected = PEGEN_ERROR_OVERLAP;
    else EXPECT(apart);
  }
  if (c->sound) expect_answer(c, expected, PEGEN_ERROR_OK);
  if (expected) {
    expect_answer(c, enter(c, c->part, c->parts), expected);
    world_expect_unchanged(false);
  } else if (inside) {
    run_accepted(c, &r);
  }
}

/* ---- sequences and pages ---- */

static const int64_t MOST_ITEMS = 1 << 20; /* an item's work grows with its keys */

static void run_all_parts(const fuzz_call *c, int parts) {
  world_poison();
  for (int part = parts - 1; part >= 0; part--) EXPECT(enter(c, part, parts) == PEGEN_ERROR_OK);
  world_unpoison();
  world_expect_unchanged(true);
}

/* There are none of sequences, or pages. */
static bool has_pairs(const pegen_kernel *kernel) {
  for (int i = 0; i < kernel->n_inputs; i++)
    if (kernel->inputs[i].size == PEGEN_SIZE_OF_KEYS) return true;
  return false;
}

static void run_sequences(const fuzz_call *c, bool is_sound) {
  roles r;
  if (fuzz_any_huge(c, MOST_ITEMS)) return;
  int answer = enter(c, FUZZ_NO_SHARE, FUZZ_PARTS);
  world_expect_unchanged(false);
  if (is_sound && !has_pairs(c->kernel)) expect_answer(c, answer, PEGEN_ERROR_OK);
  if (answer || c->part < 0 || c->part >= c->parts) {
    EXPECT(enter(c, c->part, c->parts) != PEGEN_ERROR_OK);
    world_expect_unchanged(false);
    return;
  }
  find_roles(c, &r);
  if (!all_in_world(&r)) return; /* the caller's lie, which nobody can see */
  EXPECT(own_all(&r));
  run_all_parts(c, c->parts > 64 ? 1 : c->parts);
  DLTensor *first = world_copy(r.write[0].out);
  world_restore();
  run_all_parts(c, 1);
  world_expect_same(r.write[0].out, first);
  world_copy_free(first);
}

/* ---- numbers that are none, or far away ---- */

/* Eight bytes of rows, positions, operands or inputs: NaN, infinities, 10^6 and what is near the largest and the least,
 * of one type or another. Not where a table says what positions and operands say. */
static void spoil(const fuzz_call *c, unsigned which, unsigned where) {
  static const uint64_t patterns[] = {0x7ff8000000000000, 0x7fc000007fc00000, 0x7f807f807f807f80,  0xff800000ff800000,
                                      0x7e007e007e007e00, 0x4974240049742400, 0x412e848000000000,  0x7f7fffff7f7fffff,
                                      0xc7efffffe0000000, INT64_MAX,          (uint64_t)INT64_MIN, 1};
  const fuzz_tensor *of = &c->tensor[which % FUZZ_TENSORS];
  if (c->args.table || !of->dl.data) return;
  uintptr_t at = (uintptr_t)of->dl.data + of->dl.byte_offset + where / 16 % 16 * 8;
  if (at - (uintptr_t)world > WORLD - 8) return; /* `at` may be the last bytes of all memory: no sum is compared */
  memcpy((void *)at, &patterns[where % 16 % (sizeof patterns / sizeof *patterns)], 8);
}

/* ---- launches ---- */

typedef struct launched {
  const fuzz_call *call;
  int64_t rows;
} launched;

/* Rows of one tensor pair of a step: batches, heads and tokens from its addresses. */
static void expect_rows(launched *l, const pegen_launch_step *step, const int64_t *p, const DLTensor *rows,
                        int64_t batches) {
  const int64_t *all = step->parameter, align = step->entry->access - 1;
  size_t bytes = (size_t)l->call->kernel->head_dim * (rows->dtype.bits / 8);
  for (int64_t b = 0; b < batches; b++)
    for (int64_t h = 0; h < p[PEGEN_PTX_TENSOR_HEADS]; h++)
      for (int64_t t = 0; t < all[PEGEN_PTX_TOKENS]; t++, l->rows++) {
        int64_t in = p[PEGEN_PTX_TENSOR_IN] + b * p[PEGEN_PTX_TENSOR_IN_BATCH] + h * p[PEGEN_PTX_TENSOR_IN_HEAD] +
                     t * p[PEGEN_PTX_TENSOR_IN_TOKEN];
        int64_t out = p[PEGEN_PTX_TENSOR_OUT] + b * p[PEGEN_PTX_TENSOR_OUT_BATCH] + h * p[PEGEN_PTX_TENSOR_OUT_HEAD] +
                      t * p[PEGEN_PTX_TENSOR_OUT_TOKEN];
        EXPECT(((in | out) & align) == 0);
        EXPECT(world_owned((void *)(uintptr_t)in, bytes, false) && world_owned((void *)(uintptr_t)out, bytes, true));
      }
}

static int run_step(void *context, const pegen_launch_step *step) {
  launched *l = context;
  const pegen_ptx *ptx = l->call->kernel->ptx;
  const pegen_args *args = l->call->given;
  const int64_t *p = step->parameter, *q = p + PEGEN_PTX_Q, *k = p + PEGEN_PTX_K;
  int64_t batches = p[PEGEN_PTX_BATCHES], heads = q[PEGEN_PTX_TENSOR_HEADS] + k[PEGEN_PTX_TENSOR_HEADS];
  bool both = q[PEGEN_PTX_TENSOR_HEADS] && k[PEGEN_PTX_TENSOR_HEADS];
  __int128 rows = ptx->per_head ? (__int128)batches * (both ? 2 : 1) : heads; /* of no tokens as many as one likes */
  EXPECT(step->grid_x > 0 && step->grid_y > 0 && step->grid_y <= 65535 && batches > 0);
  __int128 of_block = p[PEGEN_PTX_ROWS];
  EXPECT(of_block * step->grid_y >= rows && of_block * (step->grid_y - 1) < rows);
  const DLTensor *any = args->q ? args->q : args->k;
  expect_rows(l, step, q, any, batches);
  expect_rows(l, step, k, any, batches);
  return 0;
}

/* Where one size is 0, the others are as large as one likes. */
static int64_t rows_of(const DLTensor *t) {
  if (!t || !t->shape[0] || !t->shape[1] || !t->shape[2]) return 0;
  return t->shape[0] * t->shape[1] * t->shape[2];
}

static int on_gpu(DLDevice device) { return device.device_type == kDLCUDA; }

static void run_launch(const fuzz_call *c) {
  roles r;
  launched l = {.call = c};
  pegen_launch_request request = {
      .kernel = c->kernel, .entry = PEGEN_LAUNCH_encode, .args = c->given, .threads = (int64_t)(c->part & 0xff) * 1000};
  int error = pegen_launch_check(&request);
  if (c->sound) EXPECT(error == PEGEN_ERROR_OK);
  if (!error) {
    find_roles(c, &r);
    bool fits = pegen_launch_on_device(&request, on_gpu);
    if (c->sound) EXPECT(fits);
    if (!fits || !all_in_world(&r)) return;
    EXPECT(own_all(&r));
  }
  EXPECT(pegen_launch_plan(&request, run_step, &l) == error);
  EXPECT(l.rows == (error ? 0 : rows_of(c->given->q) + rows_of(c->given->k)));
  world_expect_unchanged(false);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  enum { TAIL = 16, SEQUENCES = 128, PAGES = 192, SPOILT = 192 }; /* the tail says what sequences or pages there are */
  static fuzz_call call;
  fuzz_call_read(&call, data, size);
  if (size > TAIL && data[size - 1] >= SPOILT) spoil(&call, data[size - 2], data[size - 3]);
  world_remember();
  reader tail = {data + (size > TAIL ? size - TAIL : 0), size > TAIL ? TAIL : size};
  bool is_call = (call.entry == FUZZ_ATTENTION || call.entry == FUZZ_ENCODE) && call.given && size > TAIL;
  if (is_call && data[0] >= PAGES && call.entry == FUZZ_ATTENTION) {
    fuzz_pages pages;
    fuzz_pages_make(&tail, &call, &pages);
    run_sequences(&call, pages.sound);
    fuzz_pages_free(&pages);
  } else if (is_call && data[0] >= PAGES) {
    fuzz_slots slots;
    fuzz_append append;
    fuzz_slots_make(&tail, &call, &slots);
    bool appends = data[0] % 2 && call.kernel->append;
    if (appends) fuzz_append_make(&tail, &call, &append);
    run_sequences(&call, false);
    if (appends) fuzz_append_check(&append);
    if (appends) fuzz_append_free(&append);
    fuzz_slots_free(&slots);
  } else if (is_call && data[0] >= SEQUENCES) {
    fuzz_sequences sequences;
    fuzz_sequences_make(&tail, &call, &sequences);
    run_sequences(&call, sequences.sound);
    fuzz_sequences_free(&sequences);
  } else if (call.entry == FUZZ_LAUNCH) {
    run_launch(&call);
  } else {
    run_call(&call);
  }
  fuzz_call_free(&call);
  return 0;
}
