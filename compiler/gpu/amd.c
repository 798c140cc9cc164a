/* gpu/amd: machine code of one chip, as assembly or an object that lld links to a code object (ld.lld -shared).
 *
 * Kernels are written for warps of 32 threads that exchange through shared memory, with barriers of the warp in
 * between. A wave of 64 lanes is two such warps: lanes of a wave run in step, so the barrier is an order of memory
 * accesses that the compiler must keep, and no instruction.
 */
#include "gpu/vendor.h"

#include "mlir/number.h"

#include <llvm-c/Target.h>
#include <llvm/Config/llvm-config.h>

static void initialize(void) {
  LLVMInitializeAMDGPUTargetInfo();
  LLVMInitializeAMDGPUTarget();
  LLVMInitializeAMDGPUTargetMC();
  LLVMInitializeAMDGPUAsmPrinter();
}

enum { NATIVE = NUMBER_BIT(NUMBER_F16), SHARED = 64 << 10, REGISTERS = 96 };

static const gpu_target chips[] = {
    {"gfx90a", "AMD Instinct MI200", "", .level = 0x90a, .native = NATIVE, .shared = SHARED, .registers = REGISTERS,
     .vendor = &gpu_amd},
    {"gfx942", "AMD Instinct MI300", "", .level = 0x942, .native = NATIVE, .shared = SHARED, .registers = REGISTERS,
     .vendor = &gpu_amd},
#if LLVM_VERSION_MAJOR >= 22 /* 19 does not know it */
    {"gfx950", "AMD Instinct MI350", "", .level = 0x950, .native = NATIVE | NUMBER_BIT(NUMBER_BF16), .shared = SHARED,
     .registers = REGISTERS, .vendor = &gpu_amd},
#endif
    {"gfx1100", "AMD Radeon RX 7000", "", .level = 0x1100, .native = NATIVE, .shared = SHARED, .registers = REGISTERS,
     .vendor = &gpu_amd},
    {.name = NULL},
};

const gpu_vendor gpu_amd = {
    .name = "AMD",
    .triple = "amdgcn-amd-amdhsa",
    .ir = {.convert = gpu_dialect_to_rocdl,
           .warp_barrier = "llvm.amdgcn.wave.barrier",
           .warp_scope = "wavefront",
           .global_space = 1,
           .shared_space = 3},
    .assembly = EMIT_ASM,
    .has_objects = true,
    .initialize = initialize,
    .chips = chips,
};
