/* warp_test PTXAS: what the lanes of a warp do together (mlir/ir.h), by the PTX ISA's own words about fragments.
 *
 * Each function of the builder is a kernel of one warp: a lane reads its words, and writes what it got. The kernels run
 * on the host, and as PTX they must have the instruction that is meant; PTXAS, where there is one, assembles them.
 */
#include "base/number.h"
#include "gpu/body.h"
#include "gpu/target.h"
#include "mlir/arith.h"
#include "mlir/exp2.h"
#include "test.h"
#include "verify/run.h"
#include "verify/run_threads.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LANES = 32, WORDS = 16 };

typedef struct lane_kernel {
  ir *b;
  ir_value in, out, shared, lane; /* in, out: the lane's WORDS words; shared: the block's */
} lane_kernel;

typedef struct test_kernel {
  const char *name;
  void (*emit)(lane_kernel *k);
  const char *instruction;
} test_kernel;

static void read_words(lane_kernel *k, int first, int count, MlirType type, ir_value *words) {
  for (int i = 0; i < count; i++) words[i] = ir_load(k->b, type, ir_offset_const(k->b, k->in, (first + i) * 4), 4);
}

static void write_words(lane_kernel *k, int first, int count, const ir_value *words) {
  for (int i = 0; i < count; i++) ir_store(k->b, words[i], ir_offset_const(k->b, k->out, (first + i) * 4), 4, false);
}

/* base + index * bytes, index an i32. */
static ir_value element(ir *b, ir_value base, ir_value index, int bytes) {
  ir_value wide = ir_cast(b, "arith.extsi", index, b->i64);
  return ir_offset(b, base, ir_op2(b, "arith.muli", wide, ir_int(b, b->i64, bytes)));
}

/* ---- kernels ---- */

static void exchange(lane_kernel *k) {
  ir_value x[2];
  read_words(k, 0, 1, k->b->f32, &x[0]);
  read_words(k, 1, 1, k->b->i32, &x[1]);
  for (int i = 0; i < 5; i++) {
    ir_value got[] = {ir_warp_exchange(k->b, x[0], 1 << i), ir_warp_exchange(k->b, x[1], 31 - i)};
    write_words(k, 2 * i, 2, got);
  }
}

static void mma(lane_kernel *k, bool is_bf16) {
  ir_value a[4], x[2], c[4];
  read_words(k, 0, 4, k->b->i32, a);
  read_words(k, 4, 2, k->b->i32, x);
  read_words(k, 6, 4, k->b->f32, c);
  ir_mma(k->b, is_bf16, a, x, c);
  write_words(k, 0, 4, c);
}
static void mma_bf16(lane_kernel *k) { mma(k, true); }
static void mma_f16(lane_kernel *k) { mma(k, false); }

/* The lane's 16 bytes to its place in shared memory, from where word 4 says which place it reads of. */
static void load(lane_kernel *k, bool transposed) {
  ir *b = k->b;
  ir_value words[4], place, x[4];
  read_words(k, 0, 4, b->i32, words);
  read_words(k, 4, 1, b->i32, &place);
  for (int i = 0; i < 4; i++)
    ir_store(b, words[i], ir_offset_const(b, element(b, k->shared, k->lane, 16), i * 4), 4, false);
  ir_wait(b, IR_BARRIER_WARP);
  ir_load_matrices(b, transposed, element(b, k->shared, place, 16), x);
  write_words(k, 0, 4, x);
}
static void load_rows(lane_kernel *k) { load(k, false); }
static void load_columns(lane_kernel *k) { load(k, true); }

/* Two groups of copies, of the lane's words 0-3 and 4-7; what the neighbour's hold after a wait for all but the latest
 * `first` groups, and after one for all but `last`. */
static void copy(lane_kernel *k, int first, int last) {
  ir *b = k->b;
  ir_value own = element(b, k->shared, k->lane, 32);
  ir_value next = ir_op2(b, "arith.xori", k->lane, ir_int(b, b->i32, 1)), at = element(b, k->shared, next, 32);
  for (int i = 0; i < 2; i++) {
    ir_value from = ir_offset_const(b, k->in, i * 16);
    ir_copy_async(b, ir_offset_const(b, own, i * 16), from);
    ir_copy_commit(b);
  }
  for (int turn = 0; turn < 2; turn++) {
    ir_copy_wait(b, turn ? last : first);
    ir_wait(b, IR_BARRIER_WARP);
    for (int i = 0; i < 8; i++) {
      ir_value word = ir_load(b, b->i32, ir_offset_const(b, at, i * 4), 4);
      write_words(k, turn * 8 + i, 1, &word);
    }
    ir_wait(b, IR_BARRIER_WARP);
  }
}
static void copy_in_turns(lane_kernel *k) { copy(k, 1, 0); }
static void copy_early(lane_kernel *k) { copy(k, 2, 0); }
static void copy_forgotten(lane_kernel *k) { copy(k, 1, 1); }

static void copy_uncommitted(lane_kernel *k) {
  ir_copy_async(k->b, element(k->b, k->shared, k->lane, 16), k->in);
  ir_copy_wait(k->b, 0);
}

static void copy_unaligned(lane_kernel *k) {
  ir_value to = ir_offset_const(k->b, element(k->b, k->shared, k->lane, 16), 4);
  ir_copy_async(k->b, to, k->in);
}

static void pack(lane_kernel *k) {
  ir_value x[2], two[4];
  read_words(k, 0, 2, k->b->f32, x);
  ir_value pair[] = {ir_pack(k->b, true, x[0], x[1]), ir_pack(k->b, false, x[0], x[1])};
  write_words(k, 0, 2, pair);
  for (int i = 0; i < 2; i++) ir_unpack(k->b, i == 0, pair[i], two + 2 * i);
  write_words(k, 2, 4, two);
}

static void power(lane_kernel *k) {
  ir_value x;
  read_words(k, 0, 1, k->b->f32, &x);
  x = emit_exp2_fast(k->b, x);
  write_words(k, 0, 1, &x);
}

static ir_branch in_lanes_below(lane_kernel *k, int count) {
  return ir_if(k->b, ir_compare_int(k->b, "slt", k->lane, ir_int(k->b, k->b->i32, count)));
}

/* Half of the lanes do another thing than the others, at the same time. */
static void apart(lane_kernel *k) {
  ir_value x;
  read_words(k, 0, 1, k->b->i32, &x);
  ir_branch branch = in_lanes_below(k, 16);
  ir_warp_exchange(k->b, x, 1);
  ir_else(k->b, &branch);
  ir_wait(k->b, IR_BARRIER_WARP);
  ir_end_if(k->b, branch);
}

static void apart_in_detail(lane_kernel *k) {
  ir_value x;
  read_words(k, 0, 1, k->b->i32, &x);
  ir_branch branch = in_lanes_below(k, 16);
  ir_warp_exchange(k->b, x, 1);
  ir_else(k->b, &branch);
  ir_warp_exchange(k->b, x, 2);
  ir_end_if(k->b, branch);
}

static void some_missing(lane_kernel *k) {
  ir_value x;
  read_words(k, 0, 1, k->b->i32, &x);
  ir_branch branch = in_lanes_below(k, 31);
  ir_warp_exchange(k->b, x, 1);
  ir_end_if(k->b, branch);
}

static const test_kernel kernels[] = {
    {"exchange", exchange, "shfl.sync.bfly.b32"},
    {"mma_bf16", mma_bf16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"},
    {"mma_f16", mma_f16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"},
    {"load_rows", load_rows, "ldmatrix.sync.aligned.m8n8.x4.shared.b16"},
    {"load_columns", load_columns, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"},
    {"copy_in_turns", copy_in_turns, "cp.async.cg.shared.global"},
    {"copy_early", copy_early, "cp.async.commit_group"},
    {"copy_forgotten", copy_forgotten, "cp.async.wait_group"},
    {"copy_uncommitted", copy_uncommitted, "cp.async.wait_group"},
    {"copy_unaligned", copy_unaligned, "cp.async.cg.shared.global"},
    {"pack_pairs", pack, "cvt.rn.bf16x2.f32"},
    {"pack_again", pack, "cvt.rn.f16x2.f32"},
    {"power", power, "ex2.approx.ftz.f32"},
    {"apart", apart, "shfl.sync.bfly.b32"},
    {"apart_in_detail", apart_in_detail, "shfl.sync.bfly.b32"},
    {"some_missing", some_missing, "shfl.sync.bfly.b32"},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

/* ---- their modules ---- */

static void emit(ir *b, arena *a, const gpu_program *p, const gpu_entry *entry, unsigned native, bool host) {
  (void)native;
  const test_kernel *of = &kernels[entry - p->entry];
  if (host && of == kernels) { /* run_load looks for a kernel of this name */
    ir_function(b, "warp_kernel", true, (MlirType){NULL}, 0, NULL, NULL);
    ir_return(b);
  }
  const char *shared = arena_printf(a, "%s_shared", entry->name);
  ir_shared_dynamic(b, shared, LANES * 32);
  gpu_function f = gpu_open_function(b, a, entry->name, 2, 0, host);
  lane_kernel k = {.b = b, .lane = f.thread};
  k.in = element(b, ir_pointer(b, f.parameter[0]), f.thread, WORDS * 4);
  k.out = element(b, ir_pointer(b, f.parameter[1]), f.thread, WORDS * 4);
  k.shared = ir_shared_address(b, shared);
  of->emit(&k);
  ir_return(b);
}

static void print_nothing(FILE *out, const gpu_program *program) { (void)out, (void)program; }

static struct {
  arena *memory;
  gpu_program program;
  loaded_kernel *loaded;
  const char *assembler;
} f;

static int open_program(void **state) {
  (void)state;
  f.memory = arena_create();
  spec *s = arena_new(f.memory, spec);
  s->name = "warp";
  s->file = "warp_test";
  f.program = (gpu_program){.spec = s, .n_entries = KERNELS, .emit = emit, .print_work = print_nothing};
  for (int i = 0; i < KERNELS; i++) f.program.entry[i] = (gpu_entry){.name = kernels[i].name, .shared = LANES * 32};
  compile_output host;
  gpu_write_host(f.memory, &f.program, 2, &host);
  f.loaded = run_load(host.data, host.size, "warp");
  free(host.data);
  void (*waiter)(int32_t) = run_block_wait;
  void (*warper)(int32_t, int32_t, const int32_t *, int32_t *) = run_block_warp;
  memcpy(run_find(f.loaded, "warp_host_waiter"), &waiter, sizeof waiter);
  memcpy(run_find(f.loaded, "warp_host_warper"), &warper, sizeof warper);
  return 0;
}

static int close_program(void **state) {
  (void)state;
  run_unload(f.loaded);
  arena_destroy(f.memory);
  return 0;
}

typedef union word {
  float real;
  int32_t integer;
  uint16_t half[2];
} word;
typedef word warp_words[LANES][WORDS];

static void run_kernel_named(const char *name, bool reverse, warp_words in, warp_words out) {
  void *symbol = run_find(f.loaded, name);
  thread_function *run;
  assert_non_null(symbol);
  memcpy(&run, &symbol, sizeof run);
  const int64_t parameters[] = {(int64_t)(uintptr_t)in, (int64_t)(uintptr_t)out};
  run_threads_grid(run, 1, 1, LANES, true, reverse, parameters);
}

/* ---- what must hold ---- */

TEST(lanes_exchange) {
  static _Alignas(16) warp_words in, out;
  for (int lane = 0; lane < LANES; lane++) in[lane][0].real = (float)lane + 0.5f, in[lane][1].integer = 100 + lane;
  for (int reverse = 0; reverse < 2; reverse++) {
    run_kernel_named("exchange", reverse, in, out);
    for (int lane = 0; lane < LANES; lane++)
      for (int i = 0; i < 5; i++) {
        assert_true(out[lane][2 * i].real == (float)(lane ^ 1 << i) + 0.5f);
        assert_int_equal(out[lane][2 * i + 1].integer, 100 + (lane ^ (31 - i)));
      }
  }
}

static void store_half(number_type type, word *words, int number, double value) {
  number_store(type, &words[number / 2].half[number % 2], (long double)value);
}

/* PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": number i of a lane's a, b and c stands at
 * these rows and columns. Products are small integers and so are sums: any order gives the same. */
static void fragments(number_type type, const char *name) {
  static _Alignas(16) warp_words in, out;
  double a[16][16], x[16][8], c[16][8];
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) a[i][j] = (i * 16 + j) % 97 - 48;
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 8; j++) x[i][j] = (i * 8 + j) % 61 - 30, c[i][j] = 1000 * i + j;
  for (int lane = 0; lane < LANES; lane++) {
    int group = lane >> 2, thread_in_group = lane % 4;
    for (int i = 0; i < 8; i++) {
      int row = i < 2 || (4 <= i && i < 6) ? group : group + 8;
      int column = i < 4 ? thread_in_group * 2 + (i & 1) : thread_in_group * 2 + (i & 1) + 8;
      store_half(type, in[lane], i, a[row][column]);
    }
    for (int i = 0; i < 4; i++) {
      int row = i < 2 ? thread_in_group * 2 + (i & 1) : thread_in_group * 2 + (i & 1) + 8;
      store_half(type, in[lane] + 4, i, x[row][group]);
      int c_row = i < 2 ? group : group + 8;
      in[lane][6 + i].real = (float)c[c_row][thread_in_group * 2 + (i & 1)];
    }
  }
  for (int reverse = 0; reverse < 2; reverse++) {
    run_kernel_named(name, reverse, in, out);
    for (int lane = 0; lane < LANES; lane++)
      for (int i = 0; i < 4; i++) {
        int row = (lane >> 2) + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
        double sum = c[row][column];
        for (int k = 0; k < 16; k++) sum += a[row][k] * x[k][column];
        assert_true((double)out[lane][i].real == sum);
      }
  }
}
TEST(fragments_bf16) { fragments(NUMBER_BF16, "mma_bf16"); }
TEST(fragments_f16) { fragments(NUMBER_F16, "mma_f16"); }

/* PTX ISA, ldmatrix: threads 0-7 give the rows of the first matrix, 8-15 those of the second and so on; a row goes in
 * pairs to four threads, and the next row to the next four. Rows lie in shared memory in an order of their own. */
TEST(matrices) {
  static _Alignas(16) warp_words in, out;
  for (int lane = 0; lane < LANES; lane++) {
    int place = lane * 5 % LANES; /* of row lane % 8 of matrix lane / 8 */
    in[lane][4].integer = place;
    for (int i = 0; i < 8; i++) in[place][i / 2].half[i % 2] = (uint16_t)(lane / 8 * 1000 + lane % 8 * 10 + i);
  }
  run_kernel_named("load_rows", false, in, out);
  for (int lane = 0; lane < LANES; lane++)
    for (int i = 0; i < 8; i++)
      assert_int_equal(out[lane][i / 2].half[i % 2], i / 2 * 1000 + lane / 4 * 10 + lane % 4 * 2 + i % 2);
  run_kernel_named("load_columns", true, in, out);
  for (int lane = 0; lane < LANES; lane++)
    for (int i = 0; i < 8; i++)
      assert_int_equal(out[lane][i / 2].half[i % 2], i / 2 * 1000 + (lane % 4 * 2 + i % 2) * 10 + lane / 4);
}

/* A group is there after the wait that covers it, and not before: until then its place holds NaN. */
TEST(copies) {
  static _Alignas(16) warp_words in, out;
  for (int lane = 0; lane < LANES; lane++)
    for (int i = 0; i < 8; i++) in[lane][i].integer = lane * 100 + i;
  for (int reverse = 0; reverse < 2; reverse++)
    for (int early = 0; early < 2; early++) {
      run_kernel_named(early ? "copy_early" : "copy_in_turns", reverse, in, out);
      for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 16; i++) {
          bool there = i >= 8 || (i < 4 && !early);
          if (there) assert_int_equal(out[lane][i].integer, (lane ^ 1) * 100 + i % 8);
          else assert_true(isnan(out[lane][i].real));
        }
    }
}

TEST(pairs) {
  static _Alignas(16) warp_words in, out;
  static const number_type types[] = {NUMBER_BF16, NUMBER_F16};
  uint64_t random = 5;
  for (int turn = 0; turn < 100; turn++) {
    for (int lane = 0; lane < LANES; lane++)
      for (int i = 0; i < 2; i++)
        in[lane][i].real = (float)ldexp(random_uniform(&random, -2, 2), random_below(&random, 40) - 24);
    in[0][0].real = INFINITY, in[1][1].real = -0.0f, in[2][0].real = NAN;
    in[3][0].integer = 0x3f808000, in[4][1].integer = 0x3f818000; /* between two bfloat16 */
    run_kernel_named("pack_pairs", turn % 2, in, out);
    for (int lane = 0; lane < LANES; lane++)
      for (int i = 0; i < 4; i++) {
        float x = in[lane][i % 2].real, back = out[lane][2 + i].real;
        if (isnan(x)) {
          assert_true(isnan(back));
          continue;
        }
        assert_true((double)back == number_round(types[i / 2], (long double)x));
        uint16_t bits;
        number_store(types[i / 2], &bits, (long double)x);
        assert_int_equal(out[lane][i / 2].half[i % 2], bits);
      }
  }
}

TEST(powers) {
  static _Alignas(16) warp_words in, out;
  for (int lane = 0; lane < LANES; lane++) in[lane][0].real = -(float)lane * 1.37f;
  run_kernel_named("power", false, in, out);
  for (int lane = 0; lane < LANES; lane++) {
    double exact = exp2((double)in[lane][0].real);
    assert_true(fabs((double)out[lane][0].real / exact - 1) < 0x1p-22);
  }
}

/* Runs it in a process of its own, which must end as our own bugs do, with that sentence. */
static void assert_bug(const char *name, const char *sentence) {
  static _Alignas(16) warp_words in, out;
  int ends[2], status;
  char text[4096] = "";
  fflush(NULL);
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    run_kernel_named(name, false, in, out);
    _exit(0);
  }
  close(ends[1]);
  for (size_t length = 0; length < sizeof text - 1;) {
    ssize_t got = read(ends[0], text + length, sizeof text - 1 - length);
    if (got <= 0) break;
    length += (size_t)got;
  }
  close(ends[0]);
  assert_true(waitpid(child, &status, 0) == child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  if (!strstr(text, sentence)) fail_msg("%s: '%s'", name, text);
}

TEST(bugs) {
  assert_bug("apart", "lanes of one warp have come to different operations");
  assert_bug("apart_in_detail", "lanes of one warp have come to different operations");
  assert_bug("some_missing", "31 lanes of a warp do what all of them have to do");
  assert_bug("copy_forgotten", "a thread ends with 1 copies that it did not wait for");
  assert_bug("copy_uncommitted", "a thread ends with 1 copies that it did not wait for");
  assert_bug("copy_unaligned", "an asynchronous copy is not aligned to 16 bytes");
}

/* The text of one entry. */
TEST(instructions) {
  const compile_options options = {.emit = EMIT_PTX, .optimize = 3};
  compile_output ptx;
  gpu_write(f.memory, &f.program, gpu_target_find("sm_80"), &options, &ptx);
  const char *text = arena_printf(f.memory, "%.*s", (int)ptx.size, ptx.data);
  free(ptx.data);
  for (int i = 0; i < KERNELS; i++) {
    char *from = strstr(text, arena_printf(f.memory, ".entry %s(", kernels[i].name));
    assert_non_null(from);
    const char *next = strstr(from + 1, ".entry "), *found = strstr(from, kernels[i].instruction);
    if (!found || (next && found > next)) fail_msg("%s has no %s", kernels[i].name, kernels[i].instruction);
  }
  assert_non_null(strstr(text, "Entries launched with dynamic shared memory, and its bytes:\n//   exchange "));
  assert_non_null(strstr(text, ".extern .shared .align 16 .b8 copy_in_turns_shared[]"));
  if (access(f.assembler, X_OK) != 0) return;
  FILE *pipe = popen(arena_printf(f.memory, "%s -arch=sm_80 -o /dev/null -", f.assembler), "w");
  assert_non_null(pipe);
  fputs(text, pipe);
  assert_int_equal(pclose(pipe), 0);
}

int main(int argc, char **argv) {
  f.assembler = argc > 1 ? argv[1] : "";
  return run_listed_between(open_program, close_program);
}
