/* object/output: temporary files and renames; see object/output.h. */
#include "object/output.h"

#include "base/diag.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OUTPUT_MOST = 8 };

/* Where a file's bytes wait until all are written; temporary is "" where they went out directly. */
typedef struct place {
  char path[PATH_MAX];      /* links followed, so that a link stays one */
  char temporary[PATH_MAX];
} place;

static bool fail(const output_file *file, const char *what) {
  diag_error(NULL, 0, "cannot %s '%s': %s", what, file->path, strerror(errno));
  return false;
}

bool output_bytes(int fd, const char *data, size_t size) {
  while (size > 0) {
    ssize_t written = write(fd, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    data += written;
    size -= (size_t)written;
  }
  return true;
}

/* The standard output, devices and pipes: nothing to rename, and nothing old to keep. */
static bool write_directly(const output_file *file) {
  bool standard = !strcmp(file->path, "-");
  fflush(stdout);
  int fd = standard ? STDOUT_FILENO : open(file->path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return fail(file, "open");
  bool ok = output_bytes(fd, file->data, file->size);
  if (!ok) fail(file, "write to");
  if (!standard && close(fd) && ok) ok = fail(file, "write to");
  return ok;
}

/* Permissions as an ordinary creation would give, or those of the file that is replaced. */
static mode_t permissions(const char *path) {
  struct stat old;
  if (!stat(path, &old)) return old.st_mode & 07777;
  mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

static bool write_temporary(const output_file *file, place *at) {
  if (!realpath(file->path, at->path)) {
    if (errno != ENOENT || strlen(file->path) >= sizeof at->path) return fail(file, "write");
    strcpy(at->path, file->path);
  }
  if (snprintf(at->temporary, sizeof at->temporary, "%s.XXXXXX", at->path) >= (int)sizeof at->temporary) {
    at->temporary[0] = 0;
    errno = ENAMETOOLONG;
    return fail(file, "write");
  }
  int fd = mkostemp(at->temporary, O_CLOEXEC);
  if (fd < 0) {
    at->temporary[0] = 0;
    return fail(file, "create");
  }
  bool ok = output_bytes(fd, file->data, file->size) && !fchmod(fd, permissions(at->path));
  if (!ok) fail(file, "write");
  if (close(fd) && ok) ok = fail(file, "write");
  return ok;
}

static bool prepare(const output_file *file, place *at) {
  struct stat old;
  at->temporary[0] = 0;
  if (!strcmp(file->path, "-")) return true;
  if (!stat(file->path, &old)) {
    if (S_ISDIR(old.st_mode)) {
      errno = EISDIR;
      return fail(file, "write");
    }
    if (!S_ISREG(old.st_mode)) return true;
    if (access(file->path, W_OK)) return fail(file, "write"); /* a rename would get round a read-only file */
  }
  return write_temporary(file, at);
}

/* The folder that a path's file is or will be in, with links followed, and its name there. */
static const char *folder_of(const char *path, char *folder) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  size_t length = slash ? (size_t)(slash - path) : 0;
  char part[PATH_MAX];
  if (length >= sizeof part) return NULL;
  memcpy(part, path, length);
  part[length] = 0;
  return realpath(slash ? (length ? part : "/") : ".", folder) ? name : NULL;
}

bool output_is_same(const char *path, const char *other) {
  if (!strcmp(path, other)) return true;
  struct stat a, b;
  if (!stat(path, &a) && !stat(other, &b)) return S_ISREG(a.st_mode) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
  char folder[PATH_MAX], other_folder[PATH_MAX];
  const char *name = folder_of(path, folder), *other_name = folder_of(other, other_folder);
  return name && other_name && !strcmp(name, other_name) && !strcmp(folder, other_folder);
}

bool output_write(const output_file *files, int count) {
  static place places[OUTPUT_MOST];
  if (count > OUTPUT_MOST) diag_bug("output", "%d files", count);
  bool ok = true;
  int prepared = 0;
  while (ok && prepared < count) {
    ok = prepare(&files[prepared], &places[prepared]);
    prepared++;
  }
  for (int i = 0; ok && i < count; i++)
    if (!places[i].temporary[0]) ok = write_directly(&files[i]);
  for (int i = 0; ok && i < count; i++) {
    if (!places[i].temporary[0]) continue;
    if (rename(places[i].temporary, places[i].path)) ok = fail(&files[i], "replace");
    else places[i].temporary[0] = 0;
  }
  for (int i = 0; !ok && i < prepared; i++)
    if (places[i].temporary[0]) unlink(places[i].temporary);
  return ok;
}
