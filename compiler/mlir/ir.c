/* mlir/ir: ops by name through MlirOperationState; see mlir/ir.h. */
#include "mlir/ir.h"

#include "base/arena.h"
#include "base/diag.h"
#include "mlir/compat.h"
#include "mlir/register.h"

#include <mlir-c/BuiltinAttributes.h>
#include <mlir-c/BuiltinTypes.h>
#include <mlir-c/Diagnostics.h>
#include <mlir-c/Dialect/LLVM.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  MAX_OPERANDS = IR_MAX_RESULTS + 4,
  MAX_ATTRIBUTES = 12
}; /* a loop's bounds and step, and what goes from turn to turn */

static MlirStringRef text(const char *s) { return mlirStringRefCreateFromCString(s); }

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
  b->location = mlirLocationFileLineColGet(b->context, text(file), (unsigned)line, 1);
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

/* ---- ops ---- */

typedef struct op {
  ir *b;
  const char *name;
  int n_operands, n_results, n_attributes;
  MlirValue operands[MAX_OPERANDS];
  MlirType results[IR_MAX_RESULTS];
  MlirNamedAttribute attributes[MAX_ATTRIBUTES];
  MlirRegion regions[2];
  int n_regions;
} op;

static op op_start(ir *b, const char *name) { return (op){.b = b, .name = name}; }
static void op_operand(op *o, ir_value v) {
  if (o->n_operands == MAX_OPERANDS) diag_bug("ir", "'%s': more than %d operands", o->name, MAX_OPERANDS);
  o->operands[o->n_operands++] = v;
}

static void op_result(op *o, MlirType type) {
  if (o->n_results == IR_MAX_RESULTS) diag_bug("ir", "'%s': more than %d results", o->name, IR_MAX_RESULTS);
  o->results[o->n_results++] = type;
}

static void op_attribute(op *o, const char *name, MlirAttribute attribute) {
  if (mlirAttributeIsNull(attribute)) diag_bug("ir", "'%s': bad attribute '%s'", o->name, name);
  o->attributes[o->n_attributes++] = mlirNamedAttributeGet(mlirIdentifierGet(o->b->context, text(name)), attribute);
}

static MlirAttribute parse_attribute(ir *b, const char *source) {
  return mlirAttributeParseGet(b->context, text(source));
}

static MlirOperation op_finish(op *o) {
  MlirOperationState state = mlirOperationStateGet(text(o->name), o->b->location);
  mlirOperationStateAddOperands(&state, o->n_operands, o->operands);
  mlirOperationStateAddResults(&state, o->n_results, o->results);
  mlirOperationStateAddAttributes(&state, o->n_attributes, o->attributes);
  if (o->n_regions) mlirOperationStateAddOwnedRegions(&state, o->n_regions, o->regions);
  MlirOperation operation = mlirOperationCreate(&state);
  if (mlirOperationIsNull(operation)) diag_bug("ir", "could not make '%s'", o->name);
  mlirBlockAppendOwnedOperation(o->b->block, operation);
  return operation;
}

static ir_value op_value(op *o, MlirType result) {
  op_result(o, result);
  return mlirOperationGetResult(op_finish(o), 0);
}

static MlirAttribute i32_attribute(ir *b, int64_t value) { return mlirIntegerAttrGet(b->i32, value); }

/* ---- functions ---- */

static MlirType function_type(ir *b, MlirType result, int count, const MlirType *types) {
  MlirType returns = mlirTypeIsNull(result) ? mlirLLVMVoidTypeGet(b->context) : result;
  return mlirLLVMFunctionTypeGet(returns, count, types, false);
}

static void target_attributes(ir *b, op *o) {
  if (b->target_cpu) op_attribute(o, "target_cpu", mlirStringAttrGet(b->context, text(b->target_cpu)));
  if (b->target_features && *b->target_features) {
    /* "+a,+b" -> #llvm.target_features<["+a", "+b"]> */
    char source[1024] = "#llvm.target_features<[", *end = source + strlen(source);
    for (const char *p = b->target_features; *p && end < source + sizeof source - 80;) {
      size_t length = strcspn(p, ",");
      end += sprintf(end, "%s\"%.*s\"", end[-1] == '[' ? "" : ", ", (int)length, p);
      p += length + (p[length] == ',');
    }
    strcpy(end, "]>");
    op_attribute(o, "target_features", parse_attribute(b, source));
  }
}

static MlirOperation function_op(ir *b, const char *name, const char *linkage, bool noinline, MlirType type,
                                 MlirRegion body) {
  op o = op_start(b, "llvm.func");
  MlirBlock saved = b->block;
  b->block = b->symbols;
  op_attribute(&o, "sym_name", mlirStringAttrGet(b->context, text(name)));
  op_attribute(&o, "function_type", mlirTypeAttrGet(type));
  op_attribute(&o, "linkage", parse_attribute(b, linkage));
  op_attribute(&o, "CConv", parse_attribute(b, "#llvm.cconv<ccc>"));
  if (noinline) op_attribute(&o, "no_inline", mlirUnitAttrGet(b->context));
  op_attribute(&o, "no_unwind", mlirUnitAttrGet(b->context));
  /* An object imports nothing: no loop of stores becomes a call of memset. */
  op_attribute(&o, "passthrough", parse_attribute(b, "[\"no-builtins\"]"));
  target_attributes(b, &o);
  o.regions[0] = body;
  o.n_regions = 1;
  MlirOperation operation = op_finish(&o);
  b->block = saved;
  return operation;
}

/* A function's body with its entry block, whose arguments are handed out. */
static MlirRegion function_body(ir *b, int count, const MlirType *types, ir_value *arguments, MlirBlock *entry) {
  MlirLocation locations[IR_MAX_ARGUMENTS];
  for (int i = 0; i < count; i++) locations[i] = b->location;
  MlirRegion body = mlirRegionCreate();
  *entry = mlirBlockCreate(count, types, locations);
  mlirRegionAppendOwnedBlock(body, *entry);
  for (int i = 0; i < count; i++) arguments[i] = mlirBlockGetArgument(*entry, i);
  return body;
}

MlirOperation ir_function(ir *b, const char *name, bool noinline, MlirType result, int count, const MlirType *types,
                          ir_value *arguments) {
  MlirBlock entry;
  MlirRegion body = function_body(b, count, types, arguments, &entry);
  MlirOperation f =
      function_op(b, name, "#llvm.linkage<external>", noinline, function_type(b, result, count, types), body);
  b->block = entry;
  return f;
}

void ir_declare(ir *b, const char *name, MlirType result, int count, const MlirType *types) {
  function_op(b, name, "#llvm.linkage<external>", false, function_type(b, result, count, types), mlirRegionCreate());
}

void ir_return(ir *b) {
  op o = op_start(b, b->gpu ? "gpu.return" : "llvm.return");
  op_finish(&o);
  b->block = b->symbols;
}

/* Of a function by name, or (NULL) by the pointer among the arguments. */
static void call(ir *b, const char *name, int count, const ir_value *arguments) {
  op o = op_start(b, "llvm.call");
  for (int i = 0; i < count; i++) op_operand(&o, arguments[i]);
  int32_t segments[2] = {count, 0};
  if (name) op_attribute(&o, "callee", mlirFlatSymbolRefAttrGet(b->context, text(name)));
  op_attribute(&o, "operandSegmentSizes", mlirDenseI32ArrayGet(b->context, 2, segments));
  op_attribute(&o, "op_bundle_sizes", mlirDenseI32ArrayGet(b->context, 0, NULL));
  op_finish(&o);
}

void ir_call(ir *b, const char *name, int count, const ir_value *arguments) { call(b, name, count, arguments); }

void ir_call_pointer(ir *b, ir_value function, int count, const ir_value *arguments) {
  ir_value all[IR_MAX_ARGUMENTS] = {function};
  for (int i = 0; i < count; i++) all[1 + i] = arguments[i];
  call(b, NULL, 1 + count, all);
}

ir_value ir_intrinsic(ir *b, const char *name, MlirType result, int count, const ir_value *arguments) {
  op o = op_start(b, "llvm.call_intrinsic");
  for (int i = 0; i < count; i++) op_operand(&o, arguments[i]);
  int32_t segments[2] = {count, 0};
  op_attribute(&o, "intrin", mlirStringAttrGet(b->context, text(name)));
  op_attribute(&o, "operandSegmentSizes", mlirDenseI32ArrayGet(b->context, 2, segments));
  op_attribute(&o, "op_bundle_sizes", mlirDenseI32ArrayGet(b->context, 0, NULL));
  return op_value(&o, result);
}

/* ---- kernels ---- */

void ir_begin_gpu(ir *b, const ir_gpu *gpu, const char *chip) {
  op o = op_start(b, "gpu.module");
  op_attribute(&o, "sym_name", mlirStringAttrGet(b->context, text("kernels")));
  b->symbols = mlirBlockCreate(0, NULL, NULL);
  o.regions[0] = mlirRegionCreate();
  o.n_regions = 1;
  mlirRegionAppendOwnedBlock(o.regions[0], b->symbols);
  op_finish(&o);
  b->block = b->symbols;
  b->gpu = gpu;
  b->chip = chip;
  b->ptr = mlirLLVMPointerTypeGet(b->context, (unsigned)gpu->global_space);
}

void ir_kernel(ir *b, const char *name, int threads, int blocks, int count, const MlirType *types,
               ir_value *arguments) {
  const int32_t block[] = {threads, 1, 1};
  MlirBlock entry;
  op o = op_start(b, "gpu.func");
  op_attribute(&o, "sym_name", mlirStringAttrGet(b->context, text(name)));
  op_attribute(&o, "function_type", mlirTypeAttrGet(mlirFunctionTypeGet(b->context, count, types, 0, NULL)));
  op_attribute(&o, "gpu.kernel", mlirUnitAttrGet(b->context));
  if (b->gpu->threads) op_attribute(&o, b->gpu->threads, mlirDenseI32ArrayGet(b->context, 1, block));
  else op_attribute(&o, "known_block_size", mlirDenseI32ArrayGet(b->context, 3, block));
  if (blocks && b->gpu->blocks) op_attribute(&o, b->gpu->blocks, i32_attribute(b, blocks));
  o.regions[0] = function_body(b, count, types, arguments, &entry);
  o.n_regions = 1;
  b->block = b->symbols;
  op_finish(&o);
  b->block = entry;
}

ir_value ir_gpu_index(ir *b, const char *name, const char *dimension) {
  char source[32];
  snprintf(source, sizeof source, "#gpu<dim %s>", dimension);
  op o = op_start(b, name);
  op_attribute(&o, "dimension", parse_attribute(b, source));
  return ir_cast(b, "arith.index_castui", op_value(&o, mlirIndexTypeGet(b->context)), b->i32);
}

/* ---- constants ---- */

static ir_value constant(ir *b, MlirType type, MlirAttribute value) {
  op o = op_start(b, "arith.constant");
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
    op_attribute(o, "fastmath", parse_attribute(o->b, "#arith.fastmath<contract>"));
}

ir_value ir_op1(ir *b, const char *name, ir_value x) {
  op o = op_start(b, name);
  op_operand(&o, x);
  return op_value(&o, ir_type(x));
}

ir_value(ir_op2)(ir *b, const char *name, ir_value x, ir_value y) {
  op o = op_start(b, name);
  op_operand(&o, x);
  op_operand(&o, y);
  allow_contraction(&o);
  return op_value(&o, ir_type(x));
}

ir_value ir_cast(ir *b, const char *name, ir_value x, MlirType element) {
  op o = op_start(b, name);
  op_operand(&o, x);
  return op_value(&o, ir_like(b, x, element));
}

ir_value ir_bitcast_lanes(ir *b, ir_value x, MlirType vector) {
  op o = op_start(b, "vector.bitcast");
  op_operand(&o, x);
  return op_value(&o, vector);
}

static ir_value compare(ir *b, const char *name, int64_t predicate, ir_value x, ir_value y) {
  op o = op_start(b, name);
  op_operand(&o, x);
  op_operand(&o, y);
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
  op o = op_start(b, "arith.select");
  op_operand(&o, condition);
  op_operand(&o, x);
  op_operand(&o, y);
  return op_value(&o, ir_type(x));
}

ir_value(ir_fma)(ir *b, ir_value x, ir_value y, ir_value z) {
  op o = op_start(b, ir_lanes(x) ? "vector.fma" : "math.fma");
  op_operand(&o, x);
  op_operand(&o, y);
  op_operand(&o, z);
  return op_value(&o, ir_type(x));
}

ir_value ir_broadcast(ir *b, MlirType vector, ir_value scalar) {
  op o = op_start(b, "vector.broadcast");
  op_operand(&o, scalar);
  return op_value(&o, vector);
}

ir_value ir_shuffle(ir *b, ir_value x, ir_value y, int lanes, const int64_t *mask) {
  op o = op_start(b, "vector.shuffle");
  op_operand(&o, x);
  op_operand(&o, y);
  op_attribute(&o, "mask", mlir_compat_shuffle_mask(b->context, lanes, mask));
  return op_value(&o, ir_vector(b, lanes, element_of(ir_type(x))));
}

ir_value ir_extract(ir *b, ir_value vector, int lane) {
  int64_t position[1] = {lane};
  op o = op_start(b, "vector.extract");
  op_operand(&o, vector);
  op_attribute(&o, "static_position", mlirDenseI64ArrayGet(b->context, 1, position));
  return op_value(&o, element_of(ir_type(vector)));
}

ir_value ir_elements(ir *b, MlirType vector, int count, const ir_value *values) {
  op o = op_start(b, "vector.from_elements");
  for (int i = 0; i < count; i++) op_operand(&o, values[i]);
  return op_value(&o, vector);
}

/* ---- memory ---- */

static ir_value getelementptr(ir *b, ir_value pointer, ir_value *bytes, int64_t constant_bytes) {
  op o = op_start(b, "llvm.getelementptr");
  int32_t index[1] = {bytes ? INT32_MIN : (int32_t)constant_bytes};
  op_operand(&o, pointer);
  if (bytes) op_operand(&o, *bytes);
  op_attribute(&o, "rawConstantIndices", mlirDenseI32ArrayGet(b->context, 1, index));
  op_attribute(&o, "elem_type", mlirTypeAttrGet(b->i8));
  return op_value(&o, ir_type(pointer));
}

ir_value(ir_offset)(ir *b, ir_value pointer, ir_value bytes) { return getelementptr(b, pointer, &bytes, 0); }

ir_value ir_offset_const(ir *b, ir_value pointer, int64_t bytes) {
  return bytes == 0 ? pointer : getelementptr(b, pointer, NULL, bytes);
}

ir_value ir_pointer(ir *b, ir_value address) {
  op o = op_start(b, "llvm.inttoptr");
  op_operand(&o, address);
  return op_value(&o, b->ptr);
}

ir_value ir_address(ir *b, ir_value pointer) {
  op o = op_start(b, "llvm.ptrtoint");
  op_operand(&o, pointer);
  return op_value(&o, b->i64);
}

ir_value ir_load(ir *b, MlirType type, ir_value pointer, int alignment) {
  op o = op_start(b, "llvm.load");
  op_operand(&o, pointer);
  op_attribute(&o, "alignment", mlirIntegerAttrGet(b->i64, alignment));
  return op_value(&o, type);
}

void(ir_store)(ir *b, ir_value value, ir_value pointer, int alignment, bool nontemporal) {
  op o = op_start(b, "llvm.store");
  op_operand(&o, value);
  op_operand(&o, pointer);
  op_attribute(&o, "alignment", mlirIntegerAttrGet(b->i64, alignment));
  if (nontemporal) op_attribute(&o, "nontemporal", mlirUnitAttrGet(b->context));
  op_finish(&o);
}

void ir_prefetch(ir *b, ir_value pointer, int level) {
  op o = op_start(b, "llvm.intr.prefetch");
  op_operand(&o, pointer);
  op_attribute(&o, "rw", i32_attribute(b, 0));
  op_attribute(&o, "hint", i32_attribute(b, 4 - level));
  op_attribute(&o, "cache", i32_attribute(b, 1));
  op_finish(&o);
}

ir_value ir_alloca(ir *b, int64_t bytes, int alignment) {
  ir_value count = ir_int(b, b->i64, bytes);
  op o = op_start(b, "llvm.alloca");
  op_operand(&o, count);
  op_attribute(&o, "elem_type", mlirTypeAttrGet(b->i8));
  op_attribute(&o, "alignment", mlirIntegerAttrGet(b->i64, alignment));
  return op_value(&o, b->ptr);
}

static int address_space(ir *b) { return (int)mlirLLVMPointerTypeGetAddressSpace(b->ptr); }

static MlirType list_of(MlirType element, int count) {
  int64_t shape[1] = {count};
  return mlirRankedTensorTypeGet(1, shape, element, mlirAttributeGetNull());
}

static void table(ir *b, const char *name, int count, MlirType element, MlirAttribute values) {
  MlirBlock saved = b->block;
  b->block = b->symbols;
  op o = op_start(b, "llvm.mlir.global");
  op_attribute(&o, "sym_name", mlirStringAttrGet(b->context, text(name)));
  op_attribute(&o, "global_type", mlirTypeAttrGet(mlirLLVMArrayTypeGet(element, (unsigned)count)));
  op_attribute(&o, "linkage", parse_attribute(b, "#llvm.linkage<internal>"));
  op_attribute(&o, "constant", mlirUnitAttrGet(b->context));
  op_attribute(&o, "value", values);
  op_attribute(&o, "addr_space", i32_attribute(b, address_space(b)));
  op_attribute(&o, "alignment", mlirIntegerAttrGet(b->i64, 8));
  o.regions[0] = mlirRegionCreate();
  o.n_regions = 1;
  op_finish(&o);
  b->block = saved;
}

void ir_table(ir *b, const char *name, int count, const float *values, const int32_t *integers) {
  if (values) table(b, name, count, b->f32, mlirDenseElementsAttrFloatGet(list_of(b->f32, count), count, values));
  else table(b, name, count, b->i32, mlirDenseElementsAttrInt32Get(list_of(b->i32, count), count, integers));
}

void ir_table_floats(ir *b, const char *name, bool is_f32, int count, const double *values) {
  if (!is_f32) {
    table(b, name, count, b->f64, mlirDenseElementsAttrDoubleGet(list_of(b->f64, count), count, values));
    return;
  }
  float *narrow = arena_must(malloc(sizeof *narrow * (size_t)count));
  for (int i = 0; i < count; i++) narrow[i] = (float)values[i];
  ir_table(b, name, count, narrow, NULL);
  free(narrow);
}

static ir_value address_of(ir *b, const char *name, MlirType pointer) {
  op o = op_start(b, "llvm.mlir.addressof");
  op_attribute(&o, "global_name", mlirFlatSymbolRefAttrGet(b->context, text(name)));
  return op_value(&o, pointer);
}

ir_value ir_table_address(ir *b, const char *name) { return address_of(b, name, b->ptr); }
ir_value ir_function_address(ir *b, const char *name) { return address_of(b, name, b->ptr); }

static int shared_space(ir *b) { return b->gpu ? b->gpu->shared_space : 0; }

void ir_shared(ir *b, const char *name, int64_t bytes) {
  MlirBlock saved = b->block;
  b->block = b->symbols;
  op o = op_start(b, "llvm.mlir.global");
  op_attribute(&o, "sym_name", mlirStringAttrGet(b->context, text(name)));
  op_attribute(&o, "global_type", mlirTypeAttrGet(mlirLLVMArrayTypeGet(b->i8, (unsigned)bytes)));
  op_attribute(&o, "linkage", parse_attribute(b, "#llvm.linkage<internal>"));
  op_attribute(&o, "addr_space", i32_attribute(b, shared_space(b)));
  op_attribute(&o, "alignment", mlirIntegerAttrGet(b->i64, 16));
  o.regions[0] = mlirRegionCreate();
  o.n_regions = 1;
  op_finish(&o);
  b->block = saved;
}

ir_value ir_shared_address(ir *b, const char *name) {
  return address_of(b, name, mlirLLVMPointerTypeGet(b->context, (unsigned)shared_space(b)));
}

static void fence(ir *b, int64_t ordering) {
  op o = op_start(b, "llvm.fence");
  op_attribute(&o, "ordering", mlirIntegerAttrGet(b->i64, ordering));
  op_attribute(&o, "syncscope", mlirStringAttrGet(b->context, text(b->gpu->warp_scope)));
  op_finish(&o);
}

static void wait_for_warp(ir *b) {
  enum { ACQUIRE = 4, RELEASE = 5 }; /* of LLVM's atomic orderings */
  ir_value mask = b->gpu->has_mask ? ir_int(b, b->i32, -1) : (ir_value){NULL};
  const int32_t segments[2] = {b->gpu->has_mask, 0};
  if (b->gpu->warp_scope) fence(b, RELEASE);
  op o = op_start(b, "llvm.call_intrinsic");
  if (mask.ptr) op_operand(&o, mask);
  op_attribute(&o, "intrin", mlirStringAttrGet(b->context, text(b->gpu->warp_barrier)));
  op_attribute(&o, "operandSegmentSizes", mlirDenseI32ArrayGet(b->context, 2, segments));
  op_attribute(&o, "op_bundle_sizes", mlirDenseI32ArrayGet(b->context, 0, NULL));
  op_finish(&o);
  if (b->gpu->warp_scope) fence(b, ACQUIRE);
}

void ir_wait(ir *b, ir_barrier of) {
  if (b->host_wait) {
    ir_value which = ir_int(b, b->i32, of);
    ir_call(b, b->host_wait, 1, &which);
    return;
  }
  if (of == IR_BARRIER_WARP) {
    wait_for_warp(b);
    return;
  }
  op o = op_start(b, "gpu.barrier");
  op_finish(&o);
}

/* ---- control ---- */

static void yield_values(ir *b, int count, const ir_value *values) {
  op o = op_start(b, "scf.yield");
  for (int i = 0; i < count; i++) op_operand(&o, values[i]);
  op_finish(&o);
}

static void yield(ir *b) { yield_values(b, 0, NULL); }

ir_loop(ir_for_with)(ir *b, ir_value begin, ir_value end, int count, const ir_value *initial, ir_value *current) {
  ir_value step = ir_int(b, b->i64, 1);
  op o = op_start(b, "scf.for");
  op_operand(&o, begin);
  op_operand(&o, end);
  op_operand(&o, step);
  MlirType types[1 + IR_MAX_RESULTS] = {b->i64};
  MlirLocation locations[1 + IR_MAX_RESULTS] = {b->location};
  for (int i = 0; i < count; i++) {
    op_operand(&o, initial[i]);
    op_result(&o, ir_type(initial[i]));
    types[i + 1] = ir_type(initial[i]);
    locations[i + 1] = b->location;
  }
  MlirBlock body = mlirBlockCreate(count + 1, types, locations);
  o.regions[0] = mlirRegionCreate();
  mlirRegionAppendOwnedBlock(o.regions[0], body);
  o.n_regions = 1;
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
  op o = op_start(b, "scf.if");
  op_operand(&o, condition);
  for (int i = 0; i < count; i++) op_result(&o, types[i]);
  MlirBlock blocks[2];
  for (int i = 0; i < 2; i++) {
    blocks[i] = mlirBlockCreate(0, NULL, NULL);
    o.regions[i] = mlirRegionCreate();
    mlirRegionAppendOwnedBlock(o.regions[i], blocks[i]);
  }
  o.n_regions = 2;
  ir_choice choice = {b->block, blocks[1], op_finish(&o)};
  b->block = blocks[0];
  return choice;
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
