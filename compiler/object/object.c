/* object/object: the module with its driver and descriptor; see object/object.h. */
#include "object/object.h"

#include "base/diag.h"
#include "forms/form.h"
#include "mlir/lower.h"
#include "object/driver.h"
#include "object/link.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <string.h>

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

/* Below -O3 what the code generator does at its second level is not asked for: the same vector instructions come of the
 * first in nine tenths of the time of a compilation (what is left out splits divisions of 64 bits by their size). */
static LLVMCodeGenOptLevel codegen_level(int optimize) {
  static const LLVMCodeGenOptLevel levels[] = {LLVMCodeGenLevelNone, LLVMCodeGenLevelLess, LLVMCodeGenLevelLess,
                                               LLVMCodeGenLevelAggressive};
  return levels[optimize];
}

static LLVMTargetMachineRef create_machine(const cpu_target *t, int optimize) {
  LLVMTargetRef target;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(t->triple, &target, &message)) diag_bug("object", "%s", message);
  bool x86 = !strcmp(t->triple, TARGET_X86_TRIPLE);
  /* Functions carry their own processor; the machine's is what the driver runs on: the baseline. */
  LLVMTargetMachineRef machine = LLVMCreateTargetMachine(target, t->triple, x86 ? "x86-64" : "generic", "",
                                                         codegen_level(optimize), LLVMRelocPIC, LLVMCodeModelDefault);
  if (!machine) diag_bug("object", "no code generator for %s", t->triple);
  return machine;
}

static const driver_text *driver_of(const char *name) {
  const driver_text *driver = driver_text_of(name);
  if (!driver) diag_bug("object", "no driver of the form '%s'", name);
  return driver;
}

/* The driver joins as assembly: compiled once, when pegen was built. */
static void add_driver(LLVMModuleRef module, const describe_request *request, const cpu_target *t) {
  const driver_text *texts[2] = {driver_of(request->form->name)};
  int n = 1;
  if (request->tvm_ffi) texts[n++] = driver_of("tvm_ffi");
  driver_add(request->memory, module, texts, n, !strcmp(t->triple, TARGET_X86_TRIPLE));
}

/* Everything but the kernel's own symbols becomes internal: the object exports few names and imports none.
 * What is only declared stands in the driver's assembly, so it is reached without a table. */
static void internalize(LLVMModuleRef module, const describe_request *request) {
  for (LLVMValueRef f = LLVMGetFirstFunction(module), next; f; f = next) {
    size_t length;
    next = LLVMGetNextFunction(f);
    if (LLVMIsDeclaration(f) && LLVMGetIntrinsicID(f)) continue;
    if (LLVMIsDeclaration(f) && !LLVMGetFirstUse(f)) { /* another form's driver has it */
      LLVMDeleteFunction(f);
      continue;
    }
    if (LLVMIsDeclaration(f)) LLVMSetVisibility(f, LLVMHiddenVisibility);
    else if (!describe_is_exported(request, LLVMGetValueName2(f, &length))) LLVMSetLinkage(f, LLVMInternalLinkage);
  }
}

bool object_write(ir *b, const cpu_target *const *targets, int n_targets, const compile_options *options,
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
  describe_add(module, describe, targets, n_targets);
  internalize(module, describe);
  add_driver(module, describe, targets[0]);
  char *message = NULL;
  if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message)) diag_bug("object", "%s", message);
  LLVMDisposeMessage(message);
  if (options->emit == EMIT_LLVM) lower_print_llvm(module, out);
  else lower_write(module, machine, options->emit == EMIT_ASM, out);
  bool ok = options->emit != EMIT_SHARED || link_shared(describe->memory, describe->spec->name, out);
  LLVMDisposeTargetData(layout);
  LLVMDisposeTargetMachine(machine);
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
  lower_end();
  return ok;
}
