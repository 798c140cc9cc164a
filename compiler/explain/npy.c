/* explain/npy: reads what numpy.save writes; see explain/npy.h.
 *
 * A file is the magic, two bytes of version, the header's length (two bytes, from version 2 on four), the header, and
 * the numbers. The header is a Python dictionary that numpy prints in one way only: {'descr': '<f4', 'fortran_order':
 * False, 'shape': (2, 3), }. What differs from that is refused.
 */
#include "explain/npy.h"

#include "base/diag.h"
#include "base/number.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 6, MOST_HEADER = 4096 };

typedef struct header {
  number_type type;
  bool by_columns;
  const char *shape; /* behind its bracket */
} header;

static bool refuse(const char *path, const char *what) {
  diag_error(path, 0, "%s; expected what numpy.save writes of float16, float32 or float64", what);
  return false;
}

/* Behind `key` and the blanks that follow it; NULL: it does not stand there. */
static const char *after(const char *text, const char *key) {
  const char *at = text ? strstr(text, key) : NULL;
  if (!at) return NULL;
  at += strlen(key);
  return at + strspn(at, " ");
}

static bool parse(const char *path, const char *text, header *out) {
  static const struct {
    const char *name;
    number_type type;
  } types[] = {{"'<f4'", NUMBER_F32}, {"'<f8'", NUMBER_F64}, {"'<f2'", NUMBER_F16}};
  const char *type = after(text, "'descr':"), *order = after(text, "'fortran_order':"),
             *shape = after(text, "'shape':");
  if (!type || !order || !shape || *shape != '(') return refuse(path, "the header of an array cannot be read");
  size_t i = 0;
  while (i < sizeof types / sizeof *types && strncmp(type, types[i].name, strlen(types[i].name)) != 0) i++;
  if (i == sizeof types / sizeof *types) return refuse(path, "its numbers are of another type");
  *out = (header){types[i].type, strncmp(order, "True", 4) == 0, shape + 1};
  return true;
}

/* The whole tuple is compared: rank, sizes, and the bracket that ends it. */
static bool has_shape(const header *h, int rank, const int64_t *shape) {
  const char *at = h->shape;
  for (int d = 0; d < rank; d++) {
    char *end;
    if (strtoll(at, &end, 10) != shape[d] || end == at) return false;
    at = end + strspn(end, ", ");
  }
  return *at == ')';
}

static FILE *open_array(arena *a, const char *path, header *out) {
  unsigned char start[MAGIC + 6] = {0};
  FILE *file = fopen(path, "rb");
  if (!file) {
    diag_error(path, 0, "cannot be opened: %s", strerror(errno));
    return NULL;
  }
  size_t counted = fread(start, 1, MAGIC + 4, file) == MAGIC + 4 && memcmp(start, "\x93NUMPY", MAGIC) == 0 ? 2 : 0;
  if (counted && start[MAGIC] > 1) counted = fread(start + MAGIC + 4, 1, 2, file) == 2 ? 4 : 0;
  size_t length = start[MAGIC + 2] + 256u * start[MAGIC + 3] + 65536u * start[MAGIC + 4] + 16777216u * start[MAGIC + 5];
  char *text = arena_array(a, char, MOST_HEADER + 1);
  if (counted && length <= MOST_HEADER && fread(text, 1, length, file) == length) {
    if (parse(path, text, out)) return file;
  } else refuse(path, "it does not begin as a .npy file does");
  fclose(file);
  return NULL;
}

static bool read_numbers(FILE *file, const char *path, number_type type, int64_t count, double *values) {
  for (int64_t i = 0; i < count; i++) {
    char bytes[8];
    size_t size = (size_t)number_bytes(type);
    if (fread(bytes, 1, size, file) != size) return refuse(path, "it ends before its array does");
    values[i] = number_load(type, bytes);
    if (isfinite(values[i])) continue;
    diag_error(path, 0, "number %" PRId64 " is not finite", i);
    return false;
  }
  return fgetc(file) == EOF || refuse(path, "it goes on behind its array");
}

bool npy_read(arena *a, const char *path, const char *what, int rank, const int64_t *shape, double *values) {
  header h;
  FILE *file = open_array(a, path, &h);
  if (!file) return false;
  int64_t count = 1;
  const char *text = "";
  for (int d = 0; d < rank; d++) {
    count *= shape[d];
    text = arena_printf(a, "%s%s%" PRId64, text, d ? ", " : "", shape[d]);
  }
  bool good = false;
  if (!has_shape(&h, rank, shape))
    diag_error(path, 0, "has the shape (%.*s); %s has [%s]", (int)strcspn(h.shape, ")"), h.shape, what, text);
  else if (h.by_columns && rank > 1) diag_error(path, 0, "is in column order; expected numpy.ascontiguousarray of it");
  else good = read_numbers(file, path, h.type, count, values);
  fclose(file);
  return good;
}
