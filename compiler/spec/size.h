/* spec/size: how much code a description's expressions ask for, before any is made. */
#pragma once

#include "spec/spec.h"

/* An operation counts 1 as a rule, an elementary function as many as it takes instructions, to within a factor of two.
 */
enum { SIZE_MOST_OPERATIONS = 4096 };

/* Operations below an expression, what is shared counted once. */
int64_t expr_size(arena *a, const expr_pool *pool, const expr *x);

int64_t expr_size_of_all(arena *a, const expr_pool *pool, const expr *const *roots, int count);

/* False after a diag_error that names the field whose code would be too large. */
bool spec_check_size(arena *a, const spec *s);
