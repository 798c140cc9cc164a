/* harness: the bench measures a kernel that is known: a scaling loop (or a copy) written by hand.
 *
 * Such a kernel does what the limit loops do, so its ratio must be near one; a
 * harness that times something else shows here. Prints the table; passes where the
 * bench accepts the kernel, and reports a kernel's refusal.
 */
#include "bench/append.h"
#include "bench/limits.h"
#include "bench/rows.h"

#include <stdio.h>
#include <string.h>

static int refuse; /* the fake kernel returns an error */

static void scale_rows(const DLTensor *in, const DLTensor *out, int part, int parts) {
  int64_t bytes = 4 * in->shape[0] * in->shape[1] * in->shape[2] * in->shape[3] / parts;
  const limit_loop *loops;
  bool in_place = in->data == out->data;
  limit_loops(in_place, &loops);
  loops[0].run((char *)out->data + bytes * part, (const char *)in->data + bytes * part, (size_t)bytes);
}

static int fake_encode(const pegen_args *args, int part, int parts) {
  if (refuse) return PEGEN_ERROR_PROCESSOR;
  scale_rows(args->q, args->q_out, part, parts);
  scale_rows(args->k, args->k_out, part, parts);
  return 0;
}

static int prepared; /* parts of a table that were asked for */

static int fake_prepare(const pegen_args *args, int part, int parts) {
  (void)parts;
  prepared++;
  if (part == 0) memset(args->table, 1, args->table_bytes);
  return 0;
}

static size_t fake_table_bytes(const pegen_args *args) { return (size_t)args->positions->shape[0] * 1024; }

/* As above, where a table is there and holds what was prepared. */
static int fake_encode_tabled(const pegen_args *args, int part, int parts) {
  const char *table = args->table;
  if (!table || args->table_bytes != fake_table_bytes(args) || table[args->table_bytes - 1] != 1)
    return PEGEN_ERROR_TABLE;
  return fake_encode(args, part, parts);
}

static size_t fake_workspace(const pegen_args *args) {
  (void)args;
  return 0;
}

/* ---- append ---- */

static int filled; /* calls that found v's cache as another contender had left it */

/* Is v's cache all 0, or v's rows at their slots and 0 elsewhere? Then 0. */
static int is_otherwise(const pegen_args *args) {
  const float *v = args->v->data, *cache = args->v_out->data;
  const int64_t *slots = args->slots->data, *shape = args->v->shape, *stride = args->v->strides;
  int64_t B = shape[0], H = shape[1], N = shape[2], D = shape[3], held = 0, placed = 0, wanted = 0;
  for (int64_t i = 0; i < args->v_out->shape[0] * args->v_out->shape[1] * H * D; i++) held += cache[i] != 0;
  for (int64_t i = 0; i < B * H * N * D; i++) {
    int64_t b = i / (H * N * D), h = i / (N * D) % H, n = i / D % N, c = i % D;
    float value = v[b * stride[0] + h * stride[1] + n * stride[2] + c * stride[3]];
    wanted += value != 0;
    placed += value != 0 && cache[(slots[b * N + n] * H + h) * D + c] == value;
  }
  filled += held != 0;
  return held && (held != placed || placed != wanted);
}

/* By one thread: checks what those before it left in v's cache, and empties it for those behind. */
static int fake_append(const pegen_args *args, int part, int parts) {
  const int64_t *shape = args->v_out->shape;
  if (refuse || part || parts != 1 || is_otherwise(args)) return PEGEN_ERROR_PROCESSOR;
  memset(args->v_out->data, 0, (size_t)(4 * shape[0] * shape[1] * shape[2] * shape[3]));
  return 0;
}

static int expect(int status, int wanted, const char *what) {
  if (status == wanted) return 0;
  printf("FAILED: %s: status %d instead of %d\n", what, status, wanted);
  return 1;
}

int main(int argc, char **argv) {
  static const char *const axes[] = {"h", "w"};
  const pegen_kernel kernel = {.struct_size = sizeof kernel,
                               .abi_version = PEGEN_ABI_VERSION,
                               .name = "scale",
                               .doc = "",
                               .digest = "",
                               .options = "",
                               .targets = "by hand",
                               .dtypes = PEGEN_DTYPE_F32,
                               .head_dim = 64,
                               .out_dim = 64,
                               .n_axes = 2,
                               .axes = axes,
                               .encode = fake_encode,
                               .workspace = fake_workspace};
  const spec s = {.name = "scale", .n_axes = 2, .axis = {"h", "w"}, .head_dim = 64, .heads = 1};
  arena *a = arena_create();
  int failures = 0;
  bench_options small = {.shape = argc > 1 ? argv[1] : "1,50,3", .threads = 1, .layouts = LAYOUT_BNHD | LAYOUT_BHND};
  failures += expect(bench_kernel(a, &s, &kernel, PEGEN_DTYPE_F32, &small), STATUS_OK, "one thread");
  small.threads = 2;
  failures += expect(bench_kernel(a, &s, &kernel, PEGEN_DTYPE_F32, &small), STATUS_OK, "two threads");
  bench_options tabled = small;
  tabled.table = true;
  pegen_kernel with_table = kernel;
  with_table.encode = fake_encode_tabled, with_table.prepare = fake_prepare, with_table.table_bytes = fake_table_bytes;
  failures += expect(bench_kernel(a, &s, &with_table, PEGEN_DTYPE_F32, &tabled), STATUS_OK, "a table");
  failures += expect(prepared > 0, true, "preparing");
  failures +=
      expect(bench_kernel(a, &s, &with_table, PEGEN_DTYPE_F32, &small), STATUS_ERROR, "a table that was not asked for");
  failures += expect(bench_kernel(a, &s, &kernel, PEGEN_DTYPE_F32, &tabled), STATUS_ERROR, "no table");
  for (const char *const *bad = (const char *const[]){"1,2", "1,2,3,63", "1,2,3,64,", "0,1,1", "a", NULL}; *bad;
       bad++) {
    bench_options wrong = {.shape = *bad, .threads = 1};
    failures += expect(bench_kernel(a, &s, &kernel, PEGEN_DTYPE_F32, &wrong), STATUS_ERROR, *bad);
  }
  pegen_kernel appending = kernel;
  appending.append = fake_append;
  for (const char *const *shape = (const char *const[]){"1,50,3", "3,1,2", "2,33,1", NULL}; *shape; shape++) {
    bench_options append = {.shape = *shape, .threads = 1, .layouts = LAYOUT_BNHD | LAYOUT_BHND, .append = true};
    filled = 0;
    failures += expect(bench_append(a, &s, &appending, PEGEN_DTYPE_F32, &append), STATUS_OK, "append");
    failures += expect(filled > 4 * 23, true, "rows that others had put to their slots");
    failures += expect(bench_append(a, &s, &kernel, PEGEN_DTYPE_F32, &append), STATUS_ERROR, "no append");
  }
  refuse = 1;
  failures += expect(bench_append(a, &s, &appending, PEGEN_DTYPE_F32, &small), STATUS_ERROR, "an append that refuses");
  failures += expect(bench_kernel(a, &s, &kernel, PEGEN_DTYPE_F32, &small), STATUS_ERROR, "a kernel that refuses");
  arena_destroy(a);
  return failures != 0;
}
