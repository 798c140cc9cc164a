/* fuzz_loader: any bytes as a description.
 *
 * In: bytes, as a spec file whose vocabulary is the real one. What must hold: the loader returns; a refusal comes with
 * a message that names the file and says "error:"; a description that is accepted keeps the bounds that the
 * stages behind rely on, and is accepted a second time with the same result. With libFuzzer; see docs/testing.md.
 */
#include "base/arena.h"
#include "loader.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPECT(condition) \
  do { \
    if (!(condition)) { \
      dprintf(STDERR_FILENO, "%s:%d: does not hold: %s\n%s", __FILE__, __LINE__, #condition, printed ? printed : ""); \
      abort(); \
    } \
  } while (0)

static char *printed; /* what the loader said */

/* The loader reads a file by its name: one in memory, of this process. */
static const char *as_file(const uint8_t *data, size_t size) {
  static char path[64];
  static int fd = -1;
  if (fd < 0) fd = memfd_create("spec", 0);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) abort();
  return path;
}

static const spec *load(arena *a, const char *path) {
  size_t length = 0;
  FILE *kept = stderr;
  free(printed);
  stderr = open_memstream(&printed, &length);
  const spec *s = loader_load(a, path, DSL_DIR, 0, NULL);
  fclose(stderr);
  stderr = kept;
  return s;
}

static void expect_message(const char *path) {
  EXPECT(printed && !strncmp(printed, path, strlen(path)));
  EXPECT(strstr(printed, ": error: ") && printed[strlen(printed) - 1] == '\n');
}

static void expect_bounds(const spec *s) {
  EXPECT(s->head_dim >= 1 && s->head_dim <= SPEC_MAX_HEAD_DIM);
  EXPECT(s->n_axes >= 1 && s->n_axes <= SPEC_MAX_AXES);
  EXPECT(s->heads >= 1 && s->n_operands >= 0 && s->skip_tokens >= 0);
  EXPECT(s->n_components >= 0 && s->n_components <= (s->dense ? SPEC_MAX_BLOCK : SPEC_MAX_BLADES) && s->n_blocks >= 0);
  EXPECT(s->n_components * s->n_blocks <= s->head_dim);
  unsigned char taken[SPEC_MAX_HEAD_DIM] = {0};
  for (int i = 0; s->channel && i < s->n_components * s->n_blocks; i++) {
    EXPECT(s->channel[i] >= 0 && s->channel[i] < s->head_dim && !taken[s->channel[i]]);
    taken[s->channel[i]] = 1;
  }
  for (int i = 0; i < s->n_operands; i++) EXPECT(s->operand[i].rank >= 0 && s->operand[i].rank <= SPEC_MAX_RANK);
  EXPECT(s->name && *s->name &&
         strspn(s->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == strlen(s->name));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *path = as_file(data, size);
  arena *a = arena_create(), *b = arena_create();
  const spec *s = load(a, path);
  if (!s) expect_message(path);
  else {
    expect_bounds(s);
    const spec *again = load(b, path);
    EXPECT(again && !strcmp(again->name, s->name) && again->n_blocks == s->n_blocks &&
           again->n_operands == s->n_operands);
  }
  arena_destroy(a);
  arena_destroy(b);
  return 0;
}
