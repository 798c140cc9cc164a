/* mlir/register: rows of dialects and passes; see mlir/register.h.
 *
 * Registering everything that MLIR has takes longer than compiling a small kernel, and a program that is linked
 * statically holds what is named here.
 */
#include "mlir/register.h"

#include "base/diag.h"
#include "mlir/translations.h"

#include <mlir-c/Conversion.h>
#include <mlir-c/Dialect/Arith.h>
#include <mlir-c/Dialect/ControlFlow.h>
#include <mlir-c/Dialect/GPU.h>
#include <mlir-c/Dialect/LLVM.h>
#include <mlir-c/Dialect/Math.h>
#include <mlir-c/Dialect/SCF.h>
#include <mlir-c/Dialect/Vector.h>
#include <mlir-c/Transforms.h>
#include <stdbool.h>

typedef MlirDialectHandle dialect_handle(void);

static dialect_handle *const DIALECTS[] = {
    mlirGetDialectHandle__arith__, mlirGetDialectHandle__math__, mlirGetDialectHandle__vector__,
    mlirGetDialectHandle__scf__,   mlirGetDialectHandle__cf__,   mlirGetDialectHandle__llvm__,
    mlirGetDialectHandle__gpu__,
};

MlirContext register_dialects(void) {
  enum { COUNT = sizeof DIALECTS / sizeof *DIALECTS };
  MlirDialectRegistry registry = mlirDialectRegistryCreate();
  for (int i = 0; i < COUNT; i++) mlirDialectHandleInsertDialect(DIALECTS[i](), registry);
  register_translations(registry);
  MlirContext context = mlirContextCreateWithRegistry(registry, false);
  mlirDialectRegistryDestroy(registry);
  for (int i = 0; i < COUNT; i++)
    if (mlirDialectIsNull(mlirDialectHandleLoadDialect(DIALECTS[i](), context)))
      diag_bug("ir", "dialect %d of the table does not load", i);
  return context;
}

void register_passes(void) {
  static bool done;
  if (done) return;
  done = true;
  mlirRegisterTransformsCSE();
  mlirRegisterConversionConvertVectorToLLVMPass();
  mlirRegisterConversionSCFToControlFlowPass();
  mlirRegisterConversionConvertMathToLLVMPass();
  mlirRegisterConversionArithToLLVMConversionPass();
  mlirRegisterConversionConvertControlFlowToLLVMPass();
  mlirRegisterConversionReconcileUnrealizedCastsPass();
}
