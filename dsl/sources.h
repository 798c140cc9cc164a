/* sources: the files that a spec is made of, by kind and name.
 *
 * The rules of what a name reaches are here and nowhere else: the spec itself, the vocabulary, and plain names
 * beside the spec or in the folder parts beside it; no dots, no slashes, no search path.
 */
#pragma once

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum source_kind { SOURCE_SPEC, SOURCE_VOCABULARY, SOURCE_MODULE, SOURCE_KINDS } source_kind;

enum { SOURCE_NAME = 64, SOURCE_BYTES = 1 << 20 };

typedef struct source_text {
  const char *path; /* as opened, for messages and depfiles */
  const char *text; /* with a NUL at its end */
  size_t size;
} source_text;

/* Where sources come from: the files, or for a process that can open none, one that asks another. */
typedef struct source_store source_store;
struct source_store {
  /* The source, or NULL in `text` and why, in words. */
  source_text (*read)(source_store *store, arena *a, source_kind kind, const char *name, const char **why);
};

typedef struct source_files {
  source_store store;
  const char *file, *directory, *dsl_dir;
} source_files;

/* file: the spec. dsl_dir: the folder of pegen.lua. */
source_files sources_of(arena *a, const char *file, const char *dsl_dir);

/* Letters, digits and _, at most SOURCE_NAME. */
bool source_is_plain(const char *name);
