/* sources: see sources.h. */
#include "sources.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool source_is_plain(const char *name) {
  if (!*name || strlen(name) > SOURCE_NAME) return false;
  for (; *name; name++)
    if (!isalnum((unsigned char)*name) && *name != '_') return false;
  return true;
}

/* "a/b/" of "a/b/c.lua". */
static const char *directory_of(arena *a, const char *file) {
  const char *slash = strrchr(file, '/');
  return slash ? arena_printf(a, "%.*s", (int)(slash - file) + 1, file) : "";
}

/* The file's text in the arena, or NULL with errno set (EFBIG: longer than a source may be). */
static const char *read_text(arena *a, const char *path, size_t *size) {
  FILE *in = fopen(path, "rb");
  if (!in) return NULL;
  struct stat info = {0};
  if (fstat(fileno(in), &info) == 0 && S_ISDIR(info.st_mode)) {
    fclose(in);
    errno = EISDIR;
    return NULL;
  }
  if (S_ISREG(info.st_mode) && info.st_size > SOURCE_BYTES) {
    fclose(in);
    errno = EFBIG;
    return NULL;
  }
  size_t room = S_ISREG(info.st_mode) ? (size_t)info.st_size : SOURCE_BYTES;
  char *text = arena_alloc(a, room + 2);
  *size = fread(text, 1, room + 1, in);
  int error = ferror(in) ? EIO : *size > room ? EFBIG : 0;
  fclose(in);
  if (error) {
    errno = error;
    return NULL;
  }
  text[*size] = 0;
  return text;
}

static const char *module_path(arena *a, const char *directory, const char *name) {
  const char *path = arena_printf(a, "%s%s.lua", directory, name);
  const char *part = arena_printf(a, "%sparts/%s.lua", directory, name);
  struct stat info;
  return stat(path, &info) != 0 && stat(part, &info) == 0 ? part : path;
}

static source_text read_file(source_store *store, arena *a, source_kind kind, const char *name, const char **why) {
  const source_files *files = (source_files *)store; /* its first member */
  source_text found = {.path = files->file};
  if (kind != SOURCE_SPEC && !source_is_plain(name)) {
    *why = "this is no name of a file";
    return found;
  }
  if (kind == SOURCE_VOCABULARY) found.path = arena_printf(a, "%s/%s.lua", files->dsl_dir, name);
  if (kind == SOURCE_MODULE) found.path = module_path(a, files->directory, name);
  struct stat info;
  if (kind == SOURCE_MODULE && stat(found.path, &info) == 0 && !S_ISREG(info.st_mode)) { /* a pipe would hang */
    *why = arena_printf(a, "'%s' is not a file", found.path);
    return found;
  }
  found.text = read_text(a, found.path, &found.size);
  if (!found.text && errno == EFBIG) *why = arena_printf(a, "'%s' has more than %d bytes", found.path, SOURCE_BYTES);
  else if (!found.text) *why = arena_printf(a, "cannot read '%s': %s", found.path, strerror(errno));
  return found;
}

source_files sources_of(arena *a, const char *file, const char *dsl_dir) {
  return (source_files){{read_file}, file, directory_of(a, file), dsl_dir};
}
