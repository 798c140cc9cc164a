/* plan/mask: what is asked of tiles of pairs before they are computed, where a bias may hide keys: whether it hides all
 * of a tile's pairs, and whether it hides none of them.
 *
 * Both are expressions of bounds of the tile's displacements (spec/interval), so that they hold for every pair whose
 * displacement lies between them, as kernels round.
 */
#pragma once

#include "spec/interval.h"
#include "spec/spec.h"

typedef struct attention_mask {
  const expr *unseen; /* 1: no pair is seen; else 0 */
  const expr *whole; /* 1: all are, and the bias is `open`; NULL: it is never asked */
  const expr *open;
  unsigned reads; /* a bit for each place whose bounds they read */
} attention_mask;

/* The leaves of both: NARROW of cotangent 1 + 2 axis is the least displacement on an axis, the next one the greatest.
 */
enum { MASK_BOUNDS = 2 };
static inline int mask_bound(int axis, bool greatest) { return MASK_BOUNDS * axis + greatest; }

/* Builds the mask of a bias in float32, for displacements that are no further than INTERVAL_FURTHEST from 0; NULL:
 * nothing can be proved of tiles, and nothing need be asked. */
/* unknown: a bit for each place that no bounds are known of. */
const attention_mask *attention_mask_of(arena *a, const spec *s, const expr *bias, int n_places, unsigned unknown);
/* Whether it may be -infinity at all. n_places: coordinates of displacements, and what tokens have beside them. */
bool attention_may_hide(arena *a, const spec *s, const expr *bias, int n_places);
