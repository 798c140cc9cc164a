/* program/transpose: rows the other way; see program/passes.h.
 *
 *     x1 = load x               x1 = load y'
 *     x2 = apply m, x1    ->    x2 = apply m^T, x1
 *     store y, x2               store x', x2
 *
 * x' = M^T y' is the gradient of rows: of a rotation it is the way back.
 */
#include "program/passes.h"

#include "base/diag.h"

typedef struct transposition {
  arena *memory;
  program_rewrite rewrite;
  bool needed[PROGRAM_MAX_VALUES]; /* matrices of rows, and what they are made of */
} transposition;

static bool is_of_rows(const program_op *op) {
  return op->kind == OP_LOAD || op->kind == OP_STORE || op->kind == OP_APPLY || op->kind == OP_ADD;
}

static void need(transposition *t, int value) {
  const program_op *maker = t->rewrite.from->value[value].maker;
  t->needed[value] = true;
  for (int i = 0; i < maker->n_arguments; i++) need(t, maker->argument[i]);
}

static void find_needed(transposition *t, const program_op *list) {
  for (const program_op *op = list; op; op = op->next) {
    find_needed(t, op->body);
    if (op->kind == OP_APPLY) need(t, op->argument[0]);
  }
}

/* Whether anything is left of a list. */
static bool is_left(const transposition *t, const program_op *list) {
  for (const program_op *op = list; op; op = op->next)
    if (is_of_rows(op) || is_left(t, op->body) || (op->result >= 0 && t->needed[op->result])) return true;
  return false;
}

/* The ops of a row from the last to the first; `row`: the gradient of what the op at hand makes. */
static void rows_backwards(transposition *t, const program_op *op, int *row) {
  if (!op) return;
  rows_backwards(t, op->next, row);
  program_builder *to = &t->rewrite.to;
  switch (op->kind) {
  case OP_STORE:
    if (*row >= 0) diag_bug("transpose", "a row is read by two ops");
    *row = program_load(to, op->stream);
    break;
  case OP_APPLY: *row = program_apply(to, t->rewrite.value[op->argument[0]], *row, !op->transposed); break;
  case OP_ADD: break;
  case OP_LOAD: program_store(to, op->stream, *row); break;
  default: diag_bug("transpose", "'%s' among the ops of a row", program_op_word(op->kind));
  }
}

static void transpose_list(transposition *t, const program_op *list) {
  for (const program_op *op = list; op; op = op->next) {
    if (is_of_rows(op)) { /* they end their list */
      int row = -1;
      rows_backwards(t, op, &row);
      return;
    }
    if (op->kind != OP_FOR) {
      if (t->needed[op->result]) program_repeat(&t->rewrite, op);
      continue;
    }
    if (!is_left(t, op->body)) continue;
    int depth = t->rewrite.to.depth;
    program_for(&t->rewrite.to, op->space, op->part);
    transpose_list(t, op->body);
    program_end_for(&t->rewrite.to, depth);
  }
}

/* What was written is read under the same number, and what was read is written, in its place where it was in it. */
static void turn_streams(transposition *t) {
  program *to = t->rewrite.to.p;
  for (int s = 0; s < to->n_streams; s++) {
    program_stream *stream = &to->stream[s];
    stream->name = arena_printf(t->memory, "%s'", stream->name);
    stream->is_output = !stream->is_output;
    stream->replaces = -1;
  }
  for (int s = 0; s < to->n_streams; s++) {
    int replaced = t->rewrite.from->stream[s].replaces;
    if (replaced >= 0) to->stream[replaced].replaces = s;
  }
}

const program *program_transpose(arena *a, const program *p) {
  transposition t = {.memory = a, .rewrite = program_begin_rewrite(a, p, arena_printf(a, "%s_transposed", p->entry))};
  find_needed(&t, p->body);
  turn_streams(&t);
  transpose_list(&t, p->body);
  return t.rewrite.to.p;
}
