/* explain/rotor_facts: what holds of encodings that multiply blocks of channels by matrices of the position.
 *
 * A form says what it can prove of its generators; the rest is measured on relative matrices
 * R(r)^T R(s) of the long double reference, which knows no normal form.
 */
#pragma once

#include "explain/explain.h"
#include "spec/spec.h"
#include "verify/trial.h"

typedef struct rotor_facts {
  arena *memory;
  const spec *spec;
  const int64_t *grid;     /* as a property_probe has it */
  double unit;             /* the same */
  long double rounding;    /* what the reference's of phases leaves there: its exponentials square as phases double */
  trial_operands operands; /* random, but for values that are given */
  uint64_t random;
  int looked_at;           /* blocks of all heads that are looked at, spread evenly */
  int samples;             /* positions that a measurement draws */
  long double *matrix[3];  /* room for [n_components][n_components] */
} rotor_facts;

/* work: what one matrix costs, 1 for a block of three channels; asked: its grid and operands. */
void rotor_facts_open(arena *a, const spec *s, double work, const explanation *asked, rotor_facts *out);

/* Head and block of the index-th that is looked at. */
void rotor_facts_block(const rotor_facts *f, int index, int *head, int *block);

/* Scores of two positions as numbers [rotor_facts_values]: the entries of R(from)^T R(to) of what is looked at; and of
 * equal queries and keys their mean, 1 at one place. */
int rotor_facts_values(const rotor_facts *f);
void rotor_facts_pair(const rotor_facts *f, const double *from, const double *to, long double *values);
long double rotor_facts_likeness(const rotor_facts *f, const double *from, const double *to);

/* What factors of channels are functions of, and the positions up to which rows stay finite; NULL: there are none. */
const char *rotor_facts_gain(const rotor_facts *f);

/* What a form knows of its generators from the description. */
typedef struct rotor_proofs {
  bool orthogonal;        /* every generator acts by a skew matrix */
  bool is_function; /* the rotors of the axes go through a function of rotations; else an exponential or products */
  const char *distortion; /* where not: what the others do to lengths */
  bool commute;
  const char *why_commute;
  long double commutator; /* the largest of two axes, relative to their sizes; measured either way */
  bool rebased; /* rows stay in another basis: nothing is the identity */
  const char *inverse; /* why the encoding can be undone */
} rotor_proofs;

/* Fills all properties. */
void rotor_facts_fill(rotor_facts *f, const rotor_proofs *proofs, property *out);
