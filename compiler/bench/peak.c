/* bench/peak: the fastest fused multiply-adds of float32, and dot products; see bench/peak.h.
 *
 * Chains of them that do not wait for each other, in the widest registers that the processor has. */
#include "bench/peak.h"

#include <time.h>

enum { CHAINS = 12, TURNS = 1 << 18, RUNS = 5 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef double peak_function(volatile float *seed);

/* Flops a second. The sum at the end keeps the chains alive. */
#define PEAK(name, attribute, lanes, vector_bytes) \
  attribute static double name(volatile float *seed) { \
    typedef float vector __attribute__((vector_size(vector_bytes))); \
    vector chain[CHAINS], factor = {0}, more = {0}; \
    factor += *seed; \
    more += *seed - 1; \
    for (int i = 0; i < CHAINS; i++) chain[i] = more + (float)i; \
    double start = now(); \
    for (int turn = 0; turn < TURNS; turn++) \
      _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) chain[i] = chain[i] * factor + more; \
    double seconds = now() - start; \
    for (int i = 1; i < CHAINS; i++) chain[0] += chain[i]; \
    *seed = chain[0][0] == 12345 ? 2 : 1; \
    return 2.0 * (lanes) * CHAINS * TURNS / seconds; \
  }

#if defined(__x86_64__)
/* In assembly, for compilers that know no bfloat16; the chains by name, or they would stand in memory. */
__attribute__((target("avx512f"))) static double peak_dots(volatile float *seed) {
  typedef float vector __attribute__((vector_size(64)));
  vector pairs = {0}, a = pairs + *seed, b = a, c = a, d = a, e = a, f = a, g = a, h = a;
  double start = now();
  for (int turn = 0; turn < TURNS; turn++)
    __asm__ volatile("vdpbf16ps %8, %8, %0\n\tvdpbf16ps %8, %8, %1\n\tvdpbf16ps %8, %8, %2\n\tvdpbf16ps %8, %8, %3\n\t"
                     "vdpbf16ps %8, %8, %4\n\tvdpbf16ps %8, %8, %5\n\tvdpbf16ps %8, %8, %6\n\tvdpbf16ps %8, %8, %7"
                     : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h)
                     : "v"(pairs));
  double seconds = now() - start;
  a += b + c + d + e + f + g + h;
  *seed = a[0] == 12345 ? 2 : 1;
  return 4.0 * 16 * 8 * TURNS / seconds;
}
PEAK(peak_avx512, __attribute__((target("avx512f"), optimize("fp-contract=fast"))), 16, 64)
PEAK(peak_avx2, __attribute__((target("avx2,fma"), optimize("fp-contract=fast"))), 8, 32)
PEAK(peak_sse, , 4, 16)
#else
PEAK(peak_narrow, , 4, 16)
#endif

static peak_function *widest(bool dots) {
#if defined(__x86_64__)
  if (dots) return peak_dots;
  if (__builtin_cpu_supports("avx512f")) return peak_avx512;
  return __builtin_cpu_supports("fma") ? peak_avx2 : peak_sse;
#else
  (void)dots;
  return peak_narrow;
#endif
}

double bench_peak_flops(bool dots) {
  volatile float one = 1;
  double best = 0;
  for (int run = 0; run < RUNS; run++) {
    double flops = widest(dots)(&one);
    if (flops > best) best = flops;
  }
  return best;
}
