/* bench/limits: scaling in place, copies, and a crew of spinning threads; see bench/limits.h.
 *
 * Written out with vectors of the widest kind that the processor has, so that the
 * limit does not depend on the compiler's taste: a loop is a load, a store and for
 * scaling one multiplication by 1 that the compiler cannot know.
 */
#include "bench/limits.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static volatile float one = 1.0f;

/* What is left after the whole chunks. */
static void scale_tail(float *x, size_t count) {
  float factor = one;
  for (size_t i = 0; i < count; i++) x[i] *= factor;
}

enum { AHEAD_NEXT = 2048, AHEAD_NEAR = 4096, AHEAD_FAR = 8192, UNROLL = 4 };

/* One loop: UNROLL vectors a turn; BODY sees x and y, the lanes of this vector, and i, its index in floats. */
#define LIMIT_LOOP(isa, suffix, lanes, name, setup, body, tail) \
  __attribute__((target(isa))) static void name##_##suffix(void *to, const void *from, size_t bytes) { \
    const float *in = from; \
    float *out = to; \
    size_t count = bytes / sizeof(float), i = 0; \
    setup; \
    for (; i + UNROLL * (lanes) <= count; i += UNROLL * (lanes)) \
      _Pragma("GCC unroll 4") for (size_t j = i; j < i + UNROLL * (lanes); j += (lanes)) { body; } \
    tail; \
  }

/* A prefetch past the end is no access: it may not fault. */
#define AHEAD(bytes) __builtin_prefetch((const char *)(uintptr_t)((uintptr_t)(in + j) + (bytes)), 0, 3)

/* move, move_name: a copy by other means, whatever the vectors. */
#define LIMIT_LOOPS(isa, suffix, lanes, vector, load, store, stream, set1, mul, add, fence, move, move_name) \
  LIMIT_LOOP(isa, suffix, lanes, scale, vector factor = set1(one), store(out + j, mul(load(in + j), factor)), \
             scale_tail(out + i, count - i)) \
  LIMIT_LOOP(isa, suffix, lanes, scale_near, vector factor = set1(one), AHEAD(AHEAD_NEAR); \
             store(out + j, mul(load(in + j), factor)), scale_tail(out + i, count - i)) \
  LIMIT_LOOP(isa, suffix, lanes, scale_far, vector factor = set1(one), AHEAD(AHEAD_FAR); \
             store(out + j, mul(load(in + j), factor)), scale_tail(out + i, count - i)) \
  LIMIT_LOOP(isa, suffix, lanes, copy, , store(out + j, load(in + j)), \
             memcpy(out + i, in + i, (count - i) * sizeof *in)) \
  LIMIT_LOOP(isa, suffix, lanes, copy_stream, , stream(out + j, load(in + j)), \
             memcpy(out + i, in + i, (count - i) * sizeof *in); \
             fence()) \
  LIMIT_LOOP(isa, suffix, lanes, copy_stream_next, , AHEAD(AHEAD_NEXT); \
             stream(out + j, load(in + j)), memcpy(out + i, in + i, (count - i) * sizeof *in); fence()) \
  LIMIT_LOOP(isa, suffix, lanes, copy_stream_near, , AHEAD(AHEAD_NEAR); \
             stream(out + j, load(in + j)), memcpy(out + i, in + i, (count - i) * sizeof *in); fence()) \
  LIMIT_LOOP(isa, suffix, lanes, read, vector sum[UNROLL]; \
             for (int u = 0; u < UNROLL; u++) sum[u] = set1(0), \
             sum[(j - i) / (lanes)] = add(sum[(j - i) / (lanes)], load(in + j)), \
             for (int u = 0; u < UNROLL; u++) store(out + u * (lanes), sum[u])) \
  LIMIT_LOOP(isa, suffix, lanes, read_near, vector sum[UNROLL]; \
             for (int u = 0; u < UNROLL; u++) sum[u] = set1(0), AHEAD(AHEAD_NEAR); \
             sum[(j - i) / (lanes)] = add(sum[(j - i) / (lanes)], load(in + j)), \
             for (int u = 0; u < UNROLL; u++) store(out + u * (lanes), sum[u])) \
  static const limit_loop loops_##suffix[] = {{"scale", true, false, scale_##suffix}, \
                                              {"scale+4K", true, false, scale_near_##suffix}, \
                                              {"scale+8K", true, false, scale_far_##suffix}, \
                                              {"copy", false, false, copy_##suffix}, \
                                              {"copy-nt", false, true, copy_stream_##suffix}, \
                                              {"nt+2K", false, true, copy_stream_next_##suffix}, \
                                              {"nt+4K", false, true, copy_stream_near_##suffix}, \
                                              {move_name, false, false, move}, \
                                              {"read", false, false, read_##suffix}, \
                                              {"read+4K", false, false, read_near_##suffix}};

enum { LOOPS_IN_PLACE = 3, LOOPS_OUT_OF_PLACE = 5, LOOPS_THAT_READ = 2 };

#if defined(__x86_64__)
#include <immintrin.h>
static void move_string(void *to, const void *from, size_t bytes) {
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

LIMIT_LOOPS("avx512f", avx512, 16, __m512, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_stream_ps, _mm512_set1_ps,
            _mm512_mul_ps, _mm512_add_ps, _mm_sfence, move_string, "movsb")
LIMIT_LOOPS("avx", avx, 8, __m256, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_stream_ps, _mm256_set1_ps, _mm256_mul_ps,
            _mm256_add_ps, _mm_sfence, move_string, "movsb")
LIMIT_LOOPS("sse2", sse, 4, __m128, _mm_loadu_ps, _mm_storeu_ps, _mm_stream_ps, _mm_set1_ps, _mm_mul_ps, _mm_add_ps,
            _mm_sfence, move_string, "movsb")

static const limit_loop *best_loops(void) {
  if (__builtin_cpu_supports("avx512f")) return loops_avx512;
  if (__builtin_cpu_supports("avx")) return loops_avx;
  return loops_sse;
}
static void relax(void) { _mm_pause(); }
#elif defined(__aarch64__)
#include <arm_neon.h>
static void no_fence(void) {}
static void move_bytes(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
LIMIT_LOOPS("arch=armv8-a", neon, 4, float32x4_t, vld1q_f32, vst1q_f32, vst1q_f32, vdupq_n_f32, vmulq_f32, vaddq_f32,
            no_fence, move_bytes, "memcpy")
static const limit_loop *best_loops(void) { return loops_neon; }
static void relax(void) { __asm__ volatile("yield"); }
#else
#error "bench_limits: no loops for this architecture"
#endif

int limit_loops(bool in_place, const limit_loop **loops) {
  *loops = best_loops() + (in_place ? 0 : LOOPS_IN_PLACE);
  return in_place ? LOOPS_IN_PLACE : LOOPS_OUT_OF_PLACE;
}

int limit_reads(const limit_loop **loops) {
  *loops = best_loops() + LOOPS_IN_PLACE + LOOPS_OUT_OF_PLACE;
  return LOOPS_THAT_READ;
}

limit_function *limit_read(void) {
  const limit_loop *loops;
  limit_reads(&loops);
  return loops->run;
}

/* ---- threads ------------------------------------------------------------------------ */

struct crew {
  int threads, started;
  pthread_t *thread;
  crew_work *work; /* NULL: go home */
  void *context;
  _Alignas(64) atomic_uint round;  /* grows with every call */
  _Alignas(64) atomic_int pending; /* parts not done yet */
};

typedef struct member {
  crew *of;
  int part;
} member;

/* Spins; gives the processor up now and then, so that more threads than processors still end. */
#define SPIN_WHILE(condition) \
  for (unsigned spins = 1; condition; spins++) { \
    relax(); \
    if (spins % 4096 == 0) sched_yield(); \
  }

static void *serve(void *argument) {
  member m = *(member *)argument;
  free(argument);
  crew *c = m.of;
  for (unsigned seen = 0;;) {
    SPIN_WHILE(atomic_load_explicit(&c->round, memory_order_acquire) == seen)
    seen++;
    if (!c->work) return NULL;
    c->work(c->context, m.part, c->threads);
    atomic_fetch_sub_explicit(&c->pending, 1, memory_order_release);
  }
}

crew *crew_create(int threads) {
  crew *c = aligned_alloc(64, (sizeof(crew) + 63) / 64 * 64);
  if (!c) return NULL;
  memset(c, 0, sizeof *c);
  c->threads = threads;
  c->thread = calloc((size_t)threads, sizeof *c->thread);
  while (c->thread && c->started < threads - 1) {
    member *m = malloc(sizeof *m);
    if (!m) break;
    *m = (member){c, c->started + 1};
    if (pthread_create(&c->thread[c->started], NULL, serve, m)) {
      free(m);
      break;
    }
    c->started++;
  }
  if (c->thread && c->started == threads - 1) return c;
  crew_destroy(c);
  return NULL;
}

void crew_run(crew *c, crew_work *work, void *context) {
  c->work = work;
  c->context = context;
  atomic_store_explicit(&c->pending, c->started, memory_order_relaxed);
  atomic_fetch_add_explicit(&c->round, 1, memory_order_release);
  if (work) work(context, 0, c->threads);
  SPIN_WHILE(work && atomic_load_explicit(&c->pending, memory_order_acquire) > 0)
}

void crew_destroy(crew *c) {
  if (!c) return;
  crew_run(c, NULL, NULL);
  for (int i = 0; i < c->started; i++) pthread_join(c->thread[i], NULL);
  free(c->thread);
  free(c);
}
