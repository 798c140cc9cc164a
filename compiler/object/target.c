/* object/target: the table of CPUs, and an object with its driver; see object/target.h. */
#include "object/target.h"

#include "base/diag.h"
#include "forms/form.h"
#include "mlir/lower.h"
#include "object/describe.h"

#include "kernel/embedded.h"
#include "kernel/loop.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define X86_TRIPLE "x86_64-unknown-linux-gnu"
#define ARM_TRIPLE "aarch64-unknown-linux-gnu"

/* Best first within an architecture: the dispatcher takes the first that the processor can run. */
static const cpu_target TARGETS[] = {
    {.name = "x86-64-v4",
     .description = "AVX-512 (F, BW, CD, DQ, VL)",
     .suffix = "v4",
     .triple = X86_TRIPLE,
     .cpu = "x86-64-v4",
     .features = "",
     .level = PEGEN_LEVEL_X86_64_V4,
     .lanes = 16,
     .registers = 32,
     .has_fma = true,
     .native = NUMBER_BIT(NUMBER_F16),
     .has_streaming = true},
    {.name = "x86-64-v3",
     .description = "AVX2, FMA, F16C",
     .suffix = "v3",
     .triple = X86_TRIPLE,
     .cpu = "x86-64-v3",
     .features = "",
     .level = PEGEN_LEVEL_X86_64_V3,
     .lanes = 8,
     .registers = 16,
     .has_fma = true,
     .native = NUMBER_BIT(NUMBER_F16),
     .has_streaming = true},
    {.name = "x86-64-v2",
     .description = "SSE4.2; runs on every x86-64 of the last fifteen years",
     .suffix = "v2",
     .triple = X86_TRIPLE,
     .cpu = "x86-64-v2",
     .features = "",
     .level = PEGEN_LEVEL_X86_64_V2,
     .lanes = 4,
     .registers = 16,
     .has_fma = false,
     .native = 0,
     .has_streaming = false},
    {.name = "aarch64",
     .description = "Armv8-A with NEON; not together with x86-64",
     .suffix = "neon",
     .triple = ARM_TRIPLE,
     .cpu = "generic",
     .features = "+neon",
     .level = PEGEN_LEVEL_BASELINE,
     .lanes = 4,
     .registers = 32,
     .has_fma = true,
     .native = NUMBER_BIT(NUMBER_F16),
     .has_streaming = false},
};
enum { TARGET_COUNT = sizeof TARGETS / sizeof *TARGETS };

#if defined(__aarch64__)
static const char DEFAULT_TARGETS[] = "aarch64";
#else
static const char DEFAULT_TARGETS[] = "x86-64-v2,x86-64-v3,x86-64-v4";
#endif

int target_list(const target_info **list) {
  enum { MOST_GPUS = 32 };
  static target_info infos[TARGET_COUNT + 1 + MOST_GPUS];
  int count = 0;
  const gpu_target *gpu;
  for (; count < TARGET_COUNT; count++) infos[count] = (target_info){TARGETS[count].name, TARGETS[count].description};
  infos[count++] = (target_info){"native", "this machine's processor with all its features; runs on its like only"};
  for (int i = 0; i < MOST_GPUS && (gpu = gpu_target_at(i)); i++)
    infos[count++] = (target_info){gpu->name, gpu->description};
  *list = infos;
  return count;
}

/* The best row this processor can run, tuned for it. */
static const cpu_target *native_target(arena *a) {
  char *cpu = LLVMGetHostCPUName(), *features = LLVMGetHostCPUFeatures(), *triple = LLVMGetDefaultTargetTriple();
  cpu_target *t = arena_new(a, cpu_target);
  const char *wanted = strstr(features, "+avx512vl") && strstr(features, "+avx512bw") ? "x86-64-v4"
                       : strstr(features, "+avx2")                                    ? "x86-64-v3"
                                                                                      : "x86-64-v2";
  if (!strncmp(triple, "aarch64", 7)) wanted = "aarch64";
  for (int i = 0; i < TARGET_COUNT; i++)
    if (!strcmp(TARGETS[i].name, wanted)) *t = TARGETS[i];
  t->name = "native";
  t->suffix = "native";
  t->cpu = arena_strdup(a, cpu);
  t->features = arena_strdup(a, features);
  LLVMDisposeMessage(cpu);
  LLVMDisposeMessage(features);
  LLVMDisposeMessage(triple);
  return t;
}

static const cpu_target *find_target(arena *a, const char *name) {
  if (!strcmp(name, "native")) return native_target(a);
  for (int i = 0; i < TARGET_COUNT; i++)
    if (!strcmp(TARGETS[i].name, name)) return &TARGETS[i];
  const char *names[TARGET_COUNT + 1], *all = "native";
  names[TARGET_COUNT] = "native";
  for (int i = 0; i < TARGET_COUNT; i++) {
    names[i] = TARGETS[i].name;
    all = arena_printf(a, "%s, %s", names[i], all);
  }
  const char *near = diag_nearest(name, names, TARGET_COUNT + 1);
  diag_error(NULL, 0, "unknown target '%s'%s%s%s; expected one of %s", name, near ? ", did you mean '" : "",
             near ? near : "", near ? "'?" : "", all);
  return NULL;
}

int target_parse(arena *a, const char *list, const cpu_target **out) {
  char *rest = arena_strdup(a, list ? list : DEFAULT_TARGETS);
  int count = 0;
  for (char *name; (name = strtok_r(rest, ",", &rest));) {
    const cpu_target *t = find_target(a, name);
    if (!t) return 0;
    bool known = false;
    for (int i = 0; i < count; i++) known = known || !strcmp(out[i]->name, t->name);
    if (known) continue;
    if (count && strcmp(out[0]->triple, t->triple)) {
      diag_error(NULL, 0, "targets '%s' and '%s' are of different architectures; expected one architecture an object",
                 out[0]->name, t->name);
      return 0;
    }
    if (count == TARGET_MAX) diag_bug("target", "more than %d targets", TARGET_MAX);
    int at = count++;
    for (; at > 0 && out[at - 1]->level < t->level; at--) out[at] = out[at - 1];
    out[at] = t;
  }
  if (!count) diag_error(NULL, 0, "--target names no target; see --target=help");
  return count;
}

/* ---- LLVM to bytes ---- */

static void initialize_targets(void) {
  static bool done;
  if (done) return;
  done = true;
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMInitializeX86AsmParser(); /* the driver asks the processor in inline assembly */
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
  LLVMInitializeAArch64AsmParser();
}

static LLVMTargetMachineRef create_machine(const cpu_target *t, int optimize) {
  LLVMTargetRef target;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(t->triple, &target, &message)) diag_bug("target", "%s", message);
  bool x86 = !strcmp(t->triple, X86_TRIPLE);
  /* Functions carry their own processor; the machine's is what the driver runs on: the baseline. */
  LLVMTargetMachineRef machine =
      LLVMCreateTargetMachine(target, t->triple, x86 ? "x86-64" : "generic", "", (LLVMCodeGenOptLevel)optimize,
                              LLVMRelocPIC, LLVMCodeModelDefault);
  if (!machine) diag_bug("target", "no code generator for %s", t->triple);
  return machine;
}

/* The driver joins as assembly: compiled once, when pegen was built. */
static void add_driver(LLVMModuleRef module, const form *f, const cpu_target *t) {
  bool x86 = !strcmp(t->triple, X86_TRIPLE);
  const driver_text *driver = driver_text_of(f->name);
  if (!driver) diag_bug("target", "no driver of the form '%s'", f->name);
  LLVMSetModuleInlineAsm2(module, (const char *)(x86 ? driver->x86_64 : driver->aarch64),
                          x86 ? *driver->x86_64_size : *driver->aarch64_size);
}

/* Everything but the kernel's own symbols becomes internal: the object exports few names and imports none.
 * What is only declared stands in the driver's assembly, so it is reached without a table. */
static void internalize(LLVMModuleRef module, const describe_request *request) {
  for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f)) {
    size_t length;
    if (LLVMIsDeclaration(f) && LLVMGetIntrinsicID(f)) continue;
    if (LLVMIsDeclaration(f)) LLVMSetVisibility(f, LLVMHiddenVisibility);
    else if (!describe_is_exported(request, LLVMGetValueName2(f, &length))) LLVMSetLinkage(f, LLVMInternalLinkage);
  }
}

bool target_write(ir *b, const cpu_target *const *targets, int n_targets, const compile_options *options,
                  const describe_request *describe, compile_output *out) {
  if (options->emit == EMIT_MLIR) {
    lower_print_mlir(b, out);
    return true;
  }
  initialize_targets();
  lower_begin();
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module = lower_module(b, context);
  LLVMTargetMachineRef machine = create_machine(targets[0], options->optimize);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  LLVMSetTarget(module, targets[0]->triple);
  LLVMSetModuleDataLayout(module, layout);
  LLVMSetModuleIdentifier(module, describe->spec->name, strlen(describe->spec->name));
  LLVMSetSourceFileName(module, describe->spec->name, strlen(describe->spec->name));
  lower_optimize(module, machine, options->optimize);
  add_driver(module, describe->form, targets[0]);
  describe_add(module, describe, targets, n_targets);
  internalize(module, describe);
  char *message = NULL;
  if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message)) diag_bug("target", "%s", message);
  LLVMDisposeMessage(message);
  if (options->emit == EMIT_LLVM) lower_print_llvm(module, out);
  else lower_write(module, machine, options->emit == EMIT_ASM, out);
  LLVMDisposeTargetData(layout);
  LLVMDisposeTargetMachine(machine);
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
  lower_end();
  return true;
}
