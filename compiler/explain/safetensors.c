/* explain/safetensors: reads one tensor; see explain/safetensors.h. The file is a stranger's: every length in it is
 * held against the file's own size before anything of that length is taken. */
#include "explain/safetensors.h"

#include "base/diag.h"
#include "base/json_read.h"
#include "base/number.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LENGTH = 8, MOST_HEADER = 1 << 23, MOST_NAMES = 1 << 16, SHOWN = 4 };

static const struct {
  const char *name;
  number_type type;
} TYPES[] = {{"F64", NUMBER_F64}, {"F32", NUMBER_F32}, {"F16", NUMBER_F16}, {"BF16", NUMBER_BF16}};

typedef struct checkpoint {
  arena *a;
  FILE *file;
  const char *path;
  int64_t size, data; /* of the file; where tensors begin in it */
  const json_value *header;
} checkpoint;

bool safetensors_is(const char *path) {
  static const char ending[] = ".safetensors";
  size_t length = strlen(path);
  return length >= sizeof ending - 1 && !strcmp(path + length - (sizeof ending - 1), ending);
}

static bool refuse(const checkpoint *c, const char *what) {
  diag_error(c->path, 0, "is no file of safetensors: %s", what);
  return false;
}

static bool read_header(checkpoint *c) {
  unsigned char bytes[LENGTH];
  uint64_t length = 0;
  const char *wrong;
  if (fseeko(c->file, 0, SEEK_END) != 0 || (c->size = ftello(c->file)) < 0 || fseeko(c->file, 0, SEEK_SET) != 0)
    return refuse(c, strerror(errno));
  if (fread(bytes, 1, LENGTH, c->file) != LENGTH) return refuse(c, "it is shorter than a header's length");
  for (int i = LENGTH; i-- > 0;) length = length << 8 | bytes[i];
  if (length > MOST_HEADER || length > (uint64_t)(c->size - LENGTH))
    return refuse(c, "its header is longer than the file, or than 8 MiB");
  char *text = arena_array(c->a, char, length + 1);
  if (fread(text, 1, length, c->file) != length) return refuse(c, "its header cannot be read");
  c->data = LENGTH + (int64_t)length;
  c->header = json_read(c->a, text, length, &wrong);
  if (!c->header) return refuse(c, arena_printf(c->a, "its header, at %s", wrong));
  return c->header->kind == JSON_OBJECT || refuse(c, "its header is no object");
}

/* Names of tensors, for what was not found. */
static void tell_missing(const checkpoint *c, const char *tensor, const char *what) {
  const char **names = arena_array(c->a, const char *, MOST_NAMES), *all = "";
  int n = 0, same = 0;
  for (const json_value *v = c->header->first; v; v = v->next) {
    same += !strcmp(v->name, tensor);
    if (n < MOST_NAMES && strcmp(v->name, "__metadata__") != 0) names[n++] = v->name;
  }
  for (int i = 0; i < n && i < SHOWN; i++) all = arena_printf(c->a, "%s%s%s", all, i ? ", " : "", names[i]);
  const char *nearest = diag_nearest(tensor, names, n);
  if (same) diag_error(c->path, 0, "has %d tensors '%s'; expected one for %s", same, tensor, what);
  else if (nearest) diag_error(c->path, 0, "has no tensor '%s' for %s, did you mean '%s'?", tensor, what, nearest);
  else
    diag_error(c->path, 0, "has no tensor '%s' for %s; of %d it has: %s%s", tensor, what, n, all,
               n > SHOWN ? ", ..." : "");
}

static bool has_shape(const json_value *given, int rank, const int64_t *shape) {
  const json_value *size = given->first;
  if (given->count != rank) return false;
  for (int d = 0; d < rank; d++, size = size->next)
    if (!size->is_whole || size->whole != shape[d]) return false;
  return true;
}

static const char *shape_text(arena *a, const json_value *given) {
  const char *text = "";
  int n = 0;
  for (const json_value *v = given->first; v && n < 8; v = v->next, n++)
    text = v->is_whole ? arena_printf(a, "%s%s%" PRId64, text, n ? ", " : "", v->whole)
                       : arena_printf(a, "%s%s%g", text, n ? ", " : "", v->number);
  return arena_printf(a, "[%s%s]", text, given->count > n ? ", ..." : "");
}

static bool read_numbers(const checkpoint *c, const char *tensor, number_type type, int64_t count, double *values) {
  for (int64_t i = 0; i < count; i++) {
    char bytes[8];
    size_t size = (size_t)number_bytes(type);
    if (fread(bytes, 1, size, c->file) != size) return refuse(c, "it ends before its tensors do");
    values[i] = number_load(type, bytes);
    if (isfinite(values[i])) continue;
    diag_error(c->path, 0, "tensor '%s': number %" PRId64 " is not finite", tensor, i);
    return false;
  }
  return true;
}

static bool read_tensor(const checkpoint *c, const char *tensor, const char *what, int rank, const int64_t *shape,
                        double *values) {
  const json_value *entry = json_member(c->header, tensor);
  if (!entry || !strcmp(tensor, "__metadata__")) return tell_missing(c, tensor, what), false;
  const json_value *type = json_member(entry, "dtype"), *sizes = json_member(entry, "shape"),
                   *range = json_member(entry, "data_offsets");
  if (!type || type->kind != JSON_TEXT || !sizes || sizes->kind != JSON_ARRAY || !range || range->kind != JSON_ARRAY ||
      range->count != 2 || !range->first->is_whole || !range->first->next->is_whole)
    return refuse(c, arena_printf(c->a, "tensor '%s' has no dtype, shape and data_offsets", tensor));
  size_t i = 0;
  while (i < sizeof TYPES / sizeof *TYPES && strcmp(type->text, TYPES[i].name) != 0) i++;
  const char *text = "";
  int64_t count = 1, begin = range->first->whole, end = range->first->next->whole;
  for (int d = 0; d < rank; d++) {
    count *= shape[d];
    text = arena_printf(c->a, "%s%s%" PRId64, text, d ? ", " : "", shape[d]);
  }
  if (i == sizeof TYPES / sizeof *TYPES)
    diag_error(c->path, 0, "tensor '%s' is of type %s; expected F64, F32, F16 or BF16", tensor, type->text);
  else if (!has_shape(sizes, rank, shape))
    diag_error(c->path, 0, "tensor '%s' has the shape %s; %s has [%s]", tensor, shape_text(c->a, sizes), what, text);
  else if (begin < 0 || end < begin || end > c->size - c->data || end - begin != count * number_bytes(TYPES[i].type))
    refuse(c, arena_printf(c->a, "the bytes of tensor '%s' lie outside of it, or are not as many as its shape needs",
                           tensor));
  else if (fseeko(c->file, c->data + begin, SEEK_SET) != 0) refuse(c, strerror(errno));
  else return read_numbers(c, tensor, TYPES[i].type, count, values);
  return false;
}

bool safetensors_read(arena *a, const char *path, const char *tensor, const char *what, int rank, const int64_t *shape,
                      double *values) {
  checkpoint c = {.a = a, .file = fopen(path, "rb"), .path = path};
  if (!c.file) {
    diag_error(path, 0, "cannot be opened: %s", strerror(errno));
    return false;
  }
  bool good = read_header(&c) && read_tensor(&c, tensor, what, rank, shape, values);
  fclose(c.file);
  return good;
}
