/* mlir/op: one op of MLIR by name, put together operand by operand: what the builder (mlir/ir.h) is made of. */
#pragma once

#include "mlir/ir.h"

enum {
  OP_MAX_OPERANDS = IR_MAX_RESULTS + 4,
  OP_MAX_ATTRIBUTES = 12
}; /* a loop's bounds and step, and what goes from turn to turn */

typedef struct op {
  ir *b;
  const char *name;
  int n_operands, n_results, n_attributes;
  MlirValue operands[OP_MAX_OPERANDS];
  MlirType results[IR_MAX_RESULTS];
  MlirNamedAttribute attributes[OP_MAX_ATTRIBUTES];
  MlirRegion regions[2];
  int n_regions;
} op;

/* A count and an array of values: OPERANDS(x, y). */
#define OPERANDS(...) \
  (int)(sizeof((ir_value[]){__VA_ARGS__}) / sizeof(ir_value)), (ir_value[]) { __VA_ARGS__ }

/* What does not fit, what MLIR cannot read, and an op that it does not make are the compiler's own bugs. */
op op_start(ir *b, const char *name, int count, const ir_value *operands);
void op_operand(op *o, ir_value v);
void op_result(op *o, MlirType type);
void op_region(op *o, MlirBlock first); /* of a null block: one without blocks */
void op_attribute(op *o, const char *name, MlirAttribute attribute);
MlirOperation op_finish(op *o);            /* at the end of the block that is open */
ir_value op_value(op *o, MlirType result); /* the same, of one result: its value */
ir_value op_made(ir *b, const char *name, MlirType result, int count,
                 const ir_value *operands); /* without attributes */

MlirStringRef op_text(const char *s);
MlirAttribute op_parse_attribute(ir *b, const char *source); /* as MLIR's assembly writes it */
MlirAttribute op_i32(ir *b, int64_t value);
