/* explain/words: the parts of a description that several forms share, in words and numbers. */
#pragma once

#include "explain/explain.h"
#include "plan/plan.h"

/* Sizes, phases and the combine rule of a description with blocks. */
void explain_blocks(arena *a, const spec *s, explanation *out);

/* "e13"; "1" of no vector. */
const char *explain_blade(arena *a, unsigned blade);
/* "e1, e2, e3 of Cl(3,0,0)" */
const char *explain_blades_text(arena *a, const spec *s);
/* "-e23", "learned e12 + learned e13, from axis" */
const char *explain_generator(arena *a, const spec *s, int axis);
/* "axis, freq": the operands that the expressions read; NULL: none */
/* Operands and inputs that expressions read; NULL: neither. */
const char *explain_sources(arena *a, const spec *s, const expr *const *x, int count);
const char *explain_inputs(arena *a, const spec *s); /* the same of all inputs */
const char *explain_operands(arena *a, const spec *s, const expr *const *x, int count);

/* Adds the operations of x that were not counted yet. seen: [expr_pool_count]. */
void operation_count_add(operation_count *total, const expr *x, int times, unsigned char *seen);

int operation_count_all(const operation_count *c);
/* The cost of the map of one channel. */
operation_count explain_map_cost(arena *a, const spec *s);

/* Adds the cost of kernels that compute a block's matrix by expressions. */
void explain_program_cost(arena *a, const plan *p, explain_cost *cost);
