/* verify/check_backward: gradients of encodings against the reference's; see verify/check_kind.h.
 *
 * Tokens stand where gradients are hard: at the origin, near it, where phases are half and whole turns, far out;
 * operands are random, all 0, and all alike, where generators coincide. Rows are short binary fractions, which all
 * number types hold, so that one reference serves them.
 */
#include "verify/check_kind.h"

#include "algebra/block.h"
#include "algebra/five.h"
#include "verify/reference.h"
#include "verify/reference_gradient.h"
#include "verify/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const long double ROW_BOUND = 0x1p-20L, SUM_BOUND = 0x1p-18L;

enum { BATCH = 2, ANY_HEADS = 3, ANY_K_HEADS = 2, MODERATE = 4, GRID_SAMPLE = 24 };

/* Operands that a sample is called with; whether a gradient comes in for the token that is far out, too: it is so large
 * a part of every sum that others' errors would not be seen beside it. */
typedef enum operand_set { OPERANDS_RANDOM, OPERANDS_FAR, OPERANDS_ZERO, OPERANDS_ALIKE, OPERAND_SETS } operand_set;
static const char *const SET_NAME[OPERAND_SETS] = {"", ", far", ", at 0", ", alike"};

typedef struct answer {
  trial_operands operands;
  gradient_sum *row[2], **operand, **input, *position; /* input: of the rows that stand for all */
} answer;

typedef struct check_gradients {
  int64_t heads[2], tokens;
  double *x[2], *g[2], *g_far[2]; /* [BATCH][heads][tokens][head_dim] */
  const double *values;
  const DLTensor *positions; /* NULL: a grid */
  answer answer[OPERAND_SETS];
  bool of_gpu; /* the kernel whose rows' basis answers are of (is_rebased) */
} sample;

/* ---- the sample ---- */

/* Rows, and with them their gradients, lie in a basis that the kernel alone knows. Gradients are those of scores, which
 * it does not change. */
static bool is_rebased(const spec *s) { return s->dense && s->dense->map == DENSE_SCHUR; }

/* On a GPU that basis is the channels', and rows are turned by the exponential in float32. */
static bool is_of_gpu(const checker *c) { return c->kernel->ptx != NULL; }

static bool is_compact(const spec *s) {
  for (int i = 0; i < s->n_parts; i++)
    if (!is_compact(s->part[i].of)) return false;
  return s->algebra.q == 0 && s->algebra.r == 0 && !s->entries[0];
}

/* Whether what is written does not hold what was turned. */
static bool is_lost(const spec *s) {
  if (s->pre || s->entries[0]) return true;
  for (int i = 0; i < s->n_parts; i++)
    if (is_lost(s->part[i].of)) return true;
  return !s->n_parts && s->amplitude == 0;
}

static void choose_positions(checker *c, sample *t) {
  const spec *s = c->spec;
  const double pi = 3.14159265358979323846;
  int axes = s->n_axes;
  int64_t n = s->skip_tokens + 1; /* after the origin */
  t->tokens = n + 1 + MODERATE + 2 + 1;
  double *values = arena_array(c->memory, double, t->tokens *axes);
  for (int i = 0; i <= MODERATE; i++, n++)
    for (int axis = 0; axis < axes; axis++)
      values[n * axes + axis] = random_uniform(&c->random, -1, 1) * (i == 0 ? 1e-7 : is_compact(s) ? 4 : 1);
  double far = !is_compact(s) ? 2 : s->dense ? 512 : 0;
  const double phases[] = {pi, 2 * pi, far};
  for (int i = 0; i < 3; i++, n++)
    if (s->additive || phases[i] == 0)
      for (int axis = 0; axis < axes; axis++) values[n * axes + axis] = i < 2 ? 10 : 1e6 - axis;
    else check_position_of_phase(c, &t->answer[OPERANDS_RANDOM].operands, phases[i], values + n * axes);
  for (int64_t at = 0; at < n; at++) check_keep_moderate(c, &t->answer[OPERANDS_RANDOM].operands, values + at * axes);
  t->values = values;
  t->positions = tensor_contiguous(c->memory, NUMBER_F64, 2, (int64_t[]){t->tokens, axes}, values);
}

static trial_operands alike(checker *c, operand_set set) {
  const spec *s = c->spec;
  const double **values = arena_array(c->memory, const double *, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++) {
    int64_t size = spec_operand_elements(&s->operand[i]);
    double *numbers = arena_array(c->memory, double, size + 1);
    for (int64_t k = 0; k < size; k++) numbers[k] = set == OPERANDS_ZERO ? 0 : (float)(s->operand[i].test_scale / 2);
    values[i] = numbers;
  }
  return trial_rounded_operands(c->memory, s, values, NUMBER_F32);
}

static double fraction(uint64_t *random) { return (random_below(random, 129) - 64) / 64.0; }

/* Few tokens of a grid are sampled: gradients of the others' rows are 0, and the reference passes over them. */
static bool is_sampled(const sample *t, int64_t token) {
  return t->positions || token % (t->tokens / GRID_SAMPLE | 1) == 0;
}

/* Where a function of rotors has a cut (logarithms of half turns, means of rotations that several are nearest to) it
 * has no derivative: nothing is compared there. What is nearer to one than a phase's last digits is one. */
static bool reaches_cut(const spec *s, const sample *t, const double *positions) {
  double own[SPEC_MAX_AXES];
  for (int i = 0; i < s->n_parts; i++) {
    reference_place_of_part(&s->part[i], positions, own);
    if (reaches_cut(s->part[i].of, t, own)) return true;
  }
  for (int set = 0; set < OPERAND_SETS; set++)
    for (int head = 0; head < s->heads; head++)
      for (int block = 0; block < s->n_blocks; block++)
        if (s->function && reference_reach(s, positions, t->answer[set].operands.values, head, block) > 0x1p-30L)
          return true;
  return false;
}

static bool is_at_cut(const checker *c, const sample *t, int64_t token) {
  const spec *s = c->spec;
  double grid[SPEC_MAX_AXES];
  return token >= s->skip_tokens && reaches_cut(s, t, reference_place(s, t->values, token, grid));
}

static void choose_rows(checker *c, sample *t) {
  bool *is_cut = arena_array(c->memory, bool, t->tokens);
  for (int64_t n = 0; n < t->tokens; n++) is_cut[n] = is_at_cut(c, t, n);
  int64_t d = c->spec->head_dim;
  for (int which = 0; which < 2; which++) {
    int64_t rows = BATCH * t->heads[which] * t->tokens;
    t->x[which] = arena_array(c->memory, double, rows *d);
    t->g[which] = arena_array(c->memory, double, rows *d);
    t->g_far[which] = arena_array(c->memory, double, rows *d);
    for (int64_t row = 0; row < rows; row++)
      for (int64_t i = row * d; i < (row + 1) * d; i++) {
        t->x[which][i] = fraction(&c->random);
        t->g_far[which][i] = is_sampled(t, row % t->tokens) ? fraction(&c->random) : 0;
        if (is_cut[row % t->tokens]) t->g_far[which][i] = 0;
        t->g[which][i] = t->positions && row % t->tokens == t->tokens - 1 ? 0 : t->g_far[which][i];
      }
  }
}

static double *const *gradients_in(const sample *t, operand_set set) { return set == OPERANDS_FAR ? t->g_far : t->g; }

static int64_t input_size(const spec *s, int i) { return spec_input_numbers(&s->input[i]); }

static void find_answer(checker *c, sample *t, operand_set set, double *const *g) {
  const spec *s = c->spec;
  answer *out = &t->answer[set];
  out->operand = reference_operand_sums(c->memory, s);
  out->position = arena_array(c->memory, gradient_sum, t->tokens * s->n_axes);
  out->input = arena_array(c->memory, gradient_sum *, s->n_inputs + 1);
  for (int i = 0; i < s->n_inputs; i++) out->input[i] = arena_array(c->memory, gradient_sum, input_size(s, i));
  reference_rows rows[2];
  for (int which = 0; which < 2; which++) {
    out->row[which] = arena_array(c->memory, gradient_sum, BATCH * t->heads[which] * t->tokens * s->head_dim);
    rows[which] = (reference_rows){t->heads[which], t->x[which], g[which], out->row[which]};
  }
  reference_encode_backward(s, &(reference_backward){.batches = BATCH,
                                                     .tokens = t->tokens,
                                                     .position_sets = 1,
                                                     .positions = t->values,
                                                     .operands = out->operands.values,
                                                     .q = rows[0],
                                                     .k = rows[1],
                                                     .operand = out->operand,
                                                     .input = out->input,
                                                     .position = out->position});
}

static bool has_set(const checker *c, const sample *t, operand_set set) {
  if (set == OPERANDS_RANDOM) return true;
  return set == OPERANDS_FAR ? t->positions != NULL : c->spec->n_operands > 0;
}

/* ---- calls ---- */

typedef struct gradients {
  DLTensor *row[2], **operand, **input, *position; /* operand, input, position: NULL: not asked for */
} gradients;

typedef struct call {
  number_type type;
  const trial_operands *operands;
  DLTensor *kept[2], *g[2];
  bool from_input;
} call;

static DLTensor *rows_of(checker *c, number_type type, int which, const double *numbers) {
  const sample *t = c->gradients;
  DLTensor *rows =
      tensor_rows(c->memory, type, which ? ROWS_BNHD : ROWS_BHND, BATCH, t->heads[which], t->tokens, c->spec->head_dim);
  EACH_NUMBER(rows, b, h, n, i) tensor_set(rows, b, h, n, i, numbers ? *numbers++ : 0);
  return rows;
}

static gradients make_gradients(checker *c, number_type rows, number_type sums) {
  const spec *s = c->spec;
  const sample *t = c->gradients;
  gradients to = {.row = {rows_of(c, rows, 0, NULL), rows_of(c, rows, 1, NULL)}};
  if (s->n_operands) to.operand = arena_array(c->memory, DLTensor *, s->n_operands);
  for (int i = 0; i < s->n_operands; i++)
    to.operand[i] = tensor_contiguous(c->memory, sums, s->operand[i].rank, s->operand[i].shape, NULL);
  if (spec_turns_rows(s)) to.input = arena_array(c->memory, DLTensor *, s->n_inputs);
  for (int i = 0; to.input && i < s->n_inputs; i++)
    to.input[i] = tensor_contiguous(c->memory, NUMBER_F32, s->input[i].size ? 4 : 3,
                                    (int64_t[]){1, 1, t->tokens, input_size(s, i)}, NULL);
  if (t->positions) to.position = tensor_contiguous(c->memory, sums, 2, (int64_t[]){t->tokens, s->n_axes}, NULL);
  return to;
}

/* Whether rows' gradients alone take what encode read, too. */
static bool needs_input(const checker *c) { return c->kernel->needs_input; }

/* Parts from the last to the first, and then those of the sums. */
static int run_call(const checker *c, const call *of, const gradients *to, int parts) {
  const sample *t = c->gradients;
  bool sums = to->operand || to->input || to->position;
  pegen_grad_args grad = {.struct_size = sizeof grad,
                          .flags = of->from_input ? PEGEN_GRAD_FROM_INPUT : 0,
                          .q_out = of->g[0],
                          .k_out = of->g[1],
                          .q = to->row[0],
                          .k = to->row[1],
                          .operands = to->operand,
                          .inputs = to->input,
                          .positions = to->position};
  pegen_args args = trial_args(c->kernel, of->operands, t->positions);
  args.inputs = trial_repeated_inputs(c->memory, c->kernel, of->operands, t->tokens);
  args.q = sums || needs_input(c) ? of->kept[0] : NULL;
  args.k = sums || needs_input(c) ? of->kept[1] : NULL;
  args.grad = &grad;
  return trial_run(&args, c->kernel->encode_backward_workspace, c->kernel->encode_backward,
                   to->operand ? c->kernel->encode_backward_finish : NULL, parts);
}

/* 64-byte aligned, as tables are; `given`: what to free. */
static void *new_table(size_t bytes, void **given) {
  *given = arena_must(malloc(bytes + 64));
  return (void *)(((uintptr_t)*given + 63) & ~(uintptr_t)63);
}

/* The calls that fill the table of gradients: of q, and then of k. */
static int fill_table(const checker *c, const call *of, const gradients *to, pegen_args *prepare, pegen_grad_args *grad,
                      int parts) {
  int error = c->kernel->prepare(prepare, 0, 1);
  for (int which = 0; which < 2 && !error; which++) {
    pegen_args args = {.struct_size = sizeof args,
                       .table = prepare->table,
                       .table_bytes = prepare->table_bytes,
                       .q = which ? NULL : of->kept[0],
                       .k = which ? of->kept[1] : NULL,
                       .grad = grad};
    grad->flags = (of->from_input ? PEGEN_GRAD_FROM_INPUT : 0) | (which ? PEGEN_GRAD_ACCUMULATE : 0);
    grad->q_out = which ? NULL : of->g[0];
    grad->k_out = which ? of->g[1] : NULL;
    grad->q = which ? NULL : to->row[0];
    grad->k = which ? to->row[1] : NULL;
    error = trial_run(&args, NULL, c->kernel->encode_backward, NULL, parts);
  }
  return error;
}

/* Runs a call for the same gradients by way of a table. */
static int run_tabled(const checker *c, const call *of, const gradients *to, int parts) {
  void *given[2];
  pegen_grad_args grad = {.struct_size = sizeof grad};
  pegen_args args = trial_args(c->kernel, of->operands, c->gradients->positions);
  args.grad = &grad;
  args.table_bytes = c->kernel->table_bytes(&args);
  grad.table_bytes = c->kernel->gradient_table_bytes(&args);
  args.table = new_table(args.table_bytes, &given[0]);
  grad.table = new_table(grad.table_bytes, &given[1]);
  int error = fill_table(c, of, to, &args, &grad, parts);
  grad.q_out = grad.k_out = grad.q = grad.k = NULL;
  grad.flags = 0;
  grad.operands = to->operand;
  grad.positions = to->position;
  if (!error)
    error = trial_run(&args, c->kernel->prepare_backward_workspace, c->kernel->prepare_backward,
                      to->operand ? c->kernel->prepare_backward_finish : NULL, parts);
  free(given[0]);
  free(given[1]);
  return error;
}

/* ---- the reference ---- */

/* The number type in which a kernel that knows the basis of its rows says what it is. */
static number_type finest_type(const checker *c) {
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
    if (c->kernel->dtypes & 1u << type) return (number_type)type;
  return NUMBER_F32;
}

/* [batch][head][token][channel] */
static double *numbers_of(const checker *c, const DLTensor *rows) {
  double *numbers = arena_array(c->memory, double, tensor_elements(rows)), *at = numbers;
  EACH_NUMBER(rows, b, h, n, i) *at++ = tensor_get(rows, b, h, n, i);
  return numbers;
}

/* Such numbers, in their place. */
static void change_to_channels(const checker *c, int which, const double *const *operands, double *numbers) {
  const spec *s = c->spec;
  const sample *t = c->gradients;
  double grid[SPEC_MAX_AXES], *rows[BATCH];
  for (int64_t h = 0; h < t->heads[which]; h++)
    for (int64_t n = s->skip_tokens; n < t->tokens; n++) {
      for (int64_t b = 0; b < BATCH; b++) rows[b] = numbers + ((b * t->heads[which] + h) * t->tokens + n) * s->head_dim;
      reference_gradients_in_channels(s, reference_place(s, t->values, n, grid), operands, (int)(s->heads > 1 ? h : 0),
                                      BATCH, rows);
    }
}

/* Gradients of what the kernel writes, as the reference has them: of rows in the channels' basis. */
static double *const *in_channels(checker *c, const sample *t, operand_set set) {
  double **g = arena_array(c->memory, double *, 2);
  number_type type = finest_type(c);
  call of = {.type = type, .operands = &t->answer[set].operands};
  gradients to = {.row = {NULL, NULL}};
  c->gradients = t;
  for (int which = 0; which < 2; which++) {
    of.g[which] = rows_of(c, type, which, gradients_in(t, set)[which]);
    to.row[which] = rows_of(c, type, which, NULL);
  }
  check_called(c, number_type_info(type)->name, "gradients of rows", run_call(c, &of, &to, 1));
  for (int which = 0; which < 2; which++) {
    g[which] = numbers_of(c, to.row[which]);
    change_to_channels(c, which, of.operands->values, g[which]);
  }
  return g;
}

static const sample *choose(checker *c) {
  const spec *s = c->spec;
  sample *t = arena_new(c->memory, sample);
  t->of_gpu = is_of_gpu(c);
  t->heads[0] = s->heads > 1 ? s->heads : ANY_HEADS;
  t->heads[1] = s->heads > 1 ? s->heads : ANY_K_HEADS;
  t->answer[OPERANDS_RANDOM].operands = trial_random_operands(c->memory, s, NUMBER_F32, &c->random);
  if (s->grid[0]) t->tokens = spec_grid_tokens(s);
  else choose_positions(c, t);
  t->answer[OPERANDS_FAR].operands = t->answer[OPERANDS_RANDOM].operands;
  for (int set = OPERANDS_ZERO; set < OPERAND_SETS; set++) t->answer[set].operands = alike(c, (operand_set)set);
  choose_rows(c, t);
  for (int set = 0; set < OPERAND_SETS; set++)
    if (has_set(c, t, (operand_set)set))
      find_answer(c, t, (operand_set)set,
                  is_rebased(s) ? in_channels(c, t, (operand_set)set) : gradients_in(t, (operand_set)set));
  return t;
}

/* ---- comparisons ---- */

/* Notes an error that is a difference yet, in units of `unit`. */
static void note(trial_error *worst, trial_error now, long double unit) {
  if (now.error != 0) now.error /= unit;
  now.spoilt = !isfinite(now.error);
  trial_note(worst, now);
}

/* What errors of a block's rows are measured by, beside their norm. */
static long double scale_of_block(const spec *s, oracle *o, int64_t token, int head, int block) {
  long double scale = fabsl(s->inverse ? 1 / (long double)s->amplitude : (long double)s->amplitude);
  if (s->additive || block < 0 || token < s->skip_tokens) return 1;
  if (s->dense || s->gain[0] || !is_compact(s)) oracle_matrix(o, 0, token, head, block, &scale);
  return scale;
}

/* The block of a channel, and whose: the description's, or one of its parts'. */
typedef struct block_place {
  int block, part; /* -1: none */
} block_place;

/* The scale of a channel's gradient; behind a change of basis the largest of all blocks'. */
static long double scale_of(checker *c, oracle *o, int64_t token, int head, block_place at) {
  const spec *s = c->spec;
  long double scale = 1;
  if (at.part >= 0) return scale_of_block(s->part[at.part].of, oracle_part(o, at.part), token, head, at.block);
  if (s->n_parts) return 1;
  if (!s->basis) return scale_of_block(s, o, token, head, at.block);
  for (int i = 0; i < s->n_blocks; i++) scale = fmaxl(scale, scale_of_block(s, o, token, head, i));
  return scale;
}

static void place_blocks(const spec *s, int part, block_place *of) {
  for (int i = 0; !s->additive && i < s->n_components * s->n_blocks; i++)
    of[s->channel[i]] = (block_place){i % s->n_blocks, part};
}

static const block_place *blocks_of(checker *c) {
  const spec *s = c->spec;
  block_place *block = arena_array(c->memory, block_place, s->head_dim);
  for (int i = 0; i < s->head_dim; i++) block[i] = (block_place){-1, -1};
  place_blocks(s, -1, block);
  for (int i = 0; i < s->n_parts; i++) place_blocks(s->part[i].of, i, block);
  return block;
}

static void compare_rows(checker *c, const answer *exact, const gradients *got, number_type type, trial_error *worst) {
  const spec *s = c->spec;
  const sample *t = c->gradients;
  const block_place *block = blocks_of(c);
  for (int which = 0; which < 2; which++) {
    spec *one = arena_new(c->memory, spec);
    *one = spec_of_side(s, which);
    oracle *o = oracle_create(c->memory, one, 1, t->tokens, t->values, &exact->operands);
    const gradient_sum *row = exact->row[which];
    EACH_NUMBER(got->row[which], b, h, n, i) {
      double value = tensor_get(got->row[which], b, h, n, i);
      long double error = fabsl(value - row->value);
      if (type != NUMBER_F32) error = fmaxl(0, error - number_half_ulp(type, row->value));
      if (isnan(value)) error = INFINITY;
      note(worst, (trial_error){error, false, b, h, n, i, value, row->value},
           row->size * scale_of(c, o, n, (int)(s->heads > 1 ? h : 0), block[i]));
      row++;
    }
  }
}

/* Rows that lie in a basis of the kernel's own, which the reference does not know: y = a O x with O orthogonal, as
 * scores have shown, so that what came back by the transpose and is encoded again is what came in, times a^2. */
static void compare_encoded(checker *c, const answer *exact, const call *of, const gradients *got, trial_error *worst) {
  const spec *s = c->spec;
  const sample *t = c->gradients;
  const block_place *block = blocks_of(c);
  oracle *o = oracle_create(c->memory, s, 1, t->tokens, t->values, &exact->operands);
  long double amplitude = fabsl((long double)s->amplitude);
  DLTensor *y[2] = {rows_of(c, of->type, 0, NULL), rows_of(c, of->type, 1, NULL)};
  if (!check_called(c, number_type_info(of->type)->name, "gradients of rows, encoded",
                    trial_call(c->kernel, t->positions, of->operands, got->row[0], y[0], got->row[1], y[1], 1)))
    return;
  for (int which = 0; which < 2; which++) EACH_ROW(y[which], b, h, n) {
      long double norm = 0;
      for (int i = 0; i < s->head_dim; i++) norm = hypotl(norm, tensor_get(of->g[which], b, h, n, i));
      for (int i = 0; i < s->head_dim && norm > 0; i++) {
        long double factor = n < s->skip_tokens || block[i].block < 0 ? 1 : amplitude;
        long double scale = scale_of(c, o, n, (int)(s->heads > 1 ? h : 0), block[i]);
        long double right = factor * factor * tensor_get(of->g[which], b, h, n, i);
        double value = tensor_get(y[which], b, h, n, i);
        long double error = isnan(value) ? INFINITY : fabsl(value - right);
        note(worst, (trial_error){error, false, b, h, n, i, value, right}, norm * fmaxl(1, factor * scale));
      }
    }
}

/* Elements of a contiguous tensor; `channel` of the message is which. */
static void compare_sums(const gradient_sum *exact, const DLTensor *got, int64_t count, trial_error *worst) {
  number_type type = number_type_of(got->dtype);
  for (int64_t i = 0; i < count; i++) {
    double value = number_load(type, (char *)got->data + i * number_bytes(type));
    long double error = isnan(value) ? INFINITY : fabsl(value - exact[i].value);
    note(worst, (trial_error){error, false, 0, 0, 0, (int)i, value, exact[i].value}, exact[i].size);
  }
}

/* The scale of what all tokens' rows of an input gain together. */
static void compare_inputs(const gradient_sum *exact, const DLTensor *got, int64_t size, trial_error *worst) {
  for (int64_t k = 0; k < size; k++) {
    long double value = 0;
    for (int64_t n = 0; n < got->shape[2]; n++) value += ((const float *)got->data)[n * size + k];
    long double error = isnan(value) ? INFINITY : fabsl(value - exact[k].value);
    note(worst, (trial_error){error, false, 0, 0, 0, (int)k, (double)value, exact[k].value}, exact[k].size);
  }
}

static bool same_bytes(const DLTensor *x, const DLTensor *y, int64_t count) {
  return !x || memcmp(x->data, y->data, (size_t)(count * number_bytes(number_type_of(x->dtype)))) == 0;
}

/* ---- the checks ---- */

/* What rounding of the phases leaves of gradients, of tokens for which some come in. Errors of exp(M) in float32 grow
 * with M, and with them those of what M gains. */
static long double phase_bound(const checker *c, operand_set set) {
  const spec *s = c->spec;
  const sample *t = c->gradients;
  int64_t end = t->tokens - (t->positions && set != OPERANDS_FAR);
  bool is_narrow = s->dense && (is_rebased(s) ? is_of_gpu(c) : !s->dense->is_f64);
  long double rounding = check_phase_rounding(c, &t->answer[set].operands, t->values, s->skip_tokens, end);
  return is_narrow ? rounding * (is_of_gpu(c) ? 0x1p23L : 0x1p29L) : rounding;
}

/* The largest entry of a block's matrix, at least 1. What outputs were rounded by goes back through the inverse rotor,
 * and boosts and shears magnify it. */
static long double largest_entry_at(const checker *c, const spec *s, const double *positions,
                                    const trial_operands *operands) {
  long double largest = 1, *matrix = arena_array(c->memory, long double, s->n_components * s->n_components + 1);
  double own[SPEC_MAX_AXES];
  for (int i = 0; i < s->n_parts; i++) {
    reference_place_of_part(&s->part[i], positions, own);
    largest = fmaxl(largest, largest_entry_at(c, s->part[i].of, own, operands));
  }
  for (int head = 0; head < s->heads && !s->n_parts; head++)
    for (int block = 0; block < s->n_blocks; block++) {
      reference_block(s, positions, operands->values, head, block, matrix);
      for (int i = 0; i < s->n_components * s->n_components; i++) largest = fmaxl(largest, fabsl(matrix[i]));
    }
  return largest;
}

static long double largest_entry(const checker *c, const trial_operands *operands) {
  const spec *s = c->spec;
  const sample *t = c->gradients;
  long double largest = 1;
  for (int64_t n = s->skip_tokens; n < t->tokens; n++) {
    double grid[SPEC_MAX_AXES];
    if (is_sampled(t, n))
      largest = fmaxl(largest, largest_entry_at(c, s, reference_place(s, t->values, n, grid), operands));
  }
  return largest;
}

static bool has_factors(const spec *s) {
  for (int i = 0; i < s->n_parts; i++)
    if (has_factors(s->part[i].of)) return true;
  return s->combine == COMBINE_PRODUCT || s->combine == COMBINE_SYMMETRIC;
}

/* Whether gradients go through a rotor and its inverse on vectors (algebra/torque_five.h). */
static bool is_mixed_by_five(const checker *c, const spec *s) {
  block_program program;
  for (int i = 0; i < s->n_parts; i++)
    if (is_mixed_by_five(c, s->part[i].of)) return true;
  if (s->n_parts || s->dense || s->entries[0] || clifford_dimensions(s->algebra) < FIVE) return false;
  if (!block_build(c->memory, s, &program)) return false;
  for (int i = 0; i < program.n_turns; i++)
    if (program.turn[i] == CLOSED_FIVE) return true;
  return false;
}

/* What the rounding of outputs leaves, or of what came in for them turned back, which is float32 (from inputs). Through
 * a factor of a product a torque is turned by both the factor and its inverse, and so it is where five vectors are
 * mixed, which shows where sines are float32. */
static long double rounded_bound(const checker *c, const call *of) {
  const spec *s = c->spec;
  long double rounded = number_half_ulp(of->from_input ? NUMBER_F32 : of->type, 1), growth;
  if (is_compact(s) || s->additive) return rounded;
  growth = largest_entry(c, of->operands);
  bool is_turned_twice = has_factors(s) || (is_of_gpu(c) && is_mixed_by_five(c, s));
  return rounded * growth * (is_turned_twice ? growth : 1);
}

/* What rounding of what was kept leaves of a sum, where it is more than the bound of exact numbers. */
static long double sum_bound(const checker *c, const call *of, operand_set set) {
  long double exact = fmaxl(SUM_BOUND, phase_bound(c, set));
  if (is_rebased(c->spec) && finest_type(c) != NUMBER_F32) exact += 2 * number_half_ulp(finest_type(c), 1);
  return fmaxl(exact, rounded_bound(c, of)) + trial_product_rounding(c->spec, of->type);
}

/* Rows' gradients of a call; `way`: by which calls they came, in words. */
static void check_rows(checker *c, const call *of, operand_set set, const char *way, const gradients *got) {
  const answer *exact = &c->gradients->answer[set];
  bool rounds = of->type != NUMBER_F32, encoded = is_rebased(c->spec);
  long double bound =
      fmaxl(ROW_BOUND, c->spec->dense ? 0 : phase_bound(c, set)) + trial_product_rounding(c->spec, of->type);
  trial_error worst = {0};
  if (encoded) {
    compare_encoded(c, exact, of, got, &worst);
    if (rounds) bound += 2 * number_half_ulp(of->type, 1);
  } else compare_rows(c, exact, got, of->type, &worst);
  const char *how = encoded ? ", encoded" : rounds ? ", beyond half a unit" : "";
  check_report(c, number_type_info(of->type)->name,
               arena_printf(c->memory, "gradients of rows%s%s%s", way, how, SET_NAME[set]), bound, &worst);
}

/* By which calls gradients of operands and positions come. */
typedef struct gradient_way {
  int (*run)(const checker *c, const call *of, const gradients *to, int parts);
  const char *words;
} gradient_way;

static void check_sums(checker *c, const call *of, operand_set set, const gradient_way *way) {
  const spec *s = c->spec;
  const sample *t = c->gradients;
  const answer *exact = &t->answer[set];
  const char *name = number_type_info(of->type)->name;
  gradients to = make_gradients(c, of->type, NUMBER_F64), parted = make_gradients(c, of->type, NUMBER_F64);
  int error = way->run(c, of, &to, 1);
  if (error == PEGEN_ERROR_NO_GRADIENT) return; /* a form whose sums have no code: `explain` says so */
  if (!check_called(c, name, "gradients of operands and positions", error)) return;
  const char *from = arena_printf(c->memory, "%s%s", of->from_input ? "inputs" : "outputs", way->words);
  long double bound = sum_bound(c, of, set);
  trial_error operands = {0}, positions = {0};
  check_rows(c, of, set, arena_printf(c->memory, " with sums from %s", from), &to);
  for (int i = 0; i < s->n_operands; i++)
    compare_sums(exact->operand[i], to.operand[i], spec_operand_elements(&s->operand[i]), &operands);
  if (s->n_operands)
    check_report(c, name, arena_printf(c->memory, "gradients of operands from %s%s", from, SET_NAME[set]), bound,
                 &operands);
  if (to.input) {
    trial_error inputs = {0};
    for (int i = 0; i < s->n_inputs; i++) compare_inputs(exact->input[i], to.input[i], input_size(s, i), &inputs);
    check_report(c, name, arena_printf(c->memory, "gradients of inputs from %s%s", from, SET_NAME[set]), bound,
                 &inputs);
  }
  if (to.position) {
    compare_sums(exact->position, to.position, t->tokens * s->n_axes, &positions);
    check_report(c, name, arena_printf(c->memory, "gradients of positions from %s%s", from, SET_NAME[set]), bound,
                 &positions);
  }
  if (!check_called(c, name, "gradients in parts", way->run(c, of, &parted, CHECK_PARTS))) return;
  bool same = same_bytes(to.position, parted.position, t->tokens * s->n_axes);
  for (int i = 0; i < s->n_operands; i++)
    same = same && same_bytes(to.operand[i], parted.operand[i], spec_operand_elements(&s->operand[i]));
  for (int i = 0; to.input && i < s->n_inputs; i++)
    same = same && same_bytes(to.input[i], parted.input[i], t->tokens * input_size(s, i));
  for (int which = 0; which < 2; which++) same = same && tensor_identical(to.row[which], parted.row[which]);
  check_report_bits(c, name, arena_printf(c->memory, "gradients in 3 parts and in one, from %s", from), same);
}

static void check_set(checker *c, number_type type, operand_set set) {
  const spec *s = c->spec;
  const sample *t = c->gradients;
  const answer *exact = &t->answer[set];
  const char *name = number_type_info(type)->name;
  DLTensor *x[2], *y[2];
  call of = {.type = type, .operands = &exact->operands};
  for (int which = 0; which < 2; which++) {
    x[which] = rows_of(c, type, which, t->x[which]);
    y[which] = rows_of(c, type, which, NULL);
    of.g[which] = rows_of(c, type, which, gradients_in(t, set)[which]);
  }
  gradients rows = {.row = {rows_of(c, type, 0, NULL), rows_of(c, type, 1, NULL)}};
  if (needs_input(c)) of.from_input = true, of.kept[0] = x[0], of.kept[1] = x[1];
  if (!check_called(c, name, "rows to take gradients of",
                    trial_call(c->kernel, t->positions, of.operands, x[0], y[0], x[1], y[1], 1)) ||
      !check_called(c, name, "gradients of rows", run_call(c, &of, &rows, 1)))
    return;
  check_rows(c, &of, set, "", &rows);
  if (!s->n_operands && !t->positions && !spec_turns_rows(s)) return;
  for (int from_input = is_lost(s); from_input < 2; from_input++) {
    of.from_input = from_input;
    for (int which = 0; which < 2; which++) of.kept[which] = from_input ? x[which] : y[which];
    check_sums(c, &of, set, &(gradient_way){run_call, ""});
    if (c->kernel->prepare_backward) check_sums(c, &of, set, &(gradient_way){run_tabled, " by a table"});
  }
}

static void check_type(checker *c, number_type type) {
  check_set(c, type, OPERANDS_RANDOM);
  for (int set = OPERANDS_RANDOM + 1; type == NUMBER_F32 && set < OPERAND_SETS; set++)
    if (has_set(c, c->gradients, (operand_set)set)) check_set(c, type, (operand_set)set);
}

void check_encode_backward(checker *c) {
  if (!c->kernel->encode_backward) return;
  if (!c->gradients || (is_rebased(c->spec) && c->gradients->of_gpu != is_of_gpu(c))) c->gradients = choose(c);
  check_each_type(c, check_type);
}
