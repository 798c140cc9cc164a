/* cpu/names: what the functions of a target are called that others call: the object's descriptor, and each other. */
#pragma once

#include "base/number.h"
#include "target/processor.h"

/* emit_WORD_name(a, target): WORD_T. */
#define CPU_FUNCTIONS(X) \
  X(prepare) \
  X(rotor) X(rotor_own) X(values) X(unfold) X(scatter) X(collect) X(transpose) X(stream) X(bias) X(attend_dots)

/* emit_WORD_name(a, target, dtype): WORD_T_DTYPE. */
#define CPU_TYPED_FUNCTIONS(X) X(factors) X(norm) X(apply) X(act) X(wedge) X(gains) X(columns) X(unweigh)

#define X(word) \
  static inline const char *emit_##word##_name(arena *a, const cpu_target *target) { \
    return arena_printf(a, #word "_%s", target->suffix); \
  }
CPU_FUNCTIONS(X)
#undef X

#define X(word) \
  static inline const char *emit_##word##_name(arena *a, const cpu_target *target, int dtype) { \
    return arena_printf(a, #word "_%s_%s", target->suffix, number_name(dtype)); \
  }
CPU_TYPED_FUNCTIONS(X)
#undef X

static inline const char *emit_encode_name(arena *a, const cpu_target *target, int dtype, bool streaming) {
  return arena_printf(a, "encode_%s_%s_%s", target->suffix, number_name(dtype), streaming ? "streaming" : "cached");
}
/* Rows in bfloat16 that the processor rounds itself, by PEGEN_ROUNDING_; the function for normalised rows takes others,
 * too. */
static inline const char *emit_rounding_encode_name(arena *a, const cpu_target *target, int kind) {
  static const char *const words[] = {"cached", "streaming", "normalised"};
  return arena_printf(a, "encode_%s_bf16_rounding_%s", target->suffix, words[kind]);
}
/* An encode function of rows that turn by inputs, for calls in which heads share them. */
static inline const char *emit_of_tokens_name(arena *a, const char *encode) {
  return arena_printf(a, "%s_of_tokens", encode);
}
static inline const char *emit_rounding_apply_name(arena *a, const cpu_target *target) {
  return arena_printf(a, "apply_%s_bf16_rounding", target->suffix);
}
/* encode_T_IN_OUT, convert_T_IN_OUT (cpu/plain.h): rows that are read as one number type and written as another. */
static inline const char *emit_converting_name(arena *a, const cpu_target *target, int in, int out) {
  return arena_printf(a, "encode_%s_%s_%s", target->suffix, number_name(in), number_name(out));
}
static inline const char *emit_convert_name(arena *a, const cpu_target *target, int in, int out) {
  return arena_printf(a, "convert_%s_%s_%s", target->suffix, number_name(in), number_name(out));
}
