/* pages_test: keys and values in pages (kernel/attention_pages.c): each sequence is that of a call of its own whose
 * keys follow each other, for any number of parts, wherever pages lie, of positions near the origin and far from it;
 * and what is refused. */
#include "apart.h"
#include "scoped.h"
#include "test.h"
#include "windows.h"

#include <math.h>

enum { SEQUENCES = 5, MOST_PARTS = 4, MOST_KEYS = 700, GUARD = 64, MOST_BYTES = 1 << 22 };

static _Alignas(64) unsigned char room[8 + MOST_BYTES + GUARD];

/* None, one page and some, pages that are full, more than a chunk of split keys. */
static const int32_t all_lengths[SEQUENCES] = {70, 0, 33, 192, 650};

/* How a call is made. */
typedef struct variant {
  bool ragged;     /* rows [total,H,D] of q */
  int64_t tokens;  /* of every sequence, where they are not */
  int page;        /* tokens of one */
  bool by_heads;   /* [pages,Hkv,page_size,D] memory */
  bool split;
} variant;

static const variant variants[] = {{false, 1, 16, false, false}, {false, 2, 64, true, true},
                                   {true, 0, 16, true, false},   {false, 37, 48, false, false},
                                   {true, 0, 32, false, true},   {false, 1, 128, true, true}};

static int32_t bounds[SEQUENCES + 1] = {0, 1, 3, 43, 44, 81};

typedef struct paged {
  attention_trial trial; /* of [SEQUENCES] batches, or of one of all queries; keys of every sequence */
  variant how;
  int32_t lengths[SEQUENCES], table[SEQUENCES * (MOST_KEYS / 16 + 2)];
  int64_t bounds_shape[1], lengths_shape[1], table_shape[2], table_strides[2];
  DLTensor bounds, lengths_tensor, table_tensor, k, v;
  pegen_args args;
} paged;

static DLTensor integers(int32_t *at, int rank, int64_t *shape, int64_t *strides) {
  return (DLTensor){
      .data = at, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {kDLInt, 32, 1}, .shape = shape, .strides = strides};
}

static int64_t elements(const DLTensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->ndim; i++) count *= t->shape[i];
  return count;
}

/* Pages of a tensor [B,H,M,D], in which what no key has is NaN. */
static DLTensor pages_of(arena *a, const paged *p, const DLTensor *of, int64_t pages) {
  int64_t heads = of->shape[1], width = of->shape[3], bytes = of->dtype.bits / 8, page = p->how.page;
  DLTensor t = *of;
  t.shape = arena_array(a, int64_t, 4);
  t.strides = arena_array(a, int64_t, 4);
  memcpy(t.shape, (int64_t[]){pages, page, heads, width}, 4 * sizeof(int64_t));
  int64_t by_heads[] = {heads * page * width, width, page * width, 1},
          by_tokens[] = {page * heads * width, heads * width, width, 1};
  memcpy(t.strides, p->how.by_heads ? by_heads : by_tokens, sizeof by_heads);
  t.byte_offset = 0;
  size_t size = (size_t)(elements(&t) * bytes);
  t.data = arena_alloc(a, size);
  memset(t.data, 0xff, size);
  for (int64_t s = 0; s < SEQUENCES; s++)
    for (int64_t key = 0; key < p->lengths[s]; key++)
      for (int64_t head = 0; head < heads; head++) {
        int64_t in_page = p->table[s * p->table_strides[0] + key / page];
        const char *from = (const char *)of->data + of->byte_offset +
                           (s * of->strides[0] + head * of->strides[1] + key * of->strides[2]) * bytes;
        int64_t to = in_page * t.strides[0] + key % page * t.strides[1] + head * t.strides[2];
        memcpy((char *)t.data + to * bytes, from, (size_t)(width * bytes));
      }
  return t;
}

/* An input of keys, of one number or some. */
static DLTensor *pages_of_input(arena *a, const paged *p, const DLTensor *of, int64_t pages) {
  DLTensor wide = *of, *t = arena_new(a, DLTensor);
  int64_t shape[4] = {0, 0, 0, 1}, strides[4] = {0, 0, 0, 1};
  memcpy(shape, of->shape, (size_t)of->ndim * sizeof *shape);
  memcpy(strides, of->strides, (size_t)of->ndim * sizeof *strides);
  wide.ndim = 4;
  wide.shape = shape;
  wide.strides = strides;
  *t = pages_of(a, p, &wide, pages);
  t->ndim = of->ndim;
  return t;
}

/* The call's inputs: those of queries as rows are, those of keys in pages. */
static const DLTensor **paged_inputs(fixture *f, const paged *p, int64_t pages) {
  const attention_trial *t = &p->trial;
  const DLTensor **inputs = arena_array(f->memory, const DLTensor *, f->spec->n_inputs + 1);
  for (int i = 0; i < f->spec->n_inputs; i++) {
    const DLTensor *of = t->inputs.tensors[i];
    inputs[i] = f->spec->input[i].of_keys ? pages_of_input(f->memory, p, of, pages)
                : p->how.ragged           ? ragged_view(f->memory, of)
                                          : of;
  }
  return inputs;
}

/* A block table of pages in any order, behind each row's last such as there are none of. */
static int64_t place_pages(paged *p, uint64_t *random) {
  int64_t most = (MOST_KEYS + p->how.page - 1) / p->how.page, row = most + 1, pages = 3;
  for (int s = 0; s < SEQUENCES; s++) pages += (p->lengths[s] + p->how.page - 1) / p->how.page;
  int32_t order[SEQUENCES * (MOST_KEYS / 16 + 1) + 3];
  for (int64_t i = 0; i < pages; i++) {
    int64_t other = (int64_t)random_below(random, (uint64_t)i + 1);
    order[i] = order[other];
    order[other] = (int32_t)i;
  }
  for (int64_t s = 0, next = 0; s < SEQUENCES; s++)
    for (int64_t i = 0; i < row; i++)
      p->table[s * row + i] = i * p->how.page < p->lengths[s] ? order[next++] : (int32_t)(i % 2 ? -1 : 1 << 30);
  memcpy(p->lengths_shape, (int64_t[]){SEQUENCES}, sizeof p->lengths_shape);
  memcpy(p->table_shape, (int64_t[]){SEQUENCES, most}, sizeof p->table_shape);
  memcpy(p->table_strides, (int64_t[]){row, 1}, sizeof p->table_strides);
  p->lengths_tensor = integers(p->lengths, 1, p->lengths_shape, NULL);
  p->table_tensor = integers(p->table, 2, p->table_shape, p->table_strides);
  return pages;
}

/* Inputs of keys get all heads of q, those of k, or one head for all, by turns. */
static void share_heads(fixture *f, attention_trial *t, int round) {
  const int64_t heads[] = {t->q->shape[1], t->k->shape[1], 1};
  for (int i = 0; i < f->spec->n_inputs; i++)
    if (f->spec->input[i].of_keys)
      t->inputs.tensors[i] = window(f->memory, t->inputs.tensors[i], 1, 0, heads[(round + i) % 3]);
}

/* Far from the origin, and where a sequence has no key no number. */
static void go_far(const paged *p, const DLTensor *queries, const DLTensor *keys) {
  int64_t axes = queries->shape[queries->ndim - 1], batches = keys->ndim == 3 ? SEQUENCES : 1;
  for (int64_t i = 0; i < elements(queries); i++) ((float *)queries->data)[i] += 1e6F;
  for (int64_t i = 0; i < elements(keys); i++) ((float *)keys->data)[i] += 1e6F;
  for (int64_t b = 0; b < batches; b++)
    for (int64_t i = (batches > 1 ? p->lengths[b] : MOST_KEYS - 1) * axes; i < MOST_KEYS * axes; i++)
      ((float *)keys->data)[b * MOST_KEYS * axes + i] = NAN;
}

static void make_paged(paged *p, fixture *f, const pegen_kernel *kernel, number_type type, const variant *how,
                       int round) {
  *p = (paged){.how = *how};
  memcpy(p->lengths, all_lengths, sizeof p->lengths);
  attention_trial *t = &p->trial;
  int64_t heads = f->spec->heads > 1 ? f->spec->heads : 4, queries = how->ragged ? bounds[SEQUENCES] : how->tokens;
  attention_sizes sizes = {SEQUENCES, heads, heads / 2, queries, MOST_KEYS};
  *t = (attention_trial){.spec = f->spec, .causal = round % 2, .scale = round % 3 ? 0 : 0.3};
  attention_trial_fill(f->memory, t, &sizes, type, round % 4 ? ROWS_BNHD : ROWS_BHND, &f->random);
  DLTensor *rows[] = {t->q, t->k, t->v};
  for (int i = 0; i < 3; i++) set_strides(f->memory, rows[i]);
  for (int i = 0; i < f->spec->n_inputs; i++) set_strides(f->memory, (DLTensor *)(uintptr_t)t->inputs.tensors[i]);
  share_heads(f, t, round);
  if (how->ragged) {
    t->q = window(f->memory, t->q, 0, 0, 1);
    for (int i = 0; i < f->spec->n_inputs; i++)
      if (!f->spec->input[i].of_keys) t->inputs.tensors[i] = window(f->memory, t->inputs.tensors[i], 0, 0, 1);
  }
  if (f->spec->n_axes) {
    t->positions = fixture_positions(f, NUMBER_F32, how->ragged || round % 2 ? 0 : SEQUENCES, queries);
    t->k_positions = fixture_positions(f, round % 2 ? NUMBER_F32 : NUMBER_I64, round % 3 ? 0 : SEQUENCES, MOST_KEYS);
    if (round % 2) go_far(p, t->positions, t->k_positions);
  }
  t->operands = trial_random_operands(f->memory, f->spec, NUMBER_F32, &f->random);
  t->lse = attention_trial_lse(f->memory, t);
  int64_t pages = place_pages(p, &f->random);
  p->k = pages_of(f->memory, p, t->k, pages);
  p->v = pages_of(f->memory, p, t->v, pages);
  p->args = attention_trial_args(kernel, t, NULL);
  p->args.k = &p->k;
  p->args.v = &p->v;
  p->args.block_table = &p->table_tensor;
  p->args.lengths = &p->lengths_tensor;
  p->args.inputs = paged_inputs(f, p, pages);
  p->args.split_keys = how->split;
  if (!how->ragged) return;
  p->bounds_shape[0] = SEQUENCES + 1;
  p->bounds = integers(bounds, 1, p->bounds_shape, NULL);
  p->args.cu_seqlens = &p->bounds;
  p->args.q = ragged_view(f->memory, t->q);
}

/* Outputs [B,H,N,Dv] and sums of exponentials, as `args` has them. */
static DLTensor *set_out(fixture *f, const paged *p, pegen_args *args) {
  DLTensor *out = attention_trial_out(f->memory, &p->trial, ROWS_GAPS);
  set_strides(f->memory, out);
  args->out = p->how.ragged ? ragged_view(f->memory, out) : out;
  args->lse = p->how.ragged ? ragged_view(f->memory, p->trial.lse) : p->trial.lse;
  return out;
}

/* Both entries, in parts from the last to the first; beside the workspace nothing is written. */
static int call(const pegen_kernel *kernel, pegen_args *args, int parts) {
  size_t bytes = kernel->attention_workspace(args);
  int error = 0, finishers = 1 + parts * 5 % MOST_PARTS;
  assert_in_range(bytes, 0, MOST_BYTES);
  memset(room, 0x40 + parts, bytes + 8 + GUARD);
  args->workspace = bytes ? room + 8 * (parts % 2) : NULL;
  args->workspace_bytes = bytes;
  for (int part = parts - 1; part >= 0 && !error; part--) error = kernel->attention(args, part, parts);
  for (int part = finishers - 1; part >= 0 && !error; part--) error = kernel->attention_finish(args, part, finishers);
  for (size_t i = 0; i < GUARD && bytes; i++)
    assert_int_equal(((unsigned char *)args->workspace)[bytes + i], 0x40 + parts);
  return error;
}

static void call_apart(fixture *f, const pegen_kernel *kernel, const paged *p, DLTensor *out, DLTensor *lse) {
  const attention_trial *t = &p->trial;
  for (int s = 0; s < SEQUENCES; s++) {
    int dim = p->how.ragged ? 2 : 0;
    int64_t begin = p->how.ragged ? bounds[s] : s, end = p->how.ragged ? bounds[s + 1] : s + 1;
    pegen_args args = attention_trial_args(kernel, t, window(f->memory, out, dim, begin, end));
    args.q = window(f->memory, t->q, dim, begin, end);
    args.k = window(f->memory, window(f->memory, t->k, 0, s, s + 1), 2, 0, p->lengths[s]);
    args.v = window(f->memory, window(f->memory, t->v, 0, s, s + 1), 2, 0, p->lengths[s]);
    args.lse = window(f->memory, lse, dim, begin, end);
    args.split_keys = p->how.split;
    const DLTensor **inputs = arena_array(f->memory, const DLTensor *, f->spec->n_inputs + 1);
    for (int i = 0; i < f->spec->n_inputs; i++) {
      const DLTensor *of = t->inputs.tensors[i];
      inputs[i] = f->spec->input[i].of_keys ? window(f->memory, window(f->memory, of, 0, s, s + 1), 2, 0, p->lengths[s])
                                            : window(f->memory, of, dim, begin, end);
    }
    args.inputs = inputs;
    if (args.positions && (p->how.ragged || args.positions->ndim == 3))
      args.positions = window(f->memory, t->positions, 0, begin, end);
    if (args.k_positions) {
      const DLTensor *places = t->k_positions;
      if (places->ndim == 3) places = window(f->memory, places, 0, s, s + 1);
      args.k_positions = window(f->memory, places, places->ndim - 2, 0, p->lengths[s]);
    }
    assert_int_equal(call(kernel, &args, 1), 0);
  }
}

static void as_apart(const char *what) {
  SCOPED fixture f = fixture_open(NULL, 31, "%s", what);
  int round = 0;
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, f.targets[target], 0, 1));
    const pegen_kernel *kernel = run_kernel(loaded);
    for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
      for (size_t v = 0; v < sizeof variants / sizeof *variants; v++, round++) {
        static paged p;
        make_paged(&p, &f, kernel, (number_type)type, &variants[v], round);
        DLTensor *apart = attention_trial_out(f.memory, &p.trial, ROWS_GAPS),
                 *lse = attention_trial_lse(f.memory, &p.trial);
        set_strides(f.memory, apart);
        call_apart(&f, kernel, &p, apart, lse);
        size_t sums = (size_t)elements(lse) * sizeof(float);
        for (int parts = 1; parts <= MOST_PARTS; parts++) {
          pegen_args args = p.args;
          DLTensor *out = set_out(&f, &p, &args);
          memset(p.trial.lse->data, 0, sums);
          assert_int_equal(call(kernel, &args, parts), 0);
          if (!tensor_identical(out, apart))
            fail_msg("%s: %s type %d variant %zu parts %d", what, f.targets[target], type, v, parts);
          assert_memory_equal(p.trial.lse->data, lse->data, sums);
        }
      }
  }
}

/* Indices of queries and keys count from the sequence's end. */
TEST(scored) {
  as_apart("./scores kind=prefix head_dim=64");
  as_apart("./scores kind=softcap head_dim=64");
  as_apart("./scores kind=sunk head_dim=64");
}

TEST(dear) { as_apart("more/t5 heads=4"); }
TEST(rotated) {
  as_apart("lingeope");
  as_apart("./turning skip_tokens=2 heads=4 head_dim=64");
  as_apart("./rows_turned heads=4 skip_tokens=2 value_dim=64");
}

/* Inputs of queries, and of keys, which are in pages as the keys are. */
TEST(keyed) {
  static const char *const kinds[] = {
      "./score_inputs kind=forgetting head_dim=64", "./score_inputs kind=mixed head_dim=64 skip_tokens=2",
      "./score_inputs kind=turned head_dim=64", "./score_inputs kind=padded head_dim=64"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) as_apart(kinds[i]);
}

/* ---- rows whose sums are taken in another order, page by page ---- */

/* Few queries whose rows fill less than four registers close the sums of a page at its end. Results are near those of
 * keys that follow each other, and have the same bits wherever pages lie. */
TEST(narrow) {
  SCOPED fixture f = fixture_open(NULL, 37, "attention head_dim=8 value_dim=20");
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = trial_load(f.memory, f.spec, f.targets[target], PEGEN_DTYPE_F32, 1);
    const pegen_kernel *kernel = run_kernel(loaded);
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
      static paged p;
      make_paged(&p, &f, kernel, NUMBER_F32, &variants[v], (int)v);
      DLTensor *apart = attention_trial_out(f.memory, &p.trial, ROWS_BNHD),
               *lse = attention_trial_lse(f.memory, &p.trial);
      set_strides(f.memory, apart);
      call_apart(&f, kernel, &p, apart, lse);
      pegen_args args = p.args;
      DLTensor *out = set_out(&f, &p, &args), *again = set_out(&f, &p, &args);
      args.lse = NULL;
      args.out = p.how.ragged ? ragged_view(f.memory, out) : out;
      assert_int_equal(call(kernel, &args, 2), 0);
      for (int64_t b = 0; b < out->shape[0]; b++)
        for (int64_t h = 0; h < out->shape[1]; h++)
          for (int64_t n = 0; n < out->shape[2]; n++)
            for (int64_t c = 0; c < out->shape[3]; c++)
              assert_true(fabs(*(float *)tensor_at(out, b, h, n, c) - *(float *)tensor_at(apart, b, h, n, c)) <
                          0x1p-18);
      int64_t pages = place_pages(&p, &f.random);
      p.k = pages_of(f.memory, &p, p.trial.k, pages);
      p.v = pages_of(f.memory, &p, p.trial.v, pages);
      args.out = p.how.ragged ? ragged_view(f.memory, again) : again;
      assert_int_equal(call(kernel, &args, 3), 0);
      assert_true(tensor_identical(out, again));
    }
  }
}

/* What the cache holds behind a sequence's last key, or where a mask hides it, is no matter: pages_of left NaN there. A
 * key that is none is seen by its own sequence alone. */
TEST(unseen) {
  SCOPED fixture f = fixture_open(NULL, 41, "attention");
  SCOPED_KERNEL *loaded = trial_load(f.memory, f.spec, f.targets[0], PEGEN_DTYPE_F32, 1);
  const pegen_kernel *kernel = run_kernel(loaded);
  for (int many = 0; many < 2; many++) {
    static paged p;
    make_paged(&p, &f, kernel, NUMBER_F32, &variants[many ? 3 : 1], 1);
    pegen_args args = p.args;
    DLTensor *out = set_out(&f, &p, &args);
    args.causal = 1;
    assert_int_equal(call(kernel, &args, 1), 0);
    DLTensor *before = tensor_copy(f.memory, out);
    int64_t at = p.table[0] * p.v.strides[0] + (p.lengths[0] - 1) % p.how.page * p.v.strides[1];
    if (p.lengths[0] > p.how.page) at += (p.table[(p.lengths[0] - 1) / p.how.page] - p.table[0]) * p.v.strides[0];
    for (int64_t i = 0; i < p.v.shape[2] * p.v.strides[2]; i++)
      if (i % p.v.strides[2] < p.v.shape[3]) ((float *)p.v.data)[at + i] = (float)NAN;
    assert_int_equal(call(kernel, &args, 1), 0);
    for (int64_t b = 0; b < out->shape[0]; b++)
      for (int64_t n = 0; n < out->shape[2]; n++) {
        float now = *(float *)tensor_at(out, b, 0, n, 0), then = *(float *)tensor_at(before, b, 0, n, 0);
        if (b == 0 && n == out->shape[2] - 1) assert_true(isnan(now)); /* the last query sees the last key */
        else assert_memory_equal(&now, &then, sizeof now);
      }
  }
}

/* ---- refusals ---- */

#define REFUSED(error, change) \
  do { \
    pegen_args args = sound; \
    DLTensor other = p.table_tensor, pool = p.k; \
    change; \
    (void)other, (void)pool; \
    DLTensor *before = tensor_copy(f.memory, out); \
    assert_int_equal(kernel->attention(&args, 0, 1), error); \
    assert_int_equal(kernel->attention_finish(&args, 0, 1), error); \
    assert_int_equal(kernel->attention_workspace(&args), 0); \
    assert_true(tensor_identical(before, out)); \
  } while (0)
#define NUMBER(field, at, value, error) \
  do { \
    int32_t held = (field)[at]; \
    (field)[at] = value; \
    REFUSED(error, (void)0); \
    (field)[at] = held; \
  } while (0)

TEST(refused) {
  SCOPED fixture f = fixture_open(NULL, 43, "alibi heads=4");
  SCOPED_KERNEL *loaded = trial_load(f.memory, f.spec, f.targets[0], PEGEN_DTYPE_F32, 1);
  const pegen_kernel *kernel = run_kernel(loaded);
  static paged p;
  make_paged(&p, &f, kernel, NUMBER_F32, &variants[3], 2);
  pegen_args sound = p.args;
  DLTensor *out = set_out(&f, &p, &sound);
  int64_t row = p.table_strides[0], pages = p.k.shape[0];
  NUMBER(p.lengths, 2, -1, PEGEN_ERROR_LENGTHS);
  NUMBER(p.lengths, 2, INT32_MIN, PEGEN_ERROR_LENGTHS);
  NUMBER(p.lengths, 4, INT32_MAX, PEGEN_ERROR_LENGTHS);
  NUMBER(p.lengths, 4, MOST_KEYS + 1, PEGEN_ERROR_LENGTHS); /* pages have room for it, k_positions have not */
  NUMBER(p.lengths, 1, 1, PEGEN_ERROR_PAGE);
  NUMBER(p.table, 0, -1, PEGEN_ERROR_PAGE);
  NUMBER(p.table, 4 * row + 3, (int32_t)pages, PEGEN_ERROR_PAGE);
  NUMBER(p.table, 4 * row + 3, INT32_MIN, PEGEN_ERROR_PAGE);
  REFUSED(PEGEN_ERROR_PAGES, args.block_table = NULL);
  REFUSED(PEGEN_ERROR_PAGES, args.lengths = NULL);
  REFUSED(PEGEN_ERROR_PAGES, args.k_cu_seqlens = args.lengths);
  REFUSED(PEGEN_ERROR_PAGES, args.k_positions = NULL);
  REFUSED(PEGEN_ERROR_POSITIONS_SHAPE, (other = *args.k_positions, other.ndim = INT32_MAX, args.k_positions = &other));
  REFUSED(PEGEN_ERROR_POSITIONS_SHAPE, (other = *args.k_positions, other.ndim = INT32_MIN, args.k_positions = &other));
  REFUSED(PEGEN_ERROR_PAGES, (other.dtype.bits = 64, args.block_table = &other));
  REFUSED(PEGEN_ERROR_PAGES, (other.dtype.code = kDLUInt, args.block_table = &other));
  REFUSED(PEGEN_ERROR_PAGES, (other.ndim = 1, args.block_table = &other));
  REFUSED(PEGEN_ERROR_PAGES, (other.shape = NULL, args.block_table = &other));
  REFUSED(PEGEN_ERROR_PAGES, (other.shape = (int64_t[]){SEQUENCES, -1}, args.block_table = &other));
  REFUSED(PEGEN_ERROR_PAGES, (other.shape = (int64_t[]){SEQUENCES - 1, 3}, args.block_table = &other));
  REFUSED(PEGEN_ERROR_PAGES, (other.strides = (int64_t[]){row, 2}, args.block_table = &other));
  REFUSED(PEGEN_ERROR_LENGTHS, (other.shape = (int64_t[]){SEQUENCES, 13}, args.block_table = &other));
  REFUSED(PEGEN_ERROR_DEVICE, (other.device.device_type = kDLCUDA, args.block_table = &other));
  REFUSED(PEGEN_ERROR_NULL_DATA, (other.data = NULL, args.block_table = &other));
  REFUSED(PEGEN_ERROR_ALIGNMENT, (other.byte_offset = 2, args.block_table = &other));
  REFUSED(PEGEN_ERROR_PAGES, (other = p.lengths_tensor, other.ndim = 2, args.lengths = &other));
  REFUSED(PEGEN_ERROR_PAGES, (other = p.lengths_tensor, other.strides = (int64_t[]){2}, args.lengths = &other));
  REFUSED(PEGEN_ERROR_PAGES, (other = p.lengths_tensor, other.shape = (int64_t[]){4}, args.lengths = &other));
  REFUSED(PEGEN_ERROR_DEVICE, (other = p.lengths_tensor, other.device.device_type = kDLCUDA, args.lengths = &other));
  REFUSED(PEGEN_ERROR_ALIGNMENT, (other = p.lengths_tensor, other.byte_offset = 1, args.lengths = &other));
  int64_t heads = p.k.shape[2];
  REFUSED(PEGEN_ERROR_PAGES, (pool.shape = (int64_t[]){pages, 40, heads, 64}, args.k = args.v = &pool));
  REFUSED(PEGEN_ERROR_PAGES, (pool.shape = (int64_t[]){pages, 0, heads, 64}, args.k = args.v = &pool));
  REFUSED(PEGEN_ERROR_SHAPE_MISMATCH, (pool.shape = (int64_t[]){pages - 1, 48, heads, 64}, args.k = &pool));
  REFUSED(PEGEN_ERROR_SHAPE_MISMATCH, (pool.shape = (int64_t[]){pages, 32, heads, 64}, args.k = &pool));
  REFUSED(PEGEN_ERROR_HEAD_DIM, (pool.shape = (int64_t[]){pages, 48, heads, 63}, args.k = &pool));
  REFUSED(PEGEN_ERROR_HEAD_GROUPS, (pool.shape = (int64_t[]){pages, 48, 3, 64}, args.k = args.v = &pool));
  REFUSED(PEGEN_ERROR_NEGATIVE_SIZE, (pool.shape = (int64_t[]){-1, 48, heads, 64}, args.k = &pool));
  REFUSED(PEGEN_ERROR_PAGE, (pool.shape = (int64_t[]){pages - 4, 48, heads, 64}, args.k = args.v = &pool));
  REFUSED(PEGEN_ERROR_RANK, (pool.ndim = 3, args.k = &pool));
  REFUSED(PEGEN_ERROR_NULL_SHAPE, (pool.shape = NULL, args.v = &pool));
  REFUSED(PEGEN_ERROR_NULL_DATA, (pool.data = NULL, args.v = &pool));
  REFUSED(PEGEN_ERROR_DEVICE, (pool.device.device_type = kDLCUDA, args.v = &pool));
  REFUSED(PEGEN_ERROR_SIZE_OVERFLOW, (pool.strides = (int64_t[]){INT64_MAX / 8, 128, 64, 1}, args.v = &pool));
  REFUSED(PEGEN_ERROR_DTYPE_MISMATCH, (pool.dtype.bits = 16, args.v = &pool));
  REFUSED(PEGEN_ERROR_MISSING_TENSOR, args.v = NULL);
  REFUSED(PEGEN_ERROR_SHAPE_MISMATCH, args.q = window(f.memory, p.trial.q, 0, 0, 4));
  REFUSED(PEGEN_ERROR_OVERLAP, (pool = *out, pool.data = p.k.data, args.out = &pool));
  REFUSED(PEGEN_ERROR_OVERLAP,
          (other.data = out->data, memcpy(out->data, p.table, sizeof p.table), args.block_table = &other));
  REFUSED(PEGEN_ERROR_OVERLAP, (other = p.lengths_tensor, other.data = out->data,
                                memcpy(out->data, p.lengths, sizeof p.lengths), args.lengths = &other));
}

/* What inputs of keys must be: as many pages as k, of as many keys; and what is written is none of them. */
TEST(refused_inputs) {
  fixture f = fixture_open(NULL, 53, "./score_inputs kind=mixed head_dim=64");
  loaded_kernel *loaded = trial_load(f.memory, f.spec, f.targets[0], PEGEN_DTYPE_F32, 1);
  const pegen_kernel *kernel = run_kernel(loaded);
  enum { OF_KEY = 1, KEY_ROWS = 3, ALL = 4 }; /* [pages,page_size,H], [pages,page_size,H,4] */
  for (int ragged = 0; ragged < 2; ragged++) {
    static paged p;
    make_paged(&p, &f, kernel, NUMBER_F32, &variants[ragged ? 2 : 3], 2);
    pegen_args sound = p.args;
    DLTensor *out = set_out(&f, &p, &sound), other, wide;
    const DLTensor *inputs[ALL];
    int64_t pages = p.k.shape[0], page = p.how.page;
#define REFUSED_INPUT(error, which, change) \
  do { \
    memcpy(inputs, p.args.inputs, sizeof inputs); \
    other = *inputs[which]; \
    inputs[which] = &other; \
    int64_t shape[4] = {0}, strides[4] = {0}; \
    memcpy(shape, other.shape, (size_t)other.ndim * sizeof *shape); \
    memcpy(strides, other.strides, (size_t)other.ndim * sizeof *strides); \
    other.shape = shape; \
    other.strides = strides; \
    change; \
    REFUSED(error, args.inputs = inputs); \
  } while (0)
    assert_int_equal(call(kernel, &sound, 2), 0);
    REFUSED_INPUT(PEGEN_ERROR_INPUT_SHAPE, OF_KEY, shape[0] = pages - 1);
    REFUSED_INPUT(PEGEN_ERROR_INPUT_SHAPE, OF_KEY, shape[1] = page - 16);
    REFUSED_INPUT(PEGEN_ERROR_INPUT_SHAPE, OF_KEY, shape[2] = 3);
    REFUSED_INPUT(PEGEN_ERROR_INPUT_SHAPE, OF_KEY, shape[2] = -1);
    REFUSED_INPUT(PEGEN_ERROR_INPUT_SHAPE, OF_KEY, other.ndim = 4);
    REFUSED_INPUT(PEGEN_ERROR_INPUT_SHAPE, KEY_ROWS, other.ndim = 3);
    REFUSED_INPUT(PEGEN_ERROR_INPUT_SHAPE, KEY_ROWS, shape[3] = 5);
    REFUSED_INPUT(PEGEN_ERROR_NULL_SHAPE, KEY_ROWS, other.shape = NULL);
    REFUSED_INPUT(PEGEN_ERROR_NULL_DATA, KEY_ROWS, other.data = NULL);
    REFUSED_INPUT(PEGEN_ERROR_DEVICE, KEY_ROWS, other.device.device_type = kDLCUDA);
    REFUSED_INPUT(PEGEN_ERROR_ALIGNMENT, OF_KEY, other.byte_offset += 2);
    REFUSED_INPUT(PEGEN_ERROR_CHANNEL_STRIDE, KEY_ROWS, strides[3] = 2);
    REFUSED_INPUT(PEGEN_ERROR_SIZE_OVERFLOW, OF_KEY, strides[0] = INT64_MAX / 8);
    REFUSED_INPUT(PEGEN_ERROR_INPUT_DTYPE, OF_KEY, other.dtype.bits = 16);
    REFUSED_INPUT(PEGEN_ERROR_MISSING_INPUT, OF_KEY, inputs[OF_KEY] = NULL);
    REFUSED_INPUT(PEGEN_ERROR_MISSING_INPUT, OF_KEY, inputs[0] = NULL);
    REFUSED(PEGEN_ERROR_MISSING_INPUT, args.inputs = NULL);
    memcpy(inputs, p.args.inputs, sizeof inputs);
    wide = *sound.out; /* all of its memory is the input's, though not its first row */
    wide.data = (char *)inputs[KEY_ROWS]->data + (pages - 2) * inputs[KEY_ROWS]->strides[0] * (int64_t)sizeof(float);
    wide.byte_offset = 0;
    REFUSED(PEGEN_ERROR_OVERLAP, args.out = &wide);
  }
  run_unload(loaded);
  arena_destroy(f.memory);
}

/* The workspace of a call with chunks of keys. */
TEST(refused_room) {
  SCOPED fixture f = fixture_open(NULL, 47, "attention");
  int seen = 0;
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = trial_load(f.memory, f.spec, f.targets[target], PEGEN_DTYPE_F32, 1);
    const pegen_kernel *kernel = run_kernel(loaded);
    static paged p;
    make_paged(&p, &f, kernel, NUMBER_F32, &variants[5], 2);
    pegen_args args = p.args;
    DLTensor *out = set_out(&f, &p, &args), *before = tensor_copy(f.memory, out);
    size_t bytes = kernel->attention_workspace(&args);
    void *rooms[] = {NULL, room + 4, room, p.k.data, p.v.data, p.trial.q->data};
    int errors[] = {PEGEN_ERROR_WORKSPACE, PEGEN_ERROR_ALIGNMENT, PEGEN_ERROR_WORKSPACE,
                    PEGEN_ERROR_OVERLAP,   PEGEN_ERROR_OVERLAP,   PEGEN_ERROR_OVERLAP};
    for (int i = 0; i < 6 && bytes; i++, seen++) {
      args.workspace = rooms[i];
      args.workspace_bytes = i == 2 ? bytes - 1 : 0;
      assert_int_equal(kernel->attention(&args, 0, 1), errors[i]);
      assert_int_equal(kernel->attention_finish(&args, 0, 1), errors[i]);
    }
    assert_true(tensor_identical(before, out));
  }
  assert_true(seen > 0);
}

/* Entries that have none say so. */
TEST(elsewhere) {
  int32_t numbers[1] = {1};
  int64_t shape[] = {1, 1};
  DLTensor some = integers(numbers, 2, shape, NULL);
  static const char *const names[] = {"attention", "rope", "attention"};
  for (int i = 0; i < 6; i++) {
    pegen_args args = {.struct_size = sizeof args};
    *(i % 2 ? &args.block_table : &args.lengths) = &some;
    SCOPED fixture f = fixture_open(i / 2 == 2 ? "sm_80" : NULL, 3, "%s", names[i / 2]);
    SCOPED_KERNEL *loaded = trial_load_gradients(f.memory, f.spec, f.targets[0], PEGEN_DTYPE_F32, 1);
    const pegen_kernel *k = run_kernel(loaded);
    pegen_entry *entries[] = {k->encode,           k->prepare,
                              k->encode_backward,  k->attention_backward,
                              k->prepare_backward, i / 2 == 2 ? k->attention : NULL};
    for (int e = 0; e < 6; e++)
      if (entries[e]) assert_int_equal(entries[e](&args, 0, 1), PEGEN_ERROR_NO_PAGES);
  }
}

int main(void) { return run_listed(); }
