/* mlir/register: what of MLIR pegen is made of: the dialects and passes that it uses, by name, and no others. */
#pragma once

#include <mlir-c/IR.h>

/* A context of one thread with the dialects that are emitted loaded and those that passes make known, all of which
 * translate to LLVM IR where they reach it. */
MlirContext register_dialects(void);

/* The passes of mlir/lower's pipelines; once a process, later calls do nothing. */
void register_passes(void);
