/* explain/property: what may hold of an encoding, and how it is measured where it is not proved.
 *
 * The score of a query at r and a key at s is <rho(r) q, rho(s) k>, or that plus or times a
 * function of s - r. A property is a statement about the score as a function of (r, s);
 * definitions 3.1 and 3.2 of the PaPE paper are those of the two invariances. A form proves what
 * it can from the description and hands a probe to the measurements here for the rest.
 */
#pragma once

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* name, key in JSON, label, what it says.                         ORDER PROPERTY */
#define PROPERTIES(X) \
  X(NORM, "norm_kept", "norm kept", "an encoded query is as long as the query") \
  X(TRANSLATION, "translation_invariant", "translation invariant", "scores stay when all positions move by one step") \
  X(ROTATION, "rotation_invariant", "rotation invariant", "scores stay when all positions turn about the origin") \
  X(COMMUTING, "commuting_generators", "commuting generators", "the axes act in any order to one effect") \
  X(INVERTIBLE, "invertible", "invertible", "the encoding can be undone where the position is known") \
  X(DECAY, "distance_decay", "distance decay", "scores of equal queries and keys fall with distance") \
  X(CONTEXT, "context_aware", "context-aware", "what a position does depends on the token's content") \
  X(ORIGIN, "identity_at_origin", "identity at the origin", "position 0 changes nothing")

typedef enum property_name {
#define X(name, key, label, meaning) PROPERTY_##name,
  PROPERTIES(X)
#undef X
      PROPERTY_COUNT
} property_name;

/* ORDER VERDICT */
typedef enum verdict { VERDICT_NO, VERDICT_YES, VERDICT_ON_AVERAGE, VERDICT_NOT_APPLICABLE, VERDICT_COUNT } verdict;

typedef struct property {
  verdict holds;
  bool proved;           /* from the description; otherwise measured */
  bool has_deviation;    /* measured, be it beside a proof */
  long double deviation; /* the largest one; of decay: the highest score that is far, 1 at none */
  const char *reason;    /* of a proof, or what was measured */
} property;

const char *property_key(property_name name);
const char *property_label(property_name name);
const char *property_meaning(property_name name);
const char *verdict_text(verdict v);

/* From here on a deviation means that a property does not hold: phases of float64 positions leave less. */
#define PROPERTY_TOLERANCE 1e-10L

/* What the measurements ask of a form. */
typedef struct property_probe property_probe;
struct property_probe {
  int n_axes;
  int n_values;
  double unit; /* what distances and positions are multiples of: less than 1 where phases grow fast */
  const int64_t *grid; /* [n_axes]: positions are the places of such a grid; NULL: none was given */
  int samples; /* of a pair, so that (samples * n_values) is a bounded amount of work */
  /* The numbers that make up the score as a function of the two positions [n_axes]: values [n_values]. */
  void (*pair)(const property_probe *p, const double *from, const double *to, long double *values);
  /* Mean score of equal queries and keys over heads and channels, 1 at one place. */
  long double (*likeness)(const property_probe *p, const double *from, const double *to);
  void *context;
};

/* Each draws positions, measures, and fills a property that says so. */
property measure_translation(arena *a, const property_probe *p, uint64_t *random);
property measure_rotation(arena *a, const property_probe *p, uint64_t *random);
property measure_decay(arena *a, const property_probe *p, uint64_t *random);
/* Measures whether biases, which pair() gives, fall along every direction and in each of its values. */
property measure_fall(arena *a, const property_probe *p, uint64_t *random);

/* A property that is proved, with what was measured beside it: a contradiction beyond the rounding is a bug of ours. */
property property_proved(verdict holds, const char *reason);
property property_confirmed(property_name name, const char *reason, property measured, long double rounding);
/* By its deviation: yes below the tolerance. */
property property_measured(long double deviation, const char *reason);
