/* mlir/ir: a module, its types, constants, arithmetic and control; see mlir/ir.h. Functions are in ir_function.c,
 * memory in ir_memory.c. */
#include "mlir/ir.h"

#include "base/diag.h"
#include "mlir/compat.h"
#include "mlir/op.h"
#include "mlir/register.h"

#include <mlir-c/BuiltinAttributes.h>
#include <mlir-c/BuiltinTypes.h>
#include <mlir-c/Diagnostics.h>
#include <mlir-c/Dialect/LLVM.h>
#include <stdio.h>
#include <string.h>

static void print_chunk(MlirStringRef chunk, void *out) { fwrite(chunk.data, 1, chunk.length, out); }

static MlirLogicalResult on_diagnostic(MlirDiagnostic diagnostic, void *unused) {
  (void)unused;
  if (mlirDiagnosticGetSeverity(diagnostic) == MlirDiagnosticError) {
    mlirDiagnosticPrint(diagnostic, print_chunk, stderr);
    fputc('\n', stderr);
  }
  return mlirLogicalResultSuccess();
}

void ir_create(ir *b, const char *file, int line) {
  memset(b, 0, sizeof *b);
  b->context = register_dialects();
  mlirContextAttachDiagnosticHandler(b->context, on_diagnostic, NULL, NULL);
  b->location = mlirLocationFileLineColGet(b->context, op_text(file), (unsigned)line, 1);
  b->module = mlirModuleCreateEmpty(b->location);
  b->block = b->symbols = mlirModuleGetBody(b->module);
  b->ptr = mlirLLVMPointerTypeGet(b->context, 0);
  b->i1 = mlirIntegerTypeGet(b->context, 1);
  b->i8 = mlirIntegerTypeGet(b->context, 8);
  b->i16 = mlirIntegerTypeGet(b->context, 16);
  b->i32 = mlirIntegerTypeGet(b->context, 32);
  b->i64 = mlirIntegerTypeGet(b->context, 64);
  b->f16 = mlirF16TypeGet(b->context);
  b->bf16 = mlirBF16TypeGet(b->context);
  b->f32 = mlirF32TypeGet(b->context);
  b->f64 = mlirF64TypeGet(b->context);
}

void ir_destroy(ir *b) {
  if (!mlirModuleIsNull(b->module)) mlirModuleDestroy(b->module);
  if (!mlirContextIsNull(b->context)) mlirContextDestroy(b->context);
}

MlirType ir_vector(ir *b, int lanes, MlirType element) {
  int64_t shape[1] = {lanes};
  MlirType type = mlirVectorTypeGetChecked(b->location, 1, shape, element);
  if (mlirTypeIsNull(type)) diag_bug("ir", "no vector of %d lanes", lanes);
  return type;
}

MlirType ir_type(ir_value v) { return mlirValueGetType(v); }

int ir_lanes(ir_value v) {
  MlirType type = ir_type(v);
  return mlirTypeIsAVector(type) ? (int)mlirShapedTypeGetDimSize(type, 0) : 0;
}

bool ir_is_float(ir_value v) {
  MlirType type = ir_type(v);
  return mlirTypeIsAFloat(mlirTypeIsAVector(type) ? mlirShapedTypeGetElementType(type) : type);
}

MlirType ir_like(ir *b, ir_value v, MlirType element) {
  int lanes = ir_lanes(v);
  return lanes ? ir_vector(b, lanes, element) : element;
}

/* ---- constants ---- */

static ir_value constant(ir *b, MlirType type, MlirAttribute value) {
  op o = op_start(b, "arith.constant", 0, NULL);
  op_attribute(&o, "value", value);
  return op_value(&o, type);
}

static MlirType element_of(MlirType type) {
  return mlirTypeIsAVector(type) ? mlirShapedTypeGetElementType(type) : type;
}

ir_value ir_int(ir *b, MlirType type, int64_t value) {
  /* A constant above the signed range is meant as bits. */
  if (mlirIntegerTypeGetWidth(element_of(type)) == 32) value = (int32_t)value;
  MlirAttribute scalar = mlirIntegerAttrGet(element_of(type), value);
  return constant(b, type, mlirTypeIsAVector(type) ? mlirDenseElementsAttrSplatGet(type, scalar) : scalar);
}

ir_value ir_float(ir *b, MlirType type, double value) {
  MlirAttribute scalar = mlirFloatAttrDoubleGet(b->context, element_of(type), value);
  return constant(b, type, mlirTypeIsAVector(type) ? mlirDenseElementsAttrSplatGet(type, scalar) : scalar);
}

ir_value ir_floats(ir *b, MlirType vector, const double *values) {
  int lanes = (int)mlirShapedTypeGetDimSize(vector, 0);
  bool splat = true;
  for (int i = 1; i < lanes; i++) splat = splat && memcmp(&values[i], &values[0], sizeof *values) == 0;
  if (splat) return ir_float(b, vector, values[0]);
  MlirAttribute attributes[64];
  if (lanes > 64) diag_bug("ir", "a constant of %d lanes", lanes);
  for (int i = 0; i < lanes; i++) attributes[i] = mlirFloatAttrDoubleGet(b->context, element_of(vector), values[i]);
  return constant(b, vector, mlirDenseElementsAttrGet(vector, lanes, attributes));
}

ir_value ir_bools(ir *b, int lanes, const bool *values) {
  MlirAttribute attributes[64];
  if (lanes > 64) diag_bug("ir", "a mask of %d lanes", lanes);
  for (int i = 0; i < lanes; i++) attributes[i] = mlirIntegerAttrGet(b->i1, values[i]);
  MlirType type = ir_vector(b, lanes, b->i1);
  return constant(b, type, mlirDenseElementsAttrGet(type, lanes, attributes));
}

/* ---- arithmetic ---- */

/* Products and sums may contract to fused multiply-adds; nothing else of fast-math is allowed. */
static void allow_contraction(op *o) {
  if (o->b->exact) return;
  if (!strcmp(o->name, "arith.mulf") || !strcmp(o->name, "arith.addf") || !strcmp(o->name, "arith.subf"))
    op_attribute(o, "fastmath", op_parse_attribute(o->b, "#arith.fastmath<contract>"));
}

ir_value ir_op1(ir *b, const char *name, ir_value x) { return op_made(b, name, ir_type(x), OPERANDS(x)); }

ir_value(ir_op2)(ir *b, const char *name, ir_value x, ir_value y) {
  op o = op_start(b, name, OPERANDS(x, y));
  allow_contraction(&o);
  return op_value(&o, ir_type(x));
}

ir_value ir_cast(ir *b, const char *name, ir_value x, MlirType element) {
  return op_made(b, name, ir_like(b, x, element), OPERANDS(x));
}

ir_value ir_bitcast_lanes(ir *b, ir_value x, MlirType vector) {
  return op_made(b, "vector.bitcast", vector, OPERANDS(x));
}

static ir_value compare(ir *b, const char *name, int64_t predicate, ir_value x, ir_value y) {
  op o = op_start(b, name, OPERANDS(x, y));
  op_attribute(&o, "predicate", mlirIntegerAttrGet(b->i64, predicate));
  return op_value(&o, ir_like(b, x, b->i1));
}

static int64_t find(const char *const *names, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (!strcmp(names[i], name)) return i;
  diag_bug("ir", "no predicate '%s'", name);
}

ir_value(ir_compare_float)(ir *b, const char *predicate, ir_value x, ir_value y) {
  static const char *const names[] = {"false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord",
                                      "ueq",   "ugt", "uge", "ult", "ule", "une", "uno"};
  return compare(b, "arith.cmpf", find(names, 15, predicate), x, y);
}

ir_value(ir_compare_int)(ir *b, const char *predicate, ir_value x, ir_value y) {
  static const char *const names[] = {"eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"};
  return compare(b, "arith.cmpi", find(names, 10, predicate), x, y);
}

ir_value(ir_select)(ir *b, ir_value condition, ir_value x, ir_value y) {
  return op_made(b, "arith.select", ir_type(x), OPERANDS(condition, x, y));
}

ir_value(ir_fma)(ir *b, ir_value x, ir_value y, ir_value z) {
  return op_made(b, ir_lanes(x) ? "vector.fma" : "math.fma", ir_type(x), OPERANDS(x, y, z));
}

ir_value ir_broadcast(ir *b, MlirType vector, ir_value scalar) {
  return op_made(b, "vector.broadcast", vector, OPERANDS(scalar));
}

ir_value ir_shuffle(ir *b, ir_value x, ir_value y, int lanes, const int64_t *mask) {
  op o = op_start(b, "vector.shuffle", OPERANDS(x, y));
  op_attribute(&o, "mask", mlir_compat_shuffle_mask(b->context, lanes, mask));
  return op_value(&o, ir_vector(b, lanes, element_of(ir_type(x))));
}

ir_value ir_extract(ir *b, ir_value vector, int lane) {
  int64_t position[1] = {lane};
  op o = op_start(b, "vector.extract", OPERANDS(vector));
  op_attribute(&o, "static_position", mlirDenseI64ArrayGet(b->context, 1, position));
  return op_value(&o, element_of(ir_type(vector)));
}

ir_value ir_elements(ir *b, MlirType vector, int count, const ir_value *values) {
  return op_made(b, "vector.from_elements", vector, count, values);
}

/* ---- control ---- */

static void yield_values(ir *b, int count, const ir_value *values) {
  op o = op_start(b, "scf.yield", count, values);
  op_finish(&o);
}

static void yield(ir *b) { yield_values(b, 0, NULL); }

ir_loop(ir_for_with)(ir *b, ir_value begin, ir_value end, int count, const ir_value *initial, ir_value *current) {
  ir_value step = ir_int(b, b->i64, 1);
  op o = op_start(b, "scf.for", OPERANDS(begin, end, step));
  MlirType types[1 + IR_MAX_RESULTS] = {b->i64};
  MlirLocation locations[1 + IR_MAX_RESULTS] = {b->location};
  for (int i = 0; i < count; i++) {
    op_operand(&o, initial[i]);
    op_result(&o, ir_type(initial[i]));
    types[i + 1] = ir_type(initial[i]);
    locations[i + 1] = b->location;
  }
  MlirBlock body = mlirBlockCreate(count + 1, types, locations);
  op_region(&o, body);
  ir_loop loop = {b->block, mlirBlockGetArgument(body, 0), op_finish(&o)};
  for (int i = 0; i < count; i++) current[i] = mlirBlockGetArgument(body, i + 1);
  b->block = body;
  return loop;
}

void ir_end_for_with(ir *b, ir_loop loop, int count, const ir_value *next, ir_value *results) {
  yield_values(b, count, next);
  for (int i = 0; i < count; i++) results[i] = mlirOperationGetResult(loop.operation, i);
  b->block = loop.outer;
}

ir_loop(ir_for)(ir *b, ir_value begin, ir_value end) { return ir_for_with(b, begin, end, 0, NULL, NULL); }
void ir_end_for(ir *b, ir_loop loop) { ir_end_for_with(b, loop, 0, NULL, NULL); }

ir_choice ir_choose(ir *b, ir_value condition, int count, const MlirType *types) {
  op o = op_start(b, "scf.if", OPERANDS(condition));
  for (int i = 0; i < count; i++) op_result(&o, types[i]);
  MlirBlock blocks[2];
  for (int i = 0; i < 2; i++) op_region(&o, blocks[i] = mlirBlockCreate(0, NULL, NULL));
  ir_choice choice = {b->block, blocks[1], op_finish(&o)};
  b->block = blocks[0];
  return choice;
}

ir_choice ir_choose_alike(ir *b, ir_value condition, int count, MlirType type) {
  MlirType types[IR_MAX_RESULTS];
  for (int i = 0; i < count; i++) types[i] = type;
  return ir_choose(b, condition, count, types);
}

void ir_choose_else(ir *b, ir_choice *choice, int count, const ir_value *values) {
  yield_values(b, count, values);
  b->block = choice->otherwise;
}

void ir_end_choose(ir *b, ir_choice choice, int count, const ir_value *values, ir_value *results) {
  yield_values(b, count, values);
  for (int i = 0; i < count; i++) results[i] = mlirOperationGetResult(choice.operation, i);
  b->block = choice.outer;
}

ir_branch ir_if(ir *b, ir_value condition) {
  ir_choice choice = ir_choose(b, condition, 0, NULL);
  return (ir_branch){choice.outer, choice.otherwise};
}

void ir_else(ir *b, ir_branch *branch) {
  yield(b);
  b->block = branch->otherwise;
  branch->otherwise = (MlirBlock){NULL};
}

void ir_end_if(ir *b, ir_branch branch) {
  yield(b);
  if (branch.otherwise.ptr) {
    b->block = branch.otherwise;
    yield(b);
  }
  b->block = branch.outer;
}
