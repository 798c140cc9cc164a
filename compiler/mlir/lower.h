/* mlir/lower: from a module of MLIR to LLVM, and to text or bytes; what the targets share. */
#pragma once

#include "mlir/ir.h"
#include "target/request.h"

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

/* Between them a fatal error of LLVM ends the process as our own bug. */
void lower_begin(void);
void lower_end(void);

/* Verifies, lowers, translates. */
LLVMModuleRef lower_module(ir *b, LLVMContextRef context);
/* The emitted functions must be external here, or be used, so that none is dropped. */
void lower_optimize(LLVMModuleRef module, LLVMTargetMachineRef machine, int level);

void lower_print_mlir(ir *b, compile_output *out);
void lower_print_llvm(LLVMModuleRef module, compile_output *out);
void lower_write(LLVMModuleRef module, LLVMTargetMachineRef machine, bool assembly, compile_output *out);
