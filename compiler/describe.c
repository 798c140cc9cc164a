/* describe: constants in the layout of pegen.h and loop.h; see describe.h.
 *
 * Fields are listed in the structs' order; natural alignment makes LLVM's layout C's own. The
 * sizes are checked against sizeof when the module is made, so a field that is
 * forgotten here cannot pass unseen.
 */
#include "describe.h"

#include "diag.h"
#include "emit_cpu.h"

#include "../kernel/launch.h"
#include "../kernel/loop.h"

#include <llvm-c/Target.h>
#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct describer {
  LLVMModuleRef module;
  LLVMContextRef context;
  const describe_request *request;
  LLVMTypeRef ptr, i32, i64;
} describer;

static LLVMValueRef i32(describer *d, int64_t value) { return LLVMConstInt(d->i32, (unsigned long long)value, true); }
static LLVMValueRef i64(describer *d, int64_t value) { return LLVMConstInt(d->i64, (unsigned long long)value, true); }
static LLVMValueRef null(describer *d) { return LLVMConstNull(d->ptr); }

static LLVMValueRef global(describer *d, const char *name, LLVMValueRef value, bool constant) {
  LLVMValueRef g = LLVMAddGlobal(d->module, LLVMTypeOf(value), name);
  LLVMSetInitializer(g, value);
  LLVMSetGlobalConstant(g, constant);
  LLVMSetLinkage(g, LLVMInternalLinkage);
  return g;
}

static LLVMValueRef structure(describer *d, LLVMValueRef *fields, int count) {
  return LLVMConstStructInContext(d->context, fields, (unsigned)count, false);
}

static void check_size(describer *d, const char *what, LLVMValueRef value, size_t expected) {
  size_t size = (size_t)LLVMABISizeOfType(LLVMGetModuleDataLayout(d->module), LLVMTypeOf(value));
  if (size != expected) diag_bug("describe", "%s has %zu bytes, expected %zu", what, size, expected);
}

static LLVMValueRef string(describer *d, const char *text) {
  LLVMValueRef g = global(d, "text", LLVMConstStringInContext2(d->context, text, strlen(text), false), true);
  LLVMSetUnnamedAddress(g, LLVMGlobalUnnamedAddr);
  return g;
}

static LLVMValueRef array(describer *d, const char *name, LLVMTypeRef type, LLVMValueRef *values, int count) {
  return count ? global(d, name, LLVMConstArray2(type, values, (uint64_t)count), true) : null(d);
}

static LLVMValueRef strings(describer *d, const char *name, const char *const *texts, int count) {
  LLVMValueRef *values = arena_array(d->request->memory, LLVMValueRef, count + 1);
  for (int i = 0; i < count; i++) values[i] = string(d, texts[i]);
  return array(d, name, d->ptr, values, count);
}

static LLVMValueRef sizes(describer *d, const char *name, const int64_t *sizes, int count) {
  LLVMValueRef *values = arena_array(d->request->memory, LLVMValueRef, count + 1);
  for (int i = 0; i < count; i++) values[i] = i64(d, sizes[i]);
  return array(d, name, d->i64, values, count);
}

/* ---- NAME_kernel ---- */

static const char *operand_doc(arena *a, const spec_operand *o) {
  bool sourced = o->source && *o->source;
  return arena_printf(a, "%s [%s]%s%s", o->doc, o->units, sourced ? "; " : "", sourced ? o->source : "");
}

static LLVMValueRef operands(describer *d) {
  const spec *s = d->request->p->spec;
  LLVMValueRef *rows = arena_array(d->request->memory, LLVMValueRef, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++) {
    const spec_operand *o = &s->operand[i];
    LLVMValueRef fields[] = {string(d, o->name), string(d, operand_doc(d->request->memory, o)), string(d, o->units),
                             string(d, o->initializer ? o->initializer : ""), i32(d, o->rank),
                             sizes(d, "shape", o->shape, o->rank), strings(d, "dimension", o->dimension, o->rank)};
    rows[i] = structure(d, fields, 7);
    check_size(d, "pegen_operand", rows[i], sizeof(pegen_operand));
  }
  return s->n_operands ? array(d, "operands", LLVMTypeOf(rows[0]), rows, s->n_operands) : null(d);
}

static const char *joined_options(arena *a, const spec *s) {
  const char *text = "";
  for (int i = 0; i < s->n_options; i++)
    text = arena_printf(a, "%s%s%s=%s", text, i ? " " : "", s->option[i].name, s->option[i].value);
  return text;
}

static const char *joined_targets(arena *a, const cpu_target *const *targets, int count) {
  const char *text = "";
  for (int i = 0; i < count; i++) text = arena_printf(a, "%s%s%s", text, i ? " " : "", targets[i]->name);
  return text;
}

/* ---- PTX ---- */

static LLVMValueRef ptx(describer *d) {
  static const unsigned bits[] = {PEGEN_DTYPE_F32, PEGEN_DTYPE_BF16, PEGEN_DTYPE_F16};
  const ptx_module *m = d->request->ptx;
  if (!m) return null(d);
  LLVMValueRef rows[PTX_MAX_ENTRIES];
  for (int i = 0; i < m->n_entries; i++) {
    const ptx_entry *e = &m->entry[i];
    LLVMValueRef fields[] = {string(d, e->name), i32(d, bits[e->dtype]), i32(d, e->tile->access), i32(d, e->tile->n_units), i32(d, e->flight)};
    rows[i] = structure(d, fields, 5);
    check_size(d, "pegen_ptx_entry", rows[i], sizeof(pegen_ptx_entry));
  }
  XXH128_hash_t hash = XXH3_128bits(m->text, m->size);
  LLVMValueRef digest[] = {i64(d, (int64_t)hash.high64), i64(d, (int64_t)hash.low64)};
  LLVMValueRef fields[] = {string(d, m->text), i64(d, (int64_t)m->size), LLVMConstArray2(d->i64, digest, 2), string(d, m->target->name), i32(d, PEGEN_PTX_BLOCK),
                           i32(d, m->n_parameters), i32(d, d->request->p->per_head), i32(d, m->n_entries),
                           array(d, "ptx_entries", LLVMTypeOf(rows[0]), rows, m->n_entries)};
  LLVMValueRef value = structure(d, fields, sizeof fields / sizeof *fields);
  check_size(d, "pegen_ptx", value, sizeof(pegen_ptx));
  return global(d, "ptx", value, true);
}

static LLVMValueRef kernel(describer *d, const cpu_target *const *targets, int n_targets, LLVMValueRef encode, LLVMValueRef workspace) {
  const plan *p = d->request->p;
  const spec *s = p->spec;
  arena *a = d->request->memory;
  LLVMValueRef fields[] = {
      i32(d, sizeof(pegen_kernel)), i32(d, PEGEN_ABI_VERSION), string(d, s->name), string(d, s->doc),
      string(d, d->request->digest), string(d, joined_options(a, s)), string(d, joined_targets(a, targets, n_targets)),
      i32(d, d->request->dtypes), i32(d, s->head_dim), i32(d, s->head_dim), i32(d, s->n_axes),
      strings(d, "axes", s->axis, s->n_axes), i32(d, p->per_head ? s->heads : 0), i32(d, s->skip_tokens),
      s->grid[0] ? sizes(d, "grid", s->grid, s->n_axes) : null(d), i32(d, s->n_operands), operands(d),
      encode, null(d), workspace, ptx(d)};
  LLVMValueRef value = structure(d, fields, sizeof fields / sizeof *fields);
  check_size(d, "pegen_kernel", value, sizeof(pegen_kernel));
  LLVMValueRef g = global(d, arena_printf(a, "%s_kernel", s->name), value, true);
  LLVMSetLinkage(g, LLVMExternalLinkage);
  return g;
}

/* ---- the driver's descriptor ---- */

static LLVMValueRef function_or_null(describer *d, const char *name) {
  LLVMValueRef f = LLVMGetNamedFunction(d->module, name);
  return f ? f : null(d);
}

static LLVMValueRef leaves(describer *d) {
  const plan *p = d->request->p;
  LLVMValueRef *rows = arena_array(d->request->memory, LLVMValueRef, p->n_leaves + 1);
  for (int i = 0; i < p->n_leaves; i++) {
    const expr *x = p->leaf[i];
    int count = x->n_heads * p->spec->n_blocks;
    LLVMValueRef *values = arena_array(d->request->memory, LLVMValueRef, count);
    for (int j = 0; j < count; j++)
      values[j] = x->offsets ? i32(d, x->offsets[j]) : LLVMConstReal(LLVMDoubleTypeInContext(d->context), x->table[j]);
    LLVMValueRef data = array(d, "leaf", LLVMTypeOf(values[0]), values, count);
    LLVMValueRef fields[] = {i32(d, x->offsets ? x->index : -1), i32(d, x->n_heads), x->offsets ? data : null(d), x->offsets ? null(d) : data};
    rows[i] = structure(d, fields, 4);
    check_size(d, "pegen_leaf", rows[i], sizeof(pegen_leaf));
  }
  return p->n_leaves ? array(d, "leaves", LLVMTypeOf(rows[0]), rows, p->n_leaves) : null(d);
}

static LLVMValueRef target_rows(describer *d, const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  for (int i = 0; i < count; i++) {
    LLVMValueRef encode[DTYPE_COUNT * 2];
    for (int e = 0; e < DTYPE_COUNT * 2; e++) encode[e] = function_or_null(d, emit_encode_name(a, targets[i], e / 2, e % 2));
    LLVMValueRef fields[] = {i64(d, targets[i]->level), function_or_null(d, emit_prepare_name(a, targets[i])),
                             LLVMConstArray2(d->ptr, encode, DTYPE_COUNT * 2)};
    rows[i] = structure(d, fields, 3);
    check_size(d, "pegen_target_code", rows[i], sizeof(pegen_target_code));
  }
  return array(d, "targets", LLVMTypeOf(rows[0]), rows, count);
}

static LLVMValueRef driver(describer *d, LLVMValueRef kernel, const cpu_target *const *targets, int n_targets) {
  const plan *p = d->request->p;
  LLVMValueRef fields[] = {kernel, i64(d, p->spec->n_blocks), i64(d, p->lanes), i64(d, p->per_head), i64(d, p->n_leaves), leaves(d),
                           i64(d, emit_prepared_bytes(p)), i64(d, n_targets), target_rows(d, targets, n_targets),
                           global(d, "chosen", i32(d, 0), false)};
  LLVMValueRef value = structure(d, fields, sizeof fields / sizeof *fields);
  check_size(d, "pegen_driver", value, sizeof(pegen_driver));
  return global(d, "driver", value, true);
}

/* ---- entries ---- */

/* An exported function; the descriptor refers to the entries and they to it, so bodies come later. */
static LLVMValueRef entry(describer *d, const char *name, LLVMTypeRef result, LLVMTypeRef *types, int count) {
  LLVMValueRef f = LLVMAddFunction(d->module, name, LLVMFunctionType(result, types, (unsigned)count, false));
  LLVMSetLinkage(f, LLVMExternalLinkage);
  return f;
}

/* Calls the driver's `callee` with the descriptor put before the entry's own arguments. */
static void entry_body(describer *d, LLVMValueRef f, const char *callee, LLVMValueRef descriptor) {
  LLVMValueRef arguments[4] = {descriptor};
  LLVMTypeRef types[4] = {d->ptr}, result = LLVMGetReturnType(LLVMGlobalGetValueType(f));
  unsigned count = LLVMCountParams(f);
  for (unsigned i = 0; i < count; i++) {
    arguments[i + 1] = LLVMGetParam(f, i);
    types[i + 1] = LLVMTypeOf(arguments[i + 1]);
  }
  LLVMValueRef target = LLVMAddFunction(d->module, callee, LLVMFunctionType(result, types, count + 1, false));
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(d->context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(d->context, f, "entry"));
  LLVMValueRef call = LLVMBuildCall2(builder, LLVMGlobalGetValueType(target), target, arguments, count + 1, "");
  LLVMSetTailCall(call, true);
  LLVMBuildRet(builder, call);
  LLVMDisposeBuilder(builder);
}

void describe_add(LLVMModuleRef module, const describe_request *request, const cpu_target *const *targets, int n_targets) {
  describer d = {.module = module, .context = LLVMGetModuleContext(module), .request = request};
  d.ptr = LLVMPointerTypeInContext(d.context, 0);
  d.i32 = LLVMInt32TypeInContext(d.context);
  d.i64 = LLVMInt64TypeInContext(d.context);
  const char *name = request->p->spec->name;
  LLVMTypeRef types[] = {d.ptr, d.i32, d.i32};
  LLVMValueRef encode = entry(&d, arena_printf(request->memory, "%s_encode", name), d.i32, types, 3);
  LLVMValueRef workspace = entry(&d, arena_printf(request->memory, "%s_workspace", name), d.i64, types, 1);
  LLVMValueRef descriptor = driver(&d, kernel(&d, targets, n_targets, encode, workspace), targets, n_targets);
  entry_body(&d, encode, "pegen_driver_encode", descriptor);
  entry_body(&d, workspace, "pegen_driver_workspace", descriptor);
}

bool describe_is_exported(const describe_request *request, const char *symbol) {
  static const char *const suffixes[] = {"_kernel", "_encode", "_workspace"};
  size_t length = strlen(request->p->spec->name);
  if (strncmp(symbol, request->p->spec->name, length)) return false;
  for (int i = 0; i < 3; i++)
    if (!strcmp(symbol + length, suffixes[i])) return true;
  return false;
}

/* ---- digest ---- */

static void hash_expr(XXH3_state_t *state, const expr *x, unsigned char *seen) {
  XXH3_128bits_update(state, &x->hash, sizeof x->hash);
  if (seen[x->id]) return;
  seen[x->id] = 1;
  for (int i = 0; i < expr_op_arity(x->op); i++) hash_expr(state, x->arg[i], seen);
}

const char *describe_digest(arena *a, const plan *p) {
  const spec *s = p->spec;
  int n = s->n_components;
  unsigned char *seen = arena_alloc(a, (size_t)expr_pool_count(s->pool));
  XXH3_state_t *state = XXH3_createState();
  XXH3_128bits_reset(state);
  XXH3_128bits_update(state, s->name, strlen(s->name) + 1);
  int sizes[] = {s->n_axes, s->head_dim, s->heads, n, s->n_blocks, s->skip_tokens};
  XXH3_128bits_update(state, sizes, sizeof sizes);
  XXH3_128bits_update(state, s->grid, sizeof s->grid);
  XXH3_128bits_update(state, s->channel, sizeof(int) * (size_t)(n * s->n_blocks));
  for (int i = 0; i < n * n; i++) hash_expr(state, p->program->matrix.entry[i], seen);
  for (int i = 0; i < s->n_operands; i++) {
    XXH3_128bits_update(state, s->operand[i].name, strlen(s->operand[i].name) + 1);
    XXH3_128bits_update(state, s->operand[i].shape, sizeof(int64_t) * (size_t)s->operand[i].rank);
  }
  XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return arena_printf(a, "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}
