/* mlir/gpu_dialect: see mlir/gpu_dialect.h. */
#include "mlir/gpu_dialect.h"

#include "mlir/compat.h"

/* Dialects and their ops are found by name: their own headers, classes of a thousand ops, take half a minute. */
#include <mlir/CAPI/IR.h>
#include <mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h>
#include <mlir/Conversion/GPUToROCDL/GPUToROCDLPass.h>
#include <mlir/Conversion/LLVMCommon/TypeConverter.h>
#include <mlir/Dialect/AMDGPU/Utils/Chipset.h>
#include <mlir/IR/BuiltinAttributes.h>
#include <mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h>
#include <mlir/Target/LLVMIR/Dialect/ROCDL/ROCDLToLLVMIRTranslation.h>
#include <mlir/Transforms/DialectConversion.h>
#include <string>

/* What a vendor's dialect needs is known to the context from here on. Nothing but the gpu dialect's own ops is
 * converted. */
static bool convert(mlir::Operation *module, mlir::RewritePatternSet &&patterns) {
  mlir::MLIRContext *context = module->getContext();
  mlir::ConversionTarget target(*context);
  target.markUnknownOpDynamicallyLegal([](mlir::Operation *) { return true; });
  target.addIllegalDialect("gpu");
  target.addLegalOp(mlir::OperationName("gpu.module", context));
  target.addLegalOp(mlir::OperationName("gpu.module_end", context)); /* 19's terminator */
  return mlir::succeeded(mlir::applyPartialConversion(module, target, std::move(patterns)));
}

bool gpu_dialect_to_nvvm(MlirOperation module, const char *) {
  mlir::Operation *op = unwrap(module);
  mlir::registerNVVMDialectTranslation(*op->getContext());
  op->getContext()->getOrLoadDialect("nvvm");
  mlir::LLVMTypeConverter types(op->getContext());
  mlir::RewritePatternSet patterns(op->getContext());
  mlir::populateGpuToNVVMConversionPatterns(types, patterns);
  return convert(op, std::move(patterns));
}

/* The patterns leave the number of threads where LLVM does not look for it; the pass around them does this, too. */
static void say_threads(mlir::Operation *module) {
  module->walk([](mlir::Operation *f) {
    auto size = f->getAttrOfType<mlir::DenseI32ArrayAttr>("rocdl.reqd_work_group_size");
    if (!size) return;
    std::string threads = std::to_string(size[0] * size[1] * size[2]);
    f->setAttr("rocdl.flat_work_group_size", mlir::StringAttr::get(f->getContext(), threads + "," + threads));
  });
}

bool gpu_dialect_to_rocdl(MlirOperation module, const char *chip) {
  mlir::Operation *op = unwrap(module);
  mlir::FailureOr<mlir::amdgpu::Chipset> chipset = mlir::amdgpu::Chipset::parse(chip);
  if (mlir::failed(chipset)) return false;
  mlir::registerROCDLDialectTranslation(*op->getContext());
  op->getContext()->getOrLoadDialect("rocdl");
  mlir::LLVMTypeConverter types(op->getContext());
  mlir::RewritePatternSet patterns(op->getContext());
  mlir::populateGpuToROCDLConversionPatterns(types, patterns,
                                             mlir::gpu::amd::Runtime::Unknown MLIR_COMPAT_LATER(*chipset));
  if (!convert(op, std::move(patterns))) return false;
  say_threads(op);
  return true;
}
