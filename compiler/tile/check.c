/* tile/check: what ops of a tile program promise; see tile/tile.h.
 *
 * Two turns of the loop are walked, so that what one leaves to the next is seen: a tile is read behind a wait that
 * follows its load or turn, a load or turn writes no memory that a thread may still read, sums are made before they are
 * read, shapes of products agree, each tensor is stored once, and each pair gives once to what its score reads.
 */
#include "tile/tile.h"

#include "base/diag.h"

enum { TURNS = 2, MOST_STAGES = 2 };

/* A tile in memory. */
typedef enum tile_state { EMPTY, LOADING, ARRIVED } tile_state;

typedef struct check {
  const tile_program *p;
  int turn;
  tile_state state[TILE_MOST_VALUES][MOST_STAGES];
  int holds[TILE_MOST_VALUES][MOST_STAGES]; /* the turn that the tile is of */
  bool is_read[TILE_MOST_VALUES][MOST_STAGES]; /* since the last wait */
  bool is_made[TILE_MOST_VALUES]; /* of a sum */
  bool is_stored[TILE_TENSOR_COUNT];
  unsigned given; /* in this turn */
} check;

static const char *name_of(const check *c, int value) { return c->p->value[value].name; }

static int stage_of(const check *c, int value, int turn) {
  const tile_value *v = &c->p->value[value];
  return v->rows == TILE_STREAMED ? turn % v->stages : 0;
}

static void check_written(check *c, const tile_op *op) {
  const tile_value *v = &c->p->value[op->value];
  if (v->is_sum || v->stages < 1 || v->stages > MOST_STAGES)
    diag_bug("tile", "%s: %s is loaded where it has no memory", c->p->name, v->name);
  int turn = c->turn + op->ahead, stage = stage_of(c, op->value, turn);
  if (c->is_read[op->value][stage])
    diag_bug("tile", "%s: %s is loaded over a tile that may still be read", c->p->name, v->name);
  c->state[op->value][stage] = LOADING;
  c->holds[op->value][stage] = turn;
}

static void check_wait(check *c) {
  for (int v = 0; v < c->p->n_values; v++)
    for (int stage = 0; stage < MOST_STAGES; stage++) {
      if (c->state[v][stage] == LOADING) c->state[v][stage] = ARRIVED;
      c->is_read[v][stage] = false;
    }
}

static void check_read(check *c, int value) {
  const tile_value *v = &c->p->value[value];
  int stage = stage_of(c, value, c->turn);
  if (v->is_sum) {
    if (!c->is_made[value]) diag_bug("tile", "%s: %s is read before it is made", c->p->name, v->name);
    return;
  }
  if (c->state[value][stage] != ARRIVED)
    diag_bug("tile", "%s: %s is read before a wait behind its load", c->p->name, v->name);
  if (v->rows == TILE_STREAMED && c->holds[value][stage] != c->turn)
    diag_bug("tile", "%s: %s is another turn's tile where it is read", c->p->name, v->name);
  c->is_read[value][stage] = true;
}

static void check_product(const check *c, const tile_op *op) {
  const tile_value *a = &c->p->value[op->arg[0]], *b = &c->p->value[op->arg[1]], *to = &c->p->value[op->value];
  tile_space inner = op->transposed ? b->columns : b->rows, columns = op->transposed ? b->rows : b->columns;
  if (a->columns != inner || to->rows != a->rows || to->columns != columns || !to->is_sum || b->is_sum)
    diag_bug("tile", "%s: the shapes of %s = %s %s do not agree", c->p->name, to->name, a->name, b->name);
}

/* Rows of the two sides are rotated, not a product's sums. */
static void check_rotated(check *c, const tile_op *op) {
  const tile_value *a = &c->p->value[op->arg[0]];
  check_product(c, op);
  if (!op->adds || a->is_sum != (op->kind == TILE_ROTATED_SUM))
    diag_bug("tile", "%s: %s is not what %s takes", c->p->name, a->name, tile_kind_name(op->kind));
  if (op->kind == TILE_ROTATED_PRODUCT) check_read(c, op->value); /* a part of a product is no score */
}

static void check_turn(check *c, const tile_op *op) {
  const tile_value *from = &c->p->value[op->arg[0]], *to = &c->p->value[op->value];
  if (from->rows != to->rows || from->columns != to->columns || from->is_sum != to->is_sum)
    diag_bug("tile", "%s: the shapes of %s = turn %s do not agree", c->p->name, to->name, from->name);
  if (from->rows == TILE_OWN && from->columns == TILE_STREAMED)
    diag_bug("tile", "%s: %s is no tile of tokens' rows", c->p->name, from->name);
  if (!to->is_sum) check_written(c, op);
}

/* Programs of both sides meet each pair: operands gain in those of queries. */
static void check_give(check *c, const tile_op *op) {
  for (int i = 0; i < tile_arguments(op->kind); i++) {
    const tile_value *v = &c->p->value[op->arg[i]];
    if (v->rows != TILE_OWN || v->columns != TILE_STREAMED)
      diag_bug("tile", "%s gives of %s, which is not of pairs", c->p->name, v->name);
  }
  if (!op->to || c->given & op->to) diag_bug("tile", "%s gives a pair's gain twice, or to nothing", c->p->name);
  if (op->to & TILE_OF_OPERANDS && (c->p->owns_keys || c->p->owns_group))
    diag_bug("tile", "%s gives to operands, which programs of queries do", c->p->name);
  c->given |= op->to;
}

static void check_op(check *c, const tile_op *op) {
  for (int i = 0; i < tile_arguments(op->kind); i++) {
    /* Outputs begin as 0: they are added to before anything made them. */
    bool begins = op->kind == TILE_ONLINE && i == 1;
    if (!begins) check_read(c, op->arg[i]);
  }
  if (op->kind == TILE_LOAD) check_written(c, op);
  if (op->kind == TILE_TURN) check_turn(c, op);
  if (op->kind == TILE_WAIT) check_wait(c);
  if (op->kind == TILE_MMA) check_product(c, op);
  if (op->kind == TILE_GIVE) check_give(c, op);
  if (op->kind == TILE_ROTATED_PRODUCT || op->kind == TILE_ROTATED_SUM) check_rotated(c, op);
  if (op->kind == TILE_STORE) {
    if (c->is_stored[op->tensor]) diag_bug("tile", "%s stores %s twice", c->p->name, tile_tensor_name(op->tensor));
    if (c->p->value[op->arg[0]].rows != TILE_OWN)
      diag_bug("tile", "%s stores %s, which other blocks have, too", c->p->name, name_of(c, op->arg[0]));
    c->is_stored[op->tensor] = true;
  }
  if (op->value != TILE_NONE && c->p->value[op->value].is_sum) c->is_made[op->value] = true;
}

const tile_program *tile_check(const tile_program *p) {
  check c = {.p = p};
  int begin = -1;
  for (int i = 0; i < p->n_ops; i++) {
    const tile_op *op = &p->op[i];
    check_op(&c, op);
    if (op->kind == TILE_EACH) begin = i;
    if (op->kind == TILE_END) c.given = 0;
    if (op->kind == TILE_END && begin < 0) diag_bug("tile", "%s: an end without a loop", p->name);
    if (op->kind == TILE_END && ++c.turn < TURNS) i = begin;
    else if (op->kind == TILE_END) begin = -1;
  }
  if (begin >= 0) diag_bug("tile", "%s: a loop without an end", p->name);
  return p;
}
