/* variants: every spec of the folder with its defaults and with the options of variants.lua. */
#ifndef PEGEN_TESTS_VARIANTS_H
#define PEGEN_TESTS_VARIANTS_H

#include "arena.h"
#include "loader.h"
#include "trial.h"

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
  loaded_kernel *loaded;
} variant;

/* All of them, in order of names; ends the process with a message where something cannot be read. */
int variants_read(arena *a, const char *specs_dir, const char *table, variant **variants);

/* The variant's kernel, compiled once. Fails the test where it does not load or compile. */
const pegen_kernel *variant_kernel(variant *v);

/* The same description with one or two more options; the caller unloads the kernel. */
loaded_kernel *variant_with(const variant *v, arena *a, const char *name, const char *value, const char *name2,
                            const char *value2, spec **s);

/* Whether the spec has the option. */
bool variant_has_option(variant *v, const char *name);

#endif
