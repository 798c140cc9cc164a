/* tile/turn: rows that are turned by the places of their own tokens; see tile/tile.h.
 *
 * Where R(s - r) = R(r)^-1 R(s) (algebra/relative.h), q . R(s - r) k is a product of rows that are turned once each,
 * and so is R(s - r) v of a row of values, whose sum is turned back by the transpose. Where it is not, pairs are
 * rotated.
 */
#include "tile/tile.h"

int tile_add_turn(arena *a, tile_program *p, int value, bool back) {
  tile_value of = p->value[value];
  int turned = tile_add_value(p, arena_printf(a, "%s'", of.name), of.rows, of.columns, of.is_sum);
  tile_add_unary(p, TILE_TURN, turned, value)->back = back;
  return turned;
}

static bool is_turned(tile_tensor tensor, bool values) {
  return tensor == TILE_Q || tensor == TILE_K || (values && tensor == TILE_V);
}

const tile_program *tile_turned(arena *a, const tile_program *forward, bool values) {
  tile_program *p = arena_new(a, tile_program);
  int of[TILE_MOST_VALUES], waiting[TILE_MOST_VALUES], n_waiting = 0;
  *p = *forward;
  p->n_ops = 0;
  for (int v = 0; v < forward->n_values; v++) of[v] = v;
  for (int i = 0; i < forward->n_ops; i++) {
    tile_op op = forward->op[i];
    for (int w = 0; op.kind != TILE_LOAD && w < n_waiting; w++) of[waiting[w]] = tile_add_turn(a, p, waiting[w], false);
    if (op.kind != TILE_LOAD) n_waiting = 0;
    for (int k = 0; k < tile_arguments(op.kind); k++) op.arg[k] = of[op.arg[k]];
    if (op.kind == TILE_STORE && values) op.arg[0] = tile_add_turn(a, p, op.arg[0], true);
    if (op.kind == TILE_LOAD && is_turned(op.tensor, values)) waiting[n_waiting++] = op.value;
    *tile_add_op(p, op.kind, op.value) = op;
  }
  return p;
}

const tile_program *tile_rotated(arena *a, const tile_program *forward) {
  tile_program *p = arena_new(a, tile_program);
  *p = *forward;
  p->n_ops = 0;
  for (int i = 0; i < forward->n_ops; i++) {
    const tile_op *op = &forward->op[i];
    *tile_add_op(p, op->kind, op->value) = *op;
    if (op->kind == TILE_MMA && forward->value[op->arg[0]].columns == TILE_CHANNELS)
      tile_add_rotated(p, TILE_ROTATED_PRODUCT, op->value, op->arg[0], op->arg[1]);
  }
  return p;
}

const tile_program *tile_apart(arena *a, const tile_program *p) {
  tile_program *to = arena_new(a, tile_program);
  int of[TILE_MOST_VALUES];
  bool is_made[TILE_MOST_VALUES] = {false};
  *to = *p;
  to->n_ops = to->n_values = 0;
  for (int i = 0; i < p->n_ops; i++)
    if (p->op[i].kind == TILE_TURN) is_made[p->op[i].value] = true;
  for (int v = 0; v < p->n_values; v++) {
    of[v] = to->n_values;
    if (!is_made[v]) to->value[to->n_values++] = p->value[v];
  }
  for (int i = 0; i < p->n_ops; i++) { /* a turn comes before what reads it, and behind what it turns */
    tile_op op = p->op[i];
    if (op.kind == TILE_TURN) {
      of[op.value] = of[op.arg[0]];
      continue;
    }
    if (op.value != TILE_NONE) op.value = of[op.value];
    for (int k = 0; k < tile_arguments(op.kind); k++) op.arg[k] = of[op.arg[k]];
    *tile_add_op(to, op.kind, op.value) = op;
  }
  return to;
}

const tile_program *tile_turn(arena *a, tile_tensor tensor, bool back) {
  tile_program *p = arena_new(a, tile_program);
  p->name = back ? "turn_back" : "turn";
  p->owns_keys = !tile_is_of_queries(tensor);
  int rows = tile_add_load(p, "X", tensor);
  tile_add_store(p, tensor, tile_add_turn(a, p, rows, back));
  return p;
}
