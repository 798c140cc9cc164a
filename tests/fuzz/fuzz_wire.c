/* fuzz_wire: any bytes as a description that another process sends (compiler/spec/wire.h).
 *
 * What must hold: the reader returns; a refusal has a reason; what is read is written as those very bytes, and
 * spec_validate judges it. With libFuzzer; the seeds are descriptions that this program wrote: fuzz_wire --write FOLDER
 * SPEC...
 */
#include "base/diag.h"
#include "loader.h"
#include "spec/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void hear_nothing(diag_kind kind, const char *file, int line, const char *text) {
  (void)file, (void)line, (void)text;
  if (kind == DIAG_BUG) abort();
}

static void write_seed(const char *folder, const char *spec_path, int number) {
  arena *a = arena_create();
  const spec *s = loader_load(a, spec_path, DSL_DIR, 0, NULL);
  size_t size = 0;
  const unsigned char *bytes = s ? wire_write(a, s, &size) : NULL;
  FILE *out = s ? fopen(arena_printf(a, "%s/%d", folder, number), "wb") : NULL;
  if (out && fwrite(bytes, 1, size, out) != size) abort();
  if (out) fclose(out);
  arena_destroy(a);
}

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerInitialize(int *count, char ***arguments) {
  if (*count > 2 && !strcmp((*arguments)[1], "--write")) {
    for (int i = 3; i < *count; i++) write_seed((*arguments)[2], (*arguments)[i], i);
    exit(0);
  }
  diag_send_to(hear_nothing);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  arena *a = arena_create();
  const char *why = NULL;
  spec *s = wire_read(a, data, size, &why);
  if (!s && !why) abort();
  if (s) {
    size_t length = 0;
    const unsigned char *written = wire_write(a, s, &length);
    if (length != size || memcmp(written, data, size)) abort();
    s->file = "fuzzed";
    (void)spec_validate(s);
  }
  arena_destroy(a);
  return 0;
}
