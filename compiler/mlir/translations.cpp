/* mlir/translations: see mlir/translations.h. */
#include "mlir/translations.h"

#include <mlir/CAPI/IR.h>
#include <mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h>
#include <mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h>
#include <mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h>

void register_translations(MlirDialectRegistry registry) {
  mlir::DialectRegistry &r = *unwrap(registry);
  mlir::registerBuiltinDialectTranslation(r);
  mlir::registerGPUDialectTranslation(r);
  mlir::registerLLVMDialectTranslation(r);
}
