/* plan/dense: how a kernel turns dense blocks, x -> exp(sum_a theta_a A_a) x.
 *
 * The angles theta_a of a head's blocks are expressions with blocks in the lanes, as rotors on blades have. From them
 * and the generators a token's matrices are formed: into a table once (NAME_prepare), or by encode itself, a block
 * at a time. Every row then costs a matrix times vector per block.
 */
#pragma once

#include "plan/plan.h"

typedef struct plan_dense {
  const spec *spec;
  int n_generators;   /* 1 where one matrix acts on each block, whatever the axes: then angles add, not matrices */
  const expr *angle[SPEC_MAX_AXES];
  spec_skew generator[SPEC_MAX_AXES];
  const char *why_not; /* why it is not seen that the generators of a block commute; NULL: they do */
  const plan *angles; /* of the angles: leaves, prepared values */
  bool per_head;      /* matrices differ from head to head */
  bool is_f64;        /* matrices are formed in float64 */
  bool acts; /* encode without a table may act by the exponential, as norm and batch tell (kernel/dense.h) */
} plan_dense;

/* Blocks up to this size are exponentiated one in each lane, larger ones one after the other in tiles. */
enum { DENSE_IN_LANES = 8 };

/* NULL after a diag_error where planes are asked for (pe.schur) that generators do not share. */
plan_dense *plan_dense_build(arena *a, const spec *s);

/* Text for --emit expr: what is formed or applied, at what cost, and why. */
void plan_dense_print(FILE *out, const plan_dense *p);
