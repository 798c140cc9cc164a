/* verify/check_rotors: blocks that turn, against the reference's matrices; see verify/check_kind.h.
 *
 * One set of tokens serves every comparison, so that the slow reference works
 * once: position 0, moderate positions, and positions scaled until the largest
 * phase is 2^0, 2^1, ... 2^24 radians. A grid's tokens are what the grid says.
 */
#include "verify/check_kind.h"

#include "spec/expr_facts.h"
#include "verify/reference_map.h"
#include "verify/trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  MODERATE = 8,
  GRID_SAMPLE = 64,
  SWEEP_DOUBLINGS = 24,
  DENSE_DOUBLINGS = 9,
  BATCH = 2,
  ANY_HEADS = 3,
  ANY_K_HEADS = 2,
  CUTS = 3 /* axes; with all of them at once four of the moderate positions */
};

static const long double ENTRY_BOUND = 0x1p-22L, ROW_BOUND = 0x1p-20L;

/* Tokens in order: skipped, zero, moderate, sweep. */
typedef struct sample {
  int64_t heads, k_heads, tokens;
  int64_t moderate, sweep; /* first tokens of those parts; tokens where there are none */
  int sweep_step;          /* doublings from one sweep token to the next */
  const double *values;
  const DLTensor *positions; /* float64; NULL with a grid */
  trial_operands operands;
  trial_inputs inputs; /* [BATCH][heads][tokens], where they turn rows */
  oracle *oracle, *of_keys; /* of q, of k */
} sample;

/* Where functions of rotors have their cuts: the first axes alone at a phase of pi in the block that turns fastest, and
 * all of them at once. */
static void place_cuts(const spec *s, const sample *t, double *values) {
  const double pi = 3.14159265358979323846;
  double *all = values + CUTS * s->n_axes;
  for (int axis = 0; axis < s->n_axes; axis++) {
    double one[SPEC_MAX_AXES] = {0}, phase;
    one[axis] = 1;
    phase = trial_largest_phase(s, one, &t->operands);
    all[axis] = one[axis] = phase > 0 ? pi / phase : 0;
    if (axis < CUTS) memcpy(values + axis * s->n_axes, one, sizeof *one * (size_t)s->n_axes);
  }
}

/* Whether the description, or one of its parts, has a group that is not compact, or a matrix of any kind; a function
 * of rotors. */
static bool grows(const spec *s) {
  for (int i = 0; i < s->n_parts; i++)
    if (grows(s->part[i].of)) return true;
  return s->n_components && (s->algebra.q || s->algebra.r || s->entries[0]);
}

static bool has_function(const spec *s) {
  for (int i = 0; i < s->n_parts; i++)
    if (s->part[i].of->function) return true;
  return s->function != NULL;
}

static int64_t blocks_of_all_heads(const spec *s) {
  int64_t blocks = s->n_components ? s->n_blocks : 0;
  for (int i = 0; i < s->n_parts; i++) blocks += s->part[i].of->n_blocks;
  return s->heads * blocks;
}

static const void *choose(checker *c) {
  const spec *s = c->spec;
  sample *t = arena_new(c->memory, sample);
  /* Where heads differ, q and k have as many as the kernel is made for. */
  t->heads = s->heads > 1 ? s->heads : ANY_HEADS;
  t->k_heads = s->heads > 1 ? s->heads : spec_turns_rows(s) ? ANY_HEADS : ANY_K_HEADS; /* inputs serve q and k */
  t->operands = trial_random_operands(c->memory, s, NUMBER_F32, &c->random);
  trial_warn_of_phases(s, &t->operands);
  if (s->grid[0]) {
    t->tokens = spec_grid_tokens(s);
    t->moderate = s->skip_tokens + 1;
    t->sweep = t->tokens;
  } else {
    /* A group that is not compact grows with the phase: no kernel can follow it to 2^24. */
    int doublings = grows(s) ? 2 : s->dense ? DENSE_DOUBLINGS : SWEEP_DOUBLINGS;
    t->sweep_step = blocks_of_all_heads(s) > 256 ? 4 : 1;
    t->moderate = s->skip_tokens + 1;
    t->sweep = t->moderate + MODERATE;
    t->tokens = t->sweep + doublings / t->sweep_step + 1;
    double *values = arena_array(c->memory, double, t->tokens * s->n_axes);
    for (int64_t n = t->moderate; n < t->sweep; n++) {
      double reach = grows(s) ? 1 : n & 1 ? 100 : 4;
      if (reach == 1)
        check_position_of_phase(c, &t->operands, random_uniform(&c->random, 0.1, 4), values + n * s->n_axes);
      else
        for (int a = 0; a < s->n_axes; a++) {
          double value = random_uniform(&c->random, -reach, reach);
          values[n * s->n_axes + a] = n & 1 ? rint(value) : value;
        }
      check_keep_moderate(c, &t->operands, values + n * s->n_axes);
    }
    if (has_function(s)) place_cuts(s, t, values + t->moderate * s->n_axes);
    for (int64_t n = t->sweep; n < t->tokens; n++)
      check_position_of_phase(c, &t->operands, ldexp(1, (int)(n - t->sweep) * t->sweep_step), values + n * s->n_axes);
    t->values = values;
    t->positions = tensor_contiguous(c->memory, NUMBER_F64, 2, (int64_t[]){t->tokens, s->n_axes}, values);
  }
  t->oracle = oracle_create(c->memory, s, 1, t->tokens, t->values, &t->operands);
  t->of_keys = t->oracle;
  if (spec_has_sides(s)) {
    spec *keys = arena_new(c->memory, spec);
    *keys = spec_of_side(s, 1);
    t->of_keys = oracle_create(c->memory, keys, 1, t->tokens, t->values, &t->operands);
  }
  if (spec_turns_rows(s)) {
    t->inputs = trial_random_inputs(c->memory, s, NUMBER_F32, BATCH, t->heads, t->tokens, &c->random);
    oracle_set_inputs(t->oracle, &t->inputs, BATCH, t->heads);
    if (t->of_keys != t->oracle) oracle_set_inputs(t->of_keys, &t->inputs, BATCH, t->heads);
    t->operands.inputs = t->inputs.tensors;
  }
  /* An odd step meets every column of a grid whose sides are powers of two. */
  for (int side = 0; side < 2 && s->grid[0]; side++)
    oracle_sample(side ? t->of_keys : t->oracle, t->tokens / GRID_SAMPLE | 1);
  return t;
}

/* What calls of other numbers of batches read: the inputs of the first for all. */
static trial_operands first_for_all(const checker *c) {
  const sample *t = c->sample;
  trial_operands operands = t->operands;
  if (!operands.inputs) return operands;
  operands.inputs = arena_array(c->memory, const DLTensor *, c->spec->n_inputs);
  for (int i = 0; i < c->spec->n_inputs; i++) {
    DLTensor *first = tensor_copy(c->memory, t->inputs.tensors[i]);
    first->shape = arena_array(c->memory, int64_t, first->ndim);
    memcpy(first->shape, t->inputs.tensors[i]->shape, sizeof(int64_t) * (size_t)first->ndim);
    first->shape[0] = 1;
    operands.inputs[i] = first;
  }
  return operands;
}

/* ---- the checks ---- */

static void check_entries(checker *c) {
  const sample *t = c->sample;
  const char *type = "f32";
  DLTensor *in = trial_unit_rows(c->memory, c->spec, NUMBER_F32, t->heads, t->tokens);
  DLTensor *out = tensor_copy(c->memory, in);
  trial_operands operands = first_for_all(c);
  if (!check_called(c, type, "rotor entries", trial_call(c->kernel, t->positions, &operands, in, out, NULL, NULL, 1)))
    return;
  trial_error zero = {0}, moderate = {0};
  trial_compare_entries(t->oracle, out, c->spec->skip_tokens, c->spec->skip_tokens + 1, &zero);
  check_report(c, type, "rotor entries, position 0", ENTRY_BOUND, &zero);
  trial_compare_entries(t->oracle, out, t->moderate, t->sweep, &moderate);
  long double rounding = check_phase_rounding(c, &t->operands, t->values, t->moderate, t->sweep);
  check_report(c, type, c->spec->grid[0] ? "rotor entries, the grid" : "rotor entries, moderate positions",
               fmaxl(ENTRY_BOUND, rounding), &moderate);
  for (int64_t from = t->sweep, to; from < t->tokens; from = to) {
    trial_error swept = {0};
    to = from + 8 / t->sweep_step + (from == t->sweep);
    if (to > t->tokens) to = t->tokens;
    trial_compare_entries(t->oracle, out, from, to, &swept);
    check_report(
        c, type,
        arena_printf(c->memory, "rotor entries, |phase| up to 2^%d radians", (int)(to - 1 - t->sweep) * t->sweep_step),
        ENTRY_BOUND, &swept);
  }
}

/* Rows of a token whose blocks turn, and grow by the amplitude alone. */
static void compare_lengths(const checker *c, const DLTensor *in, const DLTensor *out, int64_t b, int64_t n,
                            trial_error *worst) {
  const spec *s = c->spec;
  long double amplitude = fabsl(s->inverse ? 1 / (long double)s->amplitude : (long double)s->amplitude);
  for (int64_t h = 0; h < in->shape[1]; h++)
    for (int block = 0; block < s->n_blocks; block++) {
      long double before = 0, after = 0;
      for (int i = 0; i < s->n_components; i++) {
        int channel = s->channel[i * s->n_blocks + block];
        double x = tensor_get(in, b, h, n, channel);
        before = hypotl(before, s->pre ? reference_map(s, x).value : x);
        after = hypotl(after, tensor_get(out, b, h, n, channel));
      }
      before *= amplitude;
      long double error = before > 0 ? fabsl(after - before) / before : after;
      bool spoilt = !isfinite((double)error);
      trial_note(worst, (trial_error){error, spoilt, b, h, n, s->channel[block], (double)after, before});
    }
}

/* Rotations everywhere, whatever a function of rotors is where it has cuts. */
static void check_lengths(checker *c, const DLTensor *in, const DLTensor *out) {
  const sample *t = c->sample;
  trial_error worst = {0};
  for (int64_t b = 0; b < BATCH; b++)
    for (int64_t n = c->spec->skip_tokens; n < t->tokens; n++) compare_lengths(c, in, out, b, n, &worst);
  check_report(c, "f32", "lengths of blocks, at cuts too", ROW_BOUND, &worst);
}

/* Where phases have no digits left, rows are still as long as they were: the angle is any, and is one. */
static void check_far_lengths(checker *c) {
  enum { TOKENS = 4 };
  /* Exponents of phases, whose squares are in the range of a GPU's numbers, and eighth powers in that of float64. */
  static const int exponent[] = {54, 60, 90, 120};
  const spec *s = c->spec;
  const sample *t = c->sample;
  if (s->n_parts || s->function || spec_turns_rows(s) || (c->kernel->ptx && s->algebra.p > 3)) return;
  int64_t tokens = c->kernel->ptx ? TOKENS / 2 : TOKENS; /* the latter two are for float64 */
  double values[TOKENS * SPEC_MAX_AXES], unit[SPEC_MAX_AXES];
  for (int axis = 0; axis < s->n_axes; axis++) {
    if (!expr_is_linear(s->angle[axis])) return;
    unit[axis] = 1 + axis / 8.0;
  }
  double rate = trial_largest_phase(s, unit, &t->operands);
  if (s->grid[0] || s->dense || s->basis || s->pre || s->gain[0] || grows(s) || rate == 0) return;
  for (int64_t i = 0; i < tokens * s->n_axes; i++)
    values[i] = unit[i % s->n_axes] * ldexp(1 / rate, exponent[i / s->n_axes]);
  DLTensor *positions = tensor_contiguous(c->memory, NUMBER_F64, 2, (int64_t[]){tokens, s->n_axes}, values);
  DLTensor *in = tensor_rows(c->memory, NUMBER_F32, ROWS_BHND, 1, t->heads, tokens, s->head_dim);
  tensor_randomize(in, &c->random);
  DLTensor *out = tensor_copy(c->memory, in);
  trial_operands operands = first_for_all(c);
  if (!check_called(c, "f32", "far positions", trial_call(c->kernel, positions, &operands, in, out, NULL, NULL, 1)))
    return;
  trial_error worst = {0};
  for (int64_t n = 0; n < tokens; n++) compare_lengths(c, in, out, 0, n, &worst);
  check_report(c, "f32", "lengths of blocks, where phases have no digits", ROW_BOUND, &worst);
}

static long double row_bound(const checker *c) {
  const sample *t = c->sample;
  return fmaxl(ROW_BOUND, check_phase_rounding(c, &t->operands, t->values, c->spec->skip_tokens, t->tokens));
}

static void check_rows(checker *c, number_type type) {
  const spec *s = c->spec;
  const sample *t = c->sample;
  arena *a = c->memory;
  const char *name = number_type_info(type)->name;
  DLTensor *q = tensor_rows(a, type, ROWS_BHND, BATCH, t->heads, t->tokens, s->head_dim);
  DLTensor *k = tensor_rows(a, type, ROWS_BNHD, BATCH, t->k_heads, t->tokens, s->head_dim);
  tensor_randomize(q, &c->random);
  tensor_randomize(k, &c->random);
  DLTensor *q_out = tensor_copy(a, q), *k_out = tensor_copy(a, k);
  if (!check_called(c, name, "rows", trial_call(c->kernel, t->positions, &t->operands, q, q_out, k, k_out, 1))) return;
  trial_error worst = {0};
  trial_compare_rows(t->oracle, q, q_out, &worst);
  trial_compare_rows(t->of_keys, k, k_out, &worst);
  check_report(c, name, type == NUMBER_F32 ? "rows" : "rows, beyond half a unit in the last place",
               row_bound(c) + trial_product_rounding(s, type), &worst);
  if (s->function && !s->basis && !s->gain[0] && type == NUMBER_F32) check_lengths(c, q, q_out);

  DLTensor *q_here = tensor_copy(a, q), *k_here = tensor_copy(a, k);
  int error = trial_call(c->kernel, t->positions, &t->operands, q_here, q_here, k_here, k_here, 1);
  if (check_called(c, name, "in place", error))
    check_report_bits(c, name, "in place and out of place",
                      tensor_identical(q_here, q_out) && tensor_identical(k_here, k_out));

  DLTensor *q_parts = tensor_copy(a, q), *k_parts = tensor_copy(a, k);
  error = trial_call(c->kernel, t->positions, &t->operands, q, q_parts, k, k_parts, CHECK_PARTS);
  if (check_called(c, name, "parts", error))
    check_report_bits(c, name, "in 3 parts and in one",
                      tensor_identical(q_parts, q_out) && tensor_identical(k_parts, k_out));

  DLTensor *other = tensor_rows(a, type, ROWS_GAPS, BATCH, t->heads, t->tokens, s->head_dim);
  error = trial_call(c->kernel, t->positions, &t->operands, q, other, NULL, NULL, 1);
  if (check_called(c, name, "memory orders", error))
    check_report_bits(c, name, "other strides, q alone", tensor_identical(other, q_out));
}

/* Inputs of one head are a copy for each: they may have code of their own. */
static void check_shared_inputs(checker *c, number_type type) {
  const spec *s = c->spec;
  const sample *t = c->sample;
  arena *a = c->memory;
  if (!spec_turns_rows(s)) return;
  trial_operands shared = t->operands, copied = t->operands;
  trial_inputs inputs = trial_random_inputs(a, s, NUMBER_F32, BATCH, 1, t->tokens, &c->random);
  shared.inputs = inputs.tensors;
  copied.inputs = arena_array(a, const DLTensor *, s->n_inputs);
  for (int i = 0; i < s->n_inputs; i++) {
    const DLTensor *one = inputs.tensors[i];
    int64_t size = one->ndim == 4 ? one->shape[3] : 1, row = t->tokens * size, count = BATCH * t->heads * row;
    double *values = arena_array(a, double, count + 1);
    for (int64_t k = 0; k < count; k++) values[k] = inputs.values[i][k / (t->heads * row) * row + k % row];
    copied.inputs[i] =
        tensor_contiguous(a, NUMBER_F32, one->ndim, (int64_t[]){BATCH, t->heads, t->tokens, size}, values);
  }
  DLTensor *q = tensor_rows(a, type, ROWS_BNHD, BATCH, t->heads, t->tokens, s->head_dim);
  tensor_randomize(q, &c->random);
  DLTensor *expected = tensor_copy(a, q), *out = tensor_copy(a, q);
  const char *name = number_type_info(type)->name;
  int error = trial_call(c->kernel, t->positions, &copied, q, expected, NULL, NULL, 1);
  if (!error) error = trial_call(c->kernel, t->positions, &shared, q, out, NULL, NULL, CHECK_PARTS);
  if (check_called(c, name, "inputs that heads share", error))
    check_report_bits(c, name, "inputs that heads share, and a copy for each", tensor_identical(out, expected));
}

/* Integers that all position types hold must give the same bits in each. */
static void check_position_types(checker *c) {
  const spec *s = c->spec;
  const sample *t = c->sample;
  static const number_type types[] = {NUMBER_F64, NUMBER_F32, NUMBER_I32, NUMBER_I64};
  if (s->grid[0]) return;
  trial_operands operands = first_for_all(c);
  double *values = arena_array(c->memory, double, t->tokens * s->n_axes);
  for (int64_t i = 0; i < t->tokens * s->n_axes; i++) values[i] = rint(fmin(fmax(t->values[i], -0x1p23), 0x1p23));
  DLTensor *q = tensor_rows(c->memory, NUMBER_F32, ROWS_BHND, 1, t->heads, t->tokens, s->head_dim), *first = NULL;
  tensor_randomize(q, &c->random);
  bool same = true;
  for (int i = 0; i < 4; i++) {
    DLTensor *positions = tensor_contiguous(c->memory, types[i], 2, (int64_t[]){t->tokens, s->n_axes}, values);
    DLTensor *out = tensor_copy(c->memory, q);
    if (!check_called(c, "f32", "position types", trial_call(c->kernel, positions, &operands, q, out, NULL, NULL, 1)))
      return;
    same = same && (!first || tensor_identical(first, out));
    if (!first) first = out;
  }
  check_report_bits(c, "f32", "positions as f64, f32, i32 and i64", same);
}

/* Whether columns of block matrices can be seen in rows: not where every channel is made of all, nor in a basis
 * that the kernel alone knows, nor of channels that are mapped first. */
static bool shows_entries(const spec *s) {
  return !s->basis && !spec_maps_channels(s) && !(s->dense && s->dense->map == DENSE_SCHUR);
}

static void mark_blocked(const spec *s, bool *blocked) {
  for (int i = 0; i < s->n_components * s->n_blocks; i++) blocked[s->channel[i]] = true;
}

/* An infinity in the first block, and in the last leftover channel, leaves all other channels as they were. */
static void check_infinity(checker *c) {
  const spec *s = c->spec;
  const sample *t = c->sample;
  DLTensor *q = tensor_rows(c->memory, NUMBER_F32, ROWS_BHND, 1, t->heads, t->tokens, s->head_dim);
  tensor_randomize(q, &c->random);
  trial_operands operands = first_for_all(c);
  DLTensor *clean = tensor_copy(c->memory, q), *struck = tensor_copy(c->memory, q);
  if (!check_called(c, "f32", "infinity", trial_call(c->kernel, t->positions, &operands, q, clean, NULL, NULL, 1)))
    return;
  bool *touched = arena_array(c->memory, bool, s->head_dim), *blocked = arena_array(c->memory, bool, s->head_dim);
  const spec *first = s->n_parts ? s->part[0].of : s;
  for (int i = 0; i < first->n_components; i++) touched[first->channel[i * first->n_blocks]] = true;
  mark_blocked(s, blocked);
  for (int i = 0; i < s->n_parts; i++) mark_blocked(s->part[i].of, blocked);
  int leftover = s->head_dim - 1;
  while (leftover >= 0 && blocked[leftover]) leftover--;
  if (leftover >= 0) touched[leftover] = true;
  for (int64_t h = 0; h < t->heads; h++)
    for (int64_t n = 0; n < t->tokens; n++) {
      number_store(NUMBER_F32, tensor_at(q, 0, h, n, first->channel[0]), INFINITY);
      if (leftover >= 0) number_store(NUMBER_F32, tensor_at(q, 0, h, n, leftover), INFINITY);
    }
  if (!check_called(c, "f32", "infinity", trial_call(c->kernel, t->positions, &operands, q, struck, NULL, NULL, 1)))
    return;
  bool same = true;
  for (int64_t h = 0; h < t->heads; h++)
    for (int64_t n = 0; n < t->tokens; n++)
      for (int channel = 0; channel < s->head_dim; channel++)
        if (!touched[channel])
          same = same &&
                 memcmp(tensor_at(clean, 0, h, n, channel), tensor_at(struck, 0, h, n, channel), sizeof(float)) == 0;
  check_report_bits(c, "f32", "other blocks beside an infinity", same);
}

static void compare_normalised(const checker *c, bool of_k, const DLTensor *in, const DLTensor *out,
                               trial_error *worst) {
  const sample *t = c->sample;
  trial_compare_rows(of_k ? t->of_keys : t->oracle, in, out, worst);
}

static void check_appended(checker *c) {
  const sample *t = c->sample;
  trial_operands operands = first_for_all(c);
  check_append(c, &(append_call){t->positions, &operands, t->heads, t->k_heads, t->tokens, 2 * row_bound(c),
                                 compare_normalised});
}

static void run(checker *c) {
  bool has_f32 = c->kernel->dtypes & PEGEN_DTYPE_F32;
  if (has_f32 && shows_entries(c->spec)) check_entries(c);
  check_each_type(c, check_rows);
  check_each_type(c, check_shared_inputs);
  const sample *t = c->sample;
  check_appended(c);
  check_encode_backward(c);
  check_each_pair(c, &(converted_call){t->positions, &t->operands, t->heads, t->k_heads, t->tokens});
  if (!has_f32) return;
  check_position_types(c);
  check_far_lengths(c);
  if (!c->spec->basis) check_infinity(c);
}

static const char *units(const spec *s) {
  bool grows = s->dense && !s->dense->is_f64; /* float32: errors of exp(M) grow with M */
  return grows ? "of entries are absolute (times an amplitude above 1), of rows relative to each block's norm, both "
                 "divided by max(1, |M|)"
               : "of entries are absolute (times an amplitude above 1), of rows relative to each block's norm";
}

const check_kind check_rotors = {.units = units, .choose = choose, .run = run};
