/* interpret/program: one function an op; see interpret/program.h. */
#include "interpret/program.h"

#include "base/diag.h"
#include "interpret/matrix.h"

#include <math.h>
#include <string.h>

typedef struct range {
  int64_t begin, end;
} range;

typedef struct interpreter {
  arena *memory;
  const program *p;
  const program_call *call;
  int64_t index[SPACE_COUNT];  /* of the open loops */
  int64_t extent[SPACE_COUNT]; /* by which values are laid out */
  range tile, group, run;      /* of tokens, rows and heads; all of them outside of tiles, groups and runs */
  long double *value[PROGRAM_MAX_VALUES];
  expr_memo memo;
} interpreter;

static int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t larger(int64_t x, int64_t y) { return x > y ? x : y; }

/* ---- values ---- */

int64_t program_numbers(const program *p, int value) {
  const program_value *v = &p->value[value];
  switch (v->kind) {
  case KIND_NUMBERS: return (int64_t)v->count * v->maker->blocks.count;
  case KIND_MATRIX: return (int64_t)v->count * v->count * v->maker->blocks.count;
  default: return v->count;
  }
}

static int64_t numbers_of(const interpreter *t, int value) { return program_numbers(t->p, value); }

static int64_t elements_of(const interpreter *t, unsigned spaces) {
  int64_t count = 1;
  for (int s = 0; s < SPACE_COUNT; s++)
    if (spaces & 1u << s) count *= t->extent[s];
  return count;
}

/* Which element of an array over spaces the open loops are at. */
static int64_t element_at(const interpreter *t, unsigned spaces) {
  int64_t at = 0;
  for (int s = 0; s < SPACE_COUNT; s++)
    if (spaces & 1u << s) at = at * t->extent[s] + t->index[s];
  return at;
}

static long double *value_at(const interpreter *t, int value) {
  return t->value[value] + element_at(t, t->p->value[value].spaces) * numbers_of(t, value);
}

/* ---- expressions ---- */

/* Coordinates of the token at hand, and its side, of a pair the displacement of the key from it. */
static const double *coordinates(const interpreter *t, const program_op *op, double *delta) {
  const program_call *c = t->call;
  const spec_part *part = program_part_of(op);
  int axes = t->p->spec->n_axes;
  if (!c->positions) return NULL;
  const double *at = c->positions + t->index[SPACE_TOKENS] * axes;
  for (int axis = 0; part && axis < part->of->n_axes; axis++) delta[axis] = at[part->axis[axis]];
  if (part) return delta;
  if (spec_has_sides(t->p->spec)) {
    memcpy(delta, at, sizeof *delta * (size_t)axes);
    delta[axes] = c->side;
    return delta;
  }
  if (!(t->p->value[op->result].spaces & IN(KEYS))) return at;
  const double *key = (c->k_positions ? c->k_positions : c->positions) + t->index[SPACE_KEYS] * axes;
  for (int axis = 0; axis < axes; axis++) delta[axis] = key[axis] - at[axis];
  delta[SPEC_OF_QUERY] = (double)(t->index[SPACE_TOKENS] + c->keys - c->tokens);
  delta[SPEC_OF_KEY] = (double)t->index[SPACE_KEYS];
  return delta;
}

/* The rows of inputs of the query and of the key, or of the row at hand, which of k are those that a query's would be.
 */
static void input_rows(const interpreter *t, const double **rows) {
  const int64_t *at = t->index;
  int tensor = spec_turns_rows(t->p->spec) ? (int)at[SPACE_TENSORS] : 0;
  int64_t head = at[SPACE_BATCHES] * t->call->heads[tensor] + at[SPACE_HEADS];
  for (int i = 0; i < t->p->spec->n_inputs; i++) {
    const spec_input *in = &t->p->spec->input[i];
    int64_t size = spec_input_numbers(in),
            row = in->of_keys ? head * t->call->keys + at[SPACE_KEYS] : head * t->call->tokens + at[SPACE_TOKENS];
    if (spec_input_is_pair(in)) row = row * t->call->keys + at[SPACE_KEYS];
    rows[i] = t->call->inputs[i] ? t->call->inputs[i] + row * size : NULL;
  }
}

/* The op's expressions for one block into out[expr * step]; numbers that evals made are taken as they are. */
static void evaluate(interpreter *t, const program_op *op, int block, long double *out, int64_t step) {
  const spec *s = program_spec_of(t->p, op);
  int head = s->heads > 1 ? (int)t->index[SPACE_HEADS] : 0;
  double delta[SPEC_MAX_PLACES];
  const double *inputs[SPEC_MAX_INPUTS];
  input_rows(t, inputs);
  expr_environment env = {.head = head,
                          .block = block,
                          .blocks = expr_pool_blocks(s->pool),
                          .positions = coordinates(t, op, delta),
                          .inputs = inputs,
                          .operands = t->call->operands};
  memset(t->memo.known, 0, (size_t)expr_pool_count(s->pool));
  for (int i = 0; i < op->n_arguments; i++) {
    const program_op *used = t->p->value[op->argument[i]].maker;
    int at = used->blocks.count == 1 ? 0 : block; /* one number for all blocks */
    for (int k = 0; k < used->n_exprs; k++) {
      t->memo.value[used->expr[k]->id] = value_at(t, op->argument[i])[k * used->blocks.count + at];
      t->memo.known[used->expr[k]->id] = 1;
    }
  }
  for (int i = 0; i < op->n_exprs; i++) out[i * step] = expr_eval_known(op->expr[i], &env, &t->memo);
}

static void run_eval(interpreter *t, const program_op *op) {
  long double *out = value_at(t, op->result);
  int64_t numbers = numbers_of(t, op->result);
  const long double *table = op->is_tabled ? t->call->tables[op->result] : NULL;
  if (table) {
    memcpy(out, table + (out - t->value[op->result]), sizeof *out * (size_t)numbers);
    return;
  }
  for (int block = 0; block < op->blocks.count; block++) evaluate(t, op, block, out + block, op->blocks.count);
}

/* Adds factor times the skew matrix of a block. */
static void add_skew(const interpreter *t, const spec_skew *skew, const program_blocks *b, int block,
                     long double factor, long double *sum) {
  int head = skew->n_heads > 1 ? (int)t->index[SPACE_HEADS] : 0, n = b->size;
  const double *raw = t->call->operands[skew->operand] + skew->offset[head * b->count + block];
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++) {
      long double above =
          factor * (skew->rule == SKEW_DIFFERENCE ? (long double)raw[j * n + i] - raw[i * n + j] : raw[j * n + i]);
      sum[j * n + i] += above;
      sum[i * n + j] -= above;
    }
}

static void run_skew(interpreter *t, const program_op *op, int block, long double *out) {
  const program_blocks *b = &op->blocks;
  const long double *numbers = op->n_arguments ? value_at(t, op->argument[0]) : NULL;
  bool is_turned = op->skew.source == SOURCE_SCHUR; /* its number is of the eigenvalues */
  int count = b->size * b->size;
  memset(out, 0, sizeof *out * (size_t)count);
  for (int i = 0; i < op->skew.count; i++)
    add_skew(t, &op->skew.of[i], b, block, numbers && !is_turned ? numbers[i * b->count + block] : 1, out);
  matrix_make(op->skew.source, b->size, numbers && is_turned ? numbers[block] : 0, out);
  for (int i = 0; i < count; i++) out[i] *= op->skew.factor;
}

/* Row i of the first matrix times the second, whose rows are channels in its block's order. */
static void run_product(interpreter *t, const program_op *op) {
  const program_blocks *of = &t->p->value[op->argument[0]].maker->blocks, *whole = &op->blocks;
  const long double *first = value_at(t, op->argument[0]), *second = value_at(t, op->argument[1]);
  long double *out = value_at(t, op->result);
  int n = whole->size, *row = arena_array(t->memory, int, t->p->spec->head_dim);
  memcpy(out, second, sizeof *out * (size_t)(n * n)); /* of channels in no block of the first */
  for (int i = 0; i < n; i++) row[whole->channel[i]] = i;
  for (int block = 0; block < of->count; block++, first += of->size * of->size)
    for (int i = 0; i < of->size; i++) {
      long double *to = out + (int64_t)row[of->channel[i * of->count + block]] * n;
      memset(to, 0, sizeof *to * (size_t)n);
      for (int j = 0; j < of->size; j++)
        for (int k = 0; k < n; k++)
          to[k] += first[i * of->size + j] * second[(int64_t)row[of->channel[j * of->count + block]] * n + k];
    }
}

/* [blocks][size][size] */
static void run_matrix(interpreter *t, const program_op *op) {
  int size = op->blocks.size * op->blocks.size;
  const long double *table = op->is_tabled ? t->call->tables[op->result] : NULL;
  long double *out = value_at(t, op->result);
  if (table) memcpy(out, table + (out - t->value[op->result]), sizeof *out * (size_t)numbers_of(t, op->result));
  else if (op->skew.source == SOURCE_PRODUCT) run_product(t, op);
  else if (op->skew.source != SOURCE_ENTRIES)
    for (int block = 0; block < op->blocks.count; block++) run_skew(t, op, block, out + (int64_t)block * size);
  else
    for (int block = 0; block < op->blocks.count; block++)
      evaluate(t, op, block, value_at(t, op->result) + (int64_t)block * size, 1);
}

/* ---- rows ---- */

/* Which tensor the stream's row is of. */
static int64_t tensor_at(const interpreter *t, int stream) {
  return t->p->stream[stream].spaces & IN(TENSORS) ? t->index[SPACE_TENSORS] : 0;
}

/* Heads of queries may share one of keys. */
static int64_t row_at(const interpreter *t, int stream) {
  const int64_t *at = t->index;
  const program_call *c = t->call;
  bool of_key = t->p->stream[stream].spaces & IN(KEYS);
  int64_t heads = c->heads[of_key ? 1 : tensor_at(t, stream)], row = of_key ? at[SPACE_KEYS] : at[SPACE_TOKENS];
  int64_t head = of_key ? at[SPACE_HEADS] * heads / c->heads[0] : at[SPACE_HEADS];
  return ((at[SPACE_BATCHES] * heads + head) * (of_key ? c->keys : c->tokens) + row) * t->p->stream[stream].channels;
}

static void run_load(interpreter *t, const program_op *op) {
  const double *row = t->call->rows[op->stream][tensor_at(t, op->stream)] + row_at(t, op->stream);
  long double *out = value_at(t, op->result);
  for (int c = 0; c < t->p->stream[op->stream].channels; c++) out[c] = row[c];
}

static void run_store(interpreter *t, const program_op *op) {
  long double *row = t->call->results[op->stream][tensor_at(t, op->stream)] + row_at(t, op->stream);
  memcpy(row, value_at(t, op->argument[0]), sizeof *row * (size_t)t->p->stream[op->stream].channels);
}

/* An entry that is 0 whatever the call is: no number is multiplied by it, be it infinite. */
static bool is_absent(const program_op *matrix, int entry) {
  return matrix->n_exprs > 0 && expr_is_const(matrix->expr[entry], 0);
}

static void run_apply(interpreter *t, const program_op *op) {
  const program_op *made = t->p->value[op->argument[0]].maker;
  const program_blocks *b = &made->blocks;
  const long double *matrix = value_at(t, op->argument[0]), *x = value_at(t, op->argument[1]);
  long double *y = value_at(t, op->result);
  memcpy(y, x, sizeof *y * (size_t)t->p->value[op->result].count);
  for (int block = 0; block < b->count; block++, matrix += b->size * b->size)
    for (int i = 0; i < b->size; i++) {
      long double sum = 0;
      for (int j = 0; j < b->size; j++) {
        int at = op->transposed ? j * b->size + i : i * b->size + j;
        if (!is_absent(made, at)) sum += matrix[at] * x[b->channel[j * b->count + block]];
      }
      y[b->channel[i * b->count + block]] = sum;
    }
}

static void run_add(interpreter *t, const program_op *op) {
  const long double *numbers = value_at(t, op->argument[0]), *x = value_at(t, op->argument[1]);
  long double *y = value_at(t, op->result);
  memcpy(y, x, sizeof *y * (size_t)t->p->value[op->result].count);
  for (int block = 0; block < op->blocks.count; block++) y[op->blocks.channel[block]] += numbers[block];
}

static void run_map(interpreter *t, const program_op *op) {
  const long double *last = value_at(t, op->argument[op->n_arguments - 1]);
  long double *y = value_at(t, op->result);
  memcpy(y, last, sizeof *y * (size_t)t->p->value[op->result].count);
  for (int i = 0; i < op->blocks.size * op->blocks.count; i++) {
    double channels[PROGRAM_MAX_ARGUMENTS];
    int at = op->blocks.channel[i];
    for (int k = 0; k < op->n_arguments; k++) channels[k] = (double)value_at(t, op->argument[k])[at];
    expr_environment env = {.block = i % op->blocks.count, .blocks = op->blocks.count, .channels = channels};
    y[at] = expr_eval_long(op->expr[0], &env);
  }
}

static void run_sum(interpreter *t, const program_op *op) {
  const long double *numbers = value_at(t, op->argument[0]);
  int blocks = t->p->value[op->argument[0]].maker->blocks.count;
  long double *out = value_at(t, op->result);
  for (int i = 0; i < t->p->value[op->result].count; i++) {
    out[i] = 0;
    for (int block = 0; block < blocks; block++) out[i] += numbers[i * blocks + block];
  }
}

static void run_columns(interpreter *t, const program_op *op) {
  int channels = t->p->value[op->argument[0]].count;
  long double *out = value_at(t, op->result);
  memcpy(out, value_at(t, op->argument[0]), sizeof *out * (size_t)channels);
  const long double *numbers = op->n_arguments > 1 ? value_at(t, op->argument[1]) : NULL;
  const long double *gains = op->n_arguments > 2 ? value_at(t, op->argument[2]) : NULL;
  int weights = numbers ? t->p->value[op->argument[1]].count : 0;
  int count = gains ? t->p->value[op->argument[2]].count / weights : 0;
  for (int i = 0; i < op->n_columns; i++) {
    long double *y = &out[channels + i];
    *y = 0;
    if (op->column[i] < 0 || !numbers) continue;
    if (!gains) *y = numbers[op->column[i]];
    for (int w = 0; gains && w < weights; w++) *y += numbers[w] * gains[w * count + op->column[i]];
  }
}

static void run_gather(interpreter *t, const program_op *op) {
  const program_value *result = &t->p->value[op->result], *row = &t->p->value[op->argument[0]];
  const long double *gained = value_at(t, op->argument[0]) + row->count - op->n_columns;
  const long double *gains = op->n_arguments > 1 ? value_at(t, op->argument[1]) : NULL;
  long double *out = value_at(t, op->result);
  int columns = gains ? t->p->value[op->argument[1]].count / result->count : 0;
  memset(out, 0, sizeof *out * (size_t)result->count);
  for (int i = 0; i < op->n_columns; i++) {
    if (op->column[i] < 0) continue;
    if (!gains) out[op->column[i]] += gained[i];
    for (int w = 0; gains && w < result->count; w++) out[w] += gains[w * columns + op->column[i]] * gained[i];
  }
}

static void run_take(interpreter *t, const program_op *op) {
  long double *out = value_at(t, op->result);
  memcpy(out, value_at(t, op->argument[0]), sizeof *out * (size_t)t->p->value[op->result].count);
}

/* ---- pairs ---- */

static range keys_of(const interpreter *t, program_part part) {
  const program_call *c = t->call;
  int64_t skip = t->p->spec->skip_tokens,
          seen = c->is_causal ? t->index[SPACE_TOKENS] + c->keys - c->tokens + 1 : c->keys;
  return (range){part & PART_SKIPPED ? 0 : skip, part & PART_ENCODED ? seen : smaller(skip, seen)};
}

static void run_score(interpreter *t, const program_op *op) {
  const long double *q = value_at(t, op->argument[0]), *k = value_at(t, op->argument[1]);
  long double product = 0, number = op->n_arguments > 2 ? *value_at(t, op->argument[2]) : 0;
  for (int c = 0; c < t->p->value[op->argument[0]].count; c++) product += q[c] * k[c];
  *value_at(t, op->result) = op->scales_all ? t->call->scale * (product + number) : t->call->scale * product + number;
}

/* The largest score of all, or what the softmax weighs by it. Where no key is seen the row is 0. */
static void run_attend(interpreter *t, const program_op *op) {
  long double largest = -INFINITY, sum = 0, *out = value_at(t, op->result);
  int channels = t->p->value[op->result].count;
  memset(out, 0, sizeof *out * (size_t)channels);
  for (int turn = 0; turn < 2; turn++)
    for (int i = 0; i < op->n_arguments; i += 2) {
      range keys = keys_of(t, t->p->value[op->argument[i]].keys);
      for (t->index[SPACE_KEYS] = keys.begin; t->index[SPACE_KEYS] < keys.end; t->index[SPACE_KEYS]++) {
        long double score = *value_at(t, op->argument[i]);
        const long double *row = value_at(t, op->argument[i + 1]);
        if (turn == 0) {
          if (!(score <= largest)) largest = score;
          continue;
        }
        if (largest == -INFINITY) continue;
        long double p = expl(score - largest);
        sum += p;
        for (int c = 0; c < channels; c++) out[c] += p * row[c];
      }
    }
  for (int c = 0; c < channels && sum != 0; c++) out[c] /= sum;
}

static void run_wedge(interpreter *t, const program_op *op) {
  const program_blocks *b = &op->blocks;
  const long double *g = value_at(t, op->argument[0]);
  const long double *y = op->n_arguments > 1 ? value_at(t, op->argument[1]) : NULL;
  long double *out = value_at(t, op->result);
  for (int block = 0; block < b->count; block++)
    for (int k = 0; k < t->p->value[op->result].count; k++) {
      const torque_element *element = op->basis ? &op->basis->element[k] : NULL;
      long double sum = y ? 0 : g[b->channel[k * b->count + block]];
      for (int i = 0; y && i < element->n_entries; i++) {
        const torque_entry *at = &element->entry[i];
        sum += at->sign * g[b->channel[at->row * b->count + block]] * y[b->channel[at->column * b->count + block]];
      }
      out[k * b->count + block] = sum;
    }
}

/* Adds what the value has in spaces [space, ...) of `over`. */
static void add_over(interpreter *t, const program_op *op, int space, long double *out) {
  while (space < SPACE_COUNT && !(op->over & 1u << space)) space++;
  int from = op->argument[0];
  if (space == SPACE_COUNT) {
    const long double *x = value_at(t, from);
    int blocks = t->p->value[from].maker->blocks.count, count = t->p->value[from].count;
    for (int i = 0; i < count * blocks; i++) out[op->over_blocks ? i / blocks : i] += x[i];
    return;
  }
  const program_call *c = t->call;
  unsigned spaces = t->p->value[from].spaces;
  int64_t begin = space == SPACE_TOKENS ? t->p->spec->skip_tokens : 0, end = t->extent[space];
  if (space == SPACE_TENSORS && t->p->value[from].tensors == PART_Q) end = 1;
  if (space == SPACE_TENSORS && t->p->value[from].tensors == PART_K) begin = 1;
  if (space == SPACE_HEADS && spaces & IN(TENSORS)) end = c->heads[t->index[SPACE_TENSORS]];
  for (int64_t i = begin; i < end; i++) {
    t->index[space] = i;
    bool is_absent = space == SPACE_TENSORS && !(op->over & IN(HEADS)) && t->index[SPACE_HEADS] >= c->heads[i];
    if (!is_absent) add_over(t, op, space + 1, out);
  }
}

static void run_reduce(interpreter *t, const program_op *op) {
  int64_t index[SPACE_COUNT];
  memcpy(index, t->index, sizeof index);
  long double *out = value_at(t, op->result);
  memset(out, 0, sizeof *out * (size_t)numbers_of(t, op->result));
  add_over(t, op, 0, out);
  memcpy(t->index, index, sizeof index);
}

static long double *array_at(const interpreter *t, const program_op *op, int64_t numbers) {
  return t->call->arrays[op->array] + element_at(t, t->p->array[op->array].spaces) * numbers;
}

static void run_write(interpreter *t, const program_op *op) {
  int64_t numbers = numbers_of(t, op->argument[0]);
  memcpy(array_at(t, op, numbers), value_at(t, op->argument[0]), sizeof(long double) * (size_t)numbers);
}

static void run_read(interpreter *t, const program_op *op) {
  int64_t numbers = numbers_of(t, op->result);
  memcpy(value_at(t, op->result), array_at(t, op, numbers), sizeof(long double) * (size_t)numbers);
}

/* ---- loops ---- */

static int64_t rows_of_token(const interpreter *t) { return t->call->heads[0] + t->call->heads[1]; }

static range range_of(const interpreter *t, const program_op *op, unsigned around) {
  const program_call *c = t->call;
  int64_t skip = t->p->spec->skip_tokens;
  switch (op->space) {
  case SPACE_TILES: return (range){0, (c->tokens + c->tile_tokens - 1) / c->tile_tokens};
  case SPACE_GROUPS: return (range){0, (rows_of_token(t) + c->group_rows - 1) / c->group_rows};
  case SPACE_RUNS: return (range){0, (t->extent[SPACE_HEADS] + c->run_heads - 1) / c->run_heads};
  case SPACE_TOKENS:
    if (c->keys && skip) /* the last query stands beside the last key */
      skip = larger(0, skip + c->tokens - c->keys);
    return (range){op->part & PART_SKIPPED ? t->tile.begin : larger(t->tile.begin, skip),
                   op->part & PART_ENCODED ? t->tile.end : smaller(t->tile.end, skip)};
  case SPACE_BATCHES: return (range){0, c->batches};
  case SPACE_TENSORS: return (range){op->part & PART_Q ? 0 : 1, op->part & PART_K ? 2 : 1};
  case SPACE_KEYS: return keys_of(t, op->part);
  case SPACE_HEADS: break;
  default: diag_bug("interpret", "a loop over %s", program_space_word(op->space));
  }
  if (!(around & IN(TENSORS))) return t->run;
  int64_t tensor = t->index[SPACE_TENSORS], before = tensor * c->heads[0];
  return (range){larger(t->group.begin - before, 0), smaller(t->group.end - before, c->heads[tensor])};
}

static void run_list(interpreter *t, const program_op *list, unsigned around);

static void run_for(interpreter *t, const program_op *op, unsigned around) {
  range all = range_of(t, op, around), tile = t->tile, group = t->group, run = t->run;
  for (int64_t i = all.begin; i < all.end; i++) {
    t->index[op->space] = i;
    /* Heads outside of tensors are the kernel's: a tensor that has fewer is left out. */
    if (op->space == SPACE_TENSORS && around & IN(HEADS) && t->index[SPACE_HEADS] >= t->call->heads[i]) continue;
    if (op->space == SPACE_TILES)
      t->tile = (range){i * t->call->tile_tokens, smaller((i + 1) * t->call->tile_tokens, t->call->tokens)};
    if (op->space == SPACE_GROUPS)
      t->group = (range){i * t->call->group_rows, smaller((i + 1) * t->call->group_rows, rows_of_token(t))};
    if (op->space == SPACE_RUNS)
      t->run = (range){i * t->call->run_heads, smaller((i + 1) * t->call->run_heads, t->extent[SPACE_HEADS])};
    run_list(t, op->body, around | 1u << op->space);
  }
  t->tile = tile;
  t->group = group;
  t->run = run;
}

/* What is held is in memory in any case. */
static void (*const runs[OP_COUNT])(interpreter *t, const program_op *op) = {
    [OP_EVAL] = run_eval,    [OP_MATRIX] = run_matrix, [OP_LOAD] = run_load,       [OP_STORE] = run_store,
    [OP_APPLY] = run_apply,  [OP_MAP] = run_map,       [OP_ADD] = run_add,         [OP_WRITE] = run_write,
    [OP_READ] = run_read,    [OP_SUM] = run_sum,       [OP_COLUMNS] = run_columns, [OP_GATHER] = run_gather,
    [OP_TAKE] = run_take,    [OP_SCORE] = run_score,   [OP_ATTEND] = run_attend,   [OP_WEDGE] = run_wedge,
    [OP_REDUCE] = run_reduce};

static void run_list(interpreter *t, const program_op *list, unsigned around) {
  for (const program_op *op = list; op; op = op->next)
    if (op->kind == OP_FOR) run_for(t, op, around);
    else if (runs[op->kind]) runs[op->kind](t, op);
    else if (op->kind != OP_HOLD) diag_bug("interpret", "op %d", (int)op->kind);
}

void program_interpret(const program *p, const program_call *call) {
  interpreter t = {.memory = arena_create(), .p = p, .call = call};
  int64_t heads = larger(p->spec->heads, larger(call->heads[0], call->heads[1]));
  t.extent[SPACE_TOKENS] = call->tokens;
  t.extent[SPACE_BATCHES] = call->batches;
  t.extent[SPACE_TENSORS] = 2;
  t.extent[SPACE_HEADS] = heads;
  t.extent[SPACE_KEYS] = call->keys;
  t.tile = (range){0, call->tokens};
  t.group = (range){0, rows_of_token(&t)};
  t.run = (range){0, heads};
  int nodes = expr_pool_count(p->spec->pool);
  for (int i = 0; i < p->spec->n_parts; i++) nodes = (int)larger(nodes, expr_pool_count(p->spec->part[i].of->pool));
  t.memo = (expr_memo){arena_array(t.memory, long double, nodes + 1), arena_alloc(t.memory, (size_t)nodes + 1)};
  for (int v = 0; v < p->n_values; v++) {
    int64_t count = elements_of(&t, p->value[v].spaces) * numbers_of(&t, v);
    t.value[v] = arena_array(t.memory, long double, count + 1);
    for (int64_t i = 0; i < count; i++) t.value[v][i] = NAN;
  }
  run_list(&t, p->body, 0);
  arena_destroy(t.memory);
}
