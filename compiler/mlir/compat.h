/* mlir/compat: what MLIR 19, the other version that Debian 12 has, spells in another way than 22.
 *
 * Everything else of the C API that pegen uses is the same in both.
 */
#ifndef PEGEN_MLIR_COMPAT_H
#define PEGEN_MLIR_COMPAT_H

#include <llvm/Config/llvm-config.h>
#include <mlir-c/BuiltinAttributes.h>
#include <mlir-c/BuiltinTypes.h>

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

#endif
