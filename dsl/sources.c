/* sources: see sources.h. */
#include "sources.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* What an open file holds, in the arena, or NULL with errno set (EFBIG: longer than a source may be). Closes it. */
static const char *read_text(arena *a, int fd, size_t *size) {
  struct stat info = {0};
  FILE *in = fdopen(fd, "rb");
  if (!in) {
    int error = errno;
    close(fd);
    errno = error;
    return NULL;
  }
  int error = fstat(fd, &info)                                       ? errno
              : S_ISDIR(info.st_mode)                                ? EISDIR
              : S_ISREG(info.st_mode) && info.st_size > SOURCE_BYTES ? EFBIG
                                                                     : 0;
  char *text = NULL;
  if (!error) {
    size_t room = S_ISREG(info.st_mode) ? (size_t)info.st_size : SOURCE_BYTES;
    text = arena_alloc(a, room + 2);
    *size = fread(text, 1, room + 1, in);
    error = ferror(in) ? EIO : *size > room ? EFBIG : 0;
    text[*size] = 0;
  }
  fclose(in);
  errno = error;
  return error ? NULL : text;
}

static bool is_link(int folder, const char *name) {
  struct stat info;
  return fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode);
}

/* A module beside the spec or in the folder parts there, and its path. No link is followed below the spec's folder,
 * since who wrote the description chose where it leads. -1: errno, which is ELOOP for a link. */
static int open_module(arena *a, const char *directory, const char *name, const char **path) {
  const int read_only = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC; /* to open a pipe would take for ever */
  const int folder_only = O_PATH | O_DIRECTORY | O_CLOEXEC;
  const char *file = arena_printf(a, "%s.lua", name);
  *path = arena_printf(a, "%s%s", directory, file);
  int beside = open(*directory ? directory : ".", folder_only);
  if (beside < 0) return -1;
  int fd = openat(beside, file, read_only), error = errno;
  int parts = fd < 0 && error == ENOENT ? openat(beside, "parts", folder_only | O_NOFOLLOW) : -1;
  if (parts < 0 && error == ENOENT && is_link(beside, "parts")) {
    *path = arena_printf(a, "%sparts", directory);
    error = ELOOP;
  }
  if (parts >= 0) {
    fd = openat(parts, file, read_only);
    error = errno;
    if (fd >= 0 || error != ENOENT) *path = arena_printf(a, "%sparts/%s", directory, file);
    close(parts);
  }
  close(beside);
  errno = error;
  return fd;
}

static bool is_regular(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

static source_text read_file(source_store *store, arena *a, source_kind kind, const char *name, const char **why) {
  const source_files *files = (source_files *)store; /* its first member */
  source_text found = {.path = files->file};
  if (kind != SOURCE_SPEC && !source_is_plain(name)) {
    *why = "this is no name of a file";
    return found;
  }
  if (kind == SOURCE_VOCABULARY) found.path = arena_printf(a, "%s/%s.lua", files->dsl_dir, name);
  int fd = kind == SOURCE_MODULE ? open_module(a, files->directory, name, &found.path)
                                 : open(found.path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ELOOP && kind == SOURCE_MODULE) {
    *why = arena_printf(a, "'%s' is a link, which is not followed; expected a file", found.path);
    return found;
  }
  if (fd >= 0 && kind == SOURCE_MODULE && !is_regular(fd)) {
    close(fd);
    *why = arena_printf(a, "'%s' is not a file", found.path);
    return found;
  }
  found.text = fd >= 0 ? read_text(a, fd, &found.size) : NULL;
  if (!found.text && errno == EFBIG) *why = arena_printf(a, "'%s' has more than %d bytes", found.path, SOURCE_BYTES);
  else if (!found.text) *why = arena_printf(a, "cannot read '%s': %s", found.path, strerror(errno));
  return found;
}

source_files sources_of(arena *a, const char *file, const char *dsl_dir) {
  return (source_files){{read_file}, file, directory_of(a, file), dsl_dir};
}
