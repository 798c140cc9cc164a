/* bench/peak: the fastest fused multiply-adds of float32; see bench/peak.h.
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
PEAK(peak_avx512, __attribute__((target("avx512f"), optimize("fp-contract=fast"))), 16, 64)
PEAK(peak_avx2, __attribute__((target("avx2,fma"), optimize("fp-contract=fast"))), 8, 32)
PEAK(peak_sse, , 4, 16)
#else
PEAK(peak_narrow, , 4, 16)
#endif

static peak_function *widest(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return peak_avx512;
  return __builtin_cpu_supports("fma") ? peak_avx2 : peak_sse;
#else
  return peak_narrow;
#endif
}

double bench_peak_flops(void) {
  volatile float one = 1;
  double best = 0;
  for (int run = 0; run < RUNS; run++) {
    double flops = widest()(&one);
    if (flops > best) best = flops;
  }
  return best;
}
