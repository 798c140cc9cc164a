/* program/order: see program/order.h. */
#include "program/order.h"

#include "base/diag.h"

/* The most ops of a row: a load and a store or two, and of each part a map, a matrix, the map's way back and a torque.
 */
enum { MOST_OPS = 4 + 4 * SPEC_MAX_PARTS };

/* The ops inside of a loop over tokens, by how often they run. */
typedef struct nest {
  const program_op *token[MOST_OPS], *row[MOST_OPS], *after[MOST_OPS]; /* after: a token's that come behind its rows */
  int n_token, n_row, n_after;
  bool turns_rows; /* what is computed of a token is so of each of its rows */
} nest;

static bool is_of_token(const program_op *op) {
  return op->kind == OP_EVAL || op->kind == OP_MATRIX || op->kind == OP_REDUCE || op->kind == OP_WRITE;
}

static void gather(nest *n, const program_op *list, unsigned around) {
  for (const program_op *op = list; op; op = op->next) {
    if (n->n_token == MOST_OPS || n->n_row == MOST_OPS || n->n_after == MOST_OPS)
      diag_bug("program/order", "more than %d ops", MOST_OPS);
    if (op->kind == OP_FOR) gather(n, op->body, around | 1u << op->space);
    else if ((around & SPACES_OF_ROW) == SPACES_OF_ROW && !(n->turns_rows && is_of_token(op))) n->row[n->n_row++] = op;
    else if (n->n_row) n->after[n->n_after++] = op;
    else n->token[n->n_token++] = op;
  }
}

static void hold(program_rewrite *r, const nest *n) {
  for (int i = 0; i < n->n_token; i++)
    for (int k = 0; k < n->n_row; k++)
      for (int argument = 0; argument < n->row[k]->n_arguments; argument++)
        if (n->row[k]->argument[argument] == n->token[i]->result) program_hold(&r->to, r->value[n->token[i]->result]);
}

static void open_loops(program_rewrite *r, const program_space *spaces, program_part part) {
  for (; *spaces != NO_MORE; spaces++) program_for(&r->to, *spaces, *spaces == SPACE_TOKENS ? part : PART_ALL);
}

static void order_tokens(program_rewrite *r, const program_op *tokens, const program_order *shared_by_heads,
                         const program_order *of_each_head, const program_order *of_each_row) {
  nest n = {.turns_rows = spec_turns_rows(r->from->spec)};
  gather(&n, tokens->body, IN(TOKENS));
  if (n.n_row == 0) { /* what is summed of tokens: as it stands */
    program_repeat(r, tokens);
    return;
  }
  unsigned spaces = 0;
  for (int i = 0; i < n.n_token + n.n_after;
       i++) { /* gradients of a sum have what is of a token behind its rows alone */
    const program_op *op = i < n.n_token ? n.token[i] : n.after[i - n.n_token];
    if (op->result >= 0) spaces |= r->from->value[op->result].spaces;
  }
  const program_order *order = n.turns_rows ? of_each_row : spaces & IN(HEADS) ? of_each_head : shared_by_heads;
  if (!order) diag_bug("program/order", "matrices of rows, which this target does not make");
  open_loops(r, order->outer, tokens->part);
  int outer = r->to.depth;
  if (n.n_token) open_loops(r, order->token, tokens->part);
  for (int i = 0; i < n.n_token; i++) program_repeat(r, n.token[i]);
  program_end_for(&r->to, outer);
  for (int i = 0;; i++) {
    if (i == order->held) hold(r, &n);
    if (order->rows[i] == NO_MORE) break;
    program_for(&r->to, order->rows[i], order->rows[i] == SPACE_TOKENS ? tokens->part : PART_ALL);
  }
  for (int i = 0; i < n.n_row; i++) program_repeat(r, n.row[i]);
  program_end_for(&r->to, outer);
  if (n.n_after) open_loops(r, order->token, tokens->part);
  for (int i = 0; i < n.n_after; i++) program_repeat(r, n.after[i]);
  program_end_for(&r->to, 0);
}

static const program *in_order(program_rewrite *r, const program_order *shared_by_heads,
                               const program_order *of_each_head, const program_order *of_each_row) {
  for (const program_op *op = r->from->body; op; op = op->next) {
    bool tokens = op->kind == OP_FOR && op->space == SPACE_TOKENS;
    if (tokens && op->part & PART_ENCODED) order_tokens(r, op, shared_by_heads, of_each_head, of_each_row);
    else program_repeat(r, op);
  }
  program_check(r->to.memory, r->to.p, "program/order");
  return r->to.p;
}

const program *program_in_order(arena *a, const program *p, const program_order *shared_by_heads,
                                const program_order *of_each_head, const program_order *of_each_row) {
  program_rewrite r = program_begin_rewrite(a, p, p->entry);
  return in_order(&r, shared_by_heads, of_each_head, of_each_row);
}

const program *program_in_order_of_tokens(arena *a, const program *p, const program_order *of_each_token) {
  program_rewrite r = program_begin_rewrite(a, p, p->entry);
  r.to.p->heads_share = true;
  return in_order(&r, NULL, NULL, of_each_token);
}
