/* mlir/expr: expressions as vector code, blocks in the lanes. */
#ifndef PEGEN_MLIR_EXPR_H
#define PEGEN_MLIR_EXPR_H

#include "mlir/ir.h"
#include "object/target.h"
#include "plan/plan.h"

/* Where the values of one chunk of blocks come from. Either leaves (in prepare) or prepared and
 * positions (in rotor) are given. */
typedef struct expr_emitter {
  ir *b;
  arena *memory;
  const plan *p;
  int begin, width;    /* the chunk: blocks begin .. begin + width - 1; lanes past the last block repeat it */
  ir_value shift;      /* i64: blocks from `begin` on to the chunk at hand, in a loop over chunks; ptr NULL: none */
  const char *suffix;  /* of the names of constant tables, where there is a shift */
  bool *has_table;     /* [2 * nodes]: tables that are in the module already, float64 and float32 */
  bool has_fma;        /* the target multiplies and adds with one rounding */
  bool has_leaves;     /* in prepare: read leaves; else prepared values */
  ir_value leaves;     /* double [leaf][lanes] */
  ir_value prepared;   /* char: prepared value i at i * lanes * 8 */
  ir_value *positions; /* [axes] scalars, float64 */
  const ir_value *input; /* [inputs] pointers to the query's rows */
  int input_dtype;       /* number_type of all of them */
  const cpu_target *target; /* where inputs are read */
  ir_value *memo;      /* by expr id; zeroed */
} expr_emitter;

/* The value in the node's own type: lanes where it differs from block to block, else a scalar. */
ir_value emit_expr(expr_emitter *e, const expr *x);
/* The same, spread over the chunk's lanes where it is a scalar. */
ir_value emit_expr_lanes(expr_emitter *e, const expr *x);
/* An operation that one instruction does, of arguments v of one type, scalars or vectors. */
ir_value emit_arithmetic(ir *b, expr_op op, const ir_value *v);
/* The value as float32 lanes, constants included. */
ir_value emit_expr_f32(expr_emitter *e, const expr *x);
/* Where the chunk's part of prepared value i lies, of the prepared values at base. */
ir_value emit_prepared_at(expr_emitter *e, ir_value base, int i);

#endif
