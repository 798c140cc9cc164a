/* cpu/chunk: expressions of a chunk of blocks, with the blocks in the lanes. */
#pragma once

#include "mlir/expr.h"
#include "plan/plan.h"
#include "target/processor.h"

/* Where the values of one chunk of blocks come from. Either leaves (in prepare) or prepared and
 * positions (in rotor) are given. What is the same for all blocks is a scalar, computed once. */
typedef struct chunk_emitter {
  expr_walker walker; /* first: a leaf is asked for by it */
  ir *b;
  arena *memory;
  const plan *p;
  const cpu_target *target;
  int begin, width;    /* the chunk: blocks begin .. begin + width - 1; lanes past the last block repeat it */
  ir_value shift;      /* i64: blocks from `begin` on to the chunk at hand, in a loop over chunks; ptr NULL: none */
  bool *has_table;     /* [2 * nodes]: tables that are in the module already, float64 and float32 */
  bool has_leaves;     /* in prepare: read leaves; else prepared values */
  ir_value leaves;     /* double [leaf][lanes] */
  ir_value prepared;   /* char: prepared value i at i * lanes * 8 */
  ir_value *positions; /* [axes] scalars, float64 */
  const ir_value *input; /* [inputs] pointers to the query's rows */
  int input_dtype;       /* number_type of all of them */
  ir_value cotangents;   /* double [cotangent - first][lanes] */
  int first_cotangent;
} chunk_emitter;

/* Makes an emitter for blocks begin .. begin + width - 1 (width 0: block `begin`, scalars); where values come from is
 * the caller's to say. has_table [2 * nodes] belongs to the module and the target. */
chunk_emitter chunk_emitter_create(ir *b, arena *a, const plan *p, const cpu_target *target, bool *has_table, int begin,
                                   int width);
/* Where the chunk's part of prepared value i lies, of the prepared values at base. */
ir_value emit_prepared_at(chunk_emitter *e, ir_value base, int i);
/* Whether the heads of one of a row's parts are alike, though another's are not: its coefficients are those of a run's
 * first head. */
bool emit_is_shared(const plan *p);
