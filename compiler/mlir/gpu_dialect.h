/* mlir/gpu_dialect: from MLIR's gpu dialect to a vendor's: functions, indices of threads and blocks, barriers.
 *
 * Upstream's patterns, in C++ because the C API has whole passes only: those (convert-gpu-to-nvvm, -rocdl) also turn
 * roots, roundings and magnitudes into calls of the vendors' libraries of mathematics, which pegen does without.
 */
#pragma once

#include <mlir-c/IR.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* module: a gpu.module; chip: as the vendor calls it. */
typedef bool gpu_conversion(MlirOperation module, const char *chip);
gpu_conversion gpu_dialect_to_nvvm, gpu_dialect_to_rocdl;

#ifdef __cplusplus
}
#endif
