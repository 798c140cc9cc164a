/* object/describe: constants in the layout of pegen.h and the headers of kernel/; see object/describe.h.
 *
 * Natural alignment makes LLVM's layout of a struct C's own. Fields are given by name and checked against the C struct
 * when the module is made, so that one that is forgotten here cannot pass unseen.
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
#include <stdlib.h>
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

static int by_offset(const void *left, const void *right) {
  const describe_field *x = left, *y = right;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

LLVMValueRef describe_struct(describer *d, const char *what, describe_field *fields, size_t count, size_t size) {
  LLVMTargetDataRef layout = LLVMGetModuleDataLayout(d->module);
  LLVMValueRef *values = arena_array(d->request->memory, LLVMValueRef, count);
  qsort(fields, count, sizeof *fields, by_offset);
  for (size_t i = 0; i < count; i++) {
    values[i] = fields[i].value;
    size_t got = (size_t)LLVMABISizeOfType(layout, LLVMTypeOf(values[i]));
    if (got != fields[i].size)
      diag_bug("describe", "%s.%s is given %zu bytes, expected %zu", what, fields[i].name, got, fields[i].size);
  }
  LLVMValueRef value = LLVMConstStructInContext(d->context, values, (unsigned)count, false);
  for (size_t i = 0; i < count; i++)
    if (LLVMOffsetOfElement(layout, LLVMTypeOf(value), (unsigned)i) != fields[i].offset)
      diag_bug("describe", "a field of %s before %s is missing, or given twice", what, fields[i].name);
  if ((size_t)LLVMABISizeOfType(layout, LLVMTypeOf(value)) != size)
    diag_bug("describe", "the last fields of %s are missing", what);
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
    describe_field fields[] = {FIELD(pegen_leaf, operand, describe_i32(d, x->offsets ? x->index : -1)),
                               FIELD(pegen_leaf, n_heads, describe_i32(d, x->n_heads)),
                               FIELD(pegen_leaf, offsets, x->offsets ? data : describe_null(d)),
                               FIELD(pegen_leaf, values, x->offsets ? describe_null(d) : data)};
    rows[i] = DESCRIBE(d, pegen_leaf, fields);
  }
  return p->n_leaves ? describe_array(d, "leaves", LLVMTypeOf(rows[0]), rows, p->n_leaves) : describe_null(d);
}

LLVMValueRef describe_skew(describer *d, const spec_skew *g, int blocks) {
  int count = g->n_heads * blocks;
  LLVMValueRef *offsets = arena_array(d->request->memory, LLVMValueRef, count);
  for (int i = 0; i < count; i++) offsets[i] = describe_i32(d, g->offset[i]);
  describe_field fields[] = {FIELD(pegen_skew, operand, describe_i64(d, g->operand)),
                             FIELD(pegen_skew, difference, describe_i64(d, g->rule == SKEW_DIFFERENCE)),
                             FIELD(pegen_skew, n_heads, describe_i64(d, g->n_heads)),
                             FIELD(pegen_skew, offset, describe_array(d, "offsets", d->i32, offsets, count))};
  return DESCRIBE(d, pegen_skew, fields);
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
    describe_field fields[] = {
        FIELD(pegen_operand, name, describe_string(d, o->name)),
        FIELD(pegen_operand, doc, describe_string(d, operand_doc(d->request->memory, o))),
        FIELD(pegen_operand, units, describe_string(d, o->units)),
        FIELD(pegen_operand, initializer, describe_string(d, o->initializer ? o->initializer : "")),
        FIELD(pegen_operand, rank, describe_i32(d, o->rank)),
        FIELD(pegen_operand, shape, describe_sizes(d, "shape", o->shape, o->rank)),
        FIELD(pegen_operand, dimension, describe_strings(d, "dimension", o->dimension, o->rank))};
    values[i] = DESCRIBE(d, pegen_operand, fields);
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
    describe_field fields[] = {
        FIELD(pegen_input, name, describe_string(d, in->name)), FIELD(pegen_input, doc, describe_string(d, doc)),
        FIELD(pegen_input, units, describe_string(d, in->units)), FIELD(pegen_input, size, describe_i64(d, in->size))};
    values[i] = DESCRIBE(d, pegen_input, fields);
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
    describe_field fields[] = {FIELD(pegen_width, out_dim, describe_i32(d, out_dim)),
                               FIELD(pegen_width, n_columns, describe_i32(d, count)),
                               FIELD(pegen_width, columns, list)};
    values[type] = DESCRIBE(d, pegen_width, fields);
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

static LLVMValueRef ptx_attention_of(describer *d, const gpu_program *program) {
  const gpu_attention_facts *of = program->attention;
  if (!of) return describe_null(d);
  describe_field fields[] = {FIELD(pegen_ptx_attention, first_entry, describe_i32(d, of->first_entry)),
                             FIELD(pegen_ptx_attention, n_parameters, describe_i32(d, of->n_parameters)),
                             FIELD(pegen_ptx_attention, value_dim, describe_i32(d, of->value_dim)),
                             FIELD(pegen_ptx_attention, placed, describe_i32(d, of->placed)),
                             FIELD(pegen_ptx_attention, grid_only, describe_i32(d, of->grid_only)),
                             FIELD(pegen_ptx_attention, indexed, describe_i32(d, (int32_t)of->indexed))};
  return describe_global(d, "ptx_attention", DESCRIBE(d, pegen_ptx_attention, fields), true);
}

static LLVMValueRef ptx(describer *d) {
  const gpu_module *m = d->request->ptx;
  if (!m) return describe_null(d);
  LLVMValueRef values[GPU_MAX_ENTRIES];
  for (int i = 0; i < m->program->n_entries; i++) {
    const gpu_entry *e = &m->program->entry[i];
    unsigned dtype = number_pair(e->dtype, e->other ? e->other : e->dtype);
    describe_field fields[] = {FIELD(pegen_ptx_entry, name, describe_string(d, e->name)),
                               FIELD(pegen_ptx_entry, dtype, describe_i32(d, dtype)),
                               FIELD(pegen_ptx_entry, access, describe_i32(d, e->access)),
                               FIELD(pegen_ptx_entry, units, describe_i32(d, gpu_entry_units(e))),
                               FIELD(pegen_ptx_entry, flight, describe_i32(d, e->flight)),
                               FIELD(pegen_ptx_entry, columns, describe_i32(d, e->tile->columns))};
    values[i] = DESCRIBE(d, pegen_ptx_entry, fields);
  }
  XXH128_hash_t hash = XXH3_128bits(m->text, m->size);
  LLVMValueRef digest[] = {describe_i64(d, (int64_t)hash.high64), describe_i64(d, (int64_t)hash.low64)};
  describe_field fields[] = {FIELD(pegen_ptx, text, describe_string(d, m->text)),
                             FIELD(pegen_ptx, size, describe_i64(d, (int64_t)m->size)),
                             FIELD(pegen_ptx, digest, LLVMConstArray2(d->i64, digest, 2)),
                             FIELD(pegen_ptx, chip, describe_string(d, m->target->name)),
                             FIELD(pegen_ptx, block, describe_i32(d, PEGEN_PTX_BLOCK)),
                             FIELD(pegen_ptx, n_parameters, describe_i32(d, m->n_parameters)),
                             FIELD(pegen_ptx, per_head, describe_i32(d, d->request->form->per_head(d->request->plan))),
                             FIELD(pegen_ptx, n_entries, describe_i32(d, m->program->n_entries)),
                             FIELD(pegen_ptx, entries, rows(d, "ptx_entries", values, m->program->n_entries)),
                             FIELD(pegen_ptx, attention, ptx_attention_of(d, m->program))};
  return describe_global(d, "ptx", DESCRIBE(d, pegen_ptx, fields), true);
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
  describe_field fields[] = {
      FIELD(pegen_kernel, struct_size, describe_i32(d, sizeof(pegen_kernel))),
      FIELD(pegen_kernel, abi_version, describe_i32(d, PEGEN_ABI_VERSION)),
      FIELD(pegen_kernel, name, describe_string(d, s->name)),
      FIELD(pegen_kernel, doc, describe_string(d, s->doc)),
      FIELD(pegen_kernel, digest, describe_string(d, r->digest)),
      FIELD(pegen_kernel, options, describe_string(d, joined_options(a, s))),
      FIELD(pegen_kernel, targets, describe_string(d, joined_targets(a, targets, n_targets))),
      FIELD(pegen_kernel, dtypes, describe_i32(d, r->dtypes)),
      FIELD(pegen_kernel, head_dim, describe_i32(d, s->head_dim)),
      FIELD(pegen_kernel, out_dim, describe_i32(d, width.out_dim)),
      FIELD(pegen_kernel, n_axes, describe_i32(d, s->n_axes)),
      FIELD(pegen_kernel, axes, describe_strings(d, "axes", s->axis, s->n_axes)),
      FIELD(pegen_kernel, heads, describe_i32(d, r->form->per_head(r->plan) ? s->heads : 0)),
      FIELD(pegen_kernel, skip_tokens, describe_i32(d, s->skip_tokens)),
      FIELD(pegen_kernel, grid, s->grid[0] ? describe_sizes(d, "grid", s->grid, s->n_axes) : describe_null(d)),
      FIELD(pegen_kernel, n_operands, describe_i32(d, s->n_operands)),
      FIELD(pegen_kernel, operands, operands(d)),
      FIELD(pegen_kernel, encode, entry[ENTRY_ENCODE]),
      FIELD(pegen_kernel, attention, entry[ENTRY_ATTENTION]),
      FIELD(pegen_kernel, workspace, entry[ENTRY_WORKSPACE]),
      FIELD(pegen_kernel, ptx, ptx(d)),
      FIELD(pegen_kernel, prepare, entry[ENTRY_PREPARE]),
      FIELD(pegen_kernel, table_bytes, entry[ENTRY_TABLE_BYTES]),
      FIELD(pegen_kernel, n_inputs, describe_i32(d, s->n_inputs)),
      FIELD(pegen_kernel, n_columns, describe_i32(d, width.n_columns)),
      FIELD(pegen_kernel, inputs, inputs(d)),
      FIELD(pegen_kernel, columns, columns),
      FIELD(pegen_kernel, widths, widths)};
  LLVMValueRef value = DESCRIBE(d, pegen_kernel, fields);
  LLVMValueRef g = describe_global(d, arena_printf(a, "%s_kernel", s->name), value, true);
  LLVMSetLinkage(g, LLVMExternalLinkage);
  return g;
}

/* ---- the driver's descriptor ---- */

static LLVMValueRef driver(describer *d, LLVMValueRef kernel, const cpu_target *const *targets, int n_targets) {
  const describe_request *r = d->request;
  LLVMValueRef levels[TARGET_MAX];
  for (int i = 0; i < n_targets; i++) levels[i] = describe_i64(d, targets[i]->level);
  describe_field fields[] = {FIELD(pegen_driver, kernel, kernel),
                             FIELD(pegen_driver, per_head, describe_i64(d, r->form->per_head(r->plan))),
                             FIELD(pegen_driver, n_targets, describe_i64(d, n_targets)),
                             FIELD(pegen_driver, levels, describe_array(d, "levels", d->i64, levels, n_targets)),
                             FIELD(pegen_driver, chosen, describe_global(d, "chosen", describe_i32(d, 0), false)),
                             FIELD(pegen_driver, form, r->form->describe(d, r->plan, targets, n_targets))};
  return describe_global(d, "driver", DESCRIBE(d, pegen_driver, fields), true);
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
