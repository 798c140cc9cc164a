/* plan/mask: see plan/mask.h. */
#include "plan/mask.h"

_Static_assert((int)INTERVAL_OF_SCORE == (int)SPEC_OF_SCORE, "one leaf");

bool attention_may_hide(arena *a, const spec *s, const expr *bias, int n_places) {
  return interval_may_hide(a, s->pool, bias, n_places);
}

static const expr *bound(const spec *s, int axis, bool greatest) {
  const expr *x = expr_cotangent(s->pool, 1 + mask_bound(axis, greatest), DEPENDS_POSITION);
  return expr_unary(s->pool, EXPR_NARROW, x);
}

/* Places whose bounds x reads. seen: by expr id. */
static unsigned places_of(const expr *x, bool *seen) {
  if (!x || seen[x->id]) return 0;
  seen[x->id] = true;
  if (x->op == EXPR_COTANGENT) return x->index ? 1u << (x->index - 1) / MASK_BOUNDS : 0;
  unsigned places = 0;
  for (int i = 0; i < expr_op_arity(x->op); i++) places |= places_of(x->arg[i], seen);
  return places;
}

const attention_mask *attention_mask_of(arena *a, const spec *s, const expr *bias, int n_places, unsigned unknown) {
  /* Cells of a grid are numbers that float32 holds. */
  for (int axis = 0; s->grid[0] && axis < s->n_axes; axis++)
    if (s->grid[axis] > 1 << 24) return NULL;
  interval displacement[SPEC_MAX_AXES];
  for (int axis = 0; axis < n_places; axis++) {
    displacement[axis].lo = bound(s, axis, false);
    displacement[axis].hi = bound(s, axis, true);
    displacement[axis].unknown = expr_const(s->pool, unknown >> axis & 1);
  }
  interval_mask found;
  interval_of_mask(a, s->pool, bias, n_places, displacement, &found);
  bool is_whole = found.open && !expr_is_const(found.whole, 0);
  if (expr_is_const(found.unseen, 0) && !is_whole) return NULL;
  attention_mask *mask = arena_new(a, attention_mask);
  mask->unseen = found.unseen;
  if (is_whole) {
    mask->whole = found.whole;
    mask->open = found.open;
  }
  bool *seen = arena_array(a, bool, expr_pool_count(s->pool));
  mask->reads = places_of(mask->unseen, seen) | places_of(mask->whole, seen) | places_of(mask->open, seen);
  return mask;
}
