/* cpu/rotors: from the program to MLIR for one CPU target.
 *
 * In: an encode program. Per target it emits, as internal functions with the target's suffix,
 *
 *     prepare_T(leaves, prepared)                    what depends on operands alone
 *     rotor_T(positions, prepared, coefficients)     a token's coefficient vectors
 *     values_T(positions, prepared, values)          what a table holds of them
 *     unfold_T(values, coefficients)                 and back
 *     encode_T_DTYPE_STORE(loop)                     tokens, heads, q and k; see kernel/loop.h
 *     encode_T_IN_OUT(loop)                          the same, of rows that may be written as another type
 */
#ifndef PEGEN_CPU_ROTORS_H
#define PEGEN_CPU_ROTORS_H

#include "base/number.h"
#include "cpu/chunk.h"
#include "cpu/names.h"
#include "plan/plan.h"
#include "program/program.h"
#include "target/processor.h"

/* encode: a program whose evals and matrices are of one plan. */
void emit_encoders(ir *b, arena *a, const program *encode, const cpu_target *target, unsigned dtypes);
/* Of them what turns float32 rows by their positions, in the caches: prepare_T, rotor_T, encode_T_f32_cached. */
void emit_float_encoder(ir *b, arena *a, const program *encode, const cpu_target *target);
/* Declarations of what the driver provides; once per module, before emit_encoders. */
void emit_encoder_imports(ir *b);

/* Chunks of blocks, one after the other: those that are alike by one code in a loop. */
typedef struct chunk_walk {
  ir *b;
  arena *memory;
  const plan *p;
  const plan_tile *t;
  const cpu_target *target;
  bool *has_table; /* see chunk_emitter */
} chunk_walk;

chunk_walk emit_chunks_of(ir *b, arena *a, const plan *p, const plan_tile *t, const cpu_target *target);
/* What evaluates a chunk; where its values come from is the caller's to say. */
chunk_emitter emit_chunk(const chunk_walk *w, int chunk);
/* Opens the loop over the first chunks that are alike; *e evaluates chunk 0, shifted to the one at hand. */
ir_loop emit_begin_chunks(const chunk_walk *w, chunk_emitter *e);
/* prepare_T of a plan that has leaves. */
void emit_prepare(const chunk_walk *w);
/* rotor_T, unfold_T. */
void emit_unfold(const chunk_walk *w);
void emit_rotor(const chunk_walk *w);

/* Bytes that values_T writes: float32 [n_values][lanes], a multiple of 64. */
int64_t emit_values_bytes(const plan *p);
/* Bytes `prepare` writes per head, a multiple of 64. */
int64_t emit_prepared_bytes(const plan *p);

#endif
