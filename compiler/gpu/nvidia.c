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

/* Number types of a chip: each with those before. */
enum {
  FLOAT16 = NUMBER_BIT(NUMBER_F16),
  BFLOAT16 = FLOAT16 | NUMBER_BIT(NUMBER_BF16),
  FLOAT8 = BFLOAT16 | NUMBER_BIT(NUMBER_F8E4M3) | NUMBER_BIT(NUMBER_F8E5M2)
};
#define CHIP(of_level, text, ptx, ptx_of_float8, types, mma) \
  {"sm_" #of_level, \
   "PTX for NVIDIA " text " and later", \
   ptx, \
   ptx_of_float8, \
   of_level, \
   types, \
   mma, \
   (mma ? 99 : 64) << 10, \
   192, \
   &gpu_nvidia}

static const gpu_target chips[] = {
    CHIP(75, "Turing", "+ptx63", NULL, FLOAT16, false),
    CHIP(80, "Ampere (A100)", "+ptx70", NULL, BFLOAT16, true),
    CHIP(86, "Ampere (RTX 30, A40)", "+ptx71", NULL, BFLOAT16, true),
    CHIP(89, "Ada", "+ptx78", "+ptx81", FLOAT8, true),
    CHIP(90, "Hopper", "+ptx78", NULL, FLOAT8, true),
#if LLVM_VERSION_MAJOR >= 22
    CHIP(100, "Blackwell (B200)", "+ptx86", NULL, FLOAT8, true),
    CHIP(120, "Blackwell (RTX 50)", "+ptx87", NULL, FLOAT8, true),
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
           .has_dynamic = true,
           .sine = "llvm.nvvm.sin.approx.ftz.f",
           .cosine = "llvm.nvvm.cos.approx.ftz.f",
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
