/* object/link: memory files around the linker; see object/link.h. */
#include "object/link.h"

#include "base/diag.h"
#include "object/lld.h"
#include "object/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fail(const char *what) {
  diag_error(NULL, 0, "cannot %s for the linker: %s", what, strerror(errno));
  return false;
}

/* Above the three standard files, even where those are closed. */
static int memory_file(const char *name) {
  int low = memfd_create(name, MFD_CLOEXEC), fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (low >= 0) close(low);
  return fd;
}

static bool read_all(int fd, compile_output *out) {
  struct stat file;
  if (fstat(fd, &file)) return false;
  size_t size = (size_t)file.st_size;
  char *data = malloc(size ? size : 1);
  for (size_t have = 0; data && have < size;) {
    ssize_t got = pread(fd, data + have, size - have, (off_t)have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      free(data);
      return false;
    }
    have += (size_t)got;
  }
  if (!data) return false;
  free(out->data);
  *out = (compile_output){.data = data, .size = size};
  return true;
}

/* The options that make a library of a kernel what object/link.h promises. Threads take longer to start than a
 * kernel to link. */
static bool run_linker(arena *a, const char *name, int input) {
  const char *object = arena_printf(a, "/proc/self/fd/%d", input);
  const char *kernel = arena_printf(a, "--defsym=" LINK_KERNEL_SYMBOL "=%s_kernel", name);
  // clang-format off
  const char *arguments[] = {
      "ld.lld", "-shared", object, "-o", "-", kernel,
      "-z", "relro", "-z", "now", "-z", "text", "-z", "noexecstack", "-z", "separate-code",
      "-z", "defs", "-Bsymbolic", "--hash-style=gnu", "--build-id=none", "--strip-all",
      "--fatal-warnings", "--threads=1"};
  // clang-format on
  char *message;
  bool ok = lld_link_elf(sizeof arguments / sizeof *arguments, arguments, &message);
  if (!ok) diag_bug("link", "%s", message ? message : "the linker says nothing");
  free(message);
  return ok;
}

/* The linker writes to names of files or to the standard output; a memory file stands in for that while it runs. */
static bool link_files(arena *a, const char *name, int input, int output) {
  fflush(stdout);
  int standard = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  bool was_closed = standard < 0 && errno == EBADF;
  if ((standard < 0 && !was_closed) || dup2(output, STDOUT_FILENO) < 0) return fail("move the standard output away");
  bool ok = run_linker(a, name, input);
  if (was_closed) close(STDOUT_FILENO);
  else if (dup2(standard, STDOUT_FILENO) < 0) ok = fail("move the standard output back");
  if (standard >= 0) close(standard);
  return ok;
}

bool link_shared(arena *a, const char *name, compile_output *out) {
  int input = memory_file("object"), output = memory_file("library");
  bool ok = input >= 0 && output >= 0 && output_bytes(input, out->data, out->size);
  if (!ok) fail("write a memory file");
  ok = ok && link_files(a, name, input, output);
  if (ok && !read_all(output, out)) ok = fail("read a memory file");
  if (input >= 0) close(input);
  if (output >= 0) close(output);
  return ok;
}
