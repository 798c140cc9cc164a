/* verify/run: an object in this process by LLVM's ORC; see verify/run.h. */
#include "verify/run.h"

#include "base/arena.h"
#include "base/diag.h"

#include <llvm-c/Core.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Target.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct loaded_kernel {
  LLVMOrcLLJITRef jit;
  const pegen_kernel *kernel;
};

static bool failed(LLVMErrorRef error, const char *what) {
  if (!error) return false;
  char *message = LLVMGetErrorMessage(error);
  diag_error(NULL, 0, "%s: %s", what, message);
  LLVMDisposeErrorMessage(message);
  return true;
}

loaded_kernel *run_load(const void *object, size_t size, const char *name) {
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
  loaded_kernel *loaded = arena_must(calloc(1, sizeof *loaded));
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(object, size, name);
  if (failed(LLVMOrcCreateLLJIT(&loaded->jit, NULL), "cannot run code in this process")) {
    free(loaded);
    LLVMDisposeMemoryBuffer(buffer);
    return NULL;
  }
  char symbol[256];
  snprintf(symbol, sizeof symbol, "%s_kernel", name);
  LLVMOrcExecutorAddress address = 0;
  LLVMErrorRef error = LLVMOrcLLJITAddObjectFile(loaded->jit, LLVMOrcLLJITGetMainJITDylib(loaded->jit), buffer);
  if (failed(error, "cannot load the object") || failed(LLVMOrcLLJITLookup(loaded->jit, &address, symbol), symbol)) {
    run_unload(loaded);
    return NULL;
  }
  loaded->kernel = (const pegen_kernel *)(uintptr_t)address;
  return loaded;
}

const pegen_kernel *run_kernel(const loaded_kernel *loaded) { return loaded->kernel; }

bool run_add(loaded_kernel *loaded, const void *object, size_t size) {
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(object, size, "added");
  return !failed(LLVMOrcLLJITAddObjectFile(loaded->jit, LLVMOrcLLJITGetMainJITDylib(loaded->jit), buffer),
                 "cannot load the object");
}

void *run_find(const loaded_kernel *loaded, const char *symbol) {
  LLVMOrcExecutorAddress address = 0;
  return failed(LLVMOrcLLJITLookup(loaded->jit, &address, symbol), symbol) ? NULL : (void *)(uintptr_t)address;
}

void run_replace(loaded_kernel *loaded, const pegen_kernel *kernel) { loaded->kernel = kernel; }

void run_unload(loaded_kernel *loaded) {
  if (!loaded) return;
  failed(LLVMOrcDisposeLLJIT(loaded->jit), "cannot unload the object");
  free(loaded);
}
