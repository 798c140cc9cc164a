/* gpu/attention_numbers: what scores read of tokens beside their coordinates, indices and inputs; see gpu/attention.h.
 *
 * Numbers of a tile's queries and keys lie in shared memory as coordinates do, one row of each side's a token. A head
 * of q reads those of an input's head that it shares with its neighbours, which of keys may be other heads than k's.
 * A row whose elements are read at computed places, or by pairs, has its address there, in two numbers.
 */
#include "gpu/attention.h"
#include "gpu/index.h"

#include "kernel/launch.h"

static bool is_laid(const attention_plan *p, int i, bool of_key) {
  return p->number[i].input >= 0 && p->number[i].of_key == of_key;
}

/* Whether what lies there is where a row is. */
static bool has_row(const attention_plan *p, int i) { return attention_is_row(p, i) || attention_is_pair(p, i); }

int attend_pair_rows(const attention_plan *p) {
  int count = 0;
  for (int i = 0; i < p->n_numbers; i++) count += attention_is_pair(p, i);
  return count;
}

/* Numbers of a row of the side's; and those before number i. */
static int width_of(const attention_plan *p, bool of_key, int end) {
  int count = 0;
  for (int i = 0; i < end; i++) count += is_laid(p, i, of_key) ? 1 + has_row(p, i) : 0;
  return count;
}

int64_t attend_number_bytes(const attention_plan *p, bool of_keys, int tokens) {
  return 4LL * tokens * width_of(p, of_keys, p->n_numbers);
}

static ir_value laid_at(attend *t, bool of_key, ir_value index, int i) {
  ir *b = t->b;
  int64_t row = 4LL * width_of(t->p, of_key, t->p->n_numbers), own = 4LL * width_of(t->p, of_key, i);
  ir_value memory = of_key ? t->key_numbers : t->query_numbers;
  return ir_offset_const(b, ir_offset(b, memory, wide(b, scaled(b, index, row))), own);
}

/* The parameters of an input, PEGEN_PTX_INPUT_COUNT. */
static const ir_value *parameters_of(const attend *t, int input) {
  int first = pegen_ptx_inputs(PEGEN_PTX_ATTENTION_OPERANDS, t->p->spec->n_operands);
  return t->parameter + first + input * PEGEN_PTX_INPUT_COUNT;
}

/* The address of token `token`'s row of an input, of the head at hand: i64. */
static ir_value row_of_input(attend *t, int input, ir_value token) {
  ir *b = t->b;
  const spec *s = t->p->spec;
  const ir_value *of = parameters_of(t, input),
                 *groups = t->parameter + pegen_ptx_behind_lse(s->n_operands, s->n_inputs);
  ir_value at = add(b, of[PEGEN_PTX_INPUT_ADDRESS], mul(b, wide(b, t->batch), of[PEGEN_PTX_INPUT_BATCH]));
  at = add(b, at, mul(b, wide(b, token), of[PEGEN_PTX_INPUT_TOKEN]));
  ir_value head = ir_op2(b, "arith.divui", wide(b, t->head), groups[input]);
  return add(b, at, mul(b, head, of[PEGEN_PTX_INPUT_HEAD]));
}

static ir_value load_number(attend *t, int i, ir_value token) {
  ir *b = t->b;
  ir_value row = row_of_input(t, t->p->number[i].input, token);
  return ir_load(b, b->f32, ir_offset_const(b, ir_pointer(b, row), 4 * t->p->number[i].element), 4);
}

ir_value attend_number_of(attend *t, int i, ir_value token) {
  ir *b = t->b;
  const pegen_attention_number *number = &t->p->number[i];
  if (number->input >= 0) return load_number(t, i, token);
  ir_value index = number->of_key ? token : add(b, token, sub(b, t->keys, t->tokens));
  return ir_cast(b, "arith.sitofp", index, b->f32);
}

static void lay_row(attend *t, int i, ir_value token, ir_value at) {
  ir *b = t->b;
  ir_value row = row_of_input(t, t->p->number[i].input, token), high = ir_op2(b, "arith.shrui", row, i64(b, 32));
  ir_store(b, narrow(b, row), at, 4, false);
  ir_store(b, narrow(b, high), ir_offset_const(b, at, 4), 4, false);
}

static ir_value laid_row(ir *b, ir_value at) {
  ir_value low = ir_cast(b, "arith.extui", ir_load(b, b->i32, at, 4), b->i64),
           high = ir_cast(b, "arith.extui", ir_load(b, b->i32, ir_offset_const(b, at, 4), 4), b->i64);
  return ir_op2(b, "arith.ori", low, ir_op2(b, "arith.shli", high, i64(b, 32)));
}

void attend_lay_numbers_of(attend *t, bool of_keys, ir_value first, int count) {
  ir *b = t->b;
  const attention_plan *p = t->p;
  if (width_of(p, of_keys, p->n_numbers) == 0) return;
  ir_branch branch = ir_if(b, below(b, t->thread, i32(b, count)));
  ir_value token = clamped(b, add(b, first, t->thread), of_keys ? t->keys : t->tokens);
  for (int i = 0; i < p->n_numbers; i++) {
    if (!is_laid(p, i, of_keys)) continue;
    ir_value at = laid_at(t, of_keys, t->thread, i);
    if (has_row(p, i)) lay_row(t, i, token, at);
    else ir_store(b, load_number(t, i, token), at, 4, false);
  }
  ir_end_if(b, branch);
}

ir_value attend_key_number(attend *t, int i, ir_value key) {
  return ir_load(t->b, t->b->f32, laid_at(t, true, key, i), 4);
}

/* A tensor's number type is the same for all threads: no warp takes two ways. */
static ir_value number_of_pair(attend *t, int input, ir_value at, ir_value key) {
  ir *b = t->b;
  ir_value type = parameters_of(t, input)[PEGEN_PTX_INPUT_TYPE], row = ir_pointer(b, laid_row(b, at)), x;
  key = wide(b, clamped(b, key, t->keys));
  ir_choice choice = ir_choose(b, ir_compare_int(b, "eq", type, i64(b, PEGEN_PTX_OPERAND_F32)), 1, &b->f32);
  ir_value number = ir_load(b, b->f32, ir_offset(b, row, mul(b, key, i64(b, 4))), 4);
  ir_choose_else(b, &choice, 1, &number);
  ir_value is_bf16 = ir_compare_int(b, "eq", type, i64(b, PEGEN_PTX_OPERAND_BF16));
  number = emit_load_16(b, ir_offset(b, row, mul(b, key, i64(b, 2))), is_bf16);
  ir_end_choose(b, choice, 1, &number, &x);
  return x;
}

/* Numbers are coordinates of which the other side's token has 0. */
void attend_pair_numbers(attend *t, const attend_pair_of *pair) {
  ir *b = t->b;
  const attention_plan *p = t->p;
  ir_value index = add(b, pair->query_token, sub(b, t->keys, t->tokens));
  ir_value *rows = arena_array(t->memory, ir_value, p->spec->n_inputs + 1);
  t->exprs.inputs = rows;
  for (int i = 0; i < p->n_numbers; i++) {
    bool of_key = p->number[i].of_key;
    ir_value x, at = {NULL};
    if (is_laid(p, i, of_key)) at = laid_at(t, of_key, of_key ? pair->key : pair->query, i);
    if (attention_is_row(p, i)) {
      rows[p->number[i].input] = laid_row(b, at);
      continue;
    }
    if (attention_is_pair(p, i)) x = number_of_pair(t, p->number[i].input, at, pair->key_token);
    else if (at.ptr) x = ir_load(b, b->f32, at, 4);
    else x = ir_cast(b, "arith.sitofp", of_key ? pair->key_token : index, b->f32);
    if (!of_key && !attention_is_pair(p, i)) x = ir_op1(b, "arith.negf", x);
    t->exprs.positions[p->n_places - p->n_numbers + i] = two_float_f32(x);
  }
}
