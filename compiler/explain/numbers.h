/* explain/numbers: what a description is made of, as arrays for programs. docs/explain.md names the members. */
#pragma once

#include "base/json.h"
#include "explain/scores.h"

typedef struct explain_numbers {
  operand_values operands;
  score_map scores; /* count 0: no grid was given */
} explain_numbers;

/* Radians of an axis' first step away from the origin, in a block; where phases are linear they are those of every
 * step. operands: as of reference_block. */
double explain_unit_phase(const spec *s, const double *const *operands, int head, int block, int axis);

/* Everything that can fail, and what JSON is to hold; false after a diag_error. */
bool numbers_measure(arena *a, const spec *s, const explain_request *request, explain_numbers *out);
/* The member "numbers". */
void numbers_print(json_writer *w, arena *a, const spec *s, const explain_request *request, const explain_numbers *n);
