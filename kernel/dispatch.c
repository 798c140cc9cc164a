/* dispatch.c: which of the object's targets this processor can run.
 *
 * The levels are those of the x86-64 psABI. A level counts only where the operating
 * system saves the registers it uses (xgetbv). What the processor wants of a walk through memory is processor.c's.
 * The answer is kept in *driver->chosen; threads that race compute and store the same number, so relaxed
 * atomics suffice.
 */
#include "driver.h"

#if defined(__x86_64__)

typedef struct registers {
  uint32_t a, b, c, d;
} registers;

static void cpuid(uint32_t leaf, uint32_t subleaf, registers *r) {
  __asm__ volatile("cpuid" : "=a"(r->a), "=b"(r->b), "=c"(r->c), "=d"(r->d) : "a"(leaf), "c"(subleaf));
}

static uint32_t saved_registers(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static int has(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

#define BIT(n) ((uint32_t)1 << (n))

static int64_t processor_level(void) {
  registers basic, extended, features;
  cpuid(0, 0, &basic);
  uint32_t leaves = basic.a;
  cpuid(0x80000000u, 0, &extended);
  uint32_t extended_leaves = extended.a;

  cpuid(1, 0, &basic);
  extended.c = 0;
  if (extended_leaves >= 0x80000001u) cpuid(0x80000001u, 0, &extended);
  /* v2: sse3, ssse3, cx16, sse4.1, sse4.2, popcnt; lahf */
  if (!has(basic.c, BIT(0) | BIT(9) | BIT(13) | BIT(19) | BIT(20) | BIT(23)) || !has(extended.c, BIT(0)))
    return PEGEN_LEVEL_BASELINE;

  /* v3: fma, movbe, osxsave, avx, f16c; lzcnt; bmi1, avx2, bmi2; xmm and ymm are saved */
  if (leaves < 7 || !has(basic.c, BIT(12) | BIT(22) | BIT(27) | BIT(28) | BIT(29)) || !has(extended.c, BIT(5)))
    return PEGEN_LEVEL_X86_64_V2;
  cpuid(7, 0, &features);
  uint32_t saved = saved_registers();
  if (!has(features.b, BIT(3) | BIT(5) | BIT(8)) || !has(saved, BIT(1) | BIT(2))) return PEGEN_LEVEL_X86_64_V2;

  /* v4: avx512f, dq, cd, bw, vl; mask registers and both halves of zmm are saved */
  if (!has(features.b, BIT(16) | BIT(17) | BIT(28) | BIT(30) | BIT(31)) || !has(saved, BIT(5) | BIT(6) | BIT(7)))
    return PEGEN_LEVEL_X86_64_V3;
  return PEGEN_LEVEL_X86_64_V4;
}

/* Bytes of the last cache before memory; 0: not told. */
static int64_t last_cache(uint32_t leaf) {
  int64_t bytes = 0;
  uint32_t level = 0;
  for (uint32_t i = 0; i < 16; i++) {
    registers r;
    cpuid(leaf, i, &r);
    uint32_t type = r.a & 31, of_level = r.a >> 5 & 7; /* type 1: data, 2: instructions, 3: both; 0: no more caches */
    if (type == 0) break;
    if (type == 2 || of_level < level) continue;
    level = of_level;
    bytes = (int64_t)((r.b >> 22) + 1) * ((r.b >> 12 & 1023) + 1) * ((r.b & 4095) + 1) * ((int64_t)r.c + 1);
  }
  return bytes;
}

static void read_processor(pegen_processor_id *id) {
  registers r;
  cpuid(0, 0, &r);
  uint32_t leaves = r.a;
  id->vendor = r.b == 0x756e6547u && r.d == 0x49656e69u && r.c == 0x6c65746eu   ? PEGEN_VENDOR_INTEL /* GenuineIntel */
               : r.b == 0x68747541u && r.d == 0x69746e65u && r.c == 0x444d4163u ? PEGEN_VENDOR_AMD /* AuthenticAMD */
                                                                                : PEGEN_VENDOR_ANY;
  cpuid(1, 0, &r);
  id->has_dots = 0;
  id->family = (r.a >> 8 & 15) + ((r.a >> 8 & 15) == 15 ? r.a >> 20 & 255 : 0);
  id->last_cache = leaves >= 4 && id->vendor == PEGEN_VENDOR_INTEL ? last_cache(4) : 0;
  if (leaves >= 7) cpuid(7, 0, &r);
  if (leaves >= 7 && r.a >= 1) {
    cpuid(7, 1, &r);
    id->has_dots = has(r.a, BIT(5)); /* avx512_bf16 */
  }
  cpuid(0x80000000u, 0, &r);
  if (id->last_cache || r.a < 0x8000001du) return;
  cpuid(0x80000001u, 0, &r);
  if (has(r.c, BIT(22))) id->last_cache = last_cache(0x8000001du);
}

#else

static int64_t processor_level(void) { return PEGEN_LEVEL_BASELINE; }
static void read_processor(pegen_processor_id *id) {
  id->vendor = PEGEN_VENDOR_ARM; /* the one other architecture that kernels are made for */
  id->family = 0;
  id->last_cache = 0;
  id->has_dots = 0;
}

#endif

static int32_t choice(int32_t target) {
  pegen_processor_id id;
  read_processor(&id);
  int32_t dots = id.has_dots ? PEGEN_CHOSEN_DOTS : 0;
  return pegen_choice(target, pegen_processor_row(&id), id.last_cache) | dots;
}

int pegen_dispatch(const pegen_driver *driver, pegen_tuning *tuning) {
  int32_t chosen = __atomic_load_n(driver->chosen, __ATOMIC_RELAXED);
  if (chosen == 0) {
    int64_t level = processor_level();
    int32_t i = 0;
    while (i < driver->n_targets && driver->levels[i] > level) i++;
    if (i == driver->n_targets) return -1;
    chosen = choice(i);
    __atomic_store_n(driver->chosen, chosen, __ATOMIC_RELAXED);
  }
  pegen_tune(tuning, chosen);
  return (chosen & PEGEN_CHOSEN_TARGET) - 1;
}
