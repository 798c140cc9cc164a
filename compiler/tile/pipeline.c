/* tile/pipeline: when streamed tiles are loaded, a turn ahead of their use or where memory has room for one; see
 * tile/tile.h.
 *
 * A turn begins with the one wait for what was loaded during the turn before, then asks for the tiles of the turn to
 * come: these go into the memory that nobody reads any more, since the wait is behind every read of the turn before.
 * With one stage it asks for its own tiles, and waits once more.
 * Tiles in memory that are turned have a wait behind them, too, and one before them outside of the loop.
 */
#include "tile/tile.h"

static bool is_streamed_load(const tile_program *p, const tile_op *op) {
  return op->kind == TILE_LOAD && p->value[op->value].rows == TILE_STREAMED;
}

static bool is_tile_turned(const tile_program *p, int op) {
  return op >= 0 && op < p->n_ops && p->op[op].kind == TILE_TURN && !p->value[p->op[op].value].is_sum;
}

static void add_streamed_loads(tile_program *to, const tile_program *from, bool ahead) {
  for (int i = 0; i < from->n_ops; i++) {
    if (!is_streamed_load(from, &from->op[i])) continue;
    tile_op *op = tile_add_op(to, TILE_LOAD, from->op[i].value);
    op->tensor = from->op[i].tensor;
    op->ahead = ahead;
  }
}

static const tile_program *schedule(arena *a, const tile_program *p, int stages) {
  tile_program *on = arena_new(a, tile_program);
  *on = *p;
  on->n_ops = 0;
  for (int i = 0; i < p->n_ops; i++)
    if (is_streamed_load(p, &p->op[i])) on->value[p->op[i].value].stages = stages;
  for (int i = 0; i < p->n_ops; i++) {
    const tile_op *op = &p->op[i];
    if (op->kind == TILE_EACH && stages > 1) add_streamed_loads(on, p, false);
    bool first = is_tile_turned(p, i) && !is_tile_turned(p, i - 1);
    if (first && p->value[op->value].rows == TILE_OWN) tile_add_op(on, TILE_WAIT, TILE_NONE);
    if (!is_streamed_load(p, op)) *tile_add_op(on, op->kind, op->value) = *op;
    bool last = is_tile_turned(p, i) && !is_tile_turned(p, i + 1);
    if (last && p->op[i + 1].kind != TILE_EACH) tile_add_op(on, TILE_WAIT, TILE_NONE);
    if (op->kind != TILE_EACH) continue;
    tile_add_op(on, TILE_WAIT, TILE_NONE);
    add_streamed_loads(on, p, stages > 1);
    if (stages == 1) tile_add_op(on, TILE_WAIT, TILE_NONE);
  }
  return tile_check(on);
}

const tile_program *tile_pipeline(arena *a, const tile_program *p) { return schedule(a, p, 2); }
const tile_program *tile_in_turn(arena *a, const tile_program *p) { return schedule(a, p, 1); }
