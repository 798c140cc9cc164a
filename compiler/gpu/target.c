/* gpu/target: the vendors, and MLIR of one thread to their machines' code; see gpu/target.h. */
#include "gpu/target.h"
#include "gpu/body.h"
#include "gpu/tools.h"

#include "base/diag.h"
#include "mlir/lower.h"

#include "kernel/launch.h"

#include <llvm-c/Target.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What all of them convert. */
#define ADDRESS(vendor) &vendor,
static const gpu_vendor *const VENDORS[] = {GPU_VENDORS(ADDRESS)};
#undef ADDRESS
enum { VENDOR_COUNT = sizeof VENDORS / sizeof *VENDORS };

const gpu_target *gpu_target_at(int index) {
  for (int v = 0; v < VENDOR_COUNT; v++)
    for (const gpu_target *t = VENDORS[v]->chips; t->name; t++)
      if (index-- == 0) return t;
  return NULL;
}

const gpu_target *gpu_target_find(const char *name) {
  const gpu_target *t;
  for (int i = 0; (t = gpu_target_at(i)) && strcmp(t->name, name) != 0;) i++;
  return t;
}

const gpu_target *gpu_target_default(void) { return gpu_target_find("sm_80"); }

const gpu_target *gpu_target_parse(arena *a, const char *list, const char **cpus) {
  const gpu_target *lowest = NULL;
  *cpus = NULL;
  if (!list) return NULL;
  char *rest = arena_strdup(a, list);
  for (char *name; (name = strtok_r(rest, ",", &rest));) {
    const gpu_target *t = gpu_target_find(name);
    if (t && (!lowest || (t->vendor == lowest->vendor && t->level < lowest->level))) lowest = t;
    if (!t) *cpus = *cpus ? arena_printf(a, "%s,%s", *cpus, name) : name;
  }
  return lowest;
}

bool gpu_target_check(arena *a, const char *list, const gpu_target *chosen) {
  char *rest = arena_strdup(a, list ? list : "");
  for (char *name; (name = strtok_r(rest, ",", &rest));) {
    const gpu_target *t = gpu_target_find(name);
    if (!t || t == chosen || (t->vendor == chosen->vendor && chosen->vendor->is_portable)) continue;
    diag_error(NULL, 0, "one code cannot be for both '%s' and '%s'; expected one of them", chosen->name, name);
    return false;
  }
  return true;
}

/* ---- from the plan to LLVM ---- */

/* The host converts float16 itself. */
enum { HOST_NATIVE = NUMBER_BIT(NUMBER_F16) };

/* target: NULL for the host, which runs a GPU's threads one after the other. */
static void build(ir *b, arena *a, const gpu_program *p, const gpu_target *target) {
  bool host = !target;
  ir_create(b, p->spec->file, p->spec->line);
  b->exact = true; /* error-free sums need every rounding, and tests on the host the GPU's bits */
  if (target) ir_begin_gpu(b, &target->vendor->ir, target->name, target->has_mma);
  else {
    b->host_wait = arena_printf(a, "%s_host_wait", p->spec->name);
    ir_declare(b, b->host_wait, "n");
    b->host_warp = arena_printf(a, "%s_host_warp", p->spec->name);
    ir_declare(b, b->host_warp, "nnpp");
  }
  for (int i = 0; i < p->n_entries; i++) {
    gpu_emit *emit = p->entry[i].emit ? p->entry[i].emit : p->emit;
    emit(b, a, p, &p->entry[i], target ? target->native : HOST_NATIVE, host);
  }
}

typedef struct compilation {
  LLVMContextRef context;
  LLVMModuleRef module;
  LLVMTargetMachineRef machine;
} compilation;

typedef struct machine {
  const char *triple, *cpu, *features;
  int optimize; /* its code generator, 0..3 */
} machine;

static compilation lower(ir *b, const gpu_program *p, const machine *m, int optimize) {
  compilation c = {.context = LLVMContextCreate()};
  LLVMTargetRef target;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(m->triple, &target, &message)) diag_bug("target", "%s", message);
  c.module = lower_module(b, c.context);
  c.machine = LLVMCreateTargetMachine(target, m->triple, m->cpu, m->features, (LLVMCodeGenOptLevel)m->optimize,
                                      LLVMRelocPIC, LLVMCodeModelDefault);
  if (!c.machine) diag_bug("target", "no code generator for %s", m->triple);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(c.machine);
  LLVMSetTarget(c.module, m->triple);
  LLVMSetModuleDataLayout(c.module, layout);
  LLVMSetModuleIdentifier(c.module, p->spec->name, strlen(p->spec->name));
  LLVMSetSourceFileName(c.module, p->spec->name, strlen(p->spec->name));
  LLVMDisposeTargetData(layout);
  lower_optimize(c.module, c.machine, optimize);
  return c;
}

static void dispose(compilation *c) {
  LLVMDisposeTargetMachine(c->machine);
  LLVMDisposeModule(c->module);
  LLVMContextDispose(c->context);
}

/* Whether there are entries that write another type than they read. */
static bool converts(const gpu_program *p) {
  bool some = false;
  for (int i = 0; i < p->n_entries; i++) some = some || p->entry[i].other;
  return some;
}

/* Whether there are entries of rows' gradients that read what encode read. */
static bool reads_kept(const gpu_program *p) {
  bool some = false;
  for (int i = 0; i < p->n_entries; i++) some = some || p->entry[i].reads_kept;
  return some;
}

static const char *features_of(const gpu_program *p, const gpu_target *target) {
  return target->float8_features && converts(p) ? target->float8_features : target->features;
}

/* ---- the head of a PTX file ---- */

static void print_parameters(FILE *f, const gpu_program *p) {
  const spec *s = p->spec;
  fprintf(f, "// Parameters, 8 bytes each: batches, tokens, rows a thread,\n");
  fprintf(f, "//   positions, their type (0 f32, 1 f64, 2 i32, 3 i64) and strides (batch, token, axis),\n");
  fprintf(f, "//   q: in, out, heads, strides of in (batch, token, head), strides of out; the same of k");
  if (s->n_operands) fprintf(f, ",\n//   operands, address and type each (0 f32, 1 f64, 2 f16, 3 bf16):");
  for (int i = 0; i < s->n_operands; i++) fprintf(f, "%s %s", i ? "," : "", s->operand[i].name);
  if (s->n_inputs)
    fprintf(f, ",\n//   inputs%s, address, type (as of operands) and strides (batch, token, head) each:",
            p->of_rows ? "" : " of a query");
  for (int i = 0; i < s->n_inputs; i++) fprintf(f, "%s %s", i ? "," : "", s->input[i].name);
  if (converts(p)) fprintf(f, ",\n//   of entries that convert: addresses of the scales of q_out and of k_out (0: 1)");
  if (reads_kept(p))
    fprintf(f, ",\n//   of gradients of rows: q as encode read it (address, strides: batch, token, head), k");
  if (p->of || p->matrices || p->has_columns)
    fprintf(f, ",\n//   of gradients of operands and positions: q as encode wrote or read it (address, strides: batch, "
               "token,\n"
               "//   head), k, 1 where it was read, items, items of a chunk, sums, shares (docs/embedding-ptx.md)");
  if (p->of_rows && p->of) fprintf(f, ",\n//   and behind those the address of what inputs gain of rows");
  if (p->has_columns)
    fprintf(
        f,
        ",\n//   behind those 1 where gradients of inputs are added to what is there, and these as inputs are given");
  bool of_heads = p->per_head || p->of_rows;
  const char *others = of_heads ? "heads" : "batches";
  fprintf(f,
          ".\n// Strides are in bytes. Grid: x = ceil(%s * tokens * units / %d), or ceil(%s * tokens / tokens of a "
          "block)\n// where they are given; y = ceil(%s / rows a thread).\n",
          others, PEGEN_PTX_BLOCK, others, of_heads ? "batches * tensors" : "heads of q and k");
  if (p->of_rows) fprintf(f, "// Rows a thread: those of q and of k, 1 or 2.\n");
  if (p->of || p->matrices || p->has_columns)
    fprintf(f, "// Of those gradients: x = ceil(chunks * %sunits / %d), y = 1.\n", of_heads ? "heads * " : "",
            PEGEN_PTX_BLOCK);
}

static void print_blocks(FILE *f, const gpu_program *p) {
  for (int i = 0; i < p->spec->n_parts; i++) {
    const plan *part = p->rows.of[i];
    fprintf(f, "// Part %d, channels %d to %d: %d blocks of %d channels; %d operations a block and token.\n", i + 1,
            part->begin, part->end - 1, part->spec->n_blocks, part->spec->n_components, part->token_operations);
  }
  if (p->spec->n_parts == 0)
    fprintf(f, "// %d blocks of %d channels; %d operations a block and token.\n", p->spec->n_blocks,
            p->spec->n_components, p->operations);
  fprintf(f, "//\n");
}

/* Entries that encode rows. */
static void print_rows(FILE *f, const gpu_program *p) {
  if (p->summary) fprintf(f, "// %s\n//\n", p->summary);
  else print_blocks(f, p);
  fprintf(f, "// entry, units of a token, bytes of an access, tokens of a block\n");
  for (int i = 0; i < p->n_entries; i++) {
    const gpu_entry *e = &p->entry[i];
    if (!e->tile && !e->units) continue; /* a thread a number: kernel/launch.h */
    fprintf(f, "//   %-40s %4d %4d", e->name, gpu_entry_units(e), e->access);
    if (e->tile->owners) fprintf(f, " %4d", e->tile->owners * PEGEN_PTX_BLOCK / 32);
    fputc('\n', f);
  }
  print_parameters(f, p);
}

/* What launches have to give blocks. */
static void print_shared(FILE *f, const gpu_program *p) {
  bool any = false;
  for (int i = 0; i < p->n_entries; i++) {
    if (p->entry[i].shared && !any) fprintf(f, "// Entries launched with dynamic shared memory, and its bytes:\n");
    any = any || p->entry[i].shared;
    if (p->entry[i].shared) fprintf(f, "//   %-40s %6d\n", p->entry[i].name, p->entry[i].shared);
  }
}

static void print_head(FILE *f, const gpu_program *p) {
  const spec *s = p->spec;
  fprintf(f, "// %s: made by pegen %s", s->name, PEGEN_VERSION);
  if (s->description) fprintf(f, " from the description %s", s->description);
  for (int i = 0; i < s->n_options; i++)
    fprintf(f, "%s%s=%s", i ? " " : " with\n// ", s->option[i].name, s->option[i].value);
  fputc('\n', f);
  (p->print_work ? p->print_work : print_rows)(f, p);
  print_shared(f, p);
}

/* The text of options that came from a description must not end the comment it stands in. */
static void one_line_comments(char *text, const char *end) {
  for (char *c = text; c < end; c++)
    if (*c == '\r' || (*c == '\n' && c + 2 < end && (c[1] != '/' || c[2] != '/'))) *c = ' ';
}

static void prepend_head(const gpu_program *p, compile_output *out) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = arena_must(open_memstream(&text, &size));
  print_head(f, p);
  if (fflush(f)) arena_must(NULL);
  one_line_comments(text, text + size - 1);
  fwrite(out->data, 1, out->size, f);
  if (fclose(f)) arena_must(NULL);
  free(out->data);
  *out = (compile_output){.data = text, .size = size};
}

/* ---- outputs ---- */

void gpu_write(arena *a, const gpu_program *p, const gpu_target *target, const compile_options *options,
               compile_output *out) {
  ir b;
  build(&b, a, p, target);
  if (options->emit == EMIT_MLIR) lower_print_mlir(&b, out);
  else {
    target->vendor->initialize();
    lower_begin();
    const machine m = {target->vendor->triple, target->name, features_of(p, target), options->optimize};
    compilation c = lower(&b, p, &m, options->optimize);
    if (options->emit == EMIT_LLVM) lower_print_llvm(c.module, out);
    else {
      lower_write(c.module, c.machine, options->emit != EMIT_OBJ, out);
      if (options->emit != EMIT_OBJ) prepend_head(p, out);
    }
    dispose(&c);
    lower_end();
  }
  ir_destroy(&b);
}

/* Declarations of entries, by which a stand-in for a driver finds them. */
static void declare_entries(const gpu_program *p, compile_output *out) {
  FILE *f = arena_must(open_memstream(&out->data, &out->size));
  for (int i = 0; i < p->n_entries; i++) fprintf(f, ".visible .entry %s();\n", p->entry[i].name);
  if (fclose(f)) arena_must(NULL);
}

gpu_module *gpu_compile(arena *a, const gpu_program *p, const gpu_target *target, const compile_options *given) {
  gpu_module *m = arena_new(a, gpu_module);
  compile_options options = {.emit = EMIT_PTX, .optimize = given->optimize};
  compile_output text;
  if (given->launches_alone) declare_entries(p, &text);
  else gpu_write(a, p, target, &options, &text);
  m->target = target;
  m->program = p;
  m->n_parameters = p->attention ? p->attention->n_parameters
                                 : gpu_parameters(p->spec) + gpu_origin_parameters(p->spec) +
                                       (converts(p) ? PEGEN_PTX_SCALE_COUNT : 0);
  m->size = text.size;
  m->text = arena_printf(a, "%.*s", (int)text.size, text.data);
  free(text.data);
  if (given->cubin && !gpu_tools_assemble(a, m->text, m->size, target->name, &m->cubin, &m->cubin_size)) return NULL;
  return m;
}

/* A variable that is set after loading. */
static LLVMValueRef host_pointer(LLVMModuleRef module, LLVMTypeRef ptr, const char *name) {
  LLVMValueRef variable = LLVMAddGlobal(module, ptr, name);
  LLVMSetInitializer(variable, LLVMConstNull(ptr));
  return variable;
}

/* What emitted code calls of the runner of threads, where it does: void NAME_host_CALL(...) { NAME_host_CALLer(...); },
 * CALL being wait (a barrier) or warp (what its lanes do together). */
static void add_host_call(LLVMModuleRef module, arena *a, const char *name, const char *call) {
  LLVMContextRef context = LLVMGetModuleContext(module);
  LLVMTypeRef ptr = LLVMPointerTypeInContext(context, 0);
  LLVMValueRef f = LLVMGetNamedFunction(module, arena_printf(a, "%s_host_%s", name, call)), arguments[4];
  LLVMValueRef variable = host_pointer(module, ptr, arena_printf(a, "%s_host_%ser", name, call));
  if (!f) return;
  LLVMGetParams(f, arguments);
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, f, "entry"));
  LLVMBuildCall2(builder, LLVMGlobalGetValueType(f), LLVMBuildLoad2(builder, ptr, variable, ""), arguments,
                 LLVMCountParams(f), "");
  LLVMBuildRetVoid(builder);
  LLVMDisposeBuilder(builder);
}

/* int NAME_host_ENTRY(args, part, parts) { return NAME_host_ENTRY_runner(NAME_host_context, args, part, parts); }, so
 * that the host's stand-in of a kernel knows which one it is; the variables are set after loading. count: of those
 * arguments. */
static void add_host_entry(LLVMModuleRef module, arena *a, const char *name, const char *entry, LLVMTypeRef result,
                           unsigned count) {
  LLVMContextRef context = LLVMGetModuleContext(module);
  LLVMTypeRef ptr = LLVMPointerTypeInContext(context, 0), i32 = LLVMInt32TypeInContext(context);
  LLVMTypeRef types[] = {ptr, ptr, i32, i32};
  LLVMValueRef host = LLVMGetNamedGlobal(module, arena_printf(a, "%s_host_context", name));
  LLVMValueRef f = LLVMAddFunction(module, arena_printf(a, "%s_host_%s", name, entry),
                                   LLVMFunctionType(result, types + 1, count, false));
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, f, "entry"));
  LLVMValueRef runner =
      LLVMBuildLoad2(builder, ptr, host_pointer(module, ptr, arena_printf(a, "%s_host_%s_runner", name, entry)), "");
  LLVMValueRef arguments[4] = {LLVMBuildLoad2(builder, ptr, host, "")};
  for (unsigned i = 0; i < count; i++) arguments[i + 1] = LLVMGetParam(f, i);
  LLVMTypeRef called = LLVMFunctionType(result, types, count + 1, false);
  LLVMBuildRet(builder, LLVMBuildCall2(builder, called, runner, arguments, count + 1, ""));
  LLVMDisposeBuilder(builder);
}

/* Those that are launched, and the sizes of workspaces, which are a launch's own. */
static void add_host_entries(LLVMModuleRef module, arena *a, const char *name) {
  LLVMContextRef context = LLVMGetModuleContext(module);
  host_pointer(module, LLVMPointerTypeInContext(context, 0), arena_printf(a, "%s_host_context", name));
  for (int e = 0; e < PEGEN_LAUNCH_COUNT; e++)
    add_host_entry(module, a, name, pegen_launch_word((pegen_launch_entry)e), LLVMInt32TypeInContext(context), 3);
  add_host_entry(module, a, name, "attention_workspace", LLVMInt64TypeInContext(context), 1);
  add_host_entry(module, a, name, "encode_backward_workspace", LLVMInt64TypeInContext(context), 1);
  add_host_entry(module, a, name, "attention_backward_workspace", LLVMInt64TypeInContext(context), 1);
}

void gpu_write_host(arena *a, const gpu_program *p, int optimize, compile_output *out) {
  ir b;
  build(&b, a, p, NULL);
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
  lower_begin();
  char *triple = LLVMGetDefaultTargetTriple(), *cpu = LLVMGetHostCPUName(), *features = LLVMGetHostCPUFeatures();
  /* What runs once or twice is there sooner by few passes and the quickest code generator: half of a test's time. */
  compilation c = lower(&b, p, &(machine){triple, cpu, features, 0}, optimize ? 1 : 0);
  add_host_entries(c.module, a, p->spec->name);
  add_host_call(c.module, a, p->spec->name, "wait");
  add_host_call(c.module, a, p->spec->name, "warp");
  lower_write(c.module, c.machine, false, out);
  LLVMDisposeMessage(triple);
  LLVMDisposeMessage(cpu);
  LLVMDisposeMessage(features);
  dispose(&c);
  lower_end();
  ir_destroy(&b);
}
