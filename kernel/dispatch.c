/* dispatch.c: which of the object's targets this processor can run.
 *
 * The levels are those of the x86-64 psABI. A level counts only where the operating
 * system saves the registers it uses (xgetbv). The answer is kept in *driver->chosen;
 * threads that race compute and store the same number, so relaxed atomics suffice.
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

/* Intel's cores gain from software prefetch above their L2 what AMD's lose by it: there the
 * hardware's own keeps up, and the requests only cost (measured on Zen 4: 0.97 of the limit
 * without, 0.75 with, at 192 MiB; an AVX-512 Xeon: 0.65 without, 0.95 with). */
static int gains_from_prefetch(void) {
  registers vendor;
  cpuid(0, 0, &vendor);
  return vendor.b == 0x756e6547u && vendor.d == 0x49656e69u && vendor.c == 0x6c65746eu; /* GenuineIntel */
}

#else

static int64_t processor_level(void) { return PEGEN_LEVEL_BASELINE; }
static int gains_from_prefetch(void) { return 0; }

#endif

int pegen_dispatch(const pegen_driver *driver, int *prefetch) {
  int32_t chosen = __atomic_load_n(driver->chosen, __ATOMIC_RELAXED);
  if (chosen == 0) {
    int64_t level = processor_level();
    int32_t i = 0;
    while (i < driver->n_targets && driver->levels[i] > level) i++;
    if (i == driver->n_targets) return -1;
    chosen = (i + 1) | (gains_from_prefetch() ? PEGEN_CHOSEN_PREFETCH : 0);
    __atomic_store_n(driver->chosen, chosen, __ATOMIC_RELAXED);
  }
  *prefetch = (chosen & PEGEN_CHOSEN_PREFETCH) != 0;
  return (chosen & ~PEGEN_CHOSEN_PREFETCH) - 1;
}
