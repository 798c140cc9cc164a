/* bytes.c: see bytes.h. */
#include "bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *pegen_bytes_reserve(bytes *b, size_t size) {
  if (b->failed) return NULL;
  if (b->room - b->size <= size) { /* the NUL, too */
    size_t room = 2 * b->room > b->size + size + 1 ? 2 * b->room : b->size + size + 1;
    char *data = realloc(b->data, room);
    if (!data) {
      b->failed = true;
      errno = ENOMEM;
      return NULL;
    }
    b->data = data;
    b->room = room;
    b->data[b->size] = 0;
  }
  return b->data + b->size;
}

void pegen_bytes_add(bytes *b, const void *data, size_t size) {
  char *end = pegen_bytes_reserve(b, size);
  if (!end) return;
  if (size) memcpy(end, data, size);
  end[size] = 0;
  b->size += size;
}

void pegen_bytes_print(bytes *b, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char *text = NULL;
  int length = vasprintf(&text, format, arguments);
  va_end(arguments);
  if (length < 0) b->failed = true;
  else {
    pegen_bytes_add(b, text, (size_t)length);
    free(text);
  }
}

void pegen_bytes_add_text(bytes *b, const char *text) {
  pegen_bytes_add(b, text ? "+" : "-", 1);
  if (text) pegen_bytes_add(b, text, strlen(text) + 1);
}

bool pegen_bytes_add_path(bytes *b, const char *path) {
  char *folder = *path == '/' ? NULL : getcwd(NULL, 0);
  bool ok = *path == '/' || folder;
  if (ok) pegen_bytes_print(b, "%s%s%s", folder ? folder : "", folder ? "/" : "", path);
  pegen_bytes_add(b, "", 1);
  free(folder);
  return ok && !b->failed;
}

bool pegen_bytes_read_file(bytes *b, const char *path) {
  return pegen_bytes_read_open(b, open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
}

bool pegen_bytes_read_open(bytes *b, int fd) {
  struct stat is;
  if (fd < 0) return false;
  if (fstat(fd, &is) || !S_ISREG(is.st_mode)) {
    close(fd);
    errno = EINVAL;
    return false;
  }
  enum { STEP = 1 << 16 };
  ssize_t got = -1;
  for (char *end; (end = pegen_bytes_reserve(b, STEP));) {
    got = read(fd, end, STEP);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    b->size += (size_t)got;
  }
  if (got == 0) b->data[b->size] = 0;
  int error = errno;
  close(fd);
  errno = error;
  return got == 0;
}

bool pegen_bytes_write(int fd, const char *data, size_t size) {
  while (size > 0) {
    ssize_t written = write(fd, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    data += written;
    size -= (size_t)written;
  }
  return true;
}

void pegen_bytes_free(bytes *b) {
  free(b->data);
  *b = (bytes){0};
}
