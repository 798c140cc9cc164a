/* algebra/relative: see algebra/relative.h. */
#include "algebra/relative.h"

#include "algebra/blade_facts.h"
#include "spec/expr_facts.h"

#include <math.h>

static bool angles_are(const spec *s, bool (*is)(const expr *)) {
  for (int axis = 0; axis < s->n_axes; axis++)
    if (!is(s->angle[axis])) return false;
  return true;
}

bool rotations_are_relative(const spec *s, bool commute, bool orthogonal) {
  return commute && orthogonal && !s->function && angles_are(s, expr_is_affine);
}

/* A phase with a constant in it turns a row against itself: R(s) R(r)^-1 lacks what R(s - r) has. Where rows stretch,
 * q must take R^-T, and both grow and shrink with the distance from the origin by factors that cancel in the score
 * alone. */
const char *rotations_stay_on_pairs(arena *a, const spec *s) {
  const char *distortion = blades_distortion(s);
  if (distortion) return arena_printf(a, "%s, and rows far from the origin would lose their digits", distortion);
  if (s->function) return "what is made of the axes' rotors is no group with the sum of positions";
  if (!blades_commute(s)) return "the axes' generators do not commute";
  if (!angles_are(s, expr_is_linear)) return "phases are not linear in the position";
  return NULL;
}

const spec *rotations_of_rows(arena *a, const spec *s) {
  spec *rows = arena_new(a, spec);
  *rows = *s;
  rows->pairwise = NULL;
  rows->n_inputs = 0; /* which scores read, and no rotation */
  rows->amplitude = sqrt(s->amplitude); /* which is positive, and a pair's once */
  rows->skip_tokens = 0; /* whose rows are not turned at all */
  rows->grid[0] = 0;     /* positions are handed over */
  return rows;
}
