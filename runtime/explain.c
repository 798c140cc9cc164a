/* explain.c: which argument a kernel refused, what was seen and what was expected. It walks the rows of
 * kernel/arguments.h, in the order in which kernels check them: what is given, devices, each tensor by itself, then
 * tensors against each other, then memory. A call that goes well pays nothing for this. */
#include "pegen/cuda.h"

#include "arguments.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_LISTED = 32, MOST_RANK = 8, MOST_SEEN = PEGEN_ARGUMENT_COUNT + 4 * MOST_LISTED, NAME_BYTES = 80 };
typedef char words[160];

typedef pegen_argument_row row;

static const row *const rows = pegen_argument_rows;

/* A tensor that is given. */
typedef struct seen {
  const DLTensor *tensor;
  const row *row;
  int index; /* in its list */
  char name[NAME_BYTES];
} seen;

typedef struct call {
  pegen_kernel kernel; /* copies: fields that an older struct ends before are 0 */
  pegen_args args;
  pegen_grad_args grad;
  const char *entry;
  int column; /* of pegen_argument's uses */
  int error;
  int n;
  seen all[MOST_SEEN];
  char *text;
  size_t size;
  int found;
} call;

/* ---- words ---- */

/* The first reason stays. */
__attribute__((format(printf, 2, 3))) static void say(call *c, const char *format, ...) {
  va_list values;
  if (c->found) return;
  va_start(values, format);
  vsnprintf(c->text, c->size, format, values);
  va_end(values);
  c->found = 1;
}

__attribute__((format(printf, 2, 3))) static void append(words to, const char *format, ...) {
  size_t size = strlen(to);
  va_list values;
  va_start(values, format);
  vsnprintf(to + size, sizeof(words) - size, format, values);
  va_end(values);
}

static const char *name_type(DLDataType type, words to) {
  static const char *const kinds[] = {"int", "uint", "float", "unknown", "bfloat", "complex", "bool"};
  const char *kind = type.code < sizeof kinds / sizeof *kinds ? kinds[type.code] : "unknown";
  if (type.code == PEGEN_DL_FLOAT8_E4M3FN) kind = "float8_e4m3fn";
  else if (type.code == PEGEN_DL_FLOAT8_E5M2) kind = "float8_e5m2";
  to[0] = 0;
  if (type.code > 5) append(to, "%s", kind);
  else append(to, "%s%d", kind, type.bits);
  if (type.lanes != 1) append(to, "x%d", type.lanes);
  return to;
}

static const char *name_sizes(const int64_t *sizes, int n, words to) {
  to[0] = 0;
  for (int i = 0; i < n; i++) append(to, "%s%lld", i ? ", " : "", (long long)sizes[i]);
  return to;
}

/* Names of many things have a verb of their own. */
static int is_many(const seen *s) { return s->row->type == PEGEN_TYPE_POSITION && s->row->shape[1] != 'P'; }

static int is_type(const DLTensor *t, int code, int bits) { return t->dtype.code == code && t->dtype.bits == bits; }
static int same_type(const DLTensor *a, const DLTensor *b) { return is_type(a, b->dtype.code, b->dtype.bits); }

/* PEGEN_DTYPE_ of rows; 0: another. */
static uint32_t row_type(const DLTensor *t) {
  if (is_type(t, kDLFloat, 32)) return PEGEN_DTYPE_F32;
  if (is_type(t, kDLBfloat, 16)) return PEGEN_DTYPE_BF16;
  return is_type(t, kDLFloat, 16) ? PEGEN_DTYPE_F16 : 0;
}

static int is_operand_type(const DLTensor *t) { return row_type(t) || is_type(t, kDLFloat, 64); }

/* ---- what is given ---- */

static int is_written(const call *c, const row *r) { return pegen_argument_is_written(r, c->column); }

static const void *pointer_at(const call *c, const row *r) {
  const void *at;
  memcpy(&at, pegen_argument_field(r, &c->args, &c->grad), sizeof at);
  return r->uses[c->column] == '.' || r->kind == PEGEN_ARGUMENT_NUMBER ? NULL : at;
}

static const DLTensor *tensor_of(const call *c, pegen_argument argument) { return pointer_at(c, &rows[argument]); }
#define GIVEN(field) tensor_of(c, PEGEN_ARGUMENT_##field)

static void see(call *c, const row *r, int index, const DLTensor *t, const char *format, const char *name) {
  seen *s = &c->all[c->n++];
  *s = (seen){.tensor = t, .row = r, .index = index};
  snprintf(s->name, sizeof s->name, format, name);
}

static void see_list(call *c, const row *r) {
  const DLTensor *const *list = pointer_at(c, r);
  int of_operands = r->shape[0] == 'o', count = of_operands ? c->kernel.n_operands : c->kernel.n_inputs,
      given = of_operands ? c->args.n_operands : c->args.n_inputs;
  const char *formats[2][2] = {{"input '%.32s'", "gradient of input '%.32s'"},
                               {"operand '%.32s'", "gradient of operand '%.32s'"}};
  for (int i = 0; i < count && i < MOST_LISTED; i++) {
    const DLTensor *t = list && i < given ? list[i] : NULL;
    const char *name = of_operands ? c->kernel.operands[i].name : c->kernel.inputs[i].name;
    if (t) see(c, r, i, t, formats[of_operands][r->is_grad], name);
    else if (!r->is_grad && c->error == (of_operands ? PEGEN_ERROR_MISSING_OPERAND : PEGEN_ERROR_MISSING_INPUT))
      say(c, "%s '%.32s' is missing", of_operands ? "operand" : "input", name);
  }
}

static void see_all(call *c) {
  for (int i = 0; i < PEGEN_ARGUMENT_COUNT; i++) {
    const row *r = &rows[i];
    if (r->uses[c->column] == '.') continue;
    if (r->kind == PEGEN_ARGUMENT_LIST) see_list(c, r);
    if (r->kind != PEGEN_ARGUMENT_TENSOR) continue;
    const DLTensor *t = pointer_at(c, r);
    if (t) see(c, r, 0, t, "%s", r->name);
    else if (isupper((unsigned char)r->uses[c->column])) say(c, "%s is missing; %s needs it", r->name, c->entry);
  }
}

static void explain_pairs(call *c) {
  static const pegen_argument pairs[][2] = {{PEGEN_ARGUMENT_args_q, PEGEN_ARGUMENT_args_q_out},
                                            {PEGEN_ARGUMENT_args_k, PEGEN_ARGUMENT_args_k_out},
                                            {PEGEN_ARGUMENT_args_v, PEGEN_ARGUMENT_args_v_out}};
  for (int i = 0; i < 3 && c->error == PEGEN_ERROR_MISSING_OUTPUT; i++) {
    const DLTensor *in = tensor_of(c, pairs[i][0]), *out = tensor_of(c, pairs[i][1]);
    if (!in != !out)
      say(c, "%s is missing; expected it beside %s", rows[pairs[i][in != NULL]].name, rows[pairs[i][in == NULL]].name);
  }
}

/* ---- shapes ---- */

/* Letters of the dimensions that it should have. */
static const char *letters_of(const call *c, const row *r, int *n) {
  const char *pages = strchr(r->shape, '/'), *letters = r->shape;
  int is_paged = r->type == PEGEN_TYPE_OUT ? c->args.slots != NULL : c->args.block_table != NULL;
  if (pages && (is_paged || pages == letters)) letters = pages + 1;
  *n = (int)strcspn(letters, "/");
  return letters;
}

/* -1: it has no such dimension. */
static int64_t size_of(const call *c, const seen *s, char letter) {
  static const int without[] = {-1, 1, 0, 2}; /* [N,H,D] */
  int n;
  const char *letters = letters_of(c, s->row, &n), *at = memchr(letters, letter, (size_t)n);
  if (s->row->kind == PEGEN_ARGUMENT_LIST || !at) return -1;
  if (s->tensor->ndim == n) return s->tensor->shape[at - letters];
  if (letters[0] != 'B' || s->tensor->ndim != n - 1) return -1;
  return at == letters ? 1 : s->tensor->shape[without[at - letters]];
}

/* The first tensor of rows that has the dimension. */
static const seen *rows_with(const call *c, char letter) {
  for (int i = 0; i < c->n; i++)
    if (pegen_argument_is_rows(c->all[i].row) && size_of(c, &c->all[i], letter) >= 0) return &c->all[i];
  return NULL;
}

static int32_t width_of(const pegen_kernel *kernel, const DLTensor *t) {
  uint32_t type = row_type(t);
  if (!kernel->widths || !type) return kernel->out_dim;
  return kernel->widths[type >> 1].out_dim; /* 1, 2, 4: [f32, bf16, f16] */
}

/* Shapes that nothing can be said about before they can be read. */
static void explain_form(call *c, const seen *s) {
  if (s->tensor->ndim < 0 || s->tensor->ndim > MOST_RANK) say(c, "%s has %d dimensions", s->name, s->tensor->ndim);
  else if (s->tensor->ndim && !s->tensor->shape) say(c, "%s has no shape: it is NULL", s->name);
  for (int i = 0; !c->found && i < s->tensor->ndim; i++)
    if (s->tensor->shape[i] < 0)
      say(c, "%s has the size %lld; expected none below 0", s->name, (long long)s->tensor->shape[i]);
}

static void explain_ranks(call *c) {
  const seen *first = NULL;
  for (int i = 0; i < c->n; i++) {
    const seen *s = &c->all[i];
    int n, rank = s->tensor->ndim, is_paged = letters_of(c, s->row, &n)[0] == 'p';
    if (!pegen_argument_is_rows(s->row)) continue;
    if (is_paged ? rank != 4 : rank != 3 && rank != 4)
      say(c, "%s has %d dimensions; expected four, %s", s->name, rank,
          is_paged ? "[pages, page_size, heads, channels]"
                   : "[batches, heads, tokens, channels], or three, [tokens, heads, channels]");
    if (is_paged) continue;
    if (!first) first = s;
    if (rank != first->tensor->ndim)
      say(c, "%s has %d dimensions, and %s %d; expected as many", s->name, rank, first->name, first->tensor->ndim);
  }
  if (first && first->tensor->ndim != 3 && GIVEN(args_cu_seqlens))
    say(c, "%s has %d dimensions; expected [tokens, heads, channels]", first->name, first->tensor->ndim);
}

static void explain_channels(call *c, const seen *s) {
  const DLTensor *t = s->tensor;
  int64_t channels = t->shape[t->ndim - 1];
  int n, is_wide = letters_of(c, s->row, &n)[n - 1] == 'E',
         of_v = s->row->shape[3] == 'V' && !strncmp(c->entry, "attention", 9);
  int32_t width = is_wide ? width_of(&c->kernel, t) : c->kernel.head_dim;
  words type, what = "head_dim";
  if (is_wide) snprintf(what, sizeof what, "width of %s rows", name_type(t->dtype, type));
  if (!of_v && channels != width)
    say(c, "%s has %lld channels; expected %d, the kernel's %s", s->name, (long long)channels, width, what);
  if (t->strides && channels > 1 && t->strides[t->ndim - 1] != 1)
    say(c, "%s has channels that are not adjacent (stride %lld); expected a copy where they are", s->name,
        (long long)t->strides[t->ndim - 1]);
}

/* Positions [N] or [B,N] of one axis lack the last dimension. tokens: of their rows; -1: there are none. */
static int is_bare(const call *c, const DLTensor *t, int64_t tokens) {
  if (c->kernel.n_axes != 1) return 0;
  return t->ndim == 1 || (t->ndim == 2 && (t->shape[1] != 1 || (tokens == 1 && t->shape[0] != 1)));
}

/* Rows whose positions these are: of q, and without k_positions of k, too. */
static void explain_positions(call *c, const seen *s) {
  const seen *of[2] = {rows_with(c, 'N'), rows_with(c, 'M')};
  int axes = c->kernel.n_axes, of_keys = s->row->shape[1] == 'M', has_own = GIVEN(args_k_positions) != NULL;
  if (of_keys) of[0] = NULL;
  else if (has_own) of[1] = NULL;
  const seen *first = of[0] ? of[0] : of[1];
  const DLTensor *t = s->tensor;
  int bare = is_bare(c, t, first ? size_of(c, first, of[0] ? 'N' : 'M') : -1), rank = t->ndim + bare;
  words shape;
  if ((rank != 2 && rank != 3) || (!bare && t->shape[rank - 1] != axes)) {
    say(c, "%s have the shape [%s]; expected [tokens, %d] or [batches, tokens, %d]%s", s->name,
        name_sizes(t->shape, t->ndim, shape), axes, axes, axes == 1 ? ", [tokens] or [batches, tokens]" : "");
    return;
  }
  long long tokens = t->shape[rank - 2], q = of[0] ? size_of(c, of[0], 'N') : 0, k = of[1] ? size_of(c, of[1], 'M') : q;
  if (of[0] && of[1] && q != k)
    say(c,
        "%s are of %lld tokens, and %s has %lld, %s %lld; expected positions of q's %lld and k_positions of k's %lld",
        s->name, tokens, of[0]->name, q, of[1]->name, k, q, k);
  const DLTensor *lengths = of_keys ? GIVEN(args_lengths) : NULL;
  if (lengths && lengths->ndim == 1 && rank == 3 && t->shape[0] != lengths->shape[0])
    say(c, "%s are of %lld sequences; expected %lld, as many as lengths has, or [tokens, %d] for all of them", s->name,
        (long long)t->shape[0], (long long)lengths->shape[0], axes);
  for (int i = 0; i < 2 && !lengths; i++) {
    long long expected = i ? k : q, batches = of[i] ? size_of(c, of[i], 'B') : 0;
    if (!of[i]) continue;
    if (tokens != expected)
      say(c, "%s are of %lld tokens; expected %lld, as many as %s has", s->name, tokens, expected, of[i]->name);
    if (rank == 3 && t->shape[0] != batches)
      say(c, "%s are of %lld batches; expected %lld, or [tokens, %d] for all of them", s->name, (long long)t->shape[0],
          batches, axes);
  }
}

/* Rows of a built-in grid, whose positions are left out. */
static void explain_grid(call *c) {
  int64_t tokens = 1;
  words sizes = "", skipped = "";
  if (GIVEN(args_positions) || GIVEN(args_k_positions) || GIVEN(args_cu_seqlens) || !c->kernel.grid) return;
  for (int i = 0; i < c->kernel.n_axes; i++) {
    tokens *= c->kernel.grid[i];
    append(sizes, "%s%lld", i ? " x " : "", (long long)c->kernel.grid[i]);
  }
  tokens += c->kernel.skip_tokens;
  if (c->kernel.skip_tokens) append(skipped, " and %d of skip_tokens", c->kernel.skip_tokens);
  for (int keys = 0; keys < 2; keys++) {
    const seen *s = rows_with(c, keys ? 'M' : 'N');
    if (s && size_of(c, s, keys ? 'M' : 'N') != tokens)
      say(c, "%s has %lld tokens; expected %lld, those of the kernel's grid of %s%s, or positions", s->name,
          (long long)size_of(c, s, keys ? 'M' : 'N'), (long long)tokens, sizes, skipped);
  }
}

/* Heads that the kernel was made for. Where rows are encoded, q may have a multiple of them. */
static void explain_heads(call *c) {
  const seen *of[2] = {rows_with(c, 'H'), rows_with(c, 'G')};
  int is_pairs = GIVEN(args_v) && !c->args.slots, heads = c->kernel.heads;
  for (int keys = 0; keys < (is_pairs ? 1 : 2) && heads; keys++) {
    int64_t has = of[keys] ? size_of(c, of[keys], keys ? 'G' : 'H') : heads;
    int is_shared = !keys && !is_pairs && c->kernel.out_dim == c->kernel.head_dim;
    if (has != heads && (!is_shared || !has || has % heads))
      say(c, "%s has %lld heads; expected %d%s, which the kernel was made for (heads)", of[keys]->name, (long long)has,
          heads, is_shared ? " or a multiple of it" : "");
  }
  if (!is_pairs || !of[0] || !of[1]) return;
  int64_t q = size_of(c, of[0], 'H'), k = size_of(c, of[1], 'G');
  if (!k || q % k)
    say(c, "%s has %lld heads; expected a divisor of %s's %lld", of[1]->name, (long long)k, of[0]->name, (long long)q);
}

/* A dimension has one size in all tensors that have it: that of the first. */
static void explain_agreement(call *c) {
  static const char letters[] = "BHGNMV";
  static const char *const names[] = {"batches", "heads", "heads", "tokens", "tokens", "channels"};
  for (int i = 0; i < c->n; i++)
    for (int letter = 0; letters[letter]; letter++) {
      const seen *s = &c->all[i], *first = rows_with(c, letters[letter]);
      int64_t has = size_of(c, s, letters[letter]);
      if (s->row->shape[0] == 'b' || (s->row->type == PEGEN_TYPE_I32 && c->args.cu_seqlens)) continue; /* sequences */
      if (first && has >= 0 && has != size_of(c, first, letters[letter]))
        say(c, "%s has %lld %s; expected %lld, as many as %s has", s->name, (long long)has, names[letter],
            (long long)size_of(c, first, letters[letter]), first->name);
    }
}

/* ---- lists ---- */

/* Returns a dimension's stride, from the shape where a tensor has no strides. Products are unsigned, since sizes may be
 * any. */
static int64_t stride_of(const DLTensor *t, int dim) {
  uint64_t step = 1;
  if (t->strides) return t->strides[dim];
  for (int i = dim + 1; i < t->ndim; i++) step *= (uint64_t)t->shape[i];
  return (int64_t)step;
}

static int is_contiguous(const DLTensor *t) {
  uint64_t step = 1;
  for (int i = t->ndim - 1; i >= 0; i--) {
    if (t->shape[i] > 1 && (uint64_t)stride_of(t, i) != step) return 0;
    step *= (uint64_t)t->shape[i];
  }
  return 1;
}

static void explain_operand(call *c, const seen *s) {
  const pegen_operand *want = &c->kernel.operands[s->index];
  words has, expected, names = "";
  int agrees = s->tensor->ndim == want->rank;
  for (int i = 0; i < want->rank; i++) {
    append(names, "%s%s", i ? ", " : "", want->dimension[i]);
    agrees = agrees && s->tensor->shape[i] == want->shape[i];
  }
  if (!agrees)
    say(c, "%s has the shape [%s]; expected [%s] (%s)", s->name, name_sizes(s->tensor->shape, s->tensor->ndim, has),
        name_sizes(want->shape, want->rank, expected), names);
  if (!is_contiguous(s->tensor)) say(c, "%s is not contiguous; expected a copy that is", s->name);
}

/* What an input's rows are: whose they are, and where sizes of 1, or of q's heads, stand for all. */
typedef struct input_rule {
  const seen *of;
  int repeats, of_keys, is_paged;
  const char *more; /* of the sentence */
} input_rule;

static void explain_input_rows(call *c, const seen *s, const input_rule *rule) {
  const seen *q = rows_with(c, 'N'), *keys = rows_with(c, 'M');
  if (!rule->of || !q || rule->of->tensor->ndim < 3) return;
  const DLTensor *t = s->tensor, *of = rule->of->tensor;
  int64_t expected[4], size = c->kernel.inputs[s->index].size, rank = of->ndim - (size == 0);
  const char *what = rule->is_paged  ? "in k's pages"
                     : rule->of_keys ? "a row for each of k's"
                                     : "a row for each of q's";
  if (size == PEGEN_SIZE_OF_KEYS) {
    int is_refused = GIVEN(args_cu_seqlens) || c->args.block_table;
    if (is_refused)
      say(c, "%s is of pairs of a query and a key; expected no cu_seqlens and no pages beside it", s->name);
    if (is_refused || !keys) return;
    size = size_of(c, keys, 'M');
    what = "a number for each pair of a query and a key";
  }
  int head = rule->is_paged ? 2 : 1, batch = rule->is_paged || of->ndim == 3 ? -1 : 0, agrees = t->ndim == rank;
  for (int i = 0; i < rank; i++) {
    expected[i] = i < of->ndim - 1 ? of->shape[i] : size;
    int fits =
        agrees && (t->shape[i] == expected[i] || (rule->repeats && t->shape[i] == 1 && (i == head || i == batch)));
    agrees = fits || (agrees && rule->of_keys && i == head && t->shape[i] == size_of(c, q, 'H'));
  }
  words has, sizes;
  if (!agrees)
    say(c, "%s has the shape [%s]; expected [%s], %s%s", s->name, name_sizes(t->shape, t->ndim, has),
        name_sizes(expected, (int)rank, sizes), what, rule->more);
}

static void explain_input(call *c, const seen *s) {
  const pegen_kernel *kernel = &c->kernel;
  int of_rows = kernel->encode && !kernel->n_columns, of_pairs = kernel->pair_inputs >> s->index & 1,
      of_keys = of_pairs && kernel->key_inputs >> s->index & 1;
  const seen *q = rows_with(c, 'N'), *k = NULL;
  for (int i = 0; i < c->n && !k; i++)
    if (pegen_argument_is_rows(c->all[i].row) && strchr("GM", c->all[i].row->shape[1])) k = &c->all[i];
  input_rule rule = {.of = q, .more = ""};
  words type, of_q;
  if (of_rows) {
    rule.repeats = 1;
    rule.more = " (1 batch or head: for all); q and k whose tokens or heads differ go in two calls";
    explain_input_rows(c, s, &rule);
    rule.of = k;
  } else if (of_pairs) {
    rule = (input_rule){of_keys ? k : q, 1, of_keys, of_keys && c->args.block_table, " (1 batch or head: for all)"};
    if (of_keys) rule.more = " (1 batch or head: for all, or heads of q)";
  }
  explain_input_rows(c, s, &rule);
  int takes_rows = !of_rows && !of_pairs && q && row_type(q->tensor) != PEGEN_DTYPE_F32,
      is_narrow = kernel->reads_narrow_pairs && kernel->inputs[s->index].size == PEGEN_SIZE_OF_KEYS &&
                  s->row == &rows[PEGEN_ARGUMENT_args_inputs];
  if (is_type(s->tensor, kDLFloat, 32) || (takes_rows && same_type(s->tensor, q->tensor)) ||
      (is_narrow && row_type(s->tensor)))
    return;
  say(c, "%s is of type %s; expected float32%s%s%s", s->name, name_type(s->tensor->dtype, type),
      takes_rows ? ", or q's " : "", takes_rows ? name_type(q->tensor->dtype, of_q) : "",
      is_narrow ? ", bfloat16 or float16" : "");
}

/* ---- number types ---- */

static void explain_row_type(call *c, const seen *s) {
  uint32_t type = row_type(s->tensor);
  const seen *first = &c->all[0];
  int of_types = !c->error || c->error == PEGEN_ERROR_DTYPE || c->error == PEGEN_ERROR_DTYPE_MISMATCH ||
                 c->error == PEGEN_ERROR_GRADIENT_DTYPE;
  words own, other;
  name_type(s->tensor->dtype, own);
  if (!is_written(c, s->row) && !type) say(c, "%s is of type %s; expected float32, bfloat16 or float16", s->name, own);
  if (!is_written(c, s->row) && !(c->kernel.dtypes & type * (1 | 1 << PEGEN_TO_F8E4M3 | 1 << PEGEN_TO_F8E5M2)))
    say(c, "%s is of type %s, for which the kernel was not compiled (dtypes)", s->name, own);
  if (!pegen_argument_is_rows(first->row) || same_type(s->tensor, first->tensor)) return;
  name_type(first->tensor->dtype, other);
  if (!is_written(c, s->row) || of_types)
    say(c, "%s is of type %s, and %s of %s; expected %s", s->name, own, first->name, other,
        s->row->type == PEGEN_TYPE_OUT ? "that, or one that the kernel converts to (dtypes)" : "one type");
}

static void explain_type(call *c, const seen *s) {
  static const char *const expected[] = {
      [PEGEN_TYPE_POSITION] = "float32, float64, int32 or int64",
      [PEGEN_TYPE_OPERAND] = "float32, float64, float16 or bfloat16",
      [PEGEN_TYPE_GRADIENT] = "float32 or float64",
      [PEGEN_TYPE_F32] = "float32",
      [PEGEN_TYPE_I32] = "int32",
      [PEGEN_TYPE_I64] = "int64",
      [PEGEN_TYPE_NONE] = NULL,
  };
  const DLTensor *t = s->tensor;
  int is_float = is_type(t, kDLFloat, 32) || is_type(t, kDLFloat, 64),
      is_int = is_type(t, kDLInt, 32) || is_type(t, kDLInt, 64), fits = 1;
  words type;
  switch ((pegen_argument_type)s->row->type) {
  case PEGEN_TYPE_ROW:
  case PEGEN_TYPE_OUT:
  case PEGEN_TYPE_INPUT:
  case PEGEN_TYPE_NONE: return; /* explain_row_type, explain_input */
  case PEGEN_TYPE_POSITION: fits = is_float || is_int; break;
  case PEGEN_TYPE_OPERAND: fits = is_operand_type(t); break;
  case PEGEN_TYPE_GRADIENT: fits = is_float; break;
  case PEGEN_TYPE_F32: fits = is_type(t, kDLFloat, 32); break;
  case PEGEN_TYPE_I32: fits = is_type(t, kDLInt, 32); break;
  case PEGEN_TYPE_I64: fits = is_type(t, kDLInt, 64); break;
  }
  if (!fits)
    say(c, "%s %s of type %s; expected %s", s->name, is_many(s) ? "are" : "is", name_type(t->dtype, type),
        expected[s->row->type]);
}

/* ---- sequences ---- */

/* Boundaries of rows of q, of k, or of both. What they hold is read where the kernel has read it. */
static void explain_bounds(call *c, const seen *s) {
  const DLTensor *t = s->tensor;
  int is_last = s->row == &rows[PEGEN_ARGUMENT_args_k_cu_seqlens] || !GIVEN(args_k_cu_seqlens),
      is_first = s->row == &rows[PEGEN_ARGUMENT_args_cu_seqlens];
  words shape;
  if (t->ndim != 1 || !t->shape[0]) {
    say(c, "%s has the shape [%s]; expected [sequences + 1]", s->name, name_sizes(t->shape, t->ndim, shape));
    return;
  }
  if (!is_contiguous(t)) say(c, "%s is not contiguous; expected a copy that is", s->name);
  if (c->error != PEGEN_ERROR_BOUNDS || c->found) return;
  const int32_t *at = (const int32_t *)(const void *)((const char *)t->data + t->byte_offset);
  int64_t n = t->shape[0] - 1;
  if (at[0]) say(c, "%s begins at %d; expected 0", s->name, at[0]);
  for (int64_t i = 0; i < n; i++)
    if (at[i] > at[i + 1])
      say(c, "%s falls from %d to %d in sequence %lld; expected boundaries that never fall", s->name, at[i], at[i + 1],
          (long long)i);
  for (int keys = 0; keys < 2; keys++) {
    const seen *of = (keys ? is_last : is_first) ? rows_with(c, keys ? 'M' : 'N') : NULL;
    int64_t count = of ? size_of(c, of, keys ? 'M' : 'N') : at[n];
    if (at[n] != count)
      say(c, "%s ends at %d; expected %lld, the rows of %s%s", s->name, at[n], (long long)count, of->name,
          at[n] < count ? "; rows behind the last sequence are one sequence more" : "");
  }
}

static void explain_sequences(call *c) {
  const DLTensor *q = GIVEN(args_cu_seqlens), *k = GIVEN(args_k_cu_seqlens);
  if (c->error != PEGEN_ERROR_SEQUENCES && c->error != PEGEN_ERROR_BOUNDS && c->error) return;
  if (k && !q && GIVEN(args_q)) say(c, "cu_seqlens is missing; expected it beside k_cu_seqlens");
  for (int i = 0; i < c->n; i++)
    if (c->all[i].row->wrong == PEGEN_ERROR_SEQUENCES) explain_bounds(c, &c->all[i]);
  if (q && k && !c->found && q->shape[0] != k->shape[0])
    say(c, "k_cu_seqlens is of %lld sequences; expected %lld, as cu_seqlens", (long long)k->shape[0] - 1,
        (long long)q->shape[0] - 1);
}

/* ---- memory ---- */

static uintptr_t address_of(const DLTensor *t) { return (uintptr_t)t->data + (uintptr_t)t->byte_offset; }

/* The first byte, and the one behind the last. 0: it has none, or more than there are. */
static int find_extent(const DLTensor *t, uintptr_t *low, uintptr_t *high) {
  int64_t first = 0, last = 1, width = t->dtype.bits / 8, reach;
  int wrong = 0;
  for (int i = 0; i < t->ndim; i++) {
    wrong |= t->shape[i] == 0 || __builtin_mul_overflow(t->shape[i] - 1, stride_of(t, i), &reach);
    int64_t *end = reach < 0 ? &first : &last;
    wrong = wrong || __builtin_add_overflow(*end, reach, end);
    if (wrong) return 0;
  }
  *low = address_of(t) + (uintptr_t)first * (uintptr_t)width;
  *high = address_of(t) + (uintptr_t)last * (uintptr_t)width;
  return 1;
}

static int is_same_memory(const DLTensor *a, const DLTensor *b) {
  int same = a->ndim == b->ndim && address_of(a) == address_of(b) && same_type(a, b);
  for (int i = 0; i < a->ndim && same; i++)
    same = a->shape[i] == b->shape[i] && (a->shape[i] < 2 || stride_of(a, i) == stride_of(b, i));
  return same;
}

static void explain_overlap(call *c, const seen *out) {
  uintptr_t low, high, begin, end;
  if (!find_extent(out->tensor, &low, &high)) return;
  for (int i = 0; i < c->n; i++) {
    const seen *s = &c->all[i];
    if (s == out || is_same_memory(s->tensor, out->tensor) || !find_extent(s->tensor, &begin, &end)) continue;
    if (begin < high && low < end)
      say(c, "%s overlaps %s; expected memory of its own, or all of its input's", out->name, s->name);
  }
}

static void explain_memory(call *c, const seen *s) {
  const DLTensor *t = s->tensor;
  unsigned width = t->dtype.bits / 8u;
  if (c->error == PEGEN_ERROR_NULL_DATA && !t->data) say(c, "%s has no memory: its data is NULL", s->name);
  if (c->error == PEGEN_ERROR_ALIGNMENT && width && address_of(t) % width)
    say(c, "%s is not aligned to its elements; expected a copy that is", s->name);
  if (!is_written(c, s->row)) return;
  for (int i = 0; c->error == PEGEN_ERROR_STRIDE && i < t->ndim; i++)
    if (t->shape[i] > 1 && !stride_of(t, i))
      say(c, "%s has elements that share memory; expected an array without strides of 0", s->name);
  if (c->error == PEGEN_ERROR_OVERLAP) explain_overlap(c, s);
}

/* ---- all of them ---- */

static void explain_devices(call *c) {
  for (int i = 1; i < c->n; i++) {
    DLDevice first = c->all[0].tensor->device, own = c->all[i].tensor->device;
    if (own.device_type != first.device_type || own.device_id != first.device_id)
      say(c, "%s and %s are on different devices; expected one", c->all[i].name, c->all[0].name);
  }
}

static void explain_row(call *c, const seen *s) {
  if (!pegen_argument_is_rows(s->row)) return;
  explain_channels(c, s);
  explain_row_type(c, s);
}

static void explain_other(call *c, const seen *s) {
  explain_type(c, s);
  if (s->row->type == PEGEN_TYPE_POSITION && is_many(s)) explain_positions(c, s);
  if (s->row->kind == PEGEN_ARGUMENT_LIST && s->row->shape[0] == 'o') explain_operand(c, s);
  if (s->row->type == PEGEN_TYPE_INPUT) explain_input(c, s);
}

/* Errors of memory, and those of an argument that is checked behind all others. */
static int is_of_shapes(int error) {
  switch (error) {
  case PEGEN_ERROR_NULL_DATA:
  case PEGEN_ERROR_ALIGNMENT:
  case PEGEN_ERROR_STRIDE:
  case PEGEN_ERROR_OVERLAP:
  case PEGEN_ERROR_INDEXED_OPERAND:
  case PEGEN_ERROR_NO_PTX:
  case PEGEN_ERROR_NO_CUDA_DRIVER:
  case PEGEN_ERROR_CUDA: return 0;
  default: return error < PEGEN_ERROR_PAGES || error > PEGEN_ERROR_NO_NORM;
  }
}

static void explain_all(call *c) {
  for (int i = 0; i < c->n; i++) explain_form(c, &c->all[i]);
  explain_pairs(c);
  if (c->found) return;
  if (is_of_shapes(c->error)) {
    explain_devices(c);
    explain_ranks(c);
    if (c->found) return;
    explain_sequences(c);
    for (int i = 0; i < c->n; i++) explain_row(c, &c->all[i]);
    explain_heads(c);
    explain_agreement(c);
    for (int i = 0; i < c->n; i++) explain_other(c, &c->all[i]);
    int is_tabled = c->args.table && rows[PEGEN_ARGUMENT_args_table].uses[c->column] == 'r';
    if (!GIVEN(args_positions) && !c->kernel.grid && c->kernel.n_axes && !is_tabled)
      say(c, "positions are missing; this kernel has no built-in grid");
    explain_grid(c);
    return;
  }
  words type;
  for (int i = 0; i < c->n; i++) {
    const seen *s = &c->all[i];
    explain_memory(c, s);
    if (c->error == PEGEN_ERROR_INDEXED_OPERAND && s->row->shape[0] == 'o' && !is_type(s->tensor, kDLFloat, 32))
      say(c, "%s is of type %s; expected float32, since it is read at computed places", s->name,
          name_type(s->tensor->dtype, type));
  }
}

/* What an error is about, where no look at the arguments finds more: arguments whose own error it is, or these. */
static const char *subject_of(const call *c, words to) {
  static const struct {
    int error;
    const char *names;
  } subjects[] = {
      {PEGEN_ERROR_MISSING_OPERAND, "operands"},
      {PEGEN_ERROR_GRID_ONLY, "positions"},
      {PEGEN_ERROR_PROCESSOR, "targets"},
      {PEGEN_ERROR_NO_PTX, "targets"},
      {PEGEN_ERROR_MISSING_INPUT, "inputs"},
      {PEGEN_ERROR_MISSING_TABLE, "table"},
      {PEGEN_ERROR_TABLE_BYTES, "table"},
      {PEGEN_ERROR_VALUE_DIM, "v, out"},
      {PEGEN_ERROR_NO_SEQUENCES, "cu_seqlens"},
      {PEGEN_ERROR_BOUNDS, "cu_seqlens, k_cu_seqlens"},
      {PEGEN_ERROR_PAGE, "block_table"},
      {PEGEN_ERROR_LENGTHS, "lengths"},
      {PEGEN_ERROR_NO_PAGES, "block_table"},
      {PEGEN_ERROR_SLOT, "slots"},
      {PEGEN_ERROR_NO_SLOTS, "slots"},
      {PEGEN_ERROR_NO_NORM, "q_norm, k_norm, v_out"},
      {PEGEN_ERROR_SEQUENCE_POSITIONS, "positions"},
  };
  to[0] = 0;
  for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
    if (subjects[i].error == c->error) append(to, "%s", subjects[i].names);
  for (int i = 0; i < PEGEN_ARGUMENT_COUNT; i++)
    if (c->error == PEGEN_ERROR_NO_GRADIENT ? rows[i].is_grad && is_written(c, &rows[i]) && pointer_at(c, &rows[i])
                                            : rows[i].wrong == c->error && rows[i].uses[c->column] != '.')
      append(to, "%s%s", to[0] ? ", " : "", rows[i].name + (c->error == PEGEN_ERROR_NO_GRADIENT ? 6 : 0));
  if (to[0]) return to;
  if (c->n && c->error != PEGEN_ERROR_NO_GRADIENT) append(to, "%s", c->all[0].name);
  else append(to, "%s of %s", c->error == PEGEN_ERROR_NO_GRADIENT ? "gradients" : "arguments", c->entry);
  return to;
}

static void copy_known(void *to, size_t known, const void *from, uint32_t size) {
  memset(to, 0, known);
  memcpy(to, from, size < known ? size : known);
}

int pegen_explain_error(const pegen_kernel *kernel, const char *entry, const pegen_args *args, int error, char *text,
                        size_t size) {
  call c;
  c.error = error;
  c.n = c.found = 0;
  c.text = text;
  c.size = size;
  c.column = -1;
  if (size) text[0] = 0;
  int is_readable = pegen_kernel_supported(kernel) && args && args->struct_size >= PEGEN_ARGS_FIRST_SIZE &&
                    (c.column = pegen_argument_column(entry ? entry : "encode", &c.entry)) >= 0;
  if (!is_readable) {
    if (error) snprintf(text, size, "%s", pegen_strerror(error));
    return 0;
  }
  copy_known(&c.kernel, sizeof c.kernel, kernel, kernel->struct_size);
  copy_known(&c.args, sizeof c.args, args, args->struct_size);
  memset(&c.grad, 0, sizeof c.grad);
  if (c.args.grad && c.args.grad->struct_size >= PEGEN_GRAD_ARGS_FIRST_SIZE)
    copy_known(&c.grad, sizeof c.grad, c.args.grad, c.args.grad->struct_size);
  see_all(&c);
  explain_all(&c);
  if (c.found || !error) return c.found;
  words subject;
  const char *detail = error == PEGEN_ERROR_NO_CUDA_DRIVER || error == PEGEN_ERROR_CUDA ? pegen_cuda_error_name() : "";
  snprintf(text, size, detail[0] ? "%s: %s (%s)" : "%s: %s", subject_of(&c, subject), pegen_strerror(error), detail);
  return 0;
}
