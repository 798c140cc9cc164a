/* random_spec: a random description as Lua text, and the options it is loaded with. */
#ifndef PEGEN_TESTS_RANDOM_SPEC_H
#define PEGEN_TESTS_RANDOM_SPEC_H

#include "base/arena.h"
#include "loader.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct random_spec {
  const char *text;
  int n_defines;
  loader_define define[3];
} random_spec;

/* Any algebra, block, layout, axes, generators, combine rule and phase that has a closed form. with_more: and one of an
 * amplitude of the position (of each side), a map of channels, a function of rotors, parts, or a matrix that the
 * description writes. */
random_spec random_spec_draw(arena *a, uint64_t *random, bool with_more);

#endif
