/* mlir/ir_memory: addresses, loads and stores, tables of constants, memory that threads share and their barriers; see
 * mlir/ir.h. */
#include "base/arena.h"
#include "mlir/op.h"

#include <mlir-c/BuiltinAttributes.h>
#include <mlir-c/BuiltinTypes.h>
#include <mlir-c/Dialect/LLVM.h>
#include <stdio.h>
#include <stdlib.h>

static ir_value getelementptr(ir *b, ir_value pointer, ir_value *bytes, int64_t constant_bytes) {
  op o = op_start(b, "llvm.getelementptr", 0, NULL);
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

ir_value ir_pointer(ir *b, ir_value address) { return op_made(b, "llvm.inttoptr", b->ptr, OPERANDS(address)); }

ir_value ir_address(ir *b, ir_value pointer) { return op_made(b, "llvm.ptrtoint", b->i64, OPERANDS(pointer)); }

static ir_value load(ir *b, MlirType type, ir_value pointer, int alignment, bool is_volatile) {
  op o = op_start(b, "llvm.load", OPERANDS(pointer));
  op_attribute(&o, "alignment", mlirIntegerAttrGet(b->i64, alignment));
  if (is_volatile) op_attribute(&o, "volatile_", mlirUnitAttrGet(b->context));
  return op_value(&o, type);
}

ir_value ir_load(ir *b, MlirType type, ir_value pointer, int alignment) {
  return load(b, type, pointer, alignment, false);
}
ir_value ir_load_here(ir *b, MlirType type, ir_value pointer, int alignment) {
  return load(b, type, pointer, alignment, true);
}

void(ir_store)(ir *b, ir_value value, ir_value pointer, int alignment, bool nontemporal) {
  op o = op_start(b, "llvm.store", OPERANDS(value, pointer));
  op_attribute(&o, "alignment", mlirIntegerAttrGet(b->i64, alignment));
  if (nontemporal) op_attribute(&o, "nontemporal", mlirUnitAttrGet(b->context));
  op_finish(&o);
}

void ir_prefetch(ir *b, ir_value pointer, int level) {
  op o = op_start(b, "llvm.intr.prefetch", OPERANDS(pointer));
  op_attribute(&o, "rw", op_i32(b, 0));
  op_attribute(&o, "hint", op_i32(b, 4 - level));
  op_attribute(&o, "cache", op_i32(b, 1));
  op_finish(&o);
}

ir_value ir_alloca(ir *b, int64_t bytes, int alignment) {
  ir_value count = ir_int(b, b->i64, bytes);
  op o = op_start(b, "llvm.alloca", OPERANDS(count));
  op_attribute(&o, "elem_type", mlirTypeAttrGet(b->i8));
  op_attribute(&o, "alignment", mlirIntegerAttrGet(b->i64, alignment));
  return op_value(&o, b->ptr);
}

static MlirType list_of(MlirType element, int count) {
  int64_t shape[1] = {count};
  return mlirRankedTensorTypeGet(1, shape, element, mlirAttributeGetNull());
}

/* An array among the module's symbols; values NULL: what it holds is not said. */
static void array(ir *b, const char *name, const char *linkage, int space, int alignment, MlirType element,
                  int64_t count, MlirAttribute values) {
  MlirBlock saved = b->block;
  b->block = b->symbols;
  op o = op_start(b, "llvm.mlir.global", 0, NULL);
  op_attribute(&o, "sym_name", mlirStringAttrGet(b->context, op_text(name)));
  op_attribute(&o, "global_type", mlirTypeAttrGet(mlirLLVMArrayTypeGet(element, (unsigned)count)));
  op_attribute(&o, "linkage", op_parse_attribute(b, linkage));
  if (values.ptr) op_attribute(&o, "constant", mlirUnitAttrGet(b->context));
  if (values.ptr) op_attribute(&o, "value", values);
  op_attribute(&o, "addr_space", op_i32(b, space));
  op_attribute(&o, "alignment", mlirIntegerAttrGet(b->i64, alignment));
  op_region(&o, (MlirBlock){NULL});
  op_finish(&o);
  b->block = saved;
}

static void table(ir *b, const char *name, int count, MlirType element, MlirAttribute values) {
  int space = (int)mlirLLVMPointerTypeGetAddressSpace(b->ptr);
  array(b, name, "#llvm.linkage<internal>", space, 8, element, count, values);
}

void ir_table(ir *b, const char *name, int count, const float *values, const int32_t *integers) {
  if (values) table(b, name, count, b->f32, mlirDenseElementsAttrFloatGet(list_of(b->f32, count), count, values));
  else table(b, name, count, b->i32, mlirDenseElementsAttrInt32Get(list_of(b->i32, count), count, integers));
}

/* The name of the module's symbol that is so called; NULL: there is none. */
static const char *symbol_named(ir *b, MlirStringRef name) {
  MlirStringRef key = op_text("sym_name");
  for (MlirOperation o = mlirBlockGetFirstOperation(b->symbols); !mlirOperationIsNull(o);
       o = mlirOperationGetNextInBlock(o)) {
    MlirAttribute of = mlirOperationGetAttributeByName(o, key);
    if (mlirAttributeIsNull(of) || !mlirAttributeIsAString(of)) continue;
    if (mlirStringRefEqual(mlirStringAttrGetValue(of), name)) return mlirStringAttrGetValue(of).data;
  }
  return NULL;
}

const char *ir_table_of(ir *b, int count, const float *values, const int32_t *integers) {
  const unsigned char *bytes = values ? (const void *)values : (const void *)integers;
  uint64_t hash = 0xcbf29ce484222325;
  char name[40];
  for (size_t i = 0; i < (size_t)count * 4; i++) hash = (hash ^ bytes[i]) * 0x100000001b3;
  snprintf(name, sizeof name, "%s_%d_%016llx", values ? "numbers" : "places", count, (unsigned long long)hash);
  if (!symbol_named(b, op_text(name))) ir_table(b, name, count, values, integers);
  return symbol_named(b, op_text(name));
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
  op o = op_start(b, "llvm.mlir.addressof", 0, NULL);
  op_attribute(&o, "global_name", mlirFlatSymbolRefAttrGet(b->context, op_text(name)));
  return op_value(&o, pointer);
}

ir_value ir_table_address(ir *b, const char *name) { return address_of(b, name, b->ptr); }
ir_value ir_function_address(ir *b, const char *name) { return address_of(b, name, b->ptr); }

static int shared_space(ir *b) { return b->gpu ? b->gpu->shared_space : 0; }

static void shared(ir *b, const char *name, const char *linkage, int64_t bytes) {
  array(b, name, linkage, shared_space(b), 16, b->i8, bytes, (MlirAttribute){NULL});
}

void ir_shared(ir *b, const char *name, int64_t bytes) { shared(b, name, "#llvm.linkage<internal>", bytes); }

void ir_shared_dynamic(ir *b, const char *name, int64_t bytes) {
  if (b->gpu && b->gpu->has_dynamic) shared(b, name, "#llvm.linkage<external>", 0);
  else ir_shared(b, name, bytes);
}

ir_value ir_shared_address(ir *b, const char *name) {
  return address_of(b, name, mlirLLVMPointerTypeGet(b->context, (unsigned)shared_space(b)));
}

static void fence(ir *b, int64_t ordering) {
  op o = op_start(b, "llvm.fence", 0, NULL);
  op_attribute(&o, "ordering", mlirIntegerAttrGet(b->i64, ordering));
  op_attribute(&o, "syncscope", mlirStringAttrGet(b->context, op_text(b->gpu->warp_scope)));
  op_finish(&o);
}

static void wait_for_warp(ir *b) {
  enum { ACQUIRE = 4, RELEASE = 5 }; /* of LLVM's atomic orderings */
  ir_value mask = b->gpu->has_mask ? ir_int(b, b->i32, -1) : (ir_value){NULL};
  if (b->gpu->warp_scope) fence(b, RELEASE);
  ir_intrinsic(b, b->gpu->warp_barrier, (MlirType){NULL}, b->gpu->has_mask, &mask);
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
  op o = op_start(b, "gpu.barrier", 0, NULL);
  op_finish(&o);
}
