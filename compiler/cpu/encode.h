/* cpu/encode: the loops over tokens, heads and tensors of one target, number type and kind of store. */
#ifndef PEGEN_CPU_ENCODE_H
#define PEGEN_CPU_ENCODE_H

#include "cpu/rotors.h"
#include "program/program.h"

/* Coordinates of a token as float64 [axes] at out: those of the call's positions or of the built-in grid. */
void emit_token_position(ir *b, const spec *s, ir_value loop, ir_value token, ir_value out);
/* The same and, behind them, the side where rows of q and k differ (spec_side): float64 [emit_place_numbers]. */
void emit_token_place(ir *b, const spec *s, ir_value loop, ir_value token, ir_value out);
int emit_place_numbers(const spec *s);

/* Rows of one number type, written as it, or as either it or `out`, as a call says of q and of k.
 * scheduled: of cpu_schedule; p: of its evals and matrices. */
void emit_encode(ir *b, arena *a, const program *scheduled, const plan *p, const plan_tile *t, const cpu_target *target,
                 int dtype, int out, bool streaming);
/* Float32 rows in the caches, the rotors of at most so many tokens (of heads of them) at a time, which stand on the
 * stack. */
void emit_encode_few(ir *b, arena *a, const program *scheduled, const plan *p, const plan_tile *t,
                     const cpu_target *target, int most);
/* Rows' gradients and what operands and positions gain of them; p: the plan of the transposed matrices. */
typedef struct gradient_code gradient_code;
void emit_encode_gradient(ir *b, arena *a, const program *scheduled, const plan *p, const plan_tile *t,
                          const cpu_target *target, int dtype, const gradient_code *gradient);

#endif
