/* program/passes: what makes one program of another. A pass is a file, and a row of the table in program/passes.c;
 * program/program.h has what passes are written with (program_rewrite), and the checker runs after each.
 */
#pragma once

#include "program/program.h"

/* Runs a pass of the table, and the checker. */
const program *program_run(arena *a, const program *p, const char *pass);

/* program/transpose.c: the adjoint of what a program does to rows, in the other direction: it reads what was written
 * and writes what was read. Linear ops are transposed, what is added is dropped, and numbers that no row needs any
 * more are not computed. */
const program *program_transpose(arena *a, const program *p);

/* program/product.c: matrices that are applied one after the other, both or neither transposed, become one: it is made
 * where the one that differs from token to token is, and is what a table holds. */
const program *program_multiply(arena *a, const program *p);
