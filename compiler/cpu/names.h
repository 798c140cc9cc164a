/* cpu/names: what the functions of a target are called that others call: the object's descriptor, and each other. */
#ifndef PEGEN_CPU_NAMES_H
#define PEGEN_CPU_NAMES_H

#include "target/processor.h"

const char *emit_rotor_name(arena *a, const cpu_target *target);
const char *emit_rotor_own_name(arena *a, const cpu_target *target);
const char *emit_values_name(arena *a, const cpu_target *target);
const char *emit_unfold_name(arena *a, const cpu_target *target);
const char *emit_prepare_name(arena *a, const cpu_target *target);
const char *emit_encode_name(arena *a, const cpu_target *target, int dtype, bool streaming);
/* The function for rows that are read as one number type and written as another. */
const char *emit_converting_name(arena *a, const cpu_target *target, int in, int out);
/* The function for rows that are not encoded (cpu/plain.h). */
const char *emit_factors_name(arena *a, const cpu_target *target, int dtype);
const char *emit_norm_name(arena *a, const cpu_target *target, int dtype);
const char *emit_convert_name(arena *a, const cpu_target *target, int in, int out);

#endif
