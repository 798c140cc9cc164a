/* explain/rotor_facts: properties of matrices of the position; see explain/rotor_facts.h. */
#include "explain/rotor_facts.h"

#include "algebra/blade_facts.h"
#include "algebra/relative.h"
#include "explain/words.h"
#include "spec/expr_facts.h"
#include "verify/reference.h"

#include <math.h>

enum { MOST_BLOCKS = 64, WORK = 2048, FEWEST_SAMPLES = 8 }; /* WORK: matrices of three channels in a measurement */
static const uint64_t SEED = 20260101;

void rotor_facts_open(arena *a, const spec *s, double work, const explanation *asked, rotor_facts *out) {
  int blocks = s->heads * s->n_blocks, room = s->n_components * s->n_components,
      most = (int)fmax(1, WORK / work / FEWEST_SAMPLES);
  *out = (rotor_facts){.memory = a, .spec = s, .grid = asked->grid, .random = SEED};
  out->operands = trial_random_operands(a, s, NUMBER_F32, &out->random);
  if (asked->operands) out->operands.values = asked->operands;
  trial_warn_of_phases(s, &out->operands);
  double far[SPEC_MAX_AXES];
  out->unit = asked->grid ? 1 : trial_unit(s, &out->operands);
  for (int axis = 0; axis < s->n_axes; axis++) far[axis] = asked->grid ? (double)asked->grid[axis] : 16 * out->unit;
  out->rounding = 0x1p-58L * trial_largest_phase(s, far, &out->operands);
  if (most > MOST_BLOCKS) most = MOST_BLOCKS;
  out->looked_at = blocks < most ? blocks : most;
  int samples = (int)(WORK / work) / out->looked_at;
  out->samples = samples < FEWEST_SAMPLES ? FEWEST_SAMPLES : samples;
  for (int i = 0; i < 3; i++) out->matrix[i] = arena_array(a, long double, room);
}

void rotor_facts_block(const rotor_facts *f, int index, int *head, int *block) {
  int at = (int)((int64_t)index * f->spec->heads * f->spec->n_blocks / f->looked_at);
  *head = at / f->spec->n_blocks;
  *block = at % f->spec->n_blocks;
}

static long double amplitude_of(const spec *s) { return s->inverse ? 1 / (long double)s->amplitude : s->amplitude; }

/* relative = R(from)^T R(to) / amplitude^2 of the index-th block, gains included, of rows of two sides. */
static void relative_of_sides(const rotor_facts *f, int index, int side, const double *from, int other,
                              const double *to, long double *relative) {
  const spec *s = f->spec;
  int n = s->n_components, head, block;
  long double *x = f->matrix[0], *y = f->matrix[1], square = amplitude_of(s) * amplitude_of(s);
  spec left = spec_of_side(s, side), right = spec_of_side(s, other);
  rotor_facts_block(f, index, &head, &block);
  reference_block(&left, from, f->operands.values, head, block, x);
  reference_block(&right, to, f->operands.values, head, block, y);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      long double sum = 0;
      for (int k = 0; k < n; k++) sum += x[k * n + i] * y[k * n + j];
      relative[i * n + j] = sum / square;
    }
}

/* The relative rotation of a query and a key. */
static void relative_rotation(const rotor_facts *f, int index, const double *from, const double *to,
                              long double *relative) {
  relative_of_sides(f, index, 0, from, 1, to, relative);
}

int rotor_facts_values(const rotor_facts *f) { return f->looked_at * f->spec->n_components * f->spec->n_components; }

void rotor_facts_pair(const rotor_facts *f, const double *from, const double *to, long double *values) {
  int n = f->spec->n_components;
  for (int i = 0; i < f->looked_at; i++) relative_rotation(f, i, from, to, values + i * n * n);
}

long double rotor_facts_likeness(const rotor_facts *f, const double *from, const double *to) {
  int n = f->spec->n_components;
  long double *relative = f->matrix[2], sum = 0;
  for (int i = 0; i < f->looked_at; i++) {
    relative_rotation(f, i, from, to, relative);
    for (int c = 0; c < n; c++) sum += relative[c * n + c];
  }
  return sum / (f->looked_at * n);
}

static void probe_pair(const property_probe *p, const double *from, const double *to, long double *values) {
  rotor_facts_pair(p->context, from, to, values);
}

static long double probe_likeness(const property_probe *p, const double *from, const double *to) {
  return rotor_facts_likeness(p->context, from, to);
}

/* ---- gains ---- */

/* Whether channels of 1, whichever way they turn, stay finite numbers of the type at a position of one axis, the others
 * being 0. */
static bool stays_finite(const rotor_facts *f, int axis, double position, number_type type) {
  const spec *s = f->spec;
  double at[SPEC_MAX_AXES] = {0};
  long double length = amplitude_of(s) * sqrtl(s->n_components);
  at[axis] = position;
  for (int side = 0; side < 2; side++) {
    spec one = spec_of_side(s, side);
    for (int i = 0; i < s->heads * s->n_blocks; i++) {
      long double gain = reference_gain_of(&one, at, f->operands.values, i / s->n_blocks, i % s->n_blocks);
      if (!isfinite(number_round(type, (double)(gain * length)))) return false;
    }
  }
  return true;
}

/* The last whole position up to which it does; INFINITY: no text or image reaches one where it does not. */
static double last_finite(const rotor_facts *f, int axis, number_type type) {
  const double most = 0x1p31;
  double below = 0, above = 1;
  if (!stays_finite(f, axis, 0, type)) return 0;
  while (above < most && stays_finite(f, axis, above, type)) below = above, above *= 2;
  if (above >= most) return INFINITY;
  while (above - below > 1) {
    double middle = floor((below + above) / 2);
    *(stays_finite(f, axis, middle, type) ? &below : &above) = middle;
  }
  return below;
}

const char *rotor_facts_gain(const rotor_facts *f) {
  const spec *s = f->spec;
  static const number_type types[] = {NUMBER_F16, NUMBER_F32};
  if (!s->gain[0]) return NULL;
  const char *text = s->gain[0] != s->gain[1] ? "of each block and position, of q another than of k"
                                              : "of each block and position, of q and of k alike";
  for (int axis = 0; axis < s->n_axes; axis++)
    for (int i = 0; i < 2; i++) {
      double last = last_finite(f, axis, types[i]);
      if (last < INFINITY)
        text = arena_printf(f->memory, "%s; channels of 1 are finite in %s up to %s = %.0f", text,
                            number_type_info(types[i])->name, s->axis[axis], last);
    }
  return text;
}

/* ---- one position ---- */

/* The largest entry of a matrix less the identity. */
static long double from_identity(const spec *s, const long double *matrix, long double worst) {
  for (int c = 0; c < s->n_components * s->n_components; c++) {
    long double off = fabsl(matrix[c] - (c % (s->n_components + 1) == 0));
    if (!(off <= worst)) worst = isnan(off) ? INFINITY : off;
  }
  return worst;
}

static property norm_property(rotor_facts *f, const rotor_proofs *proofs) {
  const spec *s = f->spec;
  long double worst = 0;
  if (fabsl(amplitude_of(s)) != 1)
    return property_proved(VERDICT_NO,
                           arena_printf(f->memory, "encoded channels are scaled by %.6Lg", fabsl(amplitude_of(s))));
  if (s->pre)
    return property_proved(VERDICT_NO, "channels are mapped before they turn ('pre'), which changes their norm");
  if (s->gain[0])
    return property_proved(VERDICT_NO, s->gain[0] != s->gain[1]
                                           ? "'amplitude' scales channels, those of q and of k each their "
                                             "own way"
                                           : "'amplitude' scales channels by a function of the position");
  for (int i = 0; i < f->looked_at; i++) {
    double position[SPEC_MAX_AXES];
    for (int axis = 0; axis < s->n_axes; axis++) position[axis] = random_uniform(&f->random, 0, 8 * f->unit);
    relative_of_sides(f, i, 1, position, 1, position, f->matrix[2]);
    worst = from_identity(s, f->matrix[2], worst);
  }
  if (proofs->orthogonal)
    return property_confirmed(
        PROPERTY_NORM,
        proofs->is_function ? "the axes' generators are skew, so their exponentials are rotations, and so is what "
                              "products, inverses, logarithms, exponentials and nearest rotations make of these"
                            : "every generator is a skew matrix, so its exponential is orthogonal",
        property_measured(worst, ""), f->rounding);
  return property_measured(worst, arena_printf(f->memory, "the largest entry of R^T R - I: %s", proofs->distortion));
}

static property origin_property(const rotor_facts *f, const rotor_proofs *proofs, bool linear) {
  const spec *s = f->spec;
  const double origin[SPEC_MAX_AXES] = {0};
  long double worst = 0;
  if (s->pre) return property_proved(VERDICT_NO, "channels are mapped there, too ('pre')");
  if (proofs->rebased) return property_proved(VERDICT_NO, "rows are in another basis, at the origin too");
  for (int i = 0; i < f->looked_at; i++) {
    int head, block;
    rotor_facts_block(f, i, &head, &block);
    reference_block(s, origin, f->operands.values, head, block, f->matrix[2]);
    worst = from_identity(s, f->matrix[2], worst);
  }
  property measured = property_measured(worst, "the largest entry of R(0) - I");
  return linear && s->amplitude == 1 && !s->gain[0] && !s->entries[0]
             ? property_confirmed(PROPERTY_ORIGIN,
                                  proofs->is_function ? "all axes are the identity there, and so is what is made of it"
                                                      : "all phases are 0 there",
                                  measured, 0)
             : measured;
}

/* Whether gains of q and of k multiply to a function of the displacement, far from the origin too: the largest change
 * of the product's logarithm where both tokens move. */
static long double gain_drift(rotor_facts *f) {
  enum { PAIRS = 32 };
  const double far = 0x1p16;
  const spec *s = f->spec;
  spec side[2] = {spec_of_side(s, 0), spec_of_side(s, 1)};
  long double worst = 0;
  for (int pair = 0; pair < PAIRS; pair++)
    for (int i = 0; i < f->looked_at; i++) {
      long double change = 0;
      double at[2][SPEC_MAX_AXES], moved[SPEC_MAX_AXES];
      int head, block;
      rotor_facts_block(f, i, &head, &block);
      for (int axis = 0; axis < s->n_axes; axis++) {
        double step = random_uniform(&f->random, 0, far);
        for (int t = 0; t < 2; t++) at[t][axis] = random_uniform(&f->random, 0, far);
        moved[axis] = step;
      }
      for (int t = 0; t < 2; t++) {
        long double here = reference_gain_of(&side[t], at[t], f->operands.values, head, block);
        for (int axis = 0; axis < s->n_axes; axis++) at[t][axis] += moved[axis];
        change += logl(reference_gain_of(&side[t], at[t], f->operands.values, head, block) / here);
      }
      if (!(fabsl(change) <= worst)) worst = isnan(change) ? INFINITY : fabsl(change);
    }
  return worst;
}

static property translation_property(rotor_facts *f, const rotor_proofs *proofs, const property_probe *probe) {
  const spec *s = f->spec;
  property measured = measure_translation(f->memory, probe, &f->random);
  if (!s->gain[0] && rotations_are_relative(s, proofs->commute, proofs->orthogonal || s->dual_axes))
    return property_confirmed(
        PROPERTY_TRANSLATION,
        s->dual_axes ? "generators commute, phases are linear in the position, and q takes R^-T: scores are of "
                       "R(r)^-1 R(s) = R(s - r)"
                     : "generators commute and are skew, and phases are linear in the position: R(r)^T R(s) = R(s - r)",
        measured, f->rounding);
  long double drift = s->gain[0] ? gain_drift(f) : 0;
  if (drift > 1e-6L)
    return property_measured(
        drift, "what 'amplitude' gives to a query and its key as both move, its logarithm, at positions up to 65536");
  if (measured.holds == VERDICT_NO && !s->dual_axes && !s->basis && blades_have_duals(s) &&
      rotations_are_relative(s, proofs->commute, true))
    measured.reason = arena_printf(f->memory, "%s (boosts are no rotations; sides = \"dual\" makes scores relative)",
                                   measured.reason);
  return measured;
}

/* ---- all of them ---- */

void rotor_facts_fill(rotor_facts *f, const rotor_proofs *proofs, property *out) {
  const spec *s = f->spec;
  bool linear = true;
  for (int axis = 0; axis < s->n_axes; axis++) linear = linear && expr_is_linear(s->angle[axis]);
  property_probe probe = {.n_axes = s->n_axes,
                          .n_values = rotor_facts_values(f),
                          .unit = f->unit,
                          .grid = f->grid,
                          .samples = f->samples,
                          .pair = probe_pair,
                          .likeness = probe_likeness,
                          .context = f};
  property commuting =
      property_measured(proofs->commutator, "the largest commutator of two axes' generators, relative to their sizes");
  if (s->entries[0])
    commuting = property_proved(VERDICT_NOT_APPLICABLE, "the description writes a matrix, and no generators");
  out[PROPERTY_COMMUTING] =
      proofs->commute ? property_confirmed(PROPERTY_COMMUTING, proofs->why_commute, commuting, 0) : commuting;
  out[PROPERTY_TRANSLATION] = translation_property(f, proofs, &probe);
  out[PROPERTY_NORM] = norm_property(f, proofs);
  out[PROPERTY_ROTATION] = measure_rotation(f->memory, &probe, &f->random);
  out[PROPERTY_INVERTIBLE] =
      s->pre ? property_proved(VERDICT_NO, "rotors turn back, and a map of channels ('pre') is not undone")
      : s->entries[0]
          ? property_proved(VERDICT_NO, "what turns back is a description of its own, with the inverse matrix")
          : property_proved(VERDICT_YES, proofs->inverse);
  out[PROPERTY_DECAY] = measure_decay(f->memory, &probe, &f->random);
  out[PROPERTY_CONTEXT] = property_proved(VERDICT_NO, "nothing is computed from a token's content");
  if (spec_turns_rows(s)) {
    out[PROPERTY_CONTEXT] = property_proved(
        VERDICT_YES, arena_printf(f->memory, "rows turn by %s of their own tokens", explain_inputs(f->memory, s)));
    out[PROPERTY_TRANSLATION] = property_proved(
        VERDICT_NO, arena_printf(f->memory, "scores depend on %s of both tokens, not on the displacement alone",
                                 explain_inputs(f->memory, s)));
  }
  out[PROPERTY_ORIGIN] = origin_property(f, proofs, linear);
}
