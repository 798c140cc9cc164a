/* mlir/ir_function: functions, their calls, and kernels; see mlir/ir.h. */
#include "mlir/op.h"

#include <mlir-c/BuiltinAttributes.h>
#include <mlir-c/BuiltinTypes.h>
#include <mlir-c/Dialect/LLVM.h>
#include <stdio.h>
#include <string.h>

static MlirType function_type(ir *b, MlirType result, int count, const MlirType *types) {
  MlirType returns = mlirTypeIsNull(result) ? mlirLLVMVoidTypeGet(b->context) : result;
  return mlirLLVMFunctionTypeGet(returns, count, types, false);
}

static void target_attributes(ir *b, op *o) {
  if (b->target_cpu) op_attribute(o, "target_cpu", mlirStringAttrGet(b->context, op_text(b->target_cpu)));
  if (b->target_features && *b->target_features) {
    /* "+a,+b" -> #llvm.target_features<["+a", "+b"]> */
    char source[1024] = "#llvm.target_features<[", *end = source + strlen(source);
    for (const char *p = b->target_features; *p && end < source + sizeof source - 80;) {
      size_t length = strcspn(p, ",");
      end += sprintf(end, "%s\"%.*s\"", end[-1] == '[' ? "" : ", ", (int)length, p);
      p += length + (p[length] == ',');
    }
    strcpy(end, "]>");
    op_attribute(o, "target_features", op_parse_attribute(b, source));
  }
}

static MlirOperation function_op(ir *b, const char *name, bool noinline, MlirType type, MlirBlock entry) {
  op o = op_start(b, "llvm.func", 0, NULL);
  MlirBlock saved = b->block;
  b->block = b->symbols;
  op_attribute(&o, "sym_name", mlirStringAttrGet(b->context, op_text(name)));
  op_attribute(&o, "function_type", mlirTypeAttrGet(type));
  op_attribute(&o, "linkage", op_parse_attribute(b, "#llvm.linkage<external>"));
  op_attribute(&o, "CConv", op_parse_attribute(b, "#llvm.cconv<ccc>"));
  if (noinline) op_attribute(&o, "no_inline", mlirUnitAttrGet(b->context));
  op_attribute(&o, "no_unwind", mlirUnitAttrGet(b->context));
  /* An object imports nothing: no loop of stores becomes a call of memset. */
  op_attribute(&o, "passthrough", op_parse_attribute(b, "[\"no-builtins\"]"));
  target_attributes(b, &o);
  op_region(&o, entry);
  MlirOperation operation = op_finish(&o);
  b->block = saved;
  return operation;
}

/* The entry block of a function, whose arguments are handed out. */
static MlirBlock entry_block(ir *b, int count, const MlirType *types, ir_value *arguments) {
  MlirLocation locations[IR_MAX_ARGUMENTS] = {b->location};
  for (int i = 0; i < count; i++) locations[i] = b->location;
  MlirBlock entry = mlirBlockCreate(count, types, locations);
  for (int i = 0; i < count; i++) arguments[i] = mlirBlockGetArgument(entry, i);
  return entry;
}

MlirOperation ir_function(ir *b, const char *name, bool noinline, MlirType result, int count, const MlirType *types,
                          ir_value *arguments) {
  MlirBlock entry = entry_block(b, count, types, arguments);
  MlirOperation f = function_op(b, name, noinline, function_type(b, result, count, types), entry);
  b->block = entry;
  return f;
}

/* Gives their number. */
static int types_of(ir *b, const char *letters, MlirType *types) {
  const struct {
    char letter;
    MlirType type;
  } known[] = {{'p', b->ptr}, {'i', b->i64}, {'n', b->i32}, {'b', b->i1}, {'f', b->f32}, {'d', b->f64}};
  int count = 0, of = 0;
  for (; letters[count]; count++, of = 0) {
    while (known[of].letter != letters[count]) of++;
    types[count] = known[of].type;
  }
  return count;
}

void ir_open(ir *b, const char *name, const char *types, ir_value *arguments) {
  MlirType all[IR_MAX_ARGUMENTS] = {b->ptr};
  int count = types_of(b, types, all);
  ir_function(b, name, true, (MlirType){NULL}, count, all, arguments);
}

void ir_declare(ir *b, const char *name, const char *types) {
  MlirType all[IR_MAX_ARGUMENTS] = {b->ptr};
  MlirType type = function_type(b, (MlirType){NULL}, types_of(b, types, all), all);
  function_op(b, name, false, type, (MlirBlock){NULL});
}

void ir_return(ir *b) {
  op o = op_start(b, b->gpu ? "gpu.return" : "llvm.return", 0, NULL);
  op_finish(&o);
  b->block = b->symbols;
}

/* Calls a function by name, or (NULL) by the pointer among the arguments. */
static void call(ir *b, const char *name, int count, const ir_value *arguments) {
  op o = op_start(b, "llvm.call", count, arguments);
  int32_t segments[2] = {count, 0};
  if (name) op_attribute(&o, "callee", mlirFlatSymbolRefAttrGet(b->context, op_text(name)));
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
  op o = op_start(b, "llvm.call_intrinsic", count, arguments);
  int32_t segments[2] = {count, 0};
  op_attribute(&o, "intrin", mlirStringAttrGet(b->context, op_text(name)));
  op_attribute(&o, "operandSegmentSizes", mlirDenseI32ArrayGet(b->context, 2, segments));
  op_attribute(&o, "op_bundle_sizes", mlirDenseI32ArrayGet(b->context, 0, NULL));
  if (!mlirTypeIsNull(result)) return op_value(&o, result);
  op_finish(&o);
  return (ir_value){NULL};
}

/* ---- kernels ---- */

void ir_begin_gpu(ir *b, const ir_gpu *gpu, const char *chip, bool has_mma) {
  op o = op_start(b, "gpu.module", 0, NULL);
  op_attribute(&o, "sym_name", mlirStringAttrGet(b->context, op_text("kernels")));
  b->symbols = mlirBlockCreate(0, NULL, NULL);
  op_region(&o, b->symbols);
  op_finish(&o);
  b->block = b->symbols;
  b->gpu = gpu;
  b->chip = chip;
  b->has_mma = has_mma;
  b->ptr = mlirLLVMPointerTypeGet(b->context, (unsigned)gpu->global_space);
}

void ir_kernel(ir *b, const char *name, int threads, int blocks, int count, const MlirType *types,
               ir_value *arguments) {
  const int32_t block[] = {threads, 1, 1};
  MlirBlock entry = entry_block(b, count, types, arguments);
  op o = op_start(b, "gpu.func", 0, NULL);
  op_attribute(&o, "sym_name", mlirStringAttrGet(b->context, op_text(name)));
  op_attribute(&o, "function_type", mlirTypeAttrGet(mlirFunctionTypeGet(b->context, count, types, 0, NULL)));
  op_attribute(&o, "gpu.kernel", mlirUnitAttrGet(b->context));
  if (b->gpu->threads) op_attribute(&o, b->gpu->threads, mlirDenseI32ArrayGet(b->context, 1, block));
  else op_attribute(&o, "known_block_size", mlirDenseI32ArrayGet(b->context, 3, block));
  if (blocks && b->gpu->blocks) op_attribute(&o, b->gpu->blocks, op_i32(b, blocks));
  op_region(&o, entry);
  b->block = b->symbols;
  op_finish(&o);
  b->block = entry;
}

ir_value ir_gpu_index(ir *b, const char *name, const char *dimension) {
  char source[32];
  snprintf(source, sizeof source, "#gpu<dim %s>", dimension);
  op o = op_start(b, name, 0, NULL);
  op_attribute(&o, "dimension", op_parse_attribute(b, source));
  return ir_cast(b, "arith.index_castui", op_value(&o, mlirIndexTypeGet(b->context)), b->i32);
}
