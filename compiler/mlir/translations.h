/* mlir/translations: how dialects that are left after lowering become LLVM IR. In C++: the C API registers the
 * translations of all dialects or none. */
#pragma once

#include <mlir-c/IR.h>

#ifdef __cplusplus
extern "C" {
#endif

void register_translations(MlirDialectRegistry registry);

#ifdef __cplusplus
}
#endif
