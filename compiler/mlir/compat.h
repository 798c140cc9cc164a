/* mlir/compat: what MLIR 19, the other version that Debian 12 has, spells in another way than 22.
 *
 * Everything else of the C API that pegen uses is the same in both.
 */
#pragma once

#include <llvm/Config/llvm-config.h>
#include <mlir-c/BuiltinAttributes.h>
#include <mlir-c/BuiltinTypes.h>
#include <mlir-c/IR.h>

#if LLVM_VERSION_MAJOR < 20
#define mlirRegisterConversionSCFToControlFlowPass mlirRegisterConversionSCFToControlFlow
#define mlirRegisterConversionReconcileUnrealizedCastsPass mlirRegisterConversionReconcileUnrealizedCasts
#define MLIR_COMPAT_LATER(argument)
#else
#define MLIR_COMPAT_LATER(argument) , argument /* the last of a function, which it did not take before 20 */
#endif

/* Ends the body of a gpu.module, which had a terminator until 19. */
static inline void mlir_compat_end_gpu_module(MlirContext context, MlirBlock body) {
#if LLVM_VERSION_MAJOR < 20
  MlirOperationState state =
      mlirOperationStateGet(mlirStringRefCreateFromCString("gpu.module_end"), mlirLocationUnknownGet(context));
  mlirBlockAppendOwnedOperation(body, mlirOperationCreate(&state));
#else
  (void)context, (void)body;
#endif
}

/* The mask of vector.shuffle: an array of i64 attributes until 19, a dense one later, in which -1 is a lane that nobody
 * reads. */
static inline MlirAttribute mlir_compat_shuffle_mask(MlirContext context, int lanes, const int64_t *mask) {
#if LLVM_VERSION_MAJOR >= 20
  return mlirDenseI64ArrayGet(context, lanes, mask);
#else
  MlirAttribute entries[256];
  if (lanes > 256) return mlirAttributeGetNull();
  for (int i = 0; i < lanes; i++)
    entries[i] = mlirIntegerAttrGet(mlirIntegerTypeGet(context, 64), mask[i] < 0 ? 0 : mask[i]);
  return mlirArrayAttrGet(context, lanes, entries);
#endif
}
