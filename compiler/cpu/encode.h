/* cpu/encode: the loops over tokens, heads and tensors of one target, number type and kind of store. */
#pragma once

#include "cpu/rotors.h"
#include "program/program.h"

/* What emit_encode's functions of a target read, before any of them. */
void emit_encode_tables(ir *b, arena *a, const spec *s, const cpu_target *target);
/* Rows of one number type, written as it, or as either it or `out`, and normalised first or not (where it normalises
 * at all), as a call says of q and of k.
 * scheduled: of cpu_schedule; row: of its evals and matrices. */
void emit_encode(ir *b, arena *a, const program *scheduled, const row_code *row, const cpu_target *target, int dtype,
                 int out, bool streaming, bool normalises);
/* Float32 rows in the caches, the rotors of at most so many tokens (of heads of them) at a time, which stand on the
 * stack. */
void emit_encode_few(ir *b, arena *a, const program *scheduled, const row_code *row, const cpu_target *target,
                     int most);
/* Rows' gradients and what operands and positions gain of them; row: of the transposed matrices. */
typedef struct gradient_code gradient_code;
void emit_encode_gradient(ir *b, arena *a, const program *scheduled, const row_code *row, const cpu_target *target,
                          int dtype, const gradient_code *gradient);
