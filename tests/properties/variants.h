/* variants: every spec of the folder with its defaults and with the options of variants.lua. */
#ifndef PEGEN_TESTS_VARIANTS_H
#define PEGEN_TESTS_VARIANTS_H

#include "base/arena.h"
#include "loader.h"
#include "verify/trial.h"

#include <stdbool.h>

enum { VARIANT_MAX_DEFINES = 12 };

typedef struct variant {
  arena *memory;
  const char *name; /* "care grades=1" */
  const char *file;
  int n_defines;
  loader_define define[VARIANT_MAX_DEFINES];
  const char *target; /* the best one of this machine */
  /* Filled when first asked for: */
  spec *spec;
  loaded_kernel *loaded, *inverse, *skipping;
} variant;

enum { SKIPPED_TOKENS = 2 };

/* How kernels are compiled here, unless a test says otherwise: quickly, and for float32 alone. */
enum { VARIANT_DTYPES = PEGEN_DTYPE_F32, VARIANT_OPTIMIZE = 1 };

/* Reads the variants of the spec `only` (NULL: of all), in order of names. Ends the process with a message where
 * something cannot be read. */
int variants_read(arena *a, const char *specs_dir, const char *table, const char *only, variant **variants);

/* The variant's kernel, compiled once. Fails the test where it does not load or compile. */
const pegen_kernel *variant_kernel(variant *v);

/* With -D inverse=true, and with -D skip_tokens=SKIPPED_TOKENS; compiled once. */
const pegen_kernel *variant_inverse(variant *v);
const pegen_kernel *variant_skipping(variant *v);
/* With SKIPPED_TOKENS and a grid; the caller unloads. */
loaded_kernel *variant_grid(variant *v, arena *a, const char *grid, spec **s);

void variant_close(variant *v);

#endif
