/* object/describe: constants in the layout of cli/pegen.h and loop.h; see object/describe.h.
 *
 * Fields are listed in the structs' order; natural alignment makes LLVM's layout C's own. The
 * sizes are checked against sizeof when the module is made, so a field that is
 * forgotten here cannot pass unseen.
 */
#include "object/describe.h"

#include "base/diag.h"
#include "base/number.h"
#include "forms/form.h"
#include "plan/plan.h"

#include "kernel/dense.h"
#include "kernel/launch.h"

#include <llvm-c/Target.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

LLVMValueRef describe_i32(describer *d, int64_t value) { return LLVMConstInt(d->i32, (unsigned long long)value, true); }
LLVMValueRef describe_i64(describer *d, int64_t value) { return LLVMConstInt(d->i64, (unsigned long long)value, true); }
LLVMValueRef describe_f64(describer *d, double value) {
  return LLVMConstReal(LLVMDoubleTypeInContext(d->context), value);
}
LLVMValueRef describe_null(describer *d) { return LLVMConstNull(d->ptr); }

LLVMValueRef describe_global(describer *d, const char *name, LLVMValueRef value, bool constant) {
  LLVMValueRef g = LLVMAddGlobal(d->module, LLVMTypeOf(value), name);
  LLVMSetInitializer(g, value);
  LLVMSetGlobalConstant(g, constant);
  LLVMSetLinkage(g, LLVMInternalLinkage);
  return g;
}

LLVMValueRef describe_struct(describer *d, const char *what, LLVMValueRef *fields, int count, size_t size) {
  LLVMValueRef value = LLVMConstStructInContext(d->context, fields, (unsigned)count, false);
  size_t got = (size_t)LLVMABISizeOfType(LLVMGetModuleDataLayout(d->module), LLVMTypeOf(value));
  if (got != size) diag_bug("describe", "%s has %zu bytes, expected %zu", what, got, size);
  return value;
}

LLVMValueRef describe_string(describer *d, const char *text) {
  LLVMValueRef g = describe_global(d, "text", LLVMConstStringInContext2(d->context, text, strlen(text), false), true);
  LLVMSetUnnamedAddress(g, LLVMGlobalUnnamedAddr);
  return g;
}

LLVMValueRef describe_array(describer *d, const char *name, LLVMTypeRef type, LLVMValueRef *values, int count) {
  return count ? describe_global(d, name, LLVMConstArray2(type, values, (uint64_t)count), true) : describe_null(d);
}

LLVMValueRef describe_strings(describer *d, const char *name, const char *const *texts, int count) {
  LLVMValueRef *values = arena_array(d->request->memory, LLVMValueRef, count + 1);
  for (int i = 0; i < count; i++) values[i] = describe_string(d, texts[i]);
  return describe_array(d, name, d->ptr, values, count);
}

LLVMValueRef describe_sizes(describer *d, const char *name, const int64_t *sizes, int count) {
  LLVMValueRef *values = arena_array(d->request->memory, LLVMValueRef, count + 1);
  for (int i = 0; i < count; i++) values[i] = describe_i64(d, sizes[i]);
  return describe_array(d, name, d->i64, values, count);
}

LLVMValueRef describe_function(describer *d, const char *name) {
  LLVMValueRef f = LLVMGetNamedFunction(d->module, name);
  return f ? f : describe_null(d);
}

/* A constant struct in a list of them, and the list. */
static LLVMValueRef rows(describer *d, const char *name, LLVMValueRef *values, int count) {
  return count ? describe_array(d, name, LLVMTypeOf(values[0]), values, count) : describe_null(d);
}

LLVMValueRef describe_leaves(describer *d, const plan *p) {
  arena *a = d->request->memory;
  LLVMValueRef *rows = arena_array(a, LLVMValueRef, p->n_leaves + 1);
  for (int i = 0; i < p->n_leaves; i++) {
    const expr *x = p->leaf[i];
    int count = x->n_heads * p->spec->n_blocks;
    LLVMValueRef *values = arena_array(a, LLVMValueRef, count);
    for (int j = 0; j < count; j++)
      values[j] = x->offsets ? describe_i32(d, x->offsets[j]) : describe_f64(d, x->table[j]);
    LLVMValueRef data = describe_array(d, "leaf", LLVMTypeOf(values[0]), values, count);
    LLVMValueRef fields[] = {describe_i32(d, x->offsets ? x->index : -1), describe_i32(d, x->n_heads),
                             x->offsets ? data : describe_null(d), x->offsets ? describe_null(d) : data};
    rows[i] = describe_struct(d, "pegen_leaf", fields, 4, sizeof(pegen_leaf));
  }
  return p->n_leaves ? describe_array(d, "leaves", LLVMTypeOf(rows[0]), rows, p->n_leaves) : describe_null(d);
}

LLVMValueRef describe_skew(describer *d, const spec_skew *g, int blocks) {
  int count = g->n_heads * blocks;
  LLVMValueRef *offsets = arena_array(d->request->memory, LLVMValueRef, count);
  for (int i = 0; i < count; i++) offsets[i] = describe_i32(d, g->offset[i]);
  LLVMValueRef fields[] = {describe_i64(d, g->operand), describe_i64(d, g->rule == SKEW_DIFFERENCE),
                           describe_i64(d, g->n_heads), describe_array(d, "offsets", d->i32, offsets, count)};
  return describe_struct(d, "pegen_skew", fields, 4, sizeof(pegen_skew));
}

/* ---- NAME_kernel ---- */

static const char *operand_doc(arena *a, const spec_operand *o) {
  bool sourced = o->source && *o->source;
  return arena_printf(a, "%s [%s]%s%s", o->doc, o->units, sourced ? "; " : "", sourced ? o->source : "");
}

static LLVMValueRef operands(describer *d) {
  const spec *s = d->request->spec;
  LLVMValueRef *values = arena_array(d->request->memory, LLVMValueRef, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++) {
    const spec_operand *o = &s->operand[i];
    LLVMValueRef fields[] = {describe_string(d, o->name),
                             describe_string(d, operand_doc(d->request->memory, o)),
                             describe_string(d, o->units),
                             describe_string(d, o->initializer ? o->initializer : ""),
                             describe_i32(d, o->rank),
                             describe_sizes(d, "shape", o->shape, o->rank),
                             describe_strings(d, "dimension", o->dimension, o->rank)};
    values[i] = describe_struct(d, "pegen_operand", fields, 7, sizeof(pegen_operand));
  }
  return rows(d, "operands", values, s->n_operands);
}

static LLVMValueRef inputs(describer *d) {
  const spec *s = d->request->spec;
  LLVMValueRef *values = arena_array(d->request->memory, LLVMValueRef, s->n_inputs + 1);
  for (int i = 0; i < s->n_inputs; i++) {
    const spec_input *in = &s->input[i];
    bool sourced = in->source && *in->source;
    const char *doc = arena_printf(d->request->memory, "%s [%s]%s%s", in->doc, in->units, sourced ? "; " : "",
                                   sourced ? in->source : "");
    LLVMValueRef fields[] = {describe_string(d, in->name), describe_string(d, doc), describe_string(d, in->units),
                             describe_i64(d, in->size)};
    values[i] = describe_struct(d, "pegen_input", fields, 4, sizeof(pegen_input));
  }
  return rows(d, "inputs", values, s->n_inputs);
}

/* pegen_width of every number type; *first and *columns receive the first one that is compiled in. */
static LLVMValueRef number_type_widths(describer *d, pegen_width *first, LLVMValueRef *columns) {
  const describe_request *r = d->request;
  LLVMValueRef values[NUMBER_CHANNEL_TYPES];
  bool found = false;
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
    const char **texts = NULL;
    int out_dim = r->form->out_dim(r->memory, r->plan, type, &texts), count = out_dim - r->spec->head_dim;
    LLVMValueRef list = describe_strings(d, "columns", texts, count);
    LLVMValueRef fields[] = {describe_i32(d, out_dim), describe_i32(d, count), list};
    values[type] = describe_struct(d, "pegen_width", fields, 3, sizeof(pegen_width));
    if (found || !(r->dtypes & 1u << type)) continue;
    found = true;
    *first = (pegen_width){.out_dim = out_dim, .n_columns = count};
    *columns = list;
  }
  return rows(d, "widths", values, NUMBER_CHANNEL_TYPES);
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

static LLVMValueRef ptx_attention_of(describer *d, const ptx_program *program) {
  const ptx_attention *of = program->attention;
  if (!of) return describe_null(d);
  LLVMValueRef fields[] = {describe_i32(d, of->first_entry), describe_i32(d, of->n_parameters),
                           describe_i32(d, of->value_dim),   describe_i32(d, of->placed),
                           describe_i32(d, of->grid_only),   describe_i32(d, (int32_t)of->indexed)};
  return describe_global(d, "ptx_attention",
                         describe_struct(d, "pegen_ptx_attention", fields, 6, sizeof(pegen_ptx_attention)), true);
}

static LLVMValueRef ptx(describer *d) {
  const ptx_module *m = d->request->ptx;
  if (!m) return describe_null(d);
  LLVMValueRef values[PTX_MAX_ENTRIES];
  for (int i = 0; i < m->program->n_entries; i++) {
    const ptx_entry *e = &m->program->entry[i];
    LLVMValueRef fields[] = {describe_string(d, e->name), describe_i32(d, number_type_info(e->dtype)->dtype),
                             describe_i32(d, e->access),  describe_i32(d, ptx_entry_units(e)),
                             describe_i32(d, e->flight),  describe_i32(d, e->tile->columns)};
    values[i] = describe_struct(d, "pegen_ptx_entry", fields, 6, sizeof(pegen_ptx_entry));
  }
  XXH128_hash_t hash = XXH3_128bits(m->text, m->size);
  LLVMValueRef digest[] = {describe_i64(d, (int64_t)hash.high64), describe_i64(d, (int64_t)hash.low64)};
  LLVMValueRef fields[] = {describe_string(d, m->text),
                           describe_i64(d, (int64_t)m->size),
                           LLVMConstArray2(d->i64, digest, 2),
                           describe_string(d, m->target->name),
                           describe_i32(d, PEGEN_PTX_BLOCK),
                           describe_i32(d, m->n_parameters),
                           describe_i32(d, d->request->form->per_head(d->request->plan)),
                           describe_i32(d, m->program->n_entries),
                           rows(d, "ptx_entries", values, m->program->n_entries),
                           ptx_attention_of(d, m->program)};
  return describe_global(
      d, "ptx", describe_struct(d, "pegen_ptx", fields, sizeof fields / sizeof *fields, sizeof(pegen_ptx)), true);
}

/* The exported functions, null where the form has none. ORDER entry_kinds */
enum { ENTRY_ENCODE, ENTRY_ATTENTION, ENTRY_PREPARE, ENTRY_WORKSPACE, ENTRY_TABLE_BYTES, ENTRY_COUNT };

static LLVMValueRef kernel(describer *d, const cpu_target *const *targets, int n_targets, const LLVMValueRef *entry) {
  const describe_request *r = d->request;
  const spec *s = r->spec;
  arena *a = r->memory;
  pegen_width width = {.out_dim = s->head_dim};
  LLVMValueRef columns = describe_null(d),
               widths = r->form->out_dim ? number_type_widths(d, &width, &columns) : describe_null(d);
  LLVMValueRef fields[] = {describe_i32(d, sizeof(pegen_kernel)),
                           describe_i32(d, PEGEN_ABI_VERSION),
                           describe_string(d, s->name),
                           describe_string(d, s->doc),
                           describe_string(d, r->digest),
                           describe_string(d, joined_options(a, s)),
                           describe_string(d, joined_targets(a, targets, n_targets)),
                           describe_i32(d, r->dtypes),
                           describe_i32(d, s->head_dim),
                           describe_i32(d, width.out_dim),
                           describe_i32(d, s->n_axes),
                           describe_strings(d, "axes", s->axis, s->n_axes),
                           describe_i32(d, r->form->per_head(r->plan) ? s->heads : 0),
                           describe_i32(d, s->skip_tokens),
                           s->grid[0] ? describe_sizes(d, "grid", s->grid, s->n_axes) : describe_null(d),
                           describe_i32(d, s->n_operands),
                           operands(d),
                           entry[ENTRY_ENCODE],
                           entry[ENTRY_ATTENTION],
                           entry[ENTRY_WORKSPACE],
                           ptx(d),
                           entry[ENTRY_PREPARE],
                           entry[ENTRY_TABLE_BYTES],
                           describe_i32(d, s->n_inputs),
                           describe_i32(d, width.n_columns),
                           inputs(d),
                           columns,
                           widths};
  LLVMValueRef value = describe_struct(d, "pegen_kernel", fields, sizeof fields / sizeof *fields, sizeof(pegen_kernel));
  LLVMValueRef g = describe_global(d, arena_printf(a, "%s_kernel", s->name), value, true);
  LLVMSetLinkage(g, LLVMExternalLinkage);
  return g;
}

/* ---- the driver's descriptor ---- */

static LLVMValueRef driver(describer *d, LLVMValueRef kernel, const cpu_target *const *targets, int n_targets) {
  const describe_request *r = d->request;
  LLVMValueRef levels[TARGET_MAX];
  for (int i = 0; i < n_targets; i++) levels[i] = describe_i64(d, targets[i]->level);
  LLVMValueRef fields[] = {kernel,
                           describe_i64(d, r->form->per_head(r->plan)),
                           describe_i64(d, n_targets),
                           describe_array(d, "levels", d->i64, levels, n_targets),
                           describe_global(d, "chosen", describe_i32(d, 0), false),
                           r->form->describe(d, r->plan, targets, n_targets)};
  return describe_global(d, "driver", describe_struct(d, "pegen_driver", fields, 6, sizeof(pegen_driver)), true);
}

/* ---- entries ---- */

static const struct entry_kind {
  const char *suffix;
  size_t callee;   /* offset in form_entries */
  bool is_size;    /* size_t (args), else int (args, part, parts) */
} entry_kinds[ENTRY_COUNT] = {
    {"_encode", offsetof(form_entries, encode), false},
    {"_attention", offsetof(form_entries, attention), false},
    {"_prepare", offsetof(form_entries, prepare), false},
    {"_workspace", offsetof(form_entries, workspace), true},
    {"_table_bytes", offsetof(form_entries, table_bytes), true},
};

static const char *callee_of(const form *f, int kind) {
  return *(const char *const *)(const void *)((const char *)&f->entries + entry_kinds[kind].callee);
}

/* An exported function; the descriptor refers to the entries and they to it, so bodies come later. */
static LLVMValueRef entry(describer *d, int kind) {
  if (!callee_of(d->request->form, kind)) return describe_null(d);
  LLVMTypeRef types[] = {d->ptr, d->i32, d->i32};
  LLVMTypeRef type =
      entry_kinds[kind].is_size ? LLVMFunctionType(d->i64, types, 1, false) : LLVMFunctionType(d->i32, types, 3, false);
  const char *name = arena_printf(d->request->memory, "%s%s", d->request->spec->name, entry_kinds[kind].suffix);
  LLVMValueRef f = LLVMAddFunction(d->module, name, type);
  LLVMSetLinkage(f, LLVMExternalLinkage);
  return f;
}

static LLVMValueRef driver_function(describer *d, const char *name, LLVMTypeRef type) {
  LLVMValueRef f = LLVMGetNamedFunction(d->module, name);
  return f ? f : LLVMAddFunction(d->module, name, type);
}

/* Calls the driver's `callee` with the descriptor put before the entry's own arguments: a size by itself, what computes
 * by way of pegen_enter, which gets it as its last argument. */
static void entry_body(describer *d, LLVMValueRef f, int kind, LLVMValueRef descriptor) {
  LLVMValueRef arguments[5] = {descriptor};
  LLVMTypeRef types[5] = {d->ptr}, result = LLVMGetReturnType(LLVMGlobalGetValueType(f));
  unsigned count = 1;
  for (; count <= LLVMCountParams(f); count++) {
    arguments[count] = LLVMGetParam(f, count - 1);
    types[count] = LLVMTypeOf(arguments[count]);
  }
  LLVMValueRef target =
      driver_function(d, callee_of(d->request->form, kind), LLVMFunctionType(result, types, count, false));
  if (!entry_kinds[kind].is_size) {
    arguments[count] = target;
    types[count++] = d->ptr;
    target = driver_function(d, "pegen_enter", LLVMFunctionType(result, types, count, false));
  }
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(d->context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(d->context, f, "entry"));
  LLVMValueRef call = LLVMBuildCall2(builder, LLVMGlobalGetValueType(target), target, arguments, count, "");
  LLVMSetTailCall(call, true);
  LLVMBuildRet(builder, call);
  LLVMDisposeBuilder(builder);
}

void describe_add(LLVMModuleRef module, const describe_request *request, const cpu_target *const *targets,
                  int n_targets) {
  describer d = {.module = module, .context = LLVMGetModuleContext(module), .request = request};
  d.ptr = LLVMPointerTypeInContext(d.context, 0);
  d.i32 = LLVMInt32TypeInContext(d.context);
  d.i64 = LLVMInt64TypeInContext(d.context);
  LLVMValueRef entries[ENTRY_COUNT];
  for (int kind = 0; kind < ENTRY_COUNT; kind++) entries[kind] = entry(&d, kind);
  LLVMValueRef descriptor = driver(&d, kernel(&d, targets, n_targets, entries), targets, n_targets);
  for (int kind = 0; kind < ENTRY_COUNT; kind++)
    if (callee_of(request->form, kind)) entry_body(&d, entries[kind], kind, descriptor);
}

bool describe_is_exported(const describe_request *request, const char *symbol) {
  size_t length = strlen(request->spec->name);
  if (strncmp(symbol, request->spec->name, length)) return false;
  if (!strcmp(symbol + length, "_kernel")) return true;
  for (int kind = 0; kind < ENTRY_COUNT; kind++)
    if (callee_of(request->form, kind) && !strcmp(symbol + length, entry_kinds[kind].suffix)) return true;
  return false;
}

/* ---- digest ---- */

struct describe_hash {
  XXH3_state_t *state;
  unsigned char *seen; /* by expr id */
};

void describe_hash_bytes(describe_hash *h, const void *bytes, size_t size) {
  XXH3_128bits_update(h->state, bytes, size);
}

void describe_hash_expr(describe_hash *h, const expr *x) {
  describe_hash_bytes(h, &x->hash, sizeof x->hash);
  if (h->seen[x->id]) return;
  h->seen[x->id] = 1;
  for (int i = 0; i < expr_op_arity(x->op); i++) describe_hash_expr(h, x->arg[i]);
}

const char *describe_digest(arena *a, const form *f, const spec *s, const void *plan) {
  describe_hash h = {arena_must(XXH3_createState()), arena_alloc(a, (size_t)expr_pool_count(s->pool))};
  XXH3_128bits_reset(h.state);
  describe_hash_bytes(&h, s->name, strlen(s->name) + 1);
  int sizes[] = {s->n_axes, s->head_dim, s->heads, s->n_components, s->n_blocks, s->skip_tokens};
  describe_hash_bytes(&h, sizes, sizeof sizes);
  describe_hash_bytes(&h, s->grid, sizeof s->grid);
  describe_hash_bytes(&h, s->channel, sizeof(int) * (size_t)(s->n_components * s->n_blocks));
  f->hash(&h, plan);
  for (int i = 0; i < s->n_operands; i++) {
    describe_hash_bytes(&h, s->operand[i].name, strlen(s->operand[i].name) + 1);
    describe_hash_bytes(&h, s->operand[i].shape, sizeof(int64_t) * (size_t)s->operand[i].rank);
  }
  for (int i = 0; i < s->n_inputs; i++) {
    describe_hash_bytes(&h, s->input[i].name, strlen(s->input[i].name) + 1);
    describe_hash_bytes(&h, &s->input[i].size, sizeof s->input[i].size);
  }
  XXH128_hash_t hash = XXH3_128bits_digest(h.state);
  XXH3_freeState(h.state);
  return arena_printf(a, "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}
