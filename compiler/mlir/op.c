/* mlir/op: ops by name through MlirOperationState; see mlir/op.h. */
#include "mlir/op.h"

#include "base/diag.h"

#include <mlir-c/BuiltinAttributes.h>

MlirStringRef op_text(const char *s) { return mlirStringRefCreateFromCString(s); }

op op_start(ir *b, const char *name, int count, const ir_value *operands) {
  op o = {.b = b, .name = name};
  for (int i = 0; i < count; i++) op_operand(&o, operands[i]);
  return o;
}

void op_operand(op *o, ir_value v) {
  if (o->n_operands == OP_MAX_OPERANDS) diag_bug("ir", "'%s': more than %d operands", o->name, OP_MAX_OPERANDS);
  o->operands[o->n_operands++] = v;
}

void op_result(op *o, MlirType type) {
  if (o->n_results == IR_MAX_RESULTS) diag_bug("ir", "'%s': more than %d results", o->name, IR_MAX_RESULTS);
  o->results[o->n_results++] = type;
}

void op_region(op *o, MlirBlock first) {
  MlirRegion region = o->regions[o->n_regions++] = mlirRegionCreate();
  if (!mlirBlockIsNull(first)) mlirRegionAppendOwnedBlock(region, first);
}

void op_attribute(op *o, const char *name, MlirAttribute attribute) {
  if (mlirAttributeIsNull(attribute)) diag_bug("ir", "'%s': bad attribute '%s'", o->name, name);
  o->attributes[o->n_attributes++] = mlirNamedAttributeGet(mlirIdentifierGet(o->b->context, op_text(name)), attribute);
}

MlirAttribute op_parse_attribute(ir *b, const char *source) {
  return mlirAttributeParseGet(b->context, op_text(source));
}

MlirOperation op_finish(op *o) {
  MlirOperationState state = mlirOperationStateGet(op_text(o->name), o->b->location);
  mlirOperationStateAddOperands(&state, o->n_operands, o->operands);
  mlirOperationStateAddResults(&state, o->n_results, o->results);
  mlirOperationStateAddAttributes(&state, o->n_attributes, o->attributes);
  if (o->n_regions) mlirOperationStateAddOwnedRegions(&state, o->n_regions, o->regions);
  MlirOperation operation = mlirOperationCreate(&state);
  if (mlirOperationIsNull(operation)) diag_bug("ir", "could not make '%s'", o->name);
  mlirBlockAppendOwnedOperation(o->b->block, operation);
  return operation;
}

ir_value op_value(op *o, MlirType result) {
  op_result(o, result);
  return mlirOperationGetResult(op_finish(o), 0);
}

ir_value op_made(ir *b, const char *name, MlirType result, int count, const ir_value *operands) {
  op o = op_start(b, name, count, operands);
  return op_value(&o, result);
}

MlirAttribute op_i32(ir *b, int64_t value) { return mlirIntegerAttrGet(b->i32, value); }
