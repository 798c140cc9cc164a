/* explain/property: names, and measurements on random positions; see explain/property.h. */
#include "explain/property.h"

#include "base/diag.h"
#include "base/number.h"
#include "spec/spec.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { FAR_OCTAVE = 5, OCTAVES = 10 }; /* what counts as far: distances of 32 to 1024 units */
static const long double FAR_SCORE = 0.85L; /* nothing far may score higher where distance decays */
static const double REACH = 8; /* positions are drawn from [0, REACH] units, as a patch's in an image */

/* ORDER PROPERTY */
static const struct {
  const char *key, *label, *meaning;
} properties[PROPERTY_COUNT] = {
#define X(name, key, label, meaning) {key, label, meaning},
    PROPERTIES(X)
#undef X
};

/* ORDER VERDICT */
static const char *const verdicts[VERDICT_COUNT] = {"no", "yes", "on average", "not applicable"};

const char *property_key(property_name name) { return properties[name].key; }
const char *property_label(property_name name) { return properties[name].label; }
const char *property_meaning(property_name name) { return properties[name].meaning; }
const char *verdict_text(verdict v) { return verdicts[v]; }

property property_proved(verdict holds, const char *reason) {
  return (property){.holds = holds, .proved = true, .reason = reason};
}

property property_measured(long double deviation, const char *reason) {
  return (property){.holds = deviation <= PROPERTY_TOLERANCE ? VERDICT_YES : VERDICT_NO,
                    .has_deviation = true,
                    .deviation = deviation,
                    .reason = reason};
}

property property_confirmed(property_name name, const char *reason, property measured, long double rounding) {
  if (!(measured.deviation <= fmaxl(PROPERTY_TOLERANCE, rounding)))
    diag_bug("explain", "'%s' is proved (%s), but measured to be off by %Lg", property_label(name), reason,
             measured.deviation);
  measured.holds = VERDICT_YES;
  measured.proved = true;
  measured.reason = reason;
  return measured;
}

/* ---- positions ---- */

static void draw(const property_probe *p, uint64_t *random, double low, double high, double *position) {
  for (int axis = 0; axis < p->n_axes; axis++) position[axis] = random_uniform(random, low, high);
}

/* A token's position: of the grid, or as a patch's in an image. */
static void draw_position(const property_probe *p, uint64_t *random, double *position) {
  if (!p->grid) draw(p, random, 0, REACH * p->unit, position);
  for (int axis = 0; axis < p->n_axes && p->grid; axis++)
    position[axis] = (double)(random_next(random) % (uint64_t)p->grid[axis]);
}

/* "the 14 x 14 grid" */
static const char *grid_text(arena *a, const property_probe *p) {
  const char *text = "the ";
  for (int axis = 0; axis < p->n_axes; axis++)
    text = arena_printf(a, "%s%s%" PRId64, text, axis ? " x " : "", p->grid[axis]);
  return arena_printf(a, "%s grid", text);
}

/* A direction, uniform on the sphere: rejection from the cube. */
static void draw_direction(const property_probe *p, uint64_t *random, double *direction) {
  double square;
  do {
    draw(p, random, -1, 1, direction);
    square = 0;
    for (int axis = 0; axis < p->n_axes; axis++) square += direction[axis] * direction[axis];
  } while (square > 1 || square < 1e-4);
  for (int axis = 0; axis < p->n_axes; axis++) direction[axis] /= sqrt(square);
}

/* A rotation of the axes' space as a product of plane rotations by random angles. */
static void turn_positions(const property_probe *p, uint64_t random, double *position) {
  for (int i = 0; i < p->n_axes; i++)
    for (int j = i + 1; j < p->n_axes; j++) {
      double angle = random_uniform(&random, -3.2, 3.2), x = position[i], y = position[j];
      position[i] = cos(angle) * x - sin(angle) * y;
      position[j] = sin(angle) * x + cos(angle) * y;
    }
}

/* ---- deviations ---- */

/* The largest difference between the scores of two pairs, relative to those above 1. */
static long double difference(const property_probe *p, const long double *x, const long double *y) {
  long double worst = 0;
  for (int i = 0; i < p->n_values; i++) {
    long double size = fmaxl(1, fmaxl(fabsl(x[i]), fabsl(y[i]))), off = fabsl(x[i] - y[i]) / size;
    if (x[i] == y[i]) continue; /* infinities too: a mask is a mask in both */
    if (isinf(x[i]) != isinf(y[i])) off = 1;
    if (!(off <= worst)) worst = isnan(off) ? INFINITY : off;
  }
  return worst;
}

static const char *reason_of(arena *a, const property_probe *p, long double deviation, const char *what) {
  if (isinf(deviation)) return arena_printf(a, "scores are not finite at %s", what);
  if (p->grid) return arena_printf(a, "over random places of %s, %s", grid_text(a, p), what);
  return arena_printf(a, "over random positions up to %g, %s", REACH * p->unit, what);
}

property measure_translation(arena *a, const property_probe *p, uint64_t *random) {
  long double *here = arena_array(a, long double, p->n_values), *there = arena_array(a, long double, p->n_values),
              worst = 0;
  for (int sample = 0; sample < p->samples; sample++) {
    double from[SPEC_MAX_AXES], to[SPEC_MAX_AXES], step[SPEC_MAX_AXES];
    draw_position(p, random, from);
    draw_position(p, random, to);
    draw_position(p, random, step);
    /* Quarters, so that the moved positions have the same difference to the bit. */
    double *const drawn[] = {from, to, step}, quarter = p->unit / 4;
    for (int i = 0; i < 3 * p->n_axes; i++) drawn[i % 3][i / 3] = rint(drawn[i % 3][i / 3] / quarter) * quarter;
    p->pair(p, from, to, here);
    for (int axis = 0; axis < p->n_axes; axis++) from[axis] += step[axis], to[axis] += step[axis];
    p->pair(p, from, to, there);
    worst = fmaxl(worst, difference(p, here, there));
  }
  return property_measured(worst, reason_of(a, p, worst, "both moved by one step"));
}

property measure_rotation(arena *a, const property_probe *p, uint64_t *random) {
  if (p->n_axes == 1) return property_proved(VERDICT_NOT_APPLICABLE, "one axis cannot turn");
  long double *here = arena_array(a, long double, p->n_values), *there = arena_array(a, long double, p->n_values),
              worst = 0;
  for (int sample = 0; sample < p->samples; sample++) {
    double from[SPEC_MAX_AXES], to[SPEC_MAX_AXES];
    draw_position(p, random, from);
    draw_position(p, random, to);
    p->pair(p, from, to, here);
    uint64_t rotation = random_next(random);
    turn_positions(p, rotation, from);
    turn_positions(p, rotation, to);
    p->pair(p, from, to, there);
    worst = fmaxl(worst, difference(p, here, there));
  }
  return property_measured(worst, reason_of(a, p, worst, "both turned about the origin"));
}

/* ---- decay ---- */

/* The highest score, and *mean, of pairs of the grid's tokens whose distance is beyond `above` and at most `most`. */
static long double score_between(const property_probe *p, double above, double most, uint64_t *random,
                                 long double *mean) {
  enum { TRIES = 1000 }; /* a pair: a band has no other, or few */
  long double highest = -INFINITY;
  int found = 0;
  *mean = 0;
  for (int sample = 0; sample < p->samples; sample++) {
    double from[SPEC_MAX_AXES], to[SPEC_MAX_AXES], distance = -1;
    for (int i = 0; i < TRIES && !(distance > above && distance <= most); i++) {
      draw_position(p, random, from);
      draw_position(p, random, to);
      distance = 0;
      for (int axis = 0; axis < p->n_axes; axis++) distance = (double)hypotl(distance, to[axis] - from[axis]);
    }
    if (!(distance > above && distance <= most)) continue;
    long double likeness = p->likeness(p, from, to);
    highest = isnan(likeness) ? INFINITY : fmaxl(highest, likeness);
    *mean += likeness;
    found++;
  }
  *mean /= found;
  return highest;
}

/* Over a grid: from its neighbours on, in three bands of distance. */
static property measure_decay_on_grid(arena *a, const property_probe *p, uint64_t *random) {
  enum { BANDS = 3 };
  static const double end[BANDS + 1] = {0, 0.25, 0.5, 1};
  double reach = 0;
  for (int axis = 0; axis < p->n_axes; axis++) reach = (double)hypotl(reach, p->grid[axis] - 1);
  if (reach < 4) return property_proved(VERDICT_NOT_APPLICABLE, "the grid has no distances to speak of");
  long double highest = 0, mean[BANDS];
  for (int band = 0; band < BANDS; band++)
    highest = score_between(p, end[band] * reach, end[band + 1] * reach, random, &mean[band]);
  return (property){.holds = highest < FAR_SCORE ? VERDICT_ON_AVERAGE : VERDICT_NO,
                    .has_deviation = true,
                    .deviation = highest,
                    .reason = arena_printf(a,
                                           "over %s, equal q and k score %.2Lf in the mean up to a distance of %.3g, "
                                           "%.2Lf up to %.3g, %.2Lf and at most %.2Lf up to %.3g",
                                           grid_text(a, p), mean[0], end[1] * reach, mean[1], end[2] * reach, mean[2],
                                           highest, reach)};
}

/* Rotations bring scores down by disagreeing, so that they never fall at every step: what is looked at is the
 * highest score at distances of an octave, as the bound of RoFormer's section 3.4.3 does. */
property measure_decay(arena *a, const property_probe *p, uint64_t *random) {
  if (p->grid) return measure_decay_on_grid(a, p, random);
  long double highest = 0, mean = 0;
  for (int octave = FAR_OCTAVE; octave < OCTAVES; octave++)
    for (int sample = 0; sample < p->samples; sample++) {
      double from[SPEC_MAX_AXES], to[SPEC_MAX_AXES], distance = ldexp(random_uniform(random, 1, 2) * p->unit, octave);
      draw_position(p, random, from);
      draw_direction(p, random, to);
      for (int axis = 0; axis < p->n_axes; axis++) to[axis] = from[axis] + distance * to[axis];
      long double likeness = p->likeness(p, from, to);
      highest = isnan(likeness) ? INFINITY : fmaxl(highest, likeness);
      mean += likeness / (p->samples * (OCTAVES - FAR_OCTAVE));
    }
  return (property){.holds = highest < FAR_SCORE ? VERDICT_ON_AVERAGE : VERDICT_NO,
                    .has_deviation = true,
                    .deviation = highest,
                    .reason = arena_printf(
                        a, "equal q and k score at most %.2Lf at distances of %g to %g (%.2Lf in the mean), 1 at none",
                        highest, ldexp(p->unit, FAR_OCTAVE), ldexp(p->unit, OCTAVES), mean)};
}

property measure_fall(arena *a, const property_probe *p, uint64_t *random) {
  long double *near = arena_array(a, long double, 3 * p->n_values), *far = near + p->n_values,
              *before = far + p->n_values, sum = 0;
  int rises = 0, higher = 0, finite = 0; /* what is not finite is masked */
  for (int sample = 0; sample < p->samples; sample++) {
    double from[SPEC_MAX_AXES], direction[SPEC_MAX_AXES], to[SPEC_MAX_AXES];
    draw_position(p, random, from);
    draw_direction(p, random, direction);
    p->pair(p, from, from, near);
    memcpy(far, near, sizeof *far * (size_t)p->n_values);
    for (int octave = 0; octave <= OCTAVES; octave++) {
      memcpy(before, far, sizeof *far * (size_t)p->n_values);
      for (int axis = 0; axis < p->n_axes; axis++) to[axis] = from[axis] + ldexp(direction[axis], octave);
      p->pair(p, from, to, far);
      for (int i = 0; i < p->n_values; i++) rises += !(far[i] <= before[i]);
    }
    for (int i = 0; i < p->n_values; i++) {
      higher += !(far[i] < near[i]);
      if (isfinite(far[i])) sum += far[i] - near[i], finite++;
    }
  }
  long double mean = finite ? sum / finite : -INFINITY;
  verdict holds = higher ? VERDICT_NO : rises ? VERDICT_ON_AVERAGE : VERDICT_YES;
  const char *text =
      holds == VERDICT_YES ? "the bias falls at every step of every direction, by %.3Lg in the mean at a distance of %d"
      : holds == VERDICT_NO
          ? "the bias does not fall in every direction: it changes by %.3Lg in the mean at a distance of %d"
          : "the bias falls in every direction, though not at every step: by %.3Lg in the mean at a distance of %d";
  return (property){.holds = holds,
                    .has_deviation = true,
                    .deviation = mean,
                    .reason = arena_printf(a, text, holds == VERDICT_NO ? mean : -mean, 1 << OCTAVES)};
}
