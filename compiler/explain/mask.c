/* explain/mask: see explain/mask.h.
 *
 * What a kernel asks of a tile (plan/mask) is asked here of half of an axis: displacements as far as there are from a
 * bound on, others of any size. A bound is found by halving, since what is proved of an interval is proved of its
 * parts.
 */
#include "explain/mask.h"

#include <math.h>
#include <stdlib.h>

enum { HALVINGS = 64 };
static const double USUAL = 0x1p30; /* what only larger displacements prove is not worth telling */

typedef struct half_axis {
  const spec *s;
  const expr *bias; /* or score */
  int n_places; /* that it is a function of, beside the product */
  int axis;
  bool above, in_some; /* displacements from the bound on, or up to it; some head is enough */
} half_axis;

static bool is_set(const half_axis *h, const expr *flag) {
  if (flag->op == EXPR_CONST) return flag->value == 1;
  if (flag->op != EXPR_TABLE) return false;
  int count = flag->n_heads * expr_pool_blocks(h->s->pool), set = 0;
  for (int i = 0; i < count; i++) set += flag->table[i] == 1;
  return h->in_some ? set > 0 : set == count;
}

static bool is_unseen(const half_axis *h, double bound) {
  arena *memory = arena_create();
  expr_pool *pool = h->s->pool;
  interval displacement[SPEC_MAX_AXES];
  for (int axis = 0; axis < h->n_places; axis++) {
    bool here = axis == h->axis;
    displacement[axis].lo = expr_const(pool, here && h->above ? bound : -INTERVAL_FURTHEST);
    displacement[axis].hi = expr_const(pool, here && !h->above ? bound : INTERVAL_FURTHEST);
    displacement[axis].unknown = expr_const(pool, 0);
  }
  interval_mask mask;
  interval_of_mask(memory, pool, h->bias, h->n_places, displacement, &mask);
  bool set = is_set(h, mask.unseen);
  arena_destroy(memory);
  return set;
}

/* As bounds are written: in few digits, and without what float32 adds to them. */
static const char *bound_text(arena *a, const half_axis *h, double bound) {
  char text[32];
  snprintf(text, sizeof text, "%.5g", bound);
  double nearby = strtod(text, NULL), whole = nearbyint(bound);
  if (fabs(bound - whole) < 1e-6 * (1 + fabs(whole))) nearby = whole;
  bool equal = is_unseen(h, nearby);
  return arena_printf(a, "%s%s %.9g", h->above ? ">" : "<", equal ? "=" : "", nearby == 0 ? 0 : nearby);
}

/* The bound that is nearest to all displacements. */
static bool find_bound(const half_axis *h, double *bound) {
  double out = h->above ? INTERVAL_FURTHEST : -INTERVAL_FURTHEST, in = -out;
  if (!is_unseen(h, h->above ? USUAL : -USUAL)) return false;
  for (int i = 0; i < HALVINGS; i++) {
    double middle = in + (out - in) / 2;
    *(is_unseen(h, middle) ? &out : &in) = middle;
  }
  *bound = out;
  return true;
}

static const char *half_text(arena *a, const spec *s, const attention_plan *p, int axis, bool above) {
  half_axis h = {s, p->score ? p->score : p->bias, p->n_places, axis, above, false};
  double bound;
  bool found = find_bound(&h, &bound);
  if (!found) {
    h.in_some = true;
    found = find_bound(&h, &bound);
  }
  if (!found) return NULL;
  const char *text = bound_text(a, &h, bound);
  return arena_printf(a, "delta.%s %s%s", s->axis[axis], text, h.in_some ? " (in some heads)" : "");
}

const char *explain_mask(arena *a, const spec *s, const attention_plan *p) {
  if (!p->hides) return "";
  if (!p->mask && p->score) return "; which of them the score hides is not known before they are computed";
  if (!p->mask) return "; which of them the bias hides is not known before they are computed";
  const char *halves = "";
  for (int axis = 0; axis < p->n_places - p->n_numbers; axis++)
    for (int above = 0; above < 2; above++) {
      const char *half = half_text(a, s, p, axis, above);
      if (half) halves = arena_printf(a, "%s%s%s", halves, *halves ? " or " : "", half);
    }
  if (*halves) return arena_printf(a, "; skipped where all of their pairs have %s", halves);
  if (p->score)
    return "; skipped where bounds of their displacements and indices prove that the score hides all of them";
  return "; skipped where bounds of their displacements prove that the bias hides all of them";
}
