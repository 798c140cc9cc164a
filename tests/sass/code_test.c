/* code_test LISTING: what is read of a short listing, and what follows from it by numbers that a person can add up. */
#include "base/diag.h"
#include "sass/code.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static arena *memory;
static const char *listing;

static sass_code entry(const char *text, const char *name) {
  sass_code *code;
  int count = sass_parse(memory, text, &code);
  for (int i = 0; i < count; i++)
    if (!strcmp(code[i].name, name)) return code[i];
  fail_msg("no entry %s", name);
  return (sass_code){.count = 0};
}

TEST(test_listing) {
  sass_code *code;
  assert_int_equal(sass_parse(memory, listing, &code), 3);
  assert_int_equal(sass_parse(memory, "", &code), 0);
  sass_code mma = entry(listing, "short_attention_bf16_mma");
  assert_int_equal(mma.count, 16);
  assert_string_equal(mma.at[6].text, "HMMA.16816.F32.BF16 R20, R72, R16.reuse, RZ ");
  assert_true(sass_is(&mma.at[6], "HMMA") && !sass_is(&mma.at[6], "HMM"));
  assert_int_equal(mma.at[6].stall, 6);
  assert_int_equal(mma.at[6].waits, 1 << 2);
  assert_int_equal(mma.at[6].sets, -1);
  assert_int_equal(mma.at[5].sets, 2);
  assert_int_equal(mma.at[4].frees, 1);
  assert_int_equal(mma.at[4].bytes, 16);
  assert_int_equal(mma.at[5].cycles, 16); /* four matrices of 128 bytes, at a quarter of the rate */
  assert_true(mma.at[3].predicated && !mma.at[4].predicated);
  assert_int_equal(mma.at[3].target, 5);
  assert_int_equal(mma.at[13].target, 1);
  assert_int_equal(mma.at[4].target, -1);
}

/* cuobjdump prints a function's name otherwise, and addresses where nvdisasm has labels. */
TEST(test_addresses) {
  static const char text[] = "\t\tFunction : other\n"
                             "        /*0000*/  FFMA R1, R1, R2, R1 ;  /* 0x0000000000007802 */\n"
                             "                                         /* 0x000fc80000000f00 */\n"
                             "        /*0010*/  @!P0 BRA 0x0 ;         /* 0x0000000000007947 */\n"
                             "                                         /* 0x000fea0003800000 */\n";
  sass_code other = entry(text, "other");
  assert_int_equal(other.count, 2);
  assert_int_equal(other.at[1].target, 0);
  assert_int_equal(other.at[0].stall, 4);
  assert_int_equal(other.at[1].stall, 5);
  assert_int_equal(sass_main_loop(memory, &other).count, 2);
}

TEST(test_turn_of_products) {
  sass_code code = entry(listing, "short_attention_bf16_mma");
  sass_turn turn = sass_main_loop(memory, &code);
  assert_int_equal(turn.count, 11); /* with the copy, without the two FSEL of a mask */
  assert_int_equal(turn.products, 2);
  assert_int_equal(turn.copies, 1);
  assert_int_equal(turn.copied_bytes, 16);
  assert_int_equal(turn.stages, 2);
  assert_int_equal(turn.issued[SASS_TENSOR], 2);
  assert_int_equal(turn.issued[SASS_ALU], 0);
  assert_int_equal(turn.issued[SASS_XU], 1);
  assert_int_equal(turn.issued[SASS_LSU], 2);
}

TEST(test_turn_of_loops) {
  sass_code code = entry(listing, "short_attention_bf16");
  sass_turn turn = sass_main_loop(memory, &code);
  assert_int_equal(turn.multiply_adds, 4 * 2); /* a counter from 3 on in steps of 2 up to 11 */
  assert_int_equal(turn.count, 4 + 4 * 6);
  assert_int_equal(turn.stages, 0);
}

TEST(test_turn_of_rows) {
  sass_code code = entry(listing, "short_encode_bf16");
  sass_turn turn = sass_rows(memory, &code, 24);
  assert_int_equal(turn.count, 2 + 24 * 6);
  assert_int_equal(turn.row_bytes, 24 * 32);
  assert_int_equal(turn.loaded_bytes, 16);
  sass_code mma = entry(listing, "short_attention_bf16_mma"), none = {.name = "none", .count = 0};
  assert_int_equal(sass_rows(memory, &mma, 24).row_bytes, 0);
  assert_int_equal(sass_main_loop(memory, &none).count, 0);
}

/* A turn of one instruction, so many times. */
static sass_turn repeated(const sass_instruction *i, int count) {
  sass_turn turn = {.count = count, .at = arena_array(memory, const sass_instruction *, count)};
  for (int k = 0; k < count; k++) turn.at[k] = i;
  return turn;
}

TEST(test_schedule) {
  const sass_chip *chip = sass_chip_at(0);
  sass_code mma = entry(listing, "short_attention_bf16_mma"), rows = entry(listing, "short_encode_bf16");
  double product = sass_product_cycles(chip);
  assert_true(product > 4 / .7 && product < 4 / .6); /* 4 cycles at the peak of wgmma */
  /* FFMA that follow from one another come every 4 cycles of a warp, and 4 warps fill the pipe. */
  sass_instruction chain = mma.at[12];
  chain.waits = 0;
  sass_turn turn = repeated(&chain, 100);
  assert_float_equal(sass_schedule(chip, &turn, 1, false), 400, 4);
  assert_float_equal(sass_schedule(chip, &turn, 2, false), 200, 4);
  assert_float_equal(sass_schedule(chip, &turn, 4, false), 100, 4);
  assert_float_equal(sass_schedule(chip, &turn, 8, false), 100, 4);
  /* Products never come faster than the tensor core, however many warps there are. */
  turn = repeated(&mma.at[7], 100);
  assert_float_equal(sass_schedule(chip, &turn, 1, false), 100 * product, product);
  assert_float_equal(sass_schedule(chip, &turn, 4, false), 100 * product, product);
  /* Exponentials take 8 cycles of their unit. */
  turn = repeated(&mma.at[11], 100);
  assert_float_equal(sass_schedule(chip, &turn, 4, false), 800, 8);
  /* A load that the next instruction waits for: its latency for one warp, which others fill. */
  turn = sass_rows(memory, &rows, 24);
  double copy = sass_copy_cycles(chip, &turn), one = sass_schedule(chip, &turn, 1, true),
         all = sass_schedule(chip, &turn, 16, true);
  assert_true(one > 24 * 700 && one < 24 * 1200 && one > 3 * copy);
  assert_true(all >= .95 * copy && all < 1.1 * copy);
}

TEST(test_occupancy) {
  const struct {
    sass_resources of;
    int blocks;
    const char *limit;
  } cases[] = {
      {{.registers = 249, .threads = 128, .shared = 55312}, 2, "registers"},
      {{.registers = 168, .threads = 128, .shared = 36368}, 3, "registers"},
      {{.registers = 40, .threads = 128}, 12, "registers"},
      {{.registers = 32, .threads = 128}, 16, "warps"},
      {{.registers = 32, .threads = 32}, 32, "blocks"},
      {{.registers = 255, .threads = 128, .shared = 168976}, 1, "shared memory"},
      {{.registers = 32, .threads = 128, .shared = 300 << 10}, 0, "shared memory"},
      {{.registers = 255, .threads = 1024}, 0, "registers"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    sass_occupancy found = sass_occupancy_of(sass_chip_at(0), &cases[i].of);
    assert_int_equal(found.blocks, cases[i].blocks);
    assert_int_equal(found.warps, cases[i].blocks * cases[i].of.threads / 32);
    assert_string_equal(found.limit, cases[i].limit);
  }
}

TEST(test_resources) {
  static const char ptx[] = "// Entries launched with dynamic shared memory, and its bytes:\n"
                            "//   first_mma              55312\n//\n.version 7.8\n"
                            ".visible .entry first_mma(\n)\n.maxntid 128\n{\n}\n"
                            ".visible .entry second(\n)\n.maxntid 256\n{\n}\n";
  static const char log[] = "ptxas info    : Compiling entry function 'second' for 'sm_90'\n"
                            "    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
                            "ptxas info    : Used 96 registers, used 1 barriers, 6912 bytes smem\n"
                            "ptxas info    : Compiling entry function 'first_mma' for 'sm_90'\n"
                            "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                            "ptxas info    : Used 249 registers, used 1 barriers\n";
  sass_resources r;
  assert_true(sass_read_resources(memory, ptx, log, "first_mma", &r));
  assert_int_equal(r.registers, 249);
  assert_int_equal(r.shared, 55312);
  assert_int_equal(r.threads, 128);
  assert_int_equal(r.spill_stores, 0);
  assert_true(sass_read_resources(memory, ptx, log, "second", &r));
  assert_int_equal(r.registers, 96);
  assert_int_equal(r.shared, 6912);
  assert_int_equal(r.threads, 256);
  assert_int_equal(r.spill_stores, 4);
  assert_int_equal(r.spill_loads, 12);
  assert_false(sass_read_resources(memory, ptx, log, "third", &r));
}

/* Rows of matrices of so many bytes, read by ldmatrix: lane l has row l of the first of 16 channels, or of the next. */
static sass_banks banks_of_pitch(int pitch) {
  const char *ptx = arena_printf(memory,
                                 ".visible .entry k(\n)\n{\n"
                                 "\tld.param.b64 %%rd1, [k_param_0];\n"
                                 "\tmov.u32 %%r1, %%tid.x;\n"
                                 "\tand.b32 %%r2, %%r1, 15;\n"
                                 "\tshr.u32 %%r3, %%r1, 4;\n"
                                 "\tshl.b32 %%r4, %%r3, 4;\n"
                                 "\tmul.wide.u32 %%rd2, %%r2, %d;\n"
                                 "\tcvt.u64.u32 %%rd3, %%r4;\n"
                                 "\tadd.s64 %%rd4, %%rd2, %%rd3;\n"
                                 "\tadd.s64 %%rd5, %%rd4, %%rd1;\n"
                                 "\tldmatrix.sync.aligned.m8n8.x4.shared.b16 {%%r5, %%r6, %%r7, %%r8}, [%%rd5+2304];\n"
                                 "}\n",
                                 pitch);
  return sass_find_conflicts(memory, ptx, "k");
}

TEST(test_banks) {
  const struct {
    int pitch, wavefronts;
  } cases[] = {{144, 4}, {272, 4}, {80, 4}, {128, 32}, {160, 8}, {192, 16}, {16, 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    sass_banks banks = banks_of_pitch(cases[i].pitch);
    assert_int_equal(banks.accesses, 1);
    assert_int_equal(banks.known, 1);
    assert_int_equal(banks.least, 4);
    assert_int_equal(banks.wavefronts, cases[i].wavefronts);
  }
  static const char loaded[] = ".visible .entry k(\n)\n{\n\tld.global.b32 %r1, [%rd1];\n"
                               "\tld.shared.b32 %r2, [%r1];\n\tst.shared.b32 [k_word], %r2;\n}\n";
  sass_banks banks = sass_find_conflicts(memory, loaded, "k");
  assert_int_equal(banks.accesses, 2);
  assert_int_equal(banks.known, 1); /* an address that was loaded is not known */
  assert_int_equal(banks.wavefronts, 1);
}

static const char *read_file(const char *path) {
  FILE *file = fopen(path, "r");
  char *text = arena_alloc(memory, 1 << 16);
  if (!file || !fread(text, 1, (1 << 16) - 1, file) || fclose(file)) exit(2);
  return text;
}

int main(int argc, char **argv) {
  memory = arena_create();
  if (argc != 2) return 2;
  listing = read_file(argv[1]);
  int failed = run_listed();
  arena_destroy(memory);
  return failed;
}
