/* float_state.h: one state of the processor's floating-point unit for all arithmetic of kernels and of libpegen: round
 * to nearest, denormals kept, exceptions masked. Callers may have set another (fesetround, flush-to-zero), which would
 * cost the last digits of phases a factor of a thousand; it is set aside and given back.
 *
 * Arithmetic stands in a function of its own that the compiler cannot see into where the state is set, or it could move
 * an operation past that. Shared by the driver and the runtime; freestanding.
 */
#pragma once

#include <stdint.h>

#if defined(__x86_64__)

/* Control bits of MXCSR: denormals are zero (6), exceptions masked (7 to 12), rounding (13, 14), flush to zero (15).
 * Bits 0 to 5 are the flags that exceptions leave, which stay raised as after any arithmetic of C. */
enum { PEGEN_FLOAT_CONTROL = 0xffc0, PEGEN_FLOAT_OURS = 0x1f80, PEGEN_FLOAT_FLAGS = 0x3f };

static inline uint64_t pegen_float_get(void) {
  uint32_t state;
  __asm__ volatile("stmxcsr %0" : "=m"(state)::"memory");
  return state;
}

static inline void pegen_float_set(uint64_t state) {
  uint32_t word = (uint32_t)state;
  __asm__ volatile("ldmxcsr %0" ::"m"(word) : "memory");
}

#elif defined(__aarch64__)

/* FPCR has control bits alone: 0 is round to nearest, nothing flushed, no trap. Flags are in another register. */
#define PEGEN_FLOAT_CONTROL (~(uint64_t)0)
enum { PEGEN_FLOAT_OURS = 0, PEGEN_FLOAT_FLAGS = 0 };

static inline uint64_t pegen_float_get(void) {
  uint64_t state;
  __asm__ volatile("mrs %0, fpcr" : "=r"(state)::"memory");
  return state;
}

static inline void pegen_float_set(uint64_t state) { __asm__ volatile("msr fpcr, %0" ::"r"(state) : "memory"); }

#else /* no kernels for it; the runtime leaves the state alone */

enum { PEGEN_FLOAT_CONTROL = 0, PEGEN_FLOAT_OURS = 0, PEGEN_FLOAT_FLAGS = 0 };
static inline uint64_t pegen_float_get(void) { return 0; }
static inline void pegen_float_set(uint64_t state) { (void)state; }

#endif

static inline int pegen_float_is_ours(uint64_t state) { return (state & PEGEN_FLOAT_CONTROL) == PEGEN_FLOAT_OURS; }

/* Returns what pegen_float_end takes. Writing the state waits for all arithmetic under way, so it is written only where
 * it differs. */
static inline uint64_t pegen_float_begin(void) {
  uint64_t found = pegen_float_get();
  if (!pegen_float_is_ours(found)) pegen_float_set((found & ~(uint64_t)PEGEN_FLOAT_CONTROL) | PEGEN_FLOAT_OURS);
  return found;
}

static inline void pegen_float_end(uint64_t found) {
  if (!pegen_float_is_ours(found)) pegen_float_set(found | (pegen_float_get() & PEGEN_FLOAT_FLAGS));
}
