/* gpu/nvidia: PTX, which the driver compiles for the chip that it finds. */
#include "gpu/vendor.h"

#include "mlir/number.h"

#include <llvm-c/Target.h>
#include <llvm/Config/llvm-config.h>

static void initialize(void) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
}

enum { NATIVE = NUMBER_BIT(NUMBER_F16), FLOAT8 = NUMBER_BIT(NUMBER_F8E4M3) | NUMBER_BIT(NUMBER_F8E5M2) };

static const gpu_target chips[] = {
    {.name = "sm_75",
     .description = "PTX for NVIDIA Turing and later",
     .features = "+ptx63",
     .level = 75,
     .native = NATIVE,
     .vendor = &gpu_nvidia},
    {.name = "sm_80",
     .description = "PTX for NVIDIA Ampere (A100) and later",
     .features = "+ptx70",
     .level = 80,
     .native = NATIVE | NUMBER_BIT(NUMBER_BF16),
     .has_mma = true,
     .vendor = &gpu_nvidia},
    {.name = "sm_86",
     .description = "PTX for NVIDIA Ampere (RTX 30, A40) and later",
     .features = "+ptx71",
     .level = 86,
     .native = NATIVE | NUMBER_BIT(NUMBER_BF16),
     .has_mma = true,
     .vendor = &gpu_nvidia},
    {.name = "sm_89",
     .description = "PTX for NVIDIA Ada and later",
     .features = "+ptx78",
     .float8_features = "+ptx81",
     .level = 89,
     .native = NATIVE | NUMBER_BIT(NUMBER_BF16) | FLOAT8,
     .has_mma = true,
     .vendor = &gpu_nvidia},
    {.name = "sm_90",
     .description = "PTX for NVIDIA Hopper and later",
     .features = "+ptx78",
     .level = 90,
     .native = NATIVE | NUMBER_BIT(NUMBER_BF16) | FLOAT8,
     .has_mma = true,
     .vendor = &gpu_nvidia},
#if LLVM_VERSION_MAJOR >= 22
    {.name = "sm_100",
     .description = "PTX for NVIDIA Blackwell (B200) and later",
     .features = "+ptx86",
     .level = 100,
     .native = NATIVE | NUMBER_BIT(NUMBER_BF16) | FLOAT8,
     .has_mma = true,
     .vendor = &gpu_nvidia},
    {.name = "sm_120",
     .description = "PTX for NVIDIA Blackwell (RTX 50) and later",
     .features = "+ptx87",
     .level = 120,
     .native = NATIVE | NUMBER_BIT(NUMBER_BF16) | FLOAT8,
     .has_mma = true,
     .vendor = &gpu_nvidia},
#endif
    {.name = NULL},
};

const gpu_vendor gpu_nvidia = {
    .name = "NVIDIA",
    .triple = "nvptx64-nvidia-cuda",
    .ir = {.convert = gpu_dialect_to_nvvm,
           .threads = "nvvm.maxntid",
           .blocks = "nvvm.minctasm",
           .warp_barrier = "llvm.nvvm.bar.warp.sync",
           .has_mask = true,
           .log2 = "llvm.nvvm.lg2.approx.f",
           .reciprocal = "llvm.nvvm.rcp.approx.ftz.f",
           .root = "llvm.nvvm.sqrt.approx.f",
           .exp2 = LLVM_VERSION_MAJOR < 22 ? "llvm.nvvm.ex2.approx.ftz.f" : "llvm.nvvm.ex2.approx.ftz",
           .global_space = 1,
           .shared_space = 3},
    .assembly = EMIT_PTX,
    .is_portable = true,
    .is_embedded = true,
    .initialize = initialize,
    .chips = chips,
};
