/* object/digest: a hash of a description's mathematics. */
#pragma once

#include "spec/expr.h"

#include <stddef.h>

typedef struct digest digest;

/* pool: of all expressions that are added. */
digest *digest_begin(arena *a, const expr_pool *pool);
void digest_bytes(digest *d, const void *bytes, size_t size);
void digest_expr(digest *d, const expr *x);
/* What is added from now on is of another pool. */
void digest_expressions_of(digest *d, const expr_pool *pool);
/* 32 hexadecimal digits; d is gone. */
const char *digest_end(arena *a, digest *d);
