/* cache.h: shared objects on disk, found by what they were made of.
 *
 * Two files an entry, each written under another name and renamed: KEY.sources, the names of the files that a
 * description with this key (its text, the options, the program) was read from the last time, and KEY-DIGEST.so, the
 * shared object that came of those files with these contents. Behind the object's bytes, where dlopen does not look,
 * lie the header, all that went into the names, to be compared where names are equal, and a checksum of everything.
 */
#pragma once

#include "bytes.h"

#include <limits.h>
#include <stdint.h>
#include <time.h>

typedef struct cache {
  char folder[PATH_MAX - 128]; /* "": there is none */
  const bytes *key;
} cache;

/* folder: the request's. The folder is made where it is missing; one that others could write to, or put another in the
 * place of, is not used. */
void pegen_cache_open(cache *c, const char *folder, const bytes *key);

/* object and header as stored; the entry then counts as used. False where there is no such entry, or a damaged one. */
bool pegen_cache_find(const cache *c, bytes *object, bytes *header);

/* path: of the entry's object, for pegen_cache_trim. read_from: names, a NUL after each. since: when the compilation
 * began; what has changed later is not stored. False where it could not be; that is no error. */
bool pegen_cache_store(const cache *c, const bytes *read_from, struct timespec since, const bytes *object,
                       const bytes *header, char path[PATH_MAX]);

/* Removes what was used least recently where all entries together have more than `most` bytes; never the one at path,
 * which has just been stored. Also what a process that died has left half written. */
void pegen_cache_trim(const cache *c, int64_t most, const char *path);
