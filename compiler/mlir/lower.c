/* mlir/lower: the passes from MLIR to LLVM, and what is written of them; see mlir/lower.h. */
#include "mlir/lower.h"

#include "base/arena.h"
#include "base/diag.h"
#include "mlir/compat.h"
#include "mlir/register.h"

#include <llvm-c/ErrorHandling.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <mlir-c/Pass.h>
#include <mlir-c/Target/LLVMIR.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- MLIR to LLVM ---- */

/* Function by function: one after the other stays in the caches (a third less time than pass by pass over the module).
 */
#define OF_FUNCTIONS \
  "llvm.func(cse,convert-vector-to-llvm{force-32bit-vector-indices=0},convert-scf-to-cf,convert-math-to-llvm," \
  "convert-arith-to-llvm)"
#define OF_MODULE "convert-cf-to-llvm,reconcile-unrealized-casts"
static const char PIPELINE[] = "builtin.module(" OF_FUNCTIONS "," OF_MODULE ")",
                  GPU_PIPELINE[] = "builtin.module(gpu.module(" OF_FUNCTIONS ")," OF_MODULE ")";

/* The module, as it will not change before it is lowered or printed. */
static MlirOperation finished(ir *b) {
  MlirOperation module = mlirModuleGetOperation(b->module);
  if (b->gpu) mlir_compat_end_gpu_module(b->context, b->symbols);
  if (!mlirOperationVerify(module)) diag_bug("emit", "the module does not verify");
  return module;
}

static void on_pipeline_error(MlirStringRef message, void *unused) {
  (void)unused;
  fwrite(message.data, 1, message.length, stderr);
}

LLVMModuleRef lower_module(ir *b, LLVMContextRef context) {
  register_passes();
  MlirOperation module = finished(b);
  /* A GPU's module is the only op of the module around it. */
  MlirOperation translated = b->gpu ? mlirBlockGetFirstOperation(mlirModuleGetBody(b->module)) : module;
  if (b->gpu && !b->gpu->convert(translated, b->chip)) diag_bug("lower", "the gpu dialect does not convert");
  MlirPassManager manager = mlirPassManagerCreate(b->context);
  mlirPassManagerEnableVerifier(
      manager,
      false); /* what goes in was verified, what comes out is, when it is translated; not eight times between */
  MlirOpPassManager root = mlirPassManagerGetAsOpPassManager(manager);
  if (mlirLogicalResultIsFailure(mlirParsePassPipeline(
          root, mlirStringRefCreateFromCString(b->gpu ? GPU_PIPELINE : PIPELINE), on_pipeline_error, NULL)))
    diag_bug("lower", "the pass pipeline does not parse");
  if (mlirLogicalResultIsFailure(mlirPassManagerRunOnOp(manager, module))) diag_bug("lower", "the passes failed");
  mlirPassManagerDestroy(manager);
  LLVMModuleRef llvm = mlirTranslateModuleToLLVMIR(translated, context);
  if (!llvm) diag_bug("lower", "no translation to LLVM");
  return llvm;
}

/* ---- LLVM to bytes ---- */

void lower_optimize(LLVMModuleRef module, LLVMTargetMachineRef machine, int level) {
  /* The emitted code is straight vector code in a few loops: below -O3 it gets the passes that find
   * something to do in it (a fifth of the time of default<O2>, for the same instructions). */
  static const char *const passes[] = {
      "default<O0>",
      "function(early-cse,instcombine<no-verify-fixpoint>,simplifycfg)",
      "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(loop-rotate,licm),early-"
      "cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg)",
      "default<O3>",
  };
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  /* The emitted code is vectors already, and its loops' bodies are long. */
  LLVMPassBuilderOptionsSetLoopVectorization(options, false);
  LLVMPassBuilderOptionsSetSLPVectorization(options, false);
  LLVMPassBuilderOptionsSetLoopUnrolling(options, false);
  LLVMErrorRef error = LLVMRunPasses(module, passes[level], machine, options);
  if (error) diag_bug("optimize", "%s", LLVMGetErrorMessage(error));
  LLVMDisposePassBuilderOptions(options);
}

static void take(compile_output *out, const char *data, size_t size) {
  out->data = arena_must(malloc(size ? size : 1));
  memcpy(out->data, data, size);
  out->size = size;
}

static void append_chunk(MlirStringRef chunk, void *stream) { fwrite(chunk.data, 1, chunk.length, stream); }

void lower_print_mlir(ir *b, compile_output *out) {
  MlirOperation module = finished(b);
  char *text = NULL;
  size_t size = 0;
  FILE *stream = arena_must(open_memstream(&text, &size));
  mlirOperationPrint(module, append_chunk, stream);
  if (fclose(stream)) arena_must(NULL);
  take(out, text, size);
  free(text);
}

void lower_print_llvm(LLVMModuleRef module, compile_output *out) {
  char *text = LLVMPrintModuleToString(module);
  take(out, text, strlen(text));
  LLVMDisposeMessage(text);
}

void lower_write(LLVMModuleRef module, LLVMTargetMachineRef machine, bool assembly, compile_output *out) {
  char *message = NULL;
  LLVMMemoryBufferRef buffer;
  if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, assembly ? LLVMAssemblyFile : LLVMObjectFile, &message,
                                          &buffer))
    diag_bug("target", "%s", message);
  take(out, LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer));
  LLVMDisposeMemoryBuffer(buffer);
}

/* ---- errors of LLVM's own ---- */

static void on_fatal_error(const char *reason) { diag_bug("target", "%s", reason); }

void lower_begin(void) { LLVMInstallFatalErrorHandler(on_fatal_error); }
void lower_end(void) { LLVMResetFatalErrorHandler(); }
