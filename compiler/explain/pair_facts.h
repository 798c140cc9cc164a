/* explain/pair_facts: what holds of encodings whose scores are functions of the displacement s - r.
 *
 * That they are translation invariant is so by their kind; how they fall, and what rotations do to them, is measured
 * on the bias as the description writes it, and on the rotation of keys by the long double reference.
 */
#pragma once

#include "explain/explain.h"
#include "spec/spec.h"
#include "verify/trial.h"

typedef struct pair_facts pair_facts;
struct pair_facts {
  arena *memory;
  const spec *spec;
  const int64_t *grid;     /* as a property_probe has it */
  trial_operands operands; /* random, but for values that are given */
  uint64_t random;
  long double (*bias)(const pair_facts *f, int head, const double *delta); /* NULL: none */
  bool rotates;            /* the key's blocks are turned by the rotor of the displacement */
  const double **inputs;   /* of the query's token, random; for bias() */
  const char *reads;       /* names of inputs that the bias reads; NULL: none */
  int columns;             /* that each row grows by; 0: rows are left as they are */
};

/* Sets memory, spec, grid, operands and random. */
void pair_facts_open(arena *a, const spec *s, const explanation *asked, pair_facts *out);
/* Fills all properties. */
void pair_facts_fill(pair_facts *f, property *out);
