/* cases: the golden cases of cases.lua, with their float64 arrays read. */
#ifndef PEGEN_TESTS_CASES_H
#define PEGEN_TESTS_CASES_H

#include "base/arena.h"
#include "loader.h"

enum { CASE_MAX_INPUTS = 8, CASE_MAX_DEFINES = 16 };

typedef struct golden_array {
  const char *name;
  int rank;
  int64_t shape[SPEC_MAX_RANK];
  const double *values;
} golden_array;

typedef struct golden_case {
  const char *name, *encoding;
  int n_defines;
  loader_define define[CASE_MAX_DEFINES];
  int n_inputs; /* x, positions, operands and the encoding's inputs */
  golden_array input[CASE_MAX_INPUTS];
  golden_array out; /* of x */
  bool reference_only; /* no kernel is made of this spec yet */
  golden_array scores, attention; /* in place of out, of q, k and v; rank 0 where the case has none */
  double scale;                   /* of a call of attention; 0 where the case has none */
} golden_case;

/* All cases of DIR/FILE ("cases.lua"); ends the process with a message where something cannot be read. */
int golden_read(arena *a, const char *dir, const char *file, const golden_case **cases);

/* NULL where the case has no such input. */
const golden_array *golden_input(const golden_case *c, const char *name);

/* The case's spec, and its operands in the spec's order with shapes checked; NULL after a message. */
spec *golden_load(arena *a, const golden_case *c, const char *specs_dir, const char *dsl_dir, const double ***operands);

#endif
