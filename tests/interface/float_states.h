/* float_states.h: the floating-point states that a caller's thread may be in: every rounding, denormals flushed or
 * taken for zero, exceptions that trap. For tests on x86-64 and aarch64; what is tested sets the state by code of its
 * own.
 *
 * Between float_states_enter and float_states_leave stands the call and no arithmetic.
 */
#ifndef PEGEN_TESTS_FLOAT_STATES_H
#define PEGEN_TESTS_FLOAT_STATES_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
enum { FLOAT_STATES = 32 }; /* rounding, flush to zero, denormals are zero, exceptions */
static inline uint64_t float_states_read(void) { return _mm_getcsr() & 0xffffffc0u; /* flags stay raised */ }
static inline void float_states_write(uint64_t state) { _mm_setcsr((uint32_t)state); }
static inline uint64_t float_states_at(int index) {
  uint64_t state = (uint64_t)(index & 3) << 13 | (uint64_t)(index >> 2 & 1) << 15 | (uint64_t)(index >> 3 & 1) << 6;
  return state | (index >> 4 ? 0 : 0x1f80);
}
#elif defined(__aarch64__)
enum { FLOAT_STATES = 32 }; /* rounding, flush to zero (also of float16), one NaN, traps where the processor has any */
static inline uint64_t float_states_read(void) {
  uint64_t state;
  __asm__ volatile("mrs %0, fpcr" : "=r"(state));
  return state;
}
static inline void float_states_write(uint64_t state) { __asm__ volatile("msr fpcr, %0" ::"r"(state)); }
static inline uint64_t float_states_at(int index) {
  uint64_t flushes = (uint64_t)(index >> 2 & 1), one_nan = (uint64_t)(index >> 3 & 1), traps = (uint64_t)(index >> 4);
  return (uint64_t)(index & 3) << 22 | flushes << 24 | flushes << 19 | one_nan << 25 | (traps ? 0x1f00 : 0);
}
#endif

/* Sets state `index`, and returns what the processor has made of it. */
static inline uint64_t float_states_enter(int index) {
  float_states_write(float_states_at(index));
  return float_states_read();
}

/* 1 where the state is as entered; the default is back in any case. */
static inline int float_states_leave(uint64_t entered) {
  uint64_t left = float_states_read();
#if defined(__x86_64__)
  float_states_write(0x1f80);
#else
  float_states_write(0);
#endif
  return left == entered;
}

/* 1 where the state changes what arithmetic gives: rounding, or what becomes of a denormal. */
static inline int float_states_matter(int index) {
  volatile float one = 1, tiny = 0x1p-30f, small = 0x1p-126f, half = 0.5f, results[4];
  results[0] = one + tiny;
  results[1] = -one - tiny;
  results[2] = small * half;
  results[3] = -one + tiny;
  uint64_t entered = float_states_enter(index & 15); /* these raise flags, and are not to trap */
  volatile float above = one + tiny, below = -one - tiny, flushed = small * half, towards = -one + tiny;
  float_states_leave(entered);
  return above != results[0] || below != results[1] || flushed != results[2] || towards != results[3];
}

#endif
