/* attention_seen.c: bounds of coordinates, and runs of the keys that some query may see; see attention_seen.h.
 *
 * Bounds are in float32, the least below and the greatest above all coordinates: so differences of bounds, rounded,
 * bound differences of coordinates, however these are rounded (compiler/cpu/attention/pairwise). Coordinates that are
 * no numbers, or so large that sums of them could be infinite, make a bound of NaN, of which nothing is known.
 */
#include "attention_seen.h"

static const double FURTHEST = 0x1p39; /* INTERVAL_FURTHEST (compiler/spec/interval.h) is above differences of two */

void pegen_attention_set_blocks(pegen_attention_seen *seen, int64_t keys, int64_t block) {
  int64_t smallest = (keys + block - 1) / block;
  seen->keys = block * ((smallest + PEGEN_ATTENTION_BLOCKS - 1) / PEGEN_ATTENTION_BLOCKS);
  if (keys <= 0) seen->keys = block;
  seen->blocks = keys > 0 ? (keys + seen->keys - 1) / seen->keys : 0;
  seen->pitch =
      (seen->blocks + PEGEN_ATTENTION_BLOCK_PITCH - 1) / PEGEN_ATTENTION_BLOCK_PITCH * PEGEN_ATTENTION_BLOCK_PITCH;
  seen->n_runs = 0;
}

typedef struct extent {
  double least, greatest;
  int is_known;
} extent;

static void clear(extent *of) {
  of->least = FURTHEST;
  of->greatest = -FURTHEST;
  of->is_known = 1;
}

/* Without branches: numbers are in no order that a processor could foresee. */
static void widen(extent *of, const double *numbers, int64_t count) {
  double least = of->least, greatest = of->greatest;
  int is_known = of->is_known;
  for (int64_t i = 0; i < count; i++) {
    double x = numbers[i];
    is_known &= __builtin_fabs(x) < FURTHEST;
    least = x < least ? x : least;
    greatest = x > greatest ? x : greatest;
  }
  of->least = least;
  of->greatest = greatest;
  of->is_known = is_known;
}

/* The nearest float32 that is not above x, or with `above` not below it. */
static float rounded(double x, int above) {
  union {
    float number;
    int32_t bits;
  } near = {.number = (float)x};
  double sign = above ? -1 : 1; /* of what is too much */
  if (!(sign * ((double)near.number - x) > 0)) return near.number;
  if (near.number == 0) return above ? 0x1p-149f : -0x1p-149f;
  near.bits += (near.number > 0) == above ? 1 : -1;
  return near.number;
}

static float bound(const extent *of, double x, int above) {
  return of->is_known ? rounded(x, above) : __builtin_nanf("");
}

void pegen_attention_bound_keys(pegen_attention_seen *seen, const pegen_attention_places *places, int64_t wanted,
                                int64_t keys) {
  double rows[PEGEN_MAX_ROTOR_AXES * PEGEN_ATTENTION_PIECE];
  extent extents[PEGEN_MAX_ROTOR_AXES];
  int64_t axes = places->axes + places->n_numbers;
  wanted |= ((int64_t)1 << places->axes) - 1;
  for (int64_t block = 0; block < seen->pitch; block++) {
    int64_t first = block * seen->keys, end = first + seen->keys < keys ? first + seen->keys : keys;
    for (int64_t axis = 0; axis < axes; axis++) {
      clear(&extents[axis]);
      if (first >= keys) extents[axis].is_known = 0;
    }
    for (int64_t key = first; key < end; key += PEGEN_ATTENTION_PIECE) {
      int64_t count = end - key < PEGEN_ATTENTION_PIECE ? end - key : PEGEN_ATTENTION_PIECE;
      pegen_attention_rows_of(places, wanted, places->skip + key, count, PEGEN_ATTENTION_PIECE, rows);
      for (int64_t axis = 0; axis < axes; axis++)
        if (wanted >> axis & 1) widen(&extents[axis], rows + axis * PEGEN_ATTENTION_PIECE, count);
    }
    for (int64_t axis = 0; axis < axes; axis++) {
      float *bounds = seen->bounds + 2 * axis * seen->pitch + block;
      bounds[0] = bound(&extents[axis], extents[axis].least, 0);
      bounds[seen->pitch] = bound(&extents[axis], extents[axis].greatest, 1);
      if (!seen->wide || axis >= places->axes) continue;
      double *wide = seen->wide + 2 * axis * seen->pitch + block;
      wide[0] = extents[axis].is_known ? extents[axis].least : __builtin_nan("");
      wide[seen->pitch] = extents[axis].is_known ? extents[axis].greatest : __builtin_nan("");
    }
  }
}

/* Coordinates less an origin round monotonely, too. */
void pegen_attention_shift_keys(pegen_attention_seen *seen, const pegen_attention_places *places) {
  for (int64_t axis = 0; axis < places->axes; axis++)
    for (int64_t i = 2 * axis * seen->pitch; i < 2 * (axis + 1) * seen->pitch; i++)
      seen->bounds[i] = rounded(seen->wide[i] - places->origin[axis], i >= (2 * axis + 1) * seen->pitch);
}

void pegen_attention_bound_queries(const double (*positions)[PEGEN_ATTENTION_QUERIES], int64_t axes, int64_t count,
                                   float (*reach)[2]) {
  for (int64_t axis = 0; axis < axes; axis++) {
    extent of;
    clear(&of);
    widen(&of, positions[axis], count);
    reach[axis][0] = bound(&of, of.least, 0);
    reach[axis][1] = bound(&of, of.greatest, 1);
  }
}

/* ---- runs ---- */

/* Keys [first, end) behind the last run, or with it. */
static void add_run(pegen_attention_seen *seen, int64_t first, int64_t end, int is_whole) {
  pegen_attention_run *last = seen->n_runs ? &seen->runs[seen->n_runs - 1] : 0;
  int follows = last && first <= last->end;
  if (follows && is_whole && last->whole_end == first) last->end = last->whole_end = end;
  else if (follows && (!is_whole || last->whole_begin == last->whole_end)) {
    last->end = end > last->end ? end : last->end;
    if (!is_whole) return;
    last->whole_begin = first;
    last->whole_end = end;
  } else {
    pegen_attention_run *run = &seen->runs[seen->n_runs++];
    run->begin = run->whole_begin = first;
    run->end = end;
    run->whole_end = is_whole ? end : first;
  }
}

/* Eight blocks at once: a narrow window hides nearly all. */
static int are_unseen(const int32_t *states) {
  int32_t other = 0;
  for (int i = 0; i < 8; i++) other |= states[i] ^ PEGEN_ATTENTION_UNSEEN;
  return !other;
}

void pegen_attention_runs(pegen_attention_seen *seen, int64_t skip, int64_t begin, int64_t end, int64_t step) {
  seen->n_runs = 0;
  if (begin >= end) return;
  int64_t last = (end - skip + seen->keys - 1) / seen->keys;
  for (int64_t block = (begin - skip) / seen->keys; block < last; block++) {
    while (block + 8 <= last && are_unseen(seen->states + block)) block += 8;
    if (block == last) return;
    if (seen->states[block] == PEGEN_ATTENTION_UNSEEN) continue;
    int64_t first = block * seen->keys, stop = first + seen->keys;
    first = skip + first / step * step;
    stop = skip + (stop + step - 1) / step * step;
    add_run(seen, first > begin ? first : begin, stop < end ? stop : end,
            step == 1 && seen->states[block] == PEGEN_ATTENTION_WHOLE);
  }
}
