/* cpu/rotors: from the program to MLIR for one CPU target.
 *
 * In: an encode program. Per target it emits, as internal functions with the target's suffix,
 *
 *     prepare_T(leaves, prepared)                    what depends on operands alone
 *     rotor_T(positions, prepared, coefficients)     a token's coefficient vectors
 *     rotor_own_T(positions, prepared, coefficients) those of parts whose heads differ, where other parts' are shared
 *     values_T(positions, prepared, values)          what a table holds of them
 *     unfold_T(values, coefficients)                 and back
 *     encode_T_DTYPE_STORE(loop)                     tokens, heads, q and k; see kernel/loop.h
 *     encode_T_IN_OUT(loop)                          the same, of rows that may be written as another type
 */
#pragma once

#include "base/number.h"
#include "cpu/chunk.h"
#include "cpu/names.h"
#include "plan/plan.h"
#include "program/program.h"
#include "target/processor.h"

/* encode: a program whose evals and matrices are of one plan. */
void emit_encoders(ir *b, arena *a, const program *encode, const cpu_target *target, unsigned dtypes);
/* Emits those of them that rotate float32 rows by their positions, in the caches: prepare_T, rotor_T,
 * encode_T_f32_cached. */
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
  /* For one of a row's parts: what comes behind it, and where its own begins, in bytes, in what the parts share:
   * leaves, what is prepared of them, a token's values and its coefficients. */
  const struct chunk_walk *next;
  const spec *whole; /* of positions */
  int64_t leaves, prepared, values, slots;
} chunk_walk;

/* A row's plan and its vectors, or those of each of its parts, in the order of their channels. */
typedef struct row_code {
  const spec *spec; /* of positions */
  int n_parts;
  struct {
    const plan *p;
    const plan_tile *t;
    int64_t slots; /* byte of a token's coefficients where its own begin */
  } part[SPEC_MAX_PARTS];
  int64_t slot_bytes; /* of a token, or of a head of it */
  int64_t prepared_bytes; /* of a head */
  const plan_tile *whole; /* vectors of all channels */
} row_code;
row_code emit_row_code(arena *a, const spec *s, const plan *const *plans, int count, const cpu_target *target);
/* Functions of all parts, of which each is a walk of its own: the first of a list. */
const chunk_walk *emit_walks_of(ir *b, arena *a, const row_code *row, const cpu_target *target);

chunk_walk emit_chunks_of(ir *b, arena *a, const plan *p, const plan_tile *t, const cpu_target *target);
/* What evaluates a chunk; where its values come from is the caller's to say. */
chunk_emitter emit_chunk(const chunk_walk *w, int chunk);
/* The body for each chunk, those that are alike by one code in a loop. */
typedef void chunk_body(const chunk_walk *w, chunk_emitter *e, const void *context);
void emit_each_chunk(const chunk_walk *w, chunk_body *body, const void *context);
/* A part's coordinates among the whole's `positions`: own, or, of no part, these. */
ir_value *emit_place_of_part(const chunk_walk *w, ir_value *positions, ir_value *own);
/* prepare_T of a plan that has leaves. These and rotor_T are of a walk and of all that are behind it. */
void emit_prepare(const chunk_walk *w);
/* rotor_T and rotor_own_T, unfold_T. */
void emit_unfold(const chunk_walk *w);
void emit_rotor(const chunk_walk *w);
/* A change of basis, as NAME(matrix, coefficients, out): a token's turns times a matrix of the whole head, whose
 * columns are turned as rows are (kernel/dense.h). Each of them is `size` float32 that lie one behind the other,
 * `stride` and in `out` `out_stride` numbers apart; coefficients: rotor_T's vectors. */
void emit_turned_columns(const chunk_walk *w, int size, int stride, int out_stride, const char *name);
/* Bytes of a token's coefficient vectors. */
int64_t emit_coefficient_bytes(arena *a, const plan *p, const cpu_target *target);

/* Bytes that values_T writes: float32 [n_values][lanes], a multiple of 64. */
int64_t emit_values_bytes(const plan *p);
/* Bytes `prepare` writes per head, a multiple of 64. */
int64_t emit_prepared_bytes(const plan *p);
