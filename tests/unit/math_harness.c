/* math_harness: see math_harness.h. */
#include "math_harness.h"
#include "mlir/lower.h"
#include "test.h"

#include <llvm-c/Target.h>
#include <string.h>

static MlirType element(ir *b, math_type type) {
  MlirType types[] = {b->f32, b->f64, b->i16, b->i8}; /* ORDER math_type */
  return types[type];
}
static int bytes(math_type type) { return (const int[]){4, 8, 2, 1}[type]; }

static ir_value address(ir *b, ir_value base, ir_value index, int size) {
  return ir_offset(b, base, ir_op2(b, "arith.muli", index, ir_int(b, b->i64, size)));
}

/* for (i = 0; i < count; i++) out[i] = f(in[i]), whole vectors at a time. */
static void emit_function(ir *b, const math_variant *variant, const math_row *row) {
  MlirType types[3] = {b->ptr, b->ptr, b->i64}, from = element(b, row->from), none = {NULL};
  ir_value argument[3];
  int lanes = variant->lanes, step = lanes ? lanes : 1;
  MlirBlock module = b->block;
  ir_function(b, row->name, true, none, 3, types, argument);
  ir_value steps = ir_op2(b, "arith.divsi", argument[2], ir_int(b, b->i64, step));
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), steps);
  ir_value x = ir_load(b, lanes ? ir_vector(b, lanes, from) : from,
                       address(b, argument[0], loop.index, step * bytes(row->from)), bytes(row->from));
  ir_store(b, row->emit(b, x), address(b, argument[1], loop.index, step * bytes(row->to)), bytes(row->to), false);
  ir_end_for(b, loop);
  ir_return(b);
  b->block = module;
}

/* run_load looks for a kernel of this name. */
static void emit_anchor(ir *b) {
  MlirType none = {NULL};
  MlirBlock module = b->block;
  ir_function(b, "math_kernel", true, none, 0, NULL, NULL);
  ir_return(b);
  b->block = module;
}

loaded_kernel *math_load(const math_variant *variant, const math_row *rows, int count) {
  ir b;
  ir_create(&b, "math", 1);
  b.target_cpu = variant->target;
  b.exact = variant->exact;
  emit_anchor(&b);
  for (int i = 0; i < count; i++)
    if (variant->has_fma || !rows[i].needs_fma) emit_function(&b, variant, &rows[i]);
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
  char *triple = LLVMGetDefaultTargetTriple(), *message = NULL;
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module = lower_module(&b, context);
  LLVMTargetRef target;
  assert_false(LLVMGetTargetFromTriple(triple, &target, &message));
  LLVMTargetMachineRef machine =
      LLVMCreateTargetMachine(target, triple, "", "", LLVMCodeGenLevelAggressive, LLVMRelocPIC, LLVMCodeModelDefault);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  LLVMSetTarget(module, triple);
  LLVMSetModuleDataLayout(module, layout);
  lower_optimize(module, machine, 3);
  compile_output object;
  lower_write(module, machine, false, &object);
  LLVMDisposeTargetData(layout);
  LLVMDisposeTargetMachine(machine);
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
  LLVMDisposeMessage(triple);
  ir_destroy(&b);
  loaded_kernel *loaded = run_load(object.data, object.size, "math");
  assert_non_null(loaded);
  free(object.data);
  return loaded;
}
