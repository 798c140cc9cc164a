/* Tables: what NAME_prepare writes and NAME_encode reads, for rotors in closed form and for exponentials of
 * learned matrices of every size that takes another road.
 *
 * An argument names one target; without, all that this machine runs.
 */
#include "described.h"
#include "kernel/table.h"
#include "scoped.h"
#include "test.h"
#include "verify/oracle.h"

#include <math.h>
#include <string.h>

enum { BATCH = 3, TOKENS = 7, OTHER_TOKENS = 5, HEADS = 3, NOT_RUNNABLE = 77 };
static const long double BOUND = 0x1p-20L;

static const char *wanted; /* target, or NULL */

typedef struct table_case {
  const char *name, *line;
  bool same_bits; /* a table gives the bits that encode without one gives; elsewhere they may round otherwise */
  bool many; /* rows of blocks of 8 that fill lines */
} table_case;

static const table_case cases[] = {
    {"rope", "rope head_dim=64", false, false},
    {"rope_split_partial", "rope head_dim=50 layout=split", false, false},
    {"geope3d", "geope3d head_dim=64", false, false},
    {"care", "care head_dim=64 heads=3", false, false},
    {"rope_mixed", "rope_mixed head_dim=64 heads=3", false, false},
    {"parts", "../tests/spec/good/head_parts head_dim=64", false, false},
    {"parts_each", "../tests/spec/good/head_parts head_dim=71 heads=3", false, false},
    {"liere2", "liere head_dim=64 heads=3 block=2", false, false},
    {"liere3", "liere head_dim=64 heads=3 block=3", false, false},
    {"liere4", "liere head_dim=36 heads=3 block=4", false, false},
    {"liere5", "liere head_dim=64 heads=3 block=5", true, false},
    {"liere7", "liere head_dim=40 heads=3 block=7", true, false},
    {"liere8", "liere head_dim=64 heads=3 block=8", true, true},
    {"liere8_many", "liere head_dim=168 heads=3 block=8", true, false},
    {"liere8_shared", "liere head_dim=64 block=8", true, true},
    {"liere9", "liere head_dim=64 heads=3 block=9", false, false},
    {"liere16_skipping", "liere head_dim=64 heads=3 block=16 skip_tokens=2", false, false},
    {"liere20", "liere head_dim=64 heads=3 block=20", false, false},
    {"liere33_inverse", "liere head_dim=64 heads=3 block=33 inverse=true", false, false},
    {"liere64", "liere head_dim=64 heads=3 block=64", false, false},
    {"comrope_ap", "comrope_ap head_dim=64 heads=3 block=8", true, false},
    {"comrope_ld", "comrope_ld head_dim=64 heads=3 block=16", false, false},
    {"comrope_ap_schur", "comrope_ap head_dim=64 heads=3 block=8 basis=schur", true, false},
    {"comrope_ld_schur", "comrope_ld head_dim=60 heads=3 block=7 basis=schur", true, false},
    {"comrope_ap_schur_skipping", "comrope_ap head_dim=64 heads=3 block=64 basis=schur", true, false},
    {"string", "string_cayley head_dim=64 heads=3", true, false},
    {"string_split", "string_cayley head_dim=48 layout=split", true, false},
    {"string_wide", "string_cayley head_dim=128 heads=3", true, false},
    {"string_narrow", "string_cayley head_dim=6 axes=3", true, false},
    {"basis_each", "../tests/check/basis heads=3 each=true skip_tokens=2", true, false},
    {"basis_each_back", "../tests/check/basis heads=3 each=true inverse=true kind=dense4", true, false},
    {"string_folded", "string_cayley head_dim=64 heads=3 basis=folded", false, false},
    {"comrope_ld_folded", "comrope_ld head_dim=64 heads=3 block=8 basis=folded", false, false},
};
enum { CASE_COUNT = sizeof cases / sizeof *cases };

typedef struct fixture {
  arena *memory;
  const table_case *which;
  spec *spec;
  const pegen_kernel *kernel;
  int64_t heads;
  uint64_t random;
  double *values; /* [BATCH][TOKENS][axes] */
  DLTensor *positions, *each; /* of all batches, and one set a batch */
  trial_operands operands;
} fixture;

/* A table and what it takes to make it. */
typedef struct table {
  void *data;
  size_t bytes;
} table;

static pegen_args arguments(const fixture *f, const DLTensor *positions) {
  return (pegen_args){.struct_size = sizeof(pegen_args),
                      .n_operands = f->kernel->n_operands,
                      .operands = f->operands.tensors,
                      .positions = positions};
}

static int prepare(const fixture *f, pegen_args *args, table *t, int parts) {
  t->bytes = f->kernel->table_bytes(args);
  t->data = aligned_alloc(64, (t->bytes + 63) / 64 * 64);
  memset(t->data, 0, t->bytes);
  args->table = t->data;
  args->table_bytes = t->bytes;
  for (int part = parts - 1, error; part >= 0; part--)
    if ((error = f->kernel->prepare(args, part, parts)) != 0) return error;
  return 0;
}

static table table_of(const fixture *f, const DLTensor *positions, int parts) {
  table t;
  pegen_args args = arguments(f, positions);
  assert_int_equal(prepare(f, &args, &t, parts), 0);
  assert_true(t.bytes > 0);
  return t;
}

static int encode(const fixture *f, const table *t, const DLTensor *positions, const DLTensor *q, DLTensor *q_out,
                  const DLTensor *k, DLTensor *k_out, int parts) {
  pegen_args args = arguments(f, positions);
  if (t) { /* neither positions nor operands are needed then */
    args = (pegen_args){.struct_size = sizeof(pegen_args), .table = t->data, .table_bytes = t->bytes};
  }
  args.q = q, args.q_out = q_out, args.k = k, args.k_out = k_out;
  for (int part = parts - 1, error; part >= 0; part--)
    if ((error = f->kernel->encode(&args, part, parts)) != 0) return error;
  return 0;
}

static DLTensor *rows(fixture *f, number_type type, row_order order, int64_t tokens) {
  DLTensor *t = tensor_rows(f->memory, type, order, BATCH, f->heads, tokens, f->spec->head_dim);
  tensor_randomize(t, &f->random);
  return t;
}

static void compare(fixture *f, const DLTensor *positions, const DLTensor *in, const DLTensor *out) {
  oracle *o = oracle_create(f->memory, f->spec, positions == f->each ? BATCH : 1, TOKENS, f->values, &f->operands);
  trial_error worst = {0};
  trial_compare_rows(o, in, out, &worst);
  if (worst.spoilt || worst.error > BOUND) print_error("%s: %s\n", f->which->name, trial_error_text(f->memory, &worst));
  assert_false(worst.spoilt || worst.error > BOUND);
}

/* ---- what a table gives ---- */

static void rows_are_right(fixture *f, const DLTensor *positions, number_type type) {
  table t = table_of(f, positions, 1);
  DLTensor *q = rows(f, type, ROWS_BNHD, TOKENS), *k = rows(f, type, ROWS_GAPS, TOKENS);
  DLTensor *q_out = tensor_copy(f->memory, q), *k_out = tensor_copy(f->memory, k);
  assert_int_equal(encode(f, &t, NULL, q, q_out, k, k_out, 1), 0);
  compare(f, positions, q, q_out);
  compare(f, positions, k, k_out);
  if (f->which->same_bits) {
    DLTensor *q_without = tensor_copy(f->memory, q), *k_without = tensor_copy(f->memory, k);
    assert_int_equal(encode(f, NULL, positions, q, q_without, k, k_without, 1), 0);
    assert_true(tensor_identical(q_out, q_without) && tensor_identical(k_out, k_without));
  }
  DLTensor *q_here = tensor_copy(f->memory, q), *k_here = tensor_copy(f->memory, k);
  assert_int_equal(encode(f, &t, NULL, q_here, q_here, k_here, k_here, 4), 0); /* in place, in parts, the same table */
  assert_true(tensor_identical(q_here, q_out) && tensor_identical(k_here, k_out));
  DLTensor *alone = rows(f, type, ROWS_BHND, TOKENS);
  assert_int_equal(encode(f, &t, NULL, NULL, NULL, k, alone, 1), 0);
  assert_true(tensor_identical(alone, k_out));
  free(t.data);
}

static void check_rows(fixture *f) {
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) rows_are_right(f, f->positions, (number_type)type);
  rows_are_right(f, f->each, NUMBER_F32);
}

/* Rows in lines, as many as are stored past the caches where they are elsewhere: the same bits as in place. */
static void check_streamed(fixture *f) {
  enum { LINE = 64, MANY = 2100 };
  int P = f->spec->n_axes;
  if (!f->which->many) return;
  double *values = arena_array(f->memory, double, MANY *P);
  for (int i = 0; i < MANY * P; i++) values[i] = random_uniform(&f->random, -2, 2);
  table t = table_of(f, tensor_contiguous(f->memory, NUMBER_F64, 2, (int64_t[]){MANY, P}, values), 2);
  DLTensor *in[2], *out[2];
  for (int i = 0; i < 2; i++) {
    in[i] = rows(f, NUMBER_F32, ROWS_BNHD, MANY);
    out[i] = tensor_copy(f->memory, in[i]);
    out[i]->data = aligned_alloc(LINE, sizeof(float) * BATCH * (size_t)f->heads * MANY * (size_t)f->spec->head_dim);
    out[i]->byte_offset = 0;
  }
  assert_int_equal(encode(f, &t, NULL, in[0], out[0], in[1], out[1], 3), 0);
  assert_int_equal(encode(f, &t, NULL, in[0], in[0], in[1], in[1], 1), 0);
  for (int i = 0; i < 2; i++) {
    assert_true(tensor_identical(in[i], out[i]));
    free(out[i]->data);
  }
  free(t.data);
}

static void check_parts(fixture *f) {
  table whole = table_of(f, f->each, 1), parted = table_of(f, f->each, 5), shared = table_of(f, f->positions, 1);
  assert_int_equal(whole.bytes, parted.bytes);
  assert_memory_equal(whole.data, parted.data, whole.bytes);
  assert_true(shared.bytes < whole.bytes);
  free(whole.data), free(parted.data), free(shared.data);
}

/* k of another length, with positions of its own. */
static void check_sections(fixture *f) {
  DLTensor *k_positions = tensor_contiguous(f->memory, NUMBER_F64, 2, (int64_t[]){OTHER_TOKENS, f->spec->n_axes},
                                            f->values + f->spec->n_axes);
  DLTensor *q = rows(f, NUMBER_F32, ROWS_BNHD, TOKENS), *k = rows(f, NUMBER_F32, ROWS_BNHD, OTHER_TOKENS),
           *k_alone = tensor_copy(f->memory, k);
  DLTensor *q_alone = tensor_copy(f->memory, q);
  table t, of_q = table_of(f, f->positions, 1), of_k = table_of(f, k_positions, 1);
  pegen_args args = arguments(f, f->positions);
  args.k_positions = k_positions;
  assert_int_equal(prepare(f, &args, &t, 2), 0);
  assert_int_equal(encode(f, &of_q, NULL, q_alone, q_alone, NULL, NULL, 1), 0);
  assert_int_equal(encode(f, &of_k, NULL, k_alone, k_alone, NULL, NULL, 1), 0);
  assert_int_equal(encode(f, &t, NULL, q, q, k, k, 3), 0);
  assert_true(tensor_identical(q, q_alone) && tensor_identical(k, k_alone));
  free(t.data), free(of_q.data), free(of_k.data);
}

/* ---- what is refused ---- */

static void check_refusals(fixture *f) {
  DLTensor *q = rows(f, NUMBER_F32, ROWS_BNHD, TOKENS), *longer = rows(f, NUMBER_F32, ROWS_BNHD, TOKENS + 1);
  pegen_args args = arguments(f, f->positions);
  table t = table_of(f, f->positions, 1), batches = table_of(f, f->each, 1);
  assert_int_equal(f->kernel->prepare(&args, 0, 1), PEGEN_ERROR_MISSING_TABLE);
  args.table = t.data, args.table_bytes = t.bytes - 1;
  assert_int_equal(f->kernel->prepare(&args, 0, 1), PEGEN_ERROR_TABLE_BYTES);
  args.table = (char *)t.data + 8, args.table_bytes = t.bytes;
  assert_int_equal(f->kernel->prepare(&args, 0, 1), PEGEN_ERROR_ALIGNMENT);
  args.table = (void *)(UINTPTR_MAX - 63); /* room that ends beyond the last address */
  assert_int_equal(f->kernel->prepare(&args, 0, 1), PEGEN_ERROR_SIZE_OVERFLOW);
  table beyond = {args.table, t.bytes};
  assert_int_equal(encode(f, &beyond, NULL, q, q, NULL, NULL, 1), PEGEN_ERROR_SIZE_OVERFLOW);
  args.table = t.data, args.positions = NULL;
  assert_int_equal(f->kernel->prepare(&args, 0, 1), PEGEN_ERROR_MISSING_POSITIONS);
  assert_int_equal(f->kernel->table_bytes(&args), 0);
  if (f->kernel->n_operands) {
    args = arguments(f, f->positions);
    args.n_operands = 0, args.table = t.data, args.table_bytes = t.bytes;
    assert_int_equal(f->kernel->prepare(&args, 0, 1), PEGEN_ERROR_MISSING_OPERAND);
  }
  assert_int_equal(encode(f, &t, NULL, longer, longer, NULL, NULL, 1), PEGEN_ERROR_TABLE);
  table cut = {t.data, t.bytes - 1};
  assert_int_equal(encode(f, &cut, NULL, q, q, NULL, NULL, 1), PEGEN_ERROR_TABLE_BYTES);
  DLTensor *fewer = tensor_rows(f->memory, NUMBER_F32, ROWS_BHND, BATCH - 1, f->heads, TOKENS, f->spec->head_dim);
  assert_int_equal(encode(f, &batches, NULL, fewer, fewer, NULL, NULL, 1), PEGEN_ERROR_TABLE);
  for (int byte = 0; byte < 112; byte++) { /* damaged in a file: nothing in the header can change unseen */
    ((unsigned char *)t.data)[byte] ^= 0x40;
    assert_int_equal(encode(f, &t, NULL, q, q, NULL, NULL, 1), PEGEN_ERROR_TABLE);
    ((unsigned char *)t.data)[byte] ^= 0x40;
  }
  ((unsigned char *)t.data)[8] ^= 1; /* of another kernel */
  assert_int_equal(encode(f, &t, NULL, q, q, NULL, NULL, 1), PEGEN_ERROR_TABLE);
  memset(t.data, 0, t.bytes);
  assert_int_equal(encode(f, &t, NULL, q, q, NULL, NULL, 1), PEGEN_ERROR_TABLE);
  DLTensor *over = tensor_copy(f->memory, q);
  over->data = batches.data;
  if (batches.bytes >= 4096) {
    assert_int_equal(encode(f, &batches, NULL, q, over, NULL, NULL, 1), PEGEN_ERROR_OVERLAP);
    batches.bytes = SIZE_MAX - 63; /* more room than there are addresses hides no overlap */
    assert_int_equal(encode(f, &batches, NULL, q, over, NULL, NULL, 1), PEGEN_ERROR_OVERLAP);
  }
  args = arguments(f, f->positions);
  DLTensor within = *f->positions;
  within.data = t.data;
  args.positions = &within, args.table = t.data, args.table_bytes = SIZE_MAX - 63;
  assert_int_equal(f->kernel->prepare(&args, 0, 1), PEGEN_ERROR_OVERLAP);
  free(t.data), free(batches.data);
}

/* What a stranger can write: any field, sealed again, with `bytes` as before or made to agree. */
static void check_forged(fixture *f) {
  enum { WORDS = sizeof(pegen_table_header) / sizeof(int64_t) };
  table t = table_of(f, f->positions, 1), roomy = {t.data, t.bytes + (1 << 20)}; /* what is refused is not read */
  pegen_table_header *h = t.data;
  const pegen_table_header kept = *h;
  DLTensor *q = rows(f, NUMBER_F32, ROWS_BNHD, TOKENS), *k = rows(f, NUMBER_F32, ROWS_BNHD, TOKENS);
  DLTensor *q_out = rows(f, NUMBER_F32, ROWS_BNHD, TOKENS), *k_out = rows(f, NUMBER_F32, ROWS_BNHD, TOKENS);
  DLTensor *q_before = tensor_copy(f->memory, q_out), *k_before = tensor_copy(f->memory, k_out);
  for (int word = 0; word < WORDS; word++) {
    int64_t was;
    memcpy(&was, (const int64_t *)&kept + word, sizeof was);
    const uint64_t bits = (uint64_t)was; /* whose arithmetic may wrap */
    const int64_t values[] = {0,
                              1,
                              2,
                              3,
                              64,
                              (int64_t)(bits + 1),
                              (int64_t)(bits - 1),
                              (int64_t)(bits * 2),
                              was / 2,
                              (int64_t)-bits,
                              (int64_t)(bits + 64),
                              (int64_t)(bits - 64),
                              was ^ 1 << 20,
                              INT64_MAX,
                              INT64_MIN,
                              INT64_MAX / 64 * 64,
                              (int64_t)1 << 32,
                              -1};
    for (size_t i = 0; i < 2 * sizeof values / sizeof *values; i++) {
      int64_t value = values[i / 2];
      if (value == was) continue;
      memcpy((int64_t *)h + word, &value, sizeof value);
      if (i % 2 && h->sections == 1 && h->row_bytes >= 0 && h->row_bytes < 1 << 30 && h->tokens[0] == TOKENS)
        h->bytes = (int64_t)sizeof *h + (h->batches[0] & 3) * TOKENS * kept.heads * h->row_bytes;
      if (word != offsetof(pegen_table_header, seal) / sizeof(int64_t)) h->seal = pegen_table_seal(h);
      if (!memcmp(h, &kept, sizeof kept)) continue; /* `bytes` made to agree again */
      int error = encode(f, &t, NULL, q, q_out, k, k_out, 1);
      bool refused = error == PEGEN_ERROR_TABLE || error == PEGEN_ERROR_TABLE_BYTES;
      if (refused && i % 2 == 0) error = encode(f, &roomy, NULL, q, q_out, k, k_out, 1);
      if (error != PEGEN_ERROR_TABLE && error != PEGEN_ERROR_TABLE_BYTES)
        fail_msg("word %d of the header %lld in place of %lld: %s", word, (long long)value, (long long)was,
                 pegen_error_name(error));
      assert_true(tensor_identical(q_out, q_before) && tensor_identical(k_out, k_before));
      *h = kept;
    }
  }
  assert_int_equal(encode(f, &t, NULL, q, q_out, k, k_out, 1), 0);
  free(t.data);
}

/* ---- operands that are not finite ---- */

static void encode_either(fixture *f, bool tabled, const DLTensor *q, DLTensor *out) {
  table t = tabled ? table_of(f, f->positions, 1) : (table){NULL, 0};
  assert_int_equal(encode(f, tabled ? &t : NULL, f->positions, q, out, NULL, NULL, 1), 0);
  free(t.data);
}

/* One element of the first operand: the block whose matrix it belongs to is NaN in every token, all others are as
 * before. */
static void check_not_finite(fixture *f, bool tabled) {
  const spec *s = f->spec;
  if (!s->dense || s->basis) return;
  int head = s->dense->generator[0].n_heads > 1 ? 1 : 0, block = s->n_blocks - 1, n = s->n_components;
  DLTensor *q = rows(f, NUMBER_F32, ROWS_BNHD, TOKENS), *clean = tensor_copy(f->memory, q),
           *struck = tensor_copy(f->memory, q);
  encode_either(f, tabled, q, clean);
  const DLTensor *raw = f->operands.tensors[s->dense->generator[0].operand];
  float *element = (float *)raw->data + s->dense->generator[0].offset[(head ? s->n_blocks : 0) + block] + n -
                   1; /* row 0, last column */
  float kept = *element;
  static const float bad[] = {NAN, INFINITY};
  for (int i = 0; i < 2; i++) {
    *element = bad[i];
    encode_either(f, tabled, q, struck);
    for (int64_t b = 0; b < BATCH; b++)
      for (int64_t h = 0; h < f->heads; h++)
        for (int64_t token = s->skip_tokens; token < TOKENS; token++)
          for (int g = 0; g < s->n_blocks; g++)
            for (int c = 0; c < n; c++) {
              int channel = s->channel[c * s->n_blocks + g];
              float x = *(float *)tensor_at(struck, b, h, token, channel),
                    y = *(float *)tensor_at(clean, b, h, token, channel);
              bool hit = g == block && (h == head || s->dense->generator[0].n_heads == 1);
              if (hit) assert_true(isnan(x));
              else assert_memory_equal(&x, &y, sizeof x);
            }
  }
  *element = kept;
}

/* Every channel is made of all, so an element of a change of basis spoils whole rows, of its heads alone. */
static void check_basis_not_finite(fixture *f) {
  const spec *s = f->spec;
  if (!s->basis) return;
  const spec_skew *m = &s->basis->matrix;
  bool each = m->n_heads > 1;
  DLTensor *q = rows(f, NUMBER_F32, ROWS_BNHD, TOKENS), *clean = tensor_copy(f->memory, q),
           *struck = tensor_copy(f->memory, q);
  assert_int_equal(encode(f, NULL, f->positions, q, clean, NULL, NULL, 1), 0);
  float *element = (float *)f->operands.tensors[m->operand]->data + m->offset[each ? 1 : 0] + s->head_dim - 1,
        kept = *element;
  *element = NAN;
  assert_int_equal(encode(f, NULL, f->positions, q, struck, NULL, NULL, 1), 0);
  *element = kept;
  for (int64_t b = 0; b < BATCH; b++)
    for (int64_t h = 0; h < f->heads; h++)
      for (int64_t token = 0; token < TOKENS; token++)
        for (int channel = 0; channel < s->head_dim; channel++) {
          float x = *(float *)tensor_at(struck, b, h, token, channel),
                y = *(float *)tensor_at(clean, b, h, token, channel);
          if (each && h != 1) assert_memory_equal(&x, &y, sizeof x);
          else assert_true(isnan(x));
        }
}

/* ---- all of it ---- */

static void tables_hold(void **state) {
  SCOPED fixture f = {.memory = arena_create(), .which = *state, .random = 5};
  f.spec = described(f.memory, "%s", f.which->line);
  f.heads = f.spec->heads > 1 ? f.spec->heads : HEADS;
  int P = f.spec->n_axes;
  f.values = arena_array(f.memory, double, BATCH * TOKENS * P);
  for (int i = 0; i < BATCH * TOKENS * P; i++) f.values[i] = random_uniform(&f.random, -2, 2);
  f.positions = tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){TOKENS, P}, f.values);
  f.each = tensor_contiguous(f.memory, NUMBER_F64, 3, (int64_t[]){BATCH, TOKENS, P}, f.values);
  f.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
  const char **targets;
  int count = trial_targets(f.memory, wanted, &targets);
  for (int i = 0; i < count; i++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, targets[i], 0, 2));
    f.kernel = run_kernel(loaded);
    check_rows(&f);
    check_streamed(&f);
    check_parts(&f);
    check_sections(&f);
    check_refusals(&f);
    check_forged(&f);
    check_not_finite(&f, false);
    check_not_finite(&f, true);
    check_basis_not_finite(&f);
  }
}

int main(int argc, char **argv) {
  wanted = argc > 1 ? argv[1] : NULL;
  if (wanted && !trial_runnable(wanted)) return NOT_RUNNABLE;
  for (int i = 0; i < CASE_COUNT; i++) list_row(cases[i].name, tables_hold, &cases[i]);
  return run_listed();
}
