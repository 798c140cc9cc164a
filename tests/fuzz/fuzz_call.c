/* fuzz_call: see fuzz_call.h. */
#include "fuzz_call.h"
#include "driver.h"
#include "table.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- a sound call ---- */

typedef fuzz_layout layout;

static DLDataType number_type(int64_t number) {
  const pegen_number *of = pegen_number_at(number);
  return (DLDataType){(uint8_t)of->code, (uint8_t)of->bits, 1};
}

static DLDataType row_type(reader *r, const pegen_kernel *kernel) {
  unsigned choice = below(r, PEGEN_ROW_TYPES);
  return number_type(kernel->dtypes & pegen_number_at(choice)->dtype ? choice : PEGEN_NUMBER_F32);
}

/* The types that positions, or operands, may have: the table numbers them. */
static DLDataType numbered_type(reader *r, bool of_operands) {
  int64_t of[PEGEN_NUMBER_COUNT], count = 0;
  for (int64_t i = 0; i < PEGEN_NUMBER_COUNT; i++) {
    int32_t number = of_operands ? pegen_number_at(i)->operand : pegen_number_at(i)->position;
    if (number < 0) continue;
    of[number] = i;
    count++;
  }
  return number_type(of[below(r, (unsigned)count)]);
}

static void describe(fuzz_tensor *t, int rank, const int64_t *shape, DLDataType type) {
  size_t bytes = sizeof(int64_t) * (size_t)rank;
  memset(&t->dl, 0, sizeof t->dl);
  t->shape = malloc(bytes);
  t->strides = malloc(bytes);
  memcpy(t->shape, shape, bytes);
  t->dl = (DLTensor){
      .data = world, .device = {kDLCPU, 0}, .ndim = rank, .dtype = type, .shape = t->shape, .strides = t->strides};
}

enum { RED_ZONE = 16 }; /* bytes between tensors */

/* Strides for the dimensions in the order of their places in memory, outermost first, with gaps; the tensor takes the
 * next free bytes of the world. */
static void place(reader *r, fuzz_tensor *t, const int *order, layout *l) {
  int64_t element = t->dl.dtype.bits / 8, count = 1;
  for (int i = t->dl.ndim - 1; i >= 0; i--) {
    t->strides[order[i]] = count;
    count *= t->shape[order[i]] > 0 ? t->shape[order[i]] : 1;
    if (i > 0 && byte(r) % 8 == 7) count += below(r, 5);
  }
  l->used = (l->used + 7) / 8 * 8 + RED_ZONE;
  t->dl.data = world + l->used;
  l->used += (size_t)(count * element);
  if (l->used > WORLD) abort(); /* the largest sound call fits */
  if (byte(r) % 8 == 7) { /* the same address in two parts */
    t->dl.byte_offset = (uint64_t)below(r, 4) * 8;
    t->dl.data = (char *)t->dl.data - t->dl.byte_offset;
  }
}

void fuzz_place(reader *r, fuzz_tensor *t, layout *l, int rank, const int64_t *shape, DLDataType type,
                const int *order) {
  describe(t, rank, shape, type);
  place(r, t, order, l);
}

void fuzz_place_rows(reader *r, fuzz_tensor *t, layout *l, int which, int64_t channels) {
  static const int orders[6][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {1, 0, 2, 3}, {1, 2, 0, 3}, {2, 0, 1, 3}, {2, 1, 0, 3}};
  const int64_t shape[4] = {l->batch, l->heads[which], l->tokens[which], channels};
  fuzz_place(r, t, l, 4, shape, l->type, orders[below(r, 6)]);
}

static void place_positions(reader *r, fuzz_tensor *t, layout *l, int which, int64_t axes) {
  static const int orders[2][3] = {{0, 1, 2}, {0, 2, 1}};
  const int64_t shape[3] = {l->batch, l->tokens[which], axes};
  if (byte(r) & 1) {
    describe(t, 3, shape, numbered_type(r, false));
    place(r, t, orders[below(r, 2)], l);
    if (byte(r) % 4 == 3) t->strides[0] = 0;
  } else {
    describe(t, 2, shape + 1, numbered_type(r, false));
    place(r, t, orders[0], l);
  }
}

/* Where columns count from: calls of q or k alone must say so, others may. [P], or [B,P]. */
static void give_origin(reader *r, fuzz_call *c, layout *l) {
  static const int order[2] = {0, 1};
  const int64_t shape[2] = {l->batch, c->kernel->n_axes};
  pegen_args *args = &c->args;
  if (c->of.attention || c->entry == FUZZ_PREPARE || !pegen_has_origin(c->kernel)) return;
  if ((!args->positions && !args->k_positions) || (args->q && args->k && (byte(r) & 1))) return;
  int rank = 1 + (byte(r) & 1);
  fuzz_place(r, &c->tensor[FUZZ_ORIGIN], l, rank, shape + 2 - rank, numbered_type(r, false), order);
  args->struct_size = sizeof *args;
  args->origin = &c->tensor[FUZZ_ORIGIN].dl;
}

static void place_operand(reader *r, fuzz_tensor *t, layout *l, const pegen_operand *operand, bool indexed) {
  static const int order[FUZZ_RANK] = {0, 1, 2, 3, 4, 5};
  reader none = {NULL, 0}; /* no gaps: operands are contiguous */
  DLDataType type = numbered_type(r, true);
  describe(t, operand->rank, operand->shape, indexed ? number_type(PEGEN_NUMBER_F32) : type);
  place(&none, t, order, l);
}

static void place_input(reader *r, fuzz_tensor *t, layout *l, int rank, int64_t size, DLDataType type) {
  static const int orders[2][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}};
  const int64_t shape[4] = {l->batch, l->heads[0], l->tokens[0], size};
  describe(t, rank, shape, type);
  place(r, t, orders[below(r, 2)], l);
}

/* Places an input of pairs or of keys, in float32. One may serve all batches or heads, and inputs of keys each head of
 * q or of k. */
static void place_pair_input(reader *r, fuzz_tensor *t, layout *l, const pegen_kernel *kernel, int i) {
  layout of = *l;
  bool of_keys = kernel->key_inputs >> i & 1;
  unsigned choice = byte(r);
  of.tokens[0] = l->tokens[of_keys];
  if (choice % 8 == 7) of.batch = 1;
  if (of_keys && choice / 8 % 2) of.heads[0] = l->heads[1];
  if (choice / 16 % 4 == 3) of.heads[0] = 1;
  int64_t size = kernel->inputs[i].size;
  place_input(r, t, &of, size ? 4 : 3, size == PEGEN_SIZE_OF_KEYS ? l->tokens[1] : size, number_type(PEGEN_NUMBER_F32));
  l->used = of.used;
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
  c->row_bytes = ((const pegen_table_header *)c->args.table)->row_bytes;
  c->table_words = bytes / 8 < 16 ? bytes / 8 : 16;
}

/* Room for a table, in the world where it fits, and up to 3 units of 64 bytes more than it takes. */
static void place_table(reader *r, fuzz_call *c, layout *l) {
  c->args.struct_size = sizeof(pegen_args);
  size_t bytes = c->kernel->table_bytes(&c->args) + 64 * below(r, 4), from = (l->used + 63) / 64 * 64;
  EXPECT(bytes <= TABLE_ROOM);
  c->args.table = from + bytes <= WORLD ? world + from : guarded_end() - bytes;
  c->args.table_bytes = bytes;
}

/* ---- a sound call, all of it ---- */

/* Batches, heads, tokens; whether they are the grid's, and whether k has positions of its own. */
static void read_sizes(reader *r, const fuzz_call *c, layout *l, bool *grid, bool *own_positions) {
  const pegen_kernel *kernel = c->kernel;
  const pegen_attention *attention = c->of.attention;
  l->batch = below(r, 4);
  l->tokens[0] = below(r, 8);
  if (attention && byte(r) % 16 == 15) l->batch = 1, l->tokens[0] = 40 + below(r, 40); /* more than a tile */
  *grid = kernel->grid && ((byte(r) & 1) || (attention && attention->by_rows));
  if (*grid) {
    l->tokens[0] = 1;
    for (int a = 0; a < kernel->n_axes; a++) l->tokens[0] *= kernel->grid[a];
    l->tokens[0] += kernel->skip_tokens;
  }
  l->tokens[1] = l->tokens[0];
  *own_positions = !*grid && (byte(r) & 1);
  if (*own_positions) l->tokens[1] = below(r, 8);
  for (int i = 0; i < 2; i++) l->heads[i] = kernel->heads > 0 ? kernel->heads : below(r, 4);
  if (attention) l->heads[1] = kernel->heads > 0 && (byte(r) & 1) ? 1 : l->heads[1]; /* a head of k for all of q */
  if (attention && kernel->heads == 0) l->heads[0] = l->heads[1] * (1 + below(r, 3));
}

int64_t fuzz_out_dim(const pegen_kernel *kernel, DLDataType type) {
  return kernel->widths ? kernel->widths[pegen_number_of(type)].out_dim : kernel->out_dim;
}

static void place_tensors(reader *r, fuzz_call *c, layout *l) {
  const pegen_kernel *kernel = c->kernel;
  const pegen_attention *attention = c->of.attention;
  fuzz_tensor *t = c->tensor;
  for (int i = 0; i < 2; i++) {
    fuzz_place_rows(r, &t[FUZZ_Q + i], l, i, kernel->head_dim);
    if (!attention) fuzz_place_rows(r, &t[FUZZ_Q_OUT + i], l, i, fuzz_out_dim(kernel, l->type));
    place_positions(r, &t[FUZZ_POSITIONS + i], l, i, kernel->n_axes);
  }
  if (attention) fuzz_place_rows(r, &t[FUZZ_V], l, 1, attention->value_dim);
  if (attention) fuzz_place_rows(r, &t[FUZZ_OUT], l, 0, attention->value_dim);
  for (int i = 0; i < kernel->n_operands; i++) {
    place_operand(r, &t[FUZZ_OPERAND + i], l, &kernel->operands[i], attention && attention->indexed >> i & 1);
    c->operands[i] = &t[FUZZ_OPERAND + i].dl;
  }
  DLDataType input = kernel->n_inputs && (byte(r) & 1) ? (DLDataType){kDLFloat, 32, 1} : l->type;
  for (int i = 0; i < kernel->n_inputs; i++) {
    if (kernel->pair_inputs >> i & 1) place_pair_input(r, &t[FUZZ_INPUT + i], l, kernel, i);
    else place_input(r, &t[FUZZ_INPUT + i], l, kernel->inputs[i].size ? 4 : 3, kernel->inputs[i].size, input);
    c->inputs[i] = &t[FUZZ_INPUT + i].dl;
  }
}

/* Which of the tensors the call is given, and in what places. */
static void give_rows(reader *r, fuzz_call *c) {
  fuzz_tensor *t = c->tensor;
  unsigned streams = below(r, 8), places = byte(r);
  if (c->of.attention) {
    c->args.q = &t[FUZZ_Q].dl, c->args.k = &t[FUZZ_K].dl, c->args.v = &t[FUZZ_V].dl, c->args.out = &t[FUZZ_OUT].dl;
    c->args.causal = streams & 1;
    c->args.scale = places & 1 ? 0 : (double)places / 64;
    return;
  }
  bool same = t[FUZZ_Q].shape[3] == t[FUZZ_Q_OUT].shape[3];
  if (streams != 1) c->args.q = &t[FUZZ_Q].dl, c->args.q_out = (places & 1) && same ? &t[FUZZ_Q].dl : &t[FUZZ_Q_OUT].dl;
  if (streams != 2) c->args.k = &t[FUZZ_K].dl, c->args.k_out = (places & 2) && same ? &t[FUZZ_K].dl : &t[FUZZ_K_OUT].dl;
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

void fuzz_call_read_sound(reader *r, fuzz_call *c, layout *l) {
  const pegen_kernel *kernel = c->kernel = c->of.kernel;
  bool grid, own_positions;
  fill_world();
  c->given = &c->args;
  read_sizes(r, c, l, &grid, &own_positions);
  l->type = row_type(r, kernel);
  place_tensors(r, c, l);
  c->args = (pegen_args){.struct_size = (byte(r) & 1) && !kernel->n_inputs ? PEGEN_ARGS_FIRST_SIZE : sizeof(pegen_args),
                         .n_operands = kernel->n_operands};
  c->args.operands = kernel->n_operands ? c->operands : NULL;
  c->args.n_inputs = kernel->n_inputs;
  c->args.inputs = kernel->n_inputs ? c->inputs : NULL;
  give_rows(r, c);
  if (!grid) c->args.positions = &c->tensor[FUZZ_POSITIONS].dl;
  if (own_positions) c->args.k_positions = &c->tensor[FUZZ_K_POSITIONS].dl;
  give_origin(r, c, l);
  if (c->entry == FUZZ_PREPARE) place_table(r, c, l);
  else if (c->entry == FUZZ_ENCODE && kernel->prepare && !grid && (byte(r) & 1)) make_table(r, c);
  for (int i = 0; i < FUZZ_TENSORS && c->entry == FUZZ_LAUNCH; i++) c->tensor[i].dl.device = (DLDevice){kDLCUDA, 0};
  c->parts = 1 + (int)below(r, 9);
  c->part = (int)below(r, (unsigned)c->parts);
}

static fuzz_entry choose_entry(reader *r, const fuzz_kernel *of) {
  if (of->attention) return FUZZ_ATTENTION;
  unsigned choice = below(r, 8);
  if (choice == 5 && of->kernel->prepare) return FUZZ_PREPARE;
  return choice > 5 && of->kernel->ptx ? FUZZ_LAUNCH : FUZZ_ENCODE;
}

void fuzz_call_read(fuzz_call *c, const uint8_t *data, size_t size) {
  reader r = {data, size};
  layout l = {0};
  memset(c, 0, sizeof *c);
  c->n_tensors = FUZZ_TENSORS;
  c->of = fuzz_kernel_at(below(&r, FUZZ_KERNELS));
  c->entry = choose_entry(&r, &c->of);
  fuzz_call_read_sound(&r, c, &l);
  unsigned edits = below(&r, 8);
  c->sound = edits == 0;
  for (unsigned i = 0; i < edits; i++) fuzz_call_edit(&r, c);
}

void fuzz_call_free(fuzz_call *c) {
  for (int i = 0; i < FUZZ_ALL_TENSORS; i++) {
    free(c->tensor[i].shape);
    free(c->tensor[i].strides);
  }
}

static bool is_huge(const DLTensor *t, int64_t most) {
  int64_t count = 1;
  for (int i = 0; t->shape && i < t->ndim && i < FUZZ_RANK; i++)
    if (t->shape[i] > 1 && __builtin_mul_overflow(count, t->shape[i], &count)) return true;
  return count >= most;
}

bool fuzz_any_huge(const fuzz_call *c, int64_t most) {
  bool any = false;
  for (int i = 0; i < FUZZ_ALL_TENSORS; i++) any = any || is_huge(&c->tensor[i].dl, most);
  return any;
}
