/* fuzz_call: see fuzz_call.h. */
#include "fuzz_call.h"

#include "twin.h"

#include <pegen/kernels.h>

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern const pegen_kernel fuzz_dense_kernel; /* of dense.lua */

unsigned char world[WORLD] __attribute__((aligned(64)));

/* ---- bytes ---- */

typedef struct reader {
  const uint8_t *data;
  size_t size;
} reader;

static unsigned byte(reader *r) {
  if (r->size == 0) return 0;
  r->size--;
  return *r->data++;
}

static unsigned below(reader *r, unsigned bound) { return byte(r) % bound; }

/* Numbers on which checks turn, small ones, and any. */
static int64_t number(reader *r) {
  static const int64_t telling[] = {0,         1,         -1,        INT64_MAX,           INT64_MIN,    INT32_MAX,
                                    INT32_MIN, 1LL << 32, 1LL << 56, (1LL << 56) + 1,     -(1LL << 56), 1LL << 62,
                                    16,        64,        63,        INT64_MAX / 4,       INT64_MIN / 2, WORLD};
  unsigned kind = byte(r);
  if (kind < 64) return telling[kind % (sizeof telling / sizeof *telling)];
  if (kind < 240) return (int64_t)byte(r) - 64;
  uint64_t any = 0;
  for (int i = 0; i < 8; i++) any = any << 8 | byte(r);
  return (int64_t)any;
}

/* ---- kernels ---- */

static const pegen_kernel *choose(reader *r) {
  static const char *const stock[] = {"rope", "geope3d", "rope_axial", "care"};
  const pegen_kernel *const own[] = {&twin_plain_kernel, &twin_grid_kernel, &twin_learned_kernel, &fuzz_dense_kernel};
  unsigned choice = below(r, 8);
  const pegen_kernel *kernel = choice < 4 ? own[choice] : pegen_kernels_find(stock[choice - 4]);
  if (!kernel || kernel->n_operands > FUZZ_OPERANDS) abort();
  return kernel;
}

/* ---- a sound call ---- */

typedef struct layout {
  int64_t batch, heads[2], tokens[2]; /* of q, k */
  DLDataType type;
  size_t used; /* bytes of the world */
} layout;

static DLDataType row_type(reader *r, const pegen_kernel *kernel) {
  static const DLDataType types[] = {{kDLFloat, 32, 1}, {kDLBfloat, 16, 1}, {kDLFloat, 16, 1}};
  unsigned choice = below(r, 3);
  return types[kernel->dtypes >> choice & 1 ? choice : 0];
}

static void describe(fuzz_tensor *t, int rank, const int64_t *shape, DLDataType type) {
  size_t bytes = sizeof(int64_t) * (size_t)rank;
  memset(&t->dl, 0, sizeof t->dl);
  t->shape = malloc(bytes);
  t->strides = malloc(bytes);
  memcpy(t->shape, shape, bytes);
  t->dl = (DLTensor){.data = world, .device = {kDLCPU, 0}, .ndim = rank, .dtype = type, .shape = t->shape, .strides = t->strides};
}

/* Strides for the dimensions in the order of their places in memory, outermost first, with gaps; the tensor takes the next
 * free bytes of the world. */
static void place(reader *r, fuzz_tensor *t, const int *order, layout *l) {
  int64_t element = t->dl.dtype.bits / 8, count = 1;
  for (int i = t->dl.ndim - 1; i >= 0; i--) {
    t->strides[order[i]] = count;
    count *= t->shape[order[i]] > 0 ? t->shape[order[i]] : 1;
    if (i > 0 && byte(r) % 8 == 7) count += below(r, 5);
  }
  l->used = (l->used + 7) / 8 * 8;
  t->dl.data = world + l->used;
  l->used += (size_t)(count * element);
  if (l->used > WORLD) abort(); /* the largest sound call fits */
  if (byte(r) % 8 == 7) { /* the same address in two parts */
    t->dl.byte_offset = (uint64_t)below(r, 4) * 8;
    t->dl.data = (char *)t->dl.data - t->dl.byte_offset;
  }
}

static void place_rows(reader *r, fuzz_tensor *t, layout *l, int which, int64_t channels) {
  static const int orders[6][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {1, 0, 2, 3}, {1, 2, 0, 3}, {2, 0, 1, 3}, {2, 1, 0, 3}};
  const int64_t shape[4] = {l->batch, l->heads[which], l->tokens[which], channels};
  describe(t, 4, shape, l->type);
  place(r, t, orders[below(r, 6)], l);
}

static void place_positions(reader *r, fuzz_tensor *t, layout *l, int which, int64_t axes) {
  static const DLDataType types[] = {{kDLFloat, 32, 1}, {kDLFloat, 64, 1}, {kDLInt, 32, 1}, {kDLInt, 64, 1}};
  static const int orders[2][3] = {{0, 1, 2}, {0, 2, 1}};
  const int64_t shape[3] = {l->batch, l->tokens[which], axes};
  if (byte(r) & 1) {
    describe(t, 3, shape, types[below(r, 4)]);
    place(r, t, orders[below(r, 2)], l);
    if (byte(r) % 4 == 3) t->strides[0] = 0;
  } else {
    describe(t, 2, shape + 1, types[below(r, 4)]);
    place(r, t, orders[0], l);
  }
}

static void place_operand(reader *r, fuzz_tensor *t, layout *l, const pegen_operand *operand) {
  static const DLDataType types[] = {{kDLFloat, 32, 1}, {kDLFloat, 64, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
  static const int order[FUZZ_RANK] = {0, 1, 2, 3, 4, 5};
  reader none = {NULL, 0}; /* no gaps: operands are contiguous */
  describe(t, operand->rank, operand->shape, types[below(r, 4)]);
  place(&none, t, order, l);
}

/* ---- tables ---- */

enum { TABLE_ROOM = 256 * 1024 };

/* Memory that ends where the next access faults. */
static unsigned char *guarded_end(void) {
  static unsigned char *end;
  if (end) return end;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  unsigned char *memory = mmap(NULL, TABLE_ROOM + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory + TABLE_ROOM, page, PROT_NONE)) abort();
  return end = memory + TABLE_ROOM;
}

/* The kernel's own table for the call, prepared in parts. */
static void make_table(reader *r, fuzz_call *c) {
  c->args.struct_size = sizeof(pegen_args);
  size_t bytes = c->kernel->table_bytes(&c->args);
  EXPECT(bytes > 0 && bytes <= TABLE_ROOM && bytes % 64 == 0);
  c->args.table = guarded_end() - bytes;
  c->args.table_bytes = bytes;
  int parts = 1 + (int)below(r, 4);
  for (int part = 0; part < parts; part++) EXPECT(c->kernel->prepare(&c->args, part, parts) == PEGEN_ERROR_OK);
  c->table_words = bytes / 8 < 16 ? bytes / 8 : 16;
}

/* Once a call: what a table says of itself is checked against itself, which two edits could outwit. */
static void edit_table(reader *r, fuzz_call *c) {
  if (!c->args.table || c->table_edited) return;
  c->table_edited = true;
  int64_t value = number(r);
  switch (below(r, 4)) {
  case 0:
  case 1: memcpy((char *)c->args.table + 8 * below(r, (unsigned)c->table_words), &value, 8); break;
  case 2: c->args.table_bytes = c->args.table_bytes > (uint64_t)value ? (uint64_t)value : c->args.table_bytes; break;
  case 3: c->args.table = (char *)c->args.table - (value & 63); break;
  }
}

/* ---- a sound call, all of it ---- */

static void read_sound(reader *r, fuzz_call *c, layout *l) {
  const pegen_kernel *kernel = c->kernel;
  l->batch = below(r, 4);
  l->tokens[0] = below(r, 8);
  bool grid = kernel->grid && (byte(r) & 1);
  if (grid) {
    l->tokens[0] = 1;
    for (int a = 0; a < kernel->n_axes; a++) l->tokens[0] *= kernel->grid[a];
    l->tokens[0] += kernel->skip_tokens;
  }
  l->tokens[1] = l->tokens[0];
  bool own_positions = !grid && (byte(r) & 1);
  if (own_positions) l->tokens[1] = below(r, 8);
  for (int i = 0; i < 2; i++) l->heads[i] = kernel->heads > 0 ? kernel->heads : below(r, 4);
  l->type = row_type(r, kernel);
  for (int i = 0; i < 2; i++) {
    place_rows(r, &c->tensor[FUZZ_Q + i], l, i, kernel->head_dim);
    place_rows(r, &c->tensor[FUZZ_Q_OUT + i], l, i, kernel->out_dim);
    place_positions(r, &c->tensor[FUZZ_POSITIONS + i], l, i, kernel->n_axes);
  }
  for (int i = 0; i < kernel->n_operands; i++) {
    place_operand(r, &c->tensor[FUZZ_OPERAND + i], l, &kernel->operands[i]);
    c->operands[i] = &c->tensor[FUZZ_OPERAND + i].dl;
  }
  unsigned streams = below(r, 8);
  c->args = (pegen_args){.struct_size = byte(r) & 1 ? PEGEN_ARGS_FIRST_SIZE : sizeof(pegen_args), .n_operands = kernel->n_operands};
  c->args.operands = kernel->n_operands ? c->operands : NULL;
  unsigned places = byte(r);
  bool in_place[2] = {(places & 1) && kernel->out_dim == kernel->head_dim, (places & 2) && kernel->out_dim == kernel->head_dim};
  fuzz_tensor *t = c->tensor;
  if (streams != 1) c->args.q = &t[FUZZ_Q].dl, c->args.q_out = in_place[0] ? &t[FUZZ_Q].dl : &t[FUZZ_Q_OUT].dl;
  if (streams != 2) c->args.k = &t[FUZZ_K].dl, c->args.k_out = in_place[1] ? &t[FUZZ_K].dl : &t[FUZZ_K_OUT].dl;
  if (!grid) c->args.positions = &t[FUZZ_POSITIONS].dl;
  if (own_positions) c->args.k_positions = &t[FUZZ_K_POSITIONS].dl;
  if (kernel->prepare && !grid && c->args.positions && (byte(r) & 1)) make_table(r, c);
  c->parts = 1 + (int)below(r, 9);
  c->part = (int)below(r, (unsigned)c->parts);
}

/* ---- edits ---- */

static void resize(int64_t **list, int old, int rank) {
  int64_t *fresh = malloc(sizeof(int64_t) * (size_t)(rank > 0 ? rank : 0));
  for (int i = 0; i < rank; i++) fresh[i] = i < old ? (*list)[i] : 1;
  free(*list);
  *list = fresh;
}

static void edit_tensor(reader *r, fuzz_call *c, fuzz_tensor *t) {
  int rank = t->dl.ndim, at = rank > 0 && rank <= FUZZ_RANK ? (int)below(r, (unsigned)rank) : -1;
  switch (below(r, 12)) {
  case 0: {
    static const int32_t ranks[] = {0, 1, 2, 3, 4, 5, 6, -1, INT32_MAX, INT32_MIN};
    int32_t wanted = ranks[below(r, 10)], kept = wanted > FUZZ_RANK ? FUZZ_RANK : wanted, old = rank > FUZZ_RANK || rank < 0 ? 0 : rank;
    if (t->shape) resize(&t->shape, old, kept);
    if (t->strides) resize(&t->strides, old, kept);
    t->dl.ndim = wanted;
    break;
  }
  case 1:
    if (at >= 0 && t->shape) t->shape[at] = number(r);
    break;
  case 2:
    if (at >= 0 && t->strides) t->strides[at] = number(r);
    break;
  case 3: t->dl.data = world + (size_t)(number(r) & 0xffff); break; /* anywhere, other tensors' places too */
  case 4: t->dl.data = byte(r) & 1 ? NULL : (char *)(uintptr_t)number(r); break;
  case 5: t->dl.byte_offset = (uint64_t)number(r); break;
  case 6: t->dl.dtype = (DLDataType){(uint8_t)below(r, 8), (uint8_t)(8u << below(r, 5)), (uint16_t)(byte(r) % 16 ? 1 : byte(r))}; break;
  case 7: t->dl.device.device_type = (DLDeviceType)below(r, 15); break;
  case 8: /* contiguous, and said so by nothing */
    free(t->strides);
    t->strides = NULL;
    break;
  case 9:
    free(t->shape);
    t->shape = NULL;
    break;
  case 10: { /* where another one is, with its strides: slices, overlaps, in place by another struct */
    const fuzz_tensor *other = &c->tensor[below(r, FUZZ_TENSORS)];
    if (!other->dl.data) break;
    t->dl.data = (char *)((uintptr_t)other->dl.data + (uintptr_t)(below(r, 2) ? number(r) : 0));
    t->dl.byte_offset = other->dl.byte_offset;
    if (other->strides && t->strides && other->dl.ndim == rank && rank <= FUZZ_RANK && rank > 0)
      memcpy(t->strides, other->strides, sizeof(int64_t) * (size_t)rank);
    break;
  }
  case 11: /* one fused buffer: every stride as long as all heads */
    for (int i = 0; t->strides && rank > 0 && rank <= FUZZ_RANK && i < rank - 1; i++)
      if (__builtin_mul_overflow(t->strides[i], 1 + (int64_t)below(r, 4), &t->strides[i])) t->strides[i] = 1;
    break;
  }
  t->dl.shape = t->shape;
  t->dl.strides = t->strides;
}

static void edit_call(reader *r, fuzz_call *c) {
  DLTensor *any = &c->tensor[below(r, FUZZ_TENSORS)].dl;
  switch (below(r, 12)) {
  case 0: c->given = NULL; break;
  case 1: c->args.struct_size = (uint32_t)number(r); break;
  case 2: c->args.n_operands = (int32_t)number(r); break;
  case 3: c->args.operands = NULL; break;
  case 4: c->operands[below(r, FUZZ_OPERANDS)] = byte(r) & 1 ? any : NULL; break;
  case 5: c->args.q = byte(r) & 1 ? any : NULL; break;
  case 6: c->args.k = byte(r) & 1 ? any : NULL; break;
  case 7: c->args.q_out = byte(r) & 1 ? any : NULL; break;
  case 8: c->args.k_out = byte(r) & 1 ? any : NULL; break;
  case 9: c->args.positions = byte(r) & 1 ? any : NULL; break;
  case 10: c->args.k_positions = byte(r) & 1 ? any : NULL; break;
  case 11:
    c->part = (int)number(r);
    c->parts = (int)number(r);
    break;
  }
}

/* Halves that are small numbers as bfloat16, finite ones as any type; the same in every run. */
static void fill_world(void) {
  static unsigned char filled[WORLD];
  static bool done;
  uint32_t x = 1;
  for (size_t i = 0; !done && i < WORLD; i += 2) {
    x = x * 1664525u + 1013904223u;
    uint16_t half = (uint16_t)((x >> 31) << 15 | (0x3f00 + (x >> 8) % 0x180));
    memcpy(filled + i, &half, 2);
  }
  done = true;
  memcpy(world, filled, WORLD);
}

void fuzz_call_read(fuzz_call *c, const uint8_t *data, size_t size) {
  reader r = {data, size};
  layout l = {0};
  memset(c, 0, sizeof *c);
  fill_world();
  c->kernel = choose(&r);
  c->given = &c->args;
  read_sound(&r, c, &l);
  unsigned edits = below(&r, 8);
  c->sound = edits == 0;
  for (unsigned i = 0; i < edits; i++) {
    unsigned what = below(&r, FUZZ_TENSORS + 4);
    if (what < FUZZ_TENSORS) edit_tensor(&r, c, &c->tensor[what]);
    else if (what < FUZZ_TENSORS + 2) edit_call(&r, c);
    else edit_table(&r, c);
  }
}

void fuzz_call_free(fuzz_call *c) {
  for (int i = 0; i < FUZZ_TENSORS; i++) {
    free(c->tensor[i].shape);
    free(c->tensor[i].strides);
  }
}
