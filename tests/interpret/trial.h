/* interpret/trial: the program of an encoding run on tensors; see interpret/program.h. */
#pragma once

#include "interpret/program.h"
#include "verify/trial.h"

/* The program of an entry of the form that takes the description; NULL: it has none, or (after a diag_error) the
 * description is refused. */
const program *trial_program(arena *a, const spec *s, const char *entry);

/* What encode gives of rows [batches][heads][tokens][head_dim], unrounded, in as many numbers. positions
 * [tokens][axes]; NULL where the spec has a grid. */
long double *trial_interpret(arena *a, const program *p, const double *positions, const trial_operands *operands,
                             const DLTensor *rows);
