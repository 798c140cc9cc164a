/* arguments_test: every argument of every entry in kernel/arguments.h is spoilt in each way that its row has, in a call
 * that is right but for that. pegen_explain_error must name it, and the launcher miss it where it is on another device.
 * No kernel is called: what a kernel says of itself is all that is asked. */
#include "runtime/arguments.h"
#include "runtime/launch.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

enum { B = 2, H = 6, G = 3, N = 5, M = 7, D = 8, V = 4, P = 2, MOST = PEGEN_ARGUMENT_COUNT };

static const int64_t operand_shape[] = {4, 2};
static const char *const dimensions[] = {"blocks", "axes"};
static const pegen_operand operands[] = {{"freqs", "", "", "", 2, operand_shape, dimensions}};
static const pegen_input inputs[] = {{"gate", "", "", 3}};
static int entry_of_rows(const pegen_args *args, int part, int parts) { return !args || part >= parts; }

static pegen_kernel kernel_of(const char *entry) {
  pegen_kernel kernel = {.struct_size = sizeof kernel,
                         .abi_version = PEGEN_ABI_VERSION,
                         .name = "made",
                         .dtypes = PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16,
                         .head_dim = D,
                         .out_dim = D,
                         .n_axes = P,
                         .n_operands = 1,
                         .operands = operands,
                         .n_inputs = 1,
                         .inputs = inputs};
  if (strncmp(entry, "attention", 9)) kernel.encode = entry_of_rows;
  else kernel.pair_inputs = 1;
  return kernel;
}

typedef struct tensor {
  DLTensor dl;
  int64_t shape[4];
} tensor;

typedef struct call {
  const char *entry;
  int column;
  pegen_kernel kernel;
  pegen_args args;
  pegen_grad_args grad;
  tensor tensors[MOST];
  void *list[MOST][1]; /* of operands and inputs */
} call;

static int64_t size_of(const call *c, char letter) {
  switch (letter) {
  case 'B':
  case 'b': return B;
  case 'H': return H;
  case 'G': return c->column == 0 || c->column == 2 || c->column == 4 ? H : G; /* inputs are of all rows of encode */
  case 'N': return N;
  case 'M': return c->column == 0 || c->column == 2 || c->column == 4 ? N : M;
  case 'V': return strcmp(c->entry, "append") ? V : D;
  case 'P': return P;
  case 's': return B + 1;
  default: return D;
  }
}

static DLDataType type_of(pegen_argument_type type) {
  if (type == PEGEN_TYPE_I32 || type == PEGEN_TYPE_I64)
    return (DLDataType){kDLInt, type == PEGEN_TYPE_I32 ? 32 : 64, 1};
  return (DLDataType){kDLFloat, 32, 1};
}

static void fill(call *c, pegen_argument i) {
  const pegen_argument_row *row = &pegen_argument_rows[i];
  tensor *t = &c->tensors[i];
  const char *letters = row->shape;
  if (c->column == 2 && row->type == PEGEN_TYPE_OUT && strchr(letters, '/')) letters = strchr(letters, '/') + 1;
  t->dl = (DLTensor){.data = (void *)(uintptr_t)((i + 1) << 20),
                     .device = {kDLCPU, 0},
                     .dtype = type_of(row->type),
                     .shape = t->shape};
  if (row->kind == PEGEN_ARGUMENT_LIST && row->shape[0] == 'o') letters = "";
  for (; row->kind == PEGEN_ARGUMENT_TENSOR && *letters && *letters != '/'; letters++)
    t->shape[t->dl.ndim++] = size_of(c, *letters);
  if (row->kind == PEGEN_ARGUMENT_LIST) {
    int64_t of_operand[] = {4, 2}, of_input[] = {B, H, N, 3};
    t->dl.ndim = row->shape[0] == 'o' ? 2 : 4;
    memcpy(t->shape, row->shape[0] == 'o' ? of_operand : of_input, (size_t)t->dl.ndim * sizeof(int64_t));
  }
}

/* A call of all tensors that the entry takes together. */
static void begin(call *c, const char *entry) {
  memset(c, 0, sizeof *c);
  c->entry = entry;
  c->column = pegen_argument_column(entry, &c->entry);
  c->kernel = kernel_of(entry);
  c->args = (pegen_args){.struct_size = sizeof c->args, .n_operands = 1, .n_inputs = 1, .grad = &c->grad};
  c->grad.struct_size = sizeof c->grad;
  for (int i = 0; i < PEGEN_ARGUMENT_COUNT; i++) {
    const pegen_argument_row *row = &pegen_argument_rows[i];
    int is_other = row->wrong == PEGEN_ERROR_SEQUENCES || row->wrong == PEGEN_ERROR_PAGES ||
                   (row->wrong == PEGEN_ERROR_SLOTS && row->uses[c->column] != 'R');
    if (row->uses[c->column] == '.' || row->kind > PEGEN_ARGUMENT_LIST || is_other) continue;
    fill(c, (pegen_argument)i);
    void *at = &c->tensors[i].dl;
    c->list[i][0] = at;
    if (row->kind == PEGEN_ARGUMENT_LIST) at = c->list[i];
    memcpy(pegen_argument_field(row, &c->args, &c->grad), &at, sizeof at);
  }
}

static const char *explain(const call *c, int error) {
  static char text[512];
  pegen_explain_error(&c->kernel, c->entry, &c->args, error, text, sizeof text);
  return text;
}

/* As the sentence has it. */
static const char *name_of(const pegen_argument_row *row) {
  static char name[80];
  const char *of = row->shape[0] == 'o' ? "operand 'freqs'" : "input 'gate'";
  if (row->kind != PEGEN_ARGUMENT_LIST) return row->name;
  snprintf(name, sizeof name, "%s%s", row->is_grad ? "gradient of " : "", of);
  return name;
}

static void names(const call *c, int error, const pegen_argument_row *row, const char *words) {
  const char *said = explain(c, error);
  if (strncmp(said, name_of(row), strlen(name_of(row))) || !strstr(said, words))
    fail_msg("%s, %s: said '%s', not '%s'", c->entry, name_of(row), said, words);
}

static const char *const entries[] = {"encode",          "attention",          "append",           "prepare",
                                      "encode_backward", "attention_backward", "prepare_backward", "attention_tangent"};

/* Calls `spoil` for each tensor of each entry. */
static void each(void (*spoil)(call *c, const pegen_argument_row *row, DLTensor *t)) {
  static call c;
  for (int e = 0; e < (int)(sizeof entries / sizeof *entries); e++)
    for (int i = 0; i < PEGEN_ARGUMENT_COUNT; i++) {
      begin(&c, entries[e]);
      if (c.tensors[i].dl.shape) spoil(&c, &pegen_argument_rows[i], &c.tensors[i].dl);
    }
}

static void spoil_type(call *c, const pegen_argument_row *row, DLTensor *t) {
  t->dtype = (DLDataType){kDLUInt, 8, 1};
  names(c, PEGEN_ERROR_DTYPE, row, " of type uint8");
  names(c, PEGEN_ERROR_DTYPE, row, "; expected ");
}

static void spoil_rank(call *c, const pegen_argument_row *row, DLTensor *t) {
  t->ndim = -1;
  names(c, PEGEN_ERROR_RANK, row, "has -1 dimensions");
  t->ndim = 4;
  t->shape = NULL;
  names(c, PEGEN_ERROR_NULL_SHAPE, row, "has no shape");
}

static void spoil_size(call *c, const pegen_argument_row *row, DLTensor *t) {
  if (!t->ndim) return;
  t->shape[0] = -3;
  names(c, PEGEN_ERROR_NEGATIVE_SIZE, row, "has the size -3; expected ");
}

static void spoil_data(call *c, const pegen_argument_row *row, DLTensor *t) {
  t->data = NULL;
  names(c, PEGEN_ERROR_NULL_DATA, row, "has no memory");
  t->data = (void *)1;
  names(c, PEGEN_ERROR_ALIGNMENT, row, "is not aligned to its elements; expected ");
}

static void spoil_device(call *c, const pegen_argument_row *row, DLTensor *t) {
  t->device.device_type = kDLCUDA;
  const char *said = explain(c, PEGEN_ERROR_DEVICE);
  assert_non_null(strstr(said, "are on different devices; expected one"));
  assert_non_null(strstr(said, t == &c->tensors[row - pegen_argument_rows].dl ? name_of(row) : ""));
}

static void spoil_need(call *c, const pegen_argument_row *row, DLTensor *t) {
  void *none = NULL;
  (void)t;
  if (row->uses[c->column] != 'R' && row->uses[c->column] != 'W') return;
  if (row->kind == PEGEN_ARGUMENT_LIST) {
    c->list[row - pegen_argument_rows][0] = NULL;
    names(c, row->shape[0] == 'o' ? PEGEN_ERROR_MISSING_OPERAND : PEGEN_ERROR_MISSING_INPUT, row, " is missing");
  } else {
    memcpy(pegen_argument_field(row, &c->args, &c->grad), &none, sizeof none);
    names(c, PEGEN_ERROR_MISSING_TENSOR, row, " is missing; ");
  }
}

static void spoil_overlap(call *c, const pegen_argument_row *row, DLTensor *t) {
  if (!pegen_argument_is_written(row, c->column)) return;
  for (int i = 0; i < PEGEN_ARGUMENT_COUNT; i++) {
    DLTensor *other = &c->tensors[i].dl;
    if (!other->shape || other == t) continue;
    void *kept = t->data;
    t->data = (char *)other->data - 4;
    const char *said = explain(c, PEGEN_ERROR_OVERLAP);
    assert_true(strstr(said, " overlaps ") && strstr(said, name_of(row)));
    t->data = kept;
  }
}

/* Tensors of rows that have a dimension more than one of them states. */
static void spoil_agreement(call *c, const pegen_argument_row *row, DLTensor *t) {
  for (int d = 0; d < t->ndim && row->kind == PEGEN_ARGUMENT_TENSOR && row->type != PEGEN_TYPE_GRADIENT; d++) {
    int is_page = c->column == 2 && row->type == PEGEN_TYPE_OUT && t->ndim == 4 && row->shape[1] != 'H' && d < 2;
    int is_alone =
        !strncmp(c->entry, "prepare", 7) && d < t->ndim - 1; /* nothing else says how many tokens there are */
    if (row->wrong == PEGEN_ERROR_ORIGIN || row->wrong == PEGEN_ERROR_NORM || is_page || is_alone) continue;
    t->shape[d] += 60; /* a multiple of heads */
    const char *said = explain(c, row->wrong ? row->wrong : PEGEN_ERROR_SHAPE_MISMATCH);
    if (!strstr(said, "; expected ") && row->wrong != PEGEN_ERROR_SLOTS)
      fail_msg("%s, %s, dimension %d: said '%s'", c->entry, row->name, d, said);
    t->shape[d] -= 60;
  }
}

/* ---- GPUs ---- */

static int is_cuda(DLDevice device) { return device.device_type == kDLCUDA; }

static int fits_device(call *c) {
  pegen_ptx_attention attention = {.placed = 1};
  pegen_ptx_gradient gradient = {.needs_kept = 1};
  pegen_ptx ptx = {.attention = c->kernel.encode ? NULL : &attention, .gradient = &gradient};
  c->kernel.ptx = &ptx;
  c->kernel.ptx_size = sizeof ptx;
  pegen_launch_request request = {.kernel = &c->kernel, .args = &c->args};
  for (int entry = 0; entry < PEGEN_LAUNCH_COUNT; entry++)
    if (!strcmp(pegen_launch_word((pegen_launch_entry)entry), c->entry)) request.entry = (pegen_launch_entry)entry;
  return pegen_launch_on_device(&request, is_cuda);
}

static void spoil_gpu(call *c, const pegen_argument_row *row, DLTensor *t) {
  if (!strcmp(c->entry, "append") || !strncmp(c->entry, "prepare", 7) || !strcmp(c->entry, "attention_tangent"))
    return; /* on processors */
  for (int i = 0; i < PEGEN_ARGUMENT_COUNT; i++) c->tensors[i].dl.device.device_type = kDLCUDA;
  assert_true(fits_device(c));
  t->device.device_id = 1;
  if (fits_device(c)) fail_msg("%s: %s may be on another GPU", c->entry, name_of(row));
  t->device = (DLDevice){kDLCPU, 0};
  if (fits_device(c)) fail_msg("%s: %s may be on the host", c->entry, name_of(row));
}

TEST(type) { each(spoil_type); }
TEST(rank) { each(spoil_rank); }
TEST(size) { each(spoil_size); }
TEST(data) { each(spoil_data); }
TEST(device) { each(spoil_device); }
TEST(need) { each(spoil_need); }
TEST(overlap) { each(spoil_overlap); }
TEST(agreement) { each(spoil_agreement); }
TEST(gpu) { each(spoil_gpu); }

TEST(sound_calls_have_no_reason) {
  static call c;
  for (int e = 0; e < (int)(sizeof entries / sizeof *entries); e++) {
    begin(&c, entries[e]);
    assert_string_equal(explain(&c, 0), "");
    assert_int_equal(pegen_explain_error(&c.kernel, c.entry, &c.args, 0, NULL, 0), 0);
  }
}

/* Every error has words, whatever the call is, and they end where the caller's memory does. */
TEST(every_error_has_words) {
  static const int values[] = {
#define VALUE(name, value, text) value,
      PEGEN_ERRORS(VALUE)
#undef VALUE
  };
  static call c;
  char text[16];
  for (size_t i = 1; i < sizeof values / sizeof *values; i++)
    for (int e = 0; e < (int)(sizeof entries / sizeof *entries); e++) {
      if (values[i] == PEGEN_ERROR_BOUNDS) continue; /* reads what a kernel has read */
      begin(&c, entries[e]);
      assert_string_not_equal(explain(&c, values[i]), "");
      memset(text, 'x', sizeof text);
      pegen_explain_error(&c.kernel, c.entry, &c.args, values[i], text, 8);
      assert_true(memchr(text, 0, 8) && text[8] == 'x');
    }
  assert_string_equal((pegen_explain_error(NULL, "encode", &c.args, 1, text, sizeof text), text), "args is NULL");
  pegen_explain_error(&c.kernel, "nothing", &c.args, 1, text, sizeof text);
  assert_string_equal(text, "args is NULL");
}

/* Calls that are wrong in many ways at once: whatever their sizes say, nothing but what tensors say is read. */
TEST(any_call_has_words) {
  static const int64_t sizes[] = {0, 1, 2, 3, 5, 8, -1, INT64_MAX, INT64_MIN, INT64_MAX / 8};
  static call c;
  static int64_t strides[4];
  srand(1);
  for (int round = 0; round < 20000; round++) {
    begin(&c, entries[rand() % 7]);
    c.kernel.grid = rand() % 4 ? NULL : operand_shape;
    for (int edit = rand() % 6; edit >= 0; edit--) {
      DLTensor *t = &c.tensors[rand() % PEGEN_ARGUMENT_COUNT].dl;
      if (!t->shape) continue;
      switch (rand() % 6) {
      case 0: t->ndim = rand() % 5; break;
      case 1: t->shape[rand() % 4] = sizes[rand() % 10]; break;
      case 2: t->dtype = (DLDataType){(uint8_t)(rand() % 16), (uint8_t)(8 << rand() % 4), 1}; break;
      case 3:
        strides[rand() % 4] = sizes[rand() % 10];
        t->strides = strides;
        break;
      case 4: t->data = (void *)(uintptr_t)sizes[rand() % 10]; break;
      default: c.args.table = c.args.workspace = t; break;
      }
    }
    int error = rand() % 76;
    if (error && error != PEGEN_ERROR_BOUNDS) assert_string_not_equal(explain(&c, error), "");
  }
}

/* ---- whole sentences ---- */

#define T(field) c->tensors[PEGEN_ARGUMENT_args_##field].dl
static int32_t places[] = {0, 3, 2, 5};
static int64_t four[] = {4}, pages[] = {9, 16, G, D}, three[] = {B};

static void channels(call *c) { T(q).shape[3] = 15; }
static void tokens(call *c) { T(positions).shape[1] = T(k_positions).shape[1] = 4; }
static void decoded(call *c) {
  T(q).shape[2] = T(out).shape[2] = T(lse).shape[2] = 1;
  c->args.k_positions = NULL;
  c->args.n_inputs = c->kernel.n_inputs = 0;
}
static void batches(call *c) { T(k).shape[0] = T(v).shape[0] = 1; }
static void groups(call *c) { T(k).shape[1] = T(v).shape[1] = 4; }
static void apart(call *c) {
  static int64_t strides[] = {480, 80, 16, 2};
  T(k).strides = strides;
}
static void no_grid(call *c) { c->args.positions = c->args.k_positions = NULL; }
static void grid(call *c) {
  static const int64_t sizes[] = {2, 3};
  c->kernel.grid = sizes;
  c->kernel.skip_tokens = 1;
  no_grid(c);
}
static void heads(call *c) { c->kernel.heads = 4; }
static void mixed(call *c) { T(k).dtype = (DLDataType){kDLBfloat, 16, 1}; }
static void bounds(call *c) {
  static DLTensor given;
  static int64_t rows[] = {5, H, D}, axes[] = {5, P};
  given = (DLTensor){.data = places, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 32, 1}, .shape = four};
  c->args.cu_seqlens = &given;
  T(q).ndim = T(k).ndim = T(q_out).ndim = T(k_out).ndim = 3;
  T(q).shape = T(k).shape = T(q_out).shape = T(k_out).shape = rows;
  T(positions).ndim = T(k_positions).ndim = 2;
  T(positions).shape = T(k_positions).shape = axes;
}
static void paged(call *c) {
  static DLTensor lengths;
  lengths = (DLTensor){.data = places, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 64, 1}, .shape = three};
  c->args.block_table = c->args.lengths = &lengths;
  T(k).shape = pages;
}
static void operand(call *c) { c->tensors[PEGEN_ARGUMENT_args_operands].dl.shape[0] = 3; }
static void input(call *c) { c->tensors[PEGEN_ARGUMENT_args_inputs].dl.shape[1] = 4; }
static void no_output(call *c) { c->args.q_out = NULL; }
static void shared(call *c) {
  static int64_t strides[] = {0, 0, 8, 1};
  T(out).strides = strides;
}
static void nothing(call *c) { (void)c; }

TEST(sentences) {
  static const struct {
    const char *entry;
    int error;
    void (*spoil)(call *c);
    const char *said;
  } rows[] = {
      {"encode", PEGEN_ERROR_HEAD_DIM, channels, "q has 15 channels; expected 8, the kernel's head_dim"},
      {"encode", PEGEN_ERROR_POSITIONS_SHAPE, tokens, "positions are of 4 tokens; expected 5, as many as q has"},
      {"attention", PEGEN_ERROR_POSITIONS_SHAPE, decoded,
       "positions are of 5 tokens, and q has 1, k 7; expected positions of q's 1 and k_positions of k's 7"},
      {"attention", PEGEN_ERROR_SHAPE_MISMATCH, batches, "k has 1 batches; expected 2, as many as q has"},
      {"attention", PEGEN_ERROR_HEAD_GROUPS, groups, "k has 4 heads; expected a divisor of q's 6"},
      {"attention_backward", PEGEN_ERROR_CHANNEL_STRIDE, apart,
       "k has channels that are not adjacent (stride 2); expected a copy where they are"},
      {"prepare", PEGEN_ERROR_MISSING_POSITIONS, no_grid, "positions are missing; this kernel has no built-in grid"},
      {"encode", PEGEN_ERROR_GRID_SIZE, grid,
       "q has 5 tokens; expected 7, those of the kernel's grid of 2 x 3 and 1 of skip_tokens, or positions"},
      {"encode", PEGEN_ERROR_HEADS, heads,
       "q has 6 heads; expected 4 or a multiple of it, which the kernel was made for (heads)"},
      {"attention", PEGEN_ERROR_HEADS, heads, "q has 6 heads; expected 4, which the kernel was made for (heads)"},
      {"encode_backward", PEGEN_ERROR_DTYPE_MISMATCH, mixed,
       "k is of type bfloat16, and q of float32; expected one type"},
      {"encode", PEGEN_ERROR_BOUNDS, bounds,
       "cu_seqlens falls from 3 to 2 in sequence 1; expected boundaries that never fall"},
      {"attention", PEGEN_ERROR_PAGES, paged,
       "block_table, lengths: block_table and lengths must be adjacent int32 [B,most_pages] and [B], k and v "
       "[pages,page_size,Hkv,D] with a page_size that is a multiple of 16, with k_positions where positions are needed "
       "and without k_cu_seqlens"},
      {"prepare_backward", PEGEN_ERROR_OPERAND_SHAPE, operand,
       "operand 'freqs' has the shape [3, 2]; expected [4, 2] (blocks, axes)"},
      {"attention", PEGEN_ERROR_INPUT_SHAPE, input,
       "input 'gate' has the shape [2, 4, 5, 3]; expected [2, 6, 5, 3], a row for each of q's (1 batch or head: for "
       "all)"},
      {"encode", PEGEN_ERROR_MISSING_OUTPUT, no_output, "q_out is missing; expected it beside q"},
      {"attention", PEGEN_ERROR_STRIDE, shared,
       "out has elements that share memory; expected an array without strides of 0"},
      {"attention", PEGEN_ERROR_SCALE, nothing, "scale: scale is not a finite number"},
      {"attention_backward", PEGEN_ERROR_NO_GRADIENT, nothing,
       "q, k, v, positions, k_positions, operands, inputs: a gradient was asked for that this kernel's entry does not "
       "have"},
  };
  static call c;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    begin(&c, rows[i].entry);
    rows[i].spoil(&c);
    assert_string_equal(explain(&c, rows[i].error), rows[i].said);
  }
}

int main(void) { return run_listed(); }
