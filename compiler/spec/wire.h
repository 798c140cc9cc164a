/* spec/wire: a description as bytes, on the way from the process that runs its Lua to the one that compiles it.
 *
 * What is read comes from a stranger: a spec may have taken over the process that wrote it. The reader checks every
 * number against its range and every text, and makes expressions by the constructors that the loader uses, so that
 * bytes are either what the writer makes of some description, or refused. What is read lacks nothing but spec_validate,
 * and is what it was: the nodes of the pool have the same ids, so that the same kernel comes of it.
 */
#pragma once

#include "base/arena.h"
#include "spec/spec.h"

enum {
  WIRE_BYTES = 64 << 20,     /* the longest message */
  WIRE_NODES = 1 << 20,      /* of the pool */
  WIRE_DEPTH = 1000,         /* nesting of an expression */
  WIRE_EXPRESSION = 1 << 17, /* operations of an expression written out as a tree */
  WIRE_HEADS = 1 << 16,      /* heads, and heads times blocks */
  WIRE_ELEMENTS = 1 << 28,   /* of an operand */
  WIRE_TOKENS = 1 << 30,     /* of the built-in grid, and skipped ones */
  WIRE_TEXT = 1000,          /* bytes of a text */
  WIRE_VALUE = 1 << 16       /* bytes of an option's value */
};

/* All of s but `file` and `source`, which are the reader's own. */
unsigned char *wire_write(arena *a, const spec *s, size_t *size);

/* NULL and *why, as "it has WHY", where the bytes are not what wire_write makes. */
spec *wire_read(arena *a, const unsigned char *bytes, size_t size, const char **why);
