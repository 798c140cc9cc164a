/* mlir/translations: how dialects that are left after lowering become LLVM IR. In C++: the C API registers the
 * translations of all dialects or none. */
#ifndef PEGEN_MLIR_TRANSLATIONS_H
#define PEGEN_MLIR_TRANSLATIONS_H

#include <mlir-c/IR.h>

#ifdef __cplusplus
extern "C" {
#endif

void register_translations(MlirDialectRegistry registry);

#ifdef __cplusplus
}
#endif

#endif
