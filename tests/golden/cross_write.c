/* Writes golden cases for another architecture: cross_write TARGET FOLDER.
 *
 * FOLDER receives an object per case, whose kernel is named after the case so that one
 * program can hold them all, a table of the kernels in C, the objects' names for the
 * linker, and the numbers (see cross.h). What is expected is the reference's answer on
 * the rounded input; that it agrees with the golden output is asserted here.
 */
#include "cases.h"
#include "compile.h"
#include "cross.h"
#include "scoped.h"
#include "verify/oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double BOUND = 0x1p-20; /* of a block's norm */

static _Noreturn void fail(const char *what, const char *detail) {
  fprintf(stderr, "cross_write: %s: %s\n", what, detail);
  exit(1);
}

static FILE *create(arena *a, const char *folder, const char *name) {
  const char *path = arena_printf(a, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  if (!file) fail("cannot write", path);
  return file;
}

static void finish(FILE *file, const char *name) {
  if (ferror(file) | fclose(file)) fail("cannot write", name);
}

static void put(FILE *file, const void *data, size_t size) {
  static const char zeros[8];
  fwrite(data, 1, size, file);
  fwrite(zeros, 1, (8 - size % 8) % 8, file);
}

/* What one stream holds: x for q; for k x's batches in the opposite order and negated. */
static double input_value(const golden_array *x, int stream, int64_t b, int64_t row, int64_t c) {
  int64_t rows = x->shape[1] * x->shape[2], from = stream ? x->shape[0] - 1 - b : b;
  return (stream ? -1 : 1) * x->values[(from * rows + row) * x->shape[3] + c];
}

/* One row: what the reference makes of the rounded input, and how far a kernel may be from it. */
static void expect_row(oracle *o, const spec *s, number_type type, int64_t b, int64_t h, int64_t n, const double *in,
                       double *expected, double *tolerance) {
  long double exact[SPEC_MAX_HEAD_DIM], unit[SPEC_MAX_HEAD_DIM];
  oracle_row(o, b, n, (int)h, in, exact, unit);
  for (int c = 0; c < s->head_dim; c++) {
    expected[c] = (double)exact[c];
    tolerance[c] = unit[c] < 0 ? 0 : (double)(BOUND * unit[c]); /* leftover channels keep their bits */
    if (unit[c] >= 0 && type != NUMBER_F32) tolerance[c] += (double)number_half_ulp(type, exact[c]);
  }
}

static void write_stream(FILE *file, arena *a, const spec *s, oracle *o, const golden_case *c, number_type type,
                         int stream) {
  const golden_array *x = golden_input(c, "x");
  int64_t channels = x->shape[3], rows = x->shape[1] * x->shape[2], count = x->shape[0] * rows * channels;
  int bytes = number_type_info(type)->bytes;
  char *input = arena_alloc(a, (size_t)(count * bytes));
  double *in = arena_array(a, double, channels), *expected = arena_array(a, double, count);
  double *tolerance = arena_array(a, double, count);
  for (int64_t b = 0; b < x->shape[0]; b++)
    for (int64_t row = 0; row < rows; row++) {
      int64_t at = (b * rows + row) * channels;
      for (int64_t i = 0; i < channels; i++) {
        number_store(type, input + (at + i) * bytes, input_value(x, stream, b, row, i));
        in[i] = number_load(type, input + (at + i) * bytes);
      }
      expect_row(o, s, type, b, row / x->shape[2], row % x->shape[2], in, expected + at, tolerance + at);
      for (int64_t i = 0; stream == 0 && type == NUMBER_F32 && i < channels; i++) {
        double golden = c->out.values[at + i];
        if (!(fabs(golden - expected[at + i]) <= tolerance[at + i] + 1e-7 * fabs(golden)))
          fail(c->name, "the reference is not the golden output");
      }
    }
  put(file, input, (size_t)(count * bytes));
  put(file, expected, (size_t)count * sizeof *expected);
  put(file, tolerance, (size_t)count * sizeof *tolerance);
}

static void write_numbers(FILE *file, arena *a, const spec *s, const golden_case *c, const double **operands) {
  const golden_array *x = golden_input(c, "x"), *positions = golden_input(c, "positions");
  int64_t batches = positions->rank == 3 ? x->shape[0] : 0, tokens = x->shape[2];
  cross_sizes sizes = {x->shape[0], x->shape[1], tokens, x->shape[3], s->n_axes, batches, s->n_operands};
  put(file, &sizes, sizeof sizes);
  put(file, positions->values, sizeof(double) * (size_t)((batches ? batches : 1) * tokens * s->n_axes));
  for (int i = 0; i < s->n_operands; i++) {
    size_t size = sizeof(double);
    for (int d = 0; d < s->operand[i].rank; d++) size *= (size_t)s->operand[i].shape[d];
    put(file, operands[i], size);
  }
  trial_operands given = trial_given_operands(a, s, operands);
  oracle *o = oracle_create(a, s, batches ? batches : 1, tokens, positions->values, &given);
  for (int type = 0; type < CROSS_TYPES; type++)
    for (int stream = 0; stream < CROSS_STREAMS; stream++) write_stream(file, a, s, o, c, (number_type)type, stream);
}

static void write_object(arena *a, const spec *s, const char *target, const char *folder) {
  compile_options options = {.emit = EMIT_OBJ, .targets = target, .optimize = 3};
  compile_output object;
  if (!compile(a, s, &options, &object)) fail("does not compile", s->name);
  const char *name = arena_printf(a, "%s.o", s->name);
  FILE *file = create(a, folder, name);
  fwrite(object.data, 1, object.size, file);
  finish(file, name);
  free(object.data);
}

int main(int argc, char **argv) {
  if (argc != 3) fail("usage", "cross_write TARGET FOLDER");
  const char *target = argv[1], *folder = argv[2];
  SCOPED arena *a = arena_create();
  const golden_case *cases;
  int read = golden_read(a, GOLDEN_DIR, "cases.lua", &cases), count = 0;
  golden_case *chosen = arena_array(a, golden_case, read + 1);
  for (int i = 0; i < read; i++)
    if (!cases[i].reference_only) chosen[count++] = cases[i];
  cases = chosen;
  int64_t header[2] = {CROSS_MAGIC, count};
  FILE *numbers = create(a, folder, "cases.bin"), *table = create(a, folder, "table.c"),
       *objects = create(a, folder, "objects");
  put(numbers, header, sizeof header);
  fputs("#include \"pegen/pegen.h\"\n\n", table);
  for (int i = 0; i < count; i++) {
    SCOPED arena *memory = arena_create();
    const double **operands;
    spec *s = golden_load(memory, &cases[i], SPECS_DIR, DSL_DIR, &operands);
    if (!s) return 1;
    s->name = cases[i].name;
    write_object(memory, s, target, folder);
    write_numbers(numbers, memory, s, &cases[i], operands);
    fprintf(table, "extern const pegen_kernel %s_kernel;\n", s->name);
    fprintf(objects, "%s.o\n", s->name);
  }
  fputs("\nextern const pegen_kernel *const cross_kernels[];\nconst pegen_kernel *const cross_kernels[] = {", table);
  for (int i = 0; i < count; i++) fprintf(table, "%s&%s_kernel", i ? ", " : "", cases[i].name);
  fputs("};\n", table);
  finish(numbers, "cases.bin");
  finish(table, "table.c");
  finish(objects, "objects");
  return 0;
}
