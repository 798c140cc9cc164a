/* mlir/gpu_dialect: see mlir/gpu_dialect.h. */
#include "mlir/gpu_dialect.h"

#include <mlir/CAPI/IR.h>
#include <mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h>
#include <mlir/Conversion/LLVMCommon/TypeConverter.h>
#include <mlir/Dialect/GPU/IR/GPUDialect.h>
#include <mlir/Transforms/DialectConversion.h>

/* Nothing but the dialect's own ops is converted. */
static bool convert(mlir::Operation *module, mlir::RewritePatternSet &&patterns) {
  mlir::ConversionTarget target(*module->getContext());
  target.markUnknownOpDynamicallyLegal([](mlir::Operation *) { return true; });
  target.addIllegalDialect<mlir::gpu::GPUDialect>();
  target.addLegalOp<mlir::gpu::GPUModuleOp>();
  return mlir::succeeded(mlir::applyPartialConversion(module, target, std::move(patterns)));
}

bool gpu_dialect_to_nvvm(MlirOperation module, const char *) {
  mlir::Operation *op = unwrap(module);
  mlir::LLVMTypeConverter types(op->getContext());
  mlir::RewritePatternSet patterns(op->getContext());
  mlir::populateGpuToNVVMConversionPatterns(types, patterns);
  return convert(op, std::move(patterns));
}
