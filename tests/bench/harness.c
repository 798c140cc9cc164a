/* harness: the bench measures a kernel that is known: a scaling loop (or a copy) written by hand.
 *
 * Such a kernel does what the limit loops do, so its ratio must be near one; a
 * harness that times something else shows here. Prints the table; passes where the
 * bench accepts the kernel, and reports a kernel's refusal.
 */
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
  refuse = 1;
  failures += expect(bench_kernel(a, &s, &kernel, PEGEN_DTYPE_F32, &small), STATUS_ERROR, "a kernel that refuses");
  arena_destroy(a);
  return failures != 0;
}
