/* explain/pair_facts: properties of functions of the displacement; see explain/pair_facts.h. */
#include "explain/pair_facts.h"
#include "explain/words.h"

#include "algebra/blade_facts.h"
#include "verify/reference.h"

#include <math.h>

enum { MOST_BLOCKS = 16, SAMPLES = 48 };
static const uint64_t SEED = 20260101;

void pair_facts_open(arena *a, const spec *s, const explanation *asked, pair_facts *out) {
  *out = (pair_facts){.memory = a, .spec = s, .grid = asked->grid, .random = SEED};
  out->operands = trial_random_operands(a, s, NUMBER_F32, &out->random);
  if (asked->operands) out->operands.values = asked->operands;
}

/* ---- the score as a function of the pair ---- */

static int blocks_of(const pair_facts *f) {
  if (!f->rotates) return 0;
  return f->spec->n_blocks < MOST_BLOCKS ? f->spec->n_blocks : MOST_BLOCKS;
}

static int biases_of(const pair_facts *f) { return f->bias ? f->spec->heads : 0; }

static void displacement(const spec *s, const double *from, const double *to, double *delta) {
  for (int axis = 0; axis < s->n_axes; axis++) delta[axis] = to[axis] - from[axis];
}

/* Biases of the heads. */
static void probe_biases(const property_probe *p, const double *from, const double *to, long double *values) {
  const pair_facts *f = p->context;
  double delta[SPEC_MAX_AXES];
  displacement(f->spec, from, to, delta);
  for (int head = 0; head < biases_of(f); head++) values[head] = f->bias(f, head, delta);
}

/* Biases of the heads, then the matrices that turn the key's blocks in head 0. */
static void probe_pair(const property_probe *p, const double *from, const double *to, long double *values) {
  const pair_facts *f = p->context;
  const spec *s = f->spec;
  double delta[SPEC_MAX_AXES];
  displacement(s, from, to, delta);
  probe_biases(p, from, to, values);
  long double *matrix = values + biases_of(f);
  for (int i = 0; i < blocks_of(f); i++, matrix += s->n_components * s->n_components)
    reference_block(s, delta, f->operands.values, 0, i * s->n_blocks / blocks_of(f), matrix);
}

static long double probe_likeness(const property_probe *p, const double *from, const double *to) {
  const pair_facts *f = p->context;
  int n = f->spec->n_components;
  long double *values = arena_array(f->memory, long double, p->n_values), sum = 0;
  probe_pair(p, from, to, values);
  for (int i = 0; i < blocks_of(f); i++)
    for (int c = 0; c < n; c++) sum += values[i * n * n + c * (n + 1)];
  return sum / (blocks_of(f) * n);
}

/* ---- the properties ---- */

static property norm_property(const pair_facts *f) {
  if (f->columns)
    return property_proved(VERDICT_NO, arena_printf(f->memory, "each row grows by %d columns", f->columns));
  if (!f->rotates) return property_proved(VERDICT_YES, "queries and keys are left as they are");
  if (blades_are_orthogonal(f->spec))
    return property_proved(VERDICT_YES, "queries are left as they are, and keys turn by orthogonal matrices");
  return property_proved(VERDICT_NO, arena_printf(f->memory, "keys turn where %s", blades_distortion(f->spec)));
}

static property commuting_property(const pair_facts *f) {
  if (!f->rotates) return property_proved(VERDICT_NOT_APPLICABLE, "there are no generators");
  property measured = property_measured(blades_commutator(f->spec, f->operands.values),
                                        "the largest commutator of two axes' generators, relative to their sizes");
  return blades_commute(f->spec) ? property_confirmed(PROPERTY_COMMUTING, BLADES_COMMUTE, measured, 0) : measured;
}

static property origin_property(const pair_facts *f, const property_probe *probe) {
  const double origin[SPEC_MAX_AXES] = {0};
  const int n = f->spec->n_components;
  long double *values = arena_array(f->memory, long double, probe->n_values), worst = 0;
  probe_pair(probe, origin, origin, values);
  for (int i = 0; i < probe->n_values; i++) {
    int entry = i - biases_of(f);
    long double off = fabsl(values[i] - (entry >= 0 && entry % (n * n) % (n + 1) == 0));
    if (!(off <= worst)) worst = isnan(off) ? INFINITY : off;
  }
  return property_measured(worst, "the largest change of a score where there is no displacement");
}

static property invertible_property(const pair_facts *f) {
  if (f->columns)
    return property_proved(VERDICT_YES,
                           arena_printf(f->memory, "the first %d channels are the row itself", f->spec->head_dim));
  return property_proved(VERDICT_NOT_APPLICABLE, "queries and keys are not encoded");
}

/* A bias decides: what a rotation adds to it stays within the size of the product, however far a key is. */
static property decay_property(pair_facts *f, const property_probe *probe) {
  property_probe biases = *probe;
  biases.n_values = biases_of(f);
  biases.pair = probe_biases;
  if (f->bias) return measure_fall(f->memory, &biases, &f->random);
  if (f->rotates) return measure_decay(f->memory, probe, &f->random);
  return property_proved(VERDICT_NO, "positions act on nothing");
}

void pair_facts_fill(pair_facts *f, property *out) {
  const spec *s = f->spec;
  property_probe probe = {.n_axes = s->n_axes,
                          .n_values = biases_of(f) + blocks_of(f) * s->n_components * s->n_components,
                          .unit = f->rotates ? trial_unit(s, &f->operands) : 1,
                          .grid = f->grid,
                          .samples = SAMPLES,
                          .pair = probe_pair,
                          .likeness = probe_likeness,
                          .context = f};
  out[PROPERTY_NORM] = norm_property(f);
  out[PROPERTY_TRANSLATION] =
      property_confirmed(PROPERTY_TRANSLATION,
                         f->columns ? "the formula's scores are functions of the displacement s - r; rows and their "
                                      "columns keep them to the precision that is told"
                                    : "scores are functions of the displacement s - r",
                         measure_translation(f->memory, &probe, &f->random), 0);
  out[PROPERTY_ROTATION] = measure_rotation(f->memory, &probe, &f->random);
  out[PROPERTY_COMMUTING] = commuting_property(f);
  out[PROPERTY_INVERTIBLE] = invertible_property(f);
  out[PROPERTY_DECAY] = decay_property(f, &probe);
  if (s->n_inputs > 0 && !s->polynomial)
    out[PROPERTY_CONTEXT] =
        property_proved(VERDICT_YES, arena_printf(f->memory, "scores are functions of %s of a query's or a key's token",
                                                  explain_inputs(f->memory, s)));
  else
    out[PROPERTY_CONTEXT] = f->reads
                                ? property_proved(VERDICT_YES, arena_printf(f->memory, "the bias reads %s", f->reads))
                                : property_proved(VERDICT_NO, "nothing is computed from a token's content");
  out[PROPERTY_ORIGIN] = origin_property(f, &probe);
}
