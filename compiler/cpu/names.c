/* cpu/names: see cpu/names.h. */
#include "cpu/names.h"

#include "base/number.h"

const char *emit_prepare_name(arena *a, const cpu_target *target) {
  return arena_printf(a, "prepare_%s", target->suffix);
}

const char *emit_converting_name(arena *a, const cpu_target *target, int in, int out) {
  return arena_printf(a, "encode_%s_%s_%s", target->suffix, number_name(in), number_name(out));
}

const char *emit_encode_name(arena *a, const cpu_target *target, int dtype, bool streaming) {
  return arena_printf(a, "encode_%s_%s_%s", target->suffix, number_name(dtype), streaming ? "streaming" : "cached");
}

const char *emit_rotor_own_name(arena *a, const cpu_target *target) {
  return arena_printf(a, "rotor_own_%s", target->suffix);
}

const char *emit_rotor_name(arena *a, const cpu_target *target) { return arena_printf(a, "rotor_%s", target->suffix); }

const char *emit_values_name(arena *a, const cpu_target *target) {
  return arena_printf(a, "values_%s", target->suffix);
}

const char *emit_unfold_name(arena *a, const cpu_target *target) {
  return arena_printf(a, "unfold_%s", target->suffix);
}

const char *emit_factors_name(arena *a, const cpu_target *target, int dtype) {
  return arena_printf(a, "factors_%s_%s", target->suffix, number_name(dtype));
}

const char *emit_norm_name(arena *a, const cpu_target *target, int dtype) {
  return arena_printf(a, "norm_%s_%s", target->suffix, number_name(dtype));
}

const char *emit_convert_name(arena *a, const cpu_target *target, int in, int out) {
  return arena_printf(a, "convert_%s_%s_%s", target->suffix, number_name(in), number_name(out));
}
