/* object/describer: constants in the layout of pegen.h and the headers of kernel/; see object/describer.h.
 *
 * Natural alignment makes LLVM's layout of a struct C's own. Fields are given by name and checked against the C struct
 * when the module is made, so that one that is forgotten here cannot pass unseen.
 */
#include "object/describer.h"

#include "base/diag.h"

#include "kernel/dense.h"

#include <llvm-c/Target.h>
#include <stdlib.h>
#include <string.h>

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

LLVMValueRef describe_integer(describer *d, size_t size, int64_t value) {
  return LLVMConstInt(LLVMIntTypeInContext(d->context, (unsigned)size * 8), (unsigned long long)value, true);
}

LLVMValueRef describe_real(describer *d, size_t size, double value) {
  (void)size;
  return describe_f64(d, value);
}

LLVMValueRef describe_text(describer *d, size_t size, const char *text) {
  (void)size;
  return describe_string(d, text);
}

LLVMValueRef describe_constant(describer *d, size_t size, LLVMValueRef value) {
  (void)d;
  (void)size;
  return value;
}

LLVMValueRef describe_elements(describer *d, size_t size, LLVMValueRef *values) {
  LLVMTypeRef type = LLVMTypeOf(values[0]);
  return LLVMConstArray2(type, values, size / LLVMABISizeOfType(LLVMGetModuleDataLayout(d->module), type));
}

LLVMValueRef describe_string(describer *d, const char *text) {
  LLVMValueRef g = describe_global(d, "text", LLVMConstStringInContext2(d->context, text, strlen(text), false), true);
  LLVMSetUnnamedAddress(g, LLVMGlobalUnnamedAddr);
  return g;
}

LLVMValueRef describe_bytes(describer *d, const char *data, size_t size) {
  if (!data) return describe_null(d);
  return describe_global(d, "bytes", LLVMConstStringInContext2(d->context, data, size, true), true);
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
  LLVMValueRef f = name ? LLVMGetNamedFunction(d->module, name) : NULL;
  return f ? f : describe_null(d);
}

LLVMValueRef describe_by_type(describer *d, const cpu_target *target,
                              const char *(*name)(arena *a, const cpu_target *target, int dtype)) {
  LLVMValueRef functions[NUMBER_CHANNEL_TYPES];
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    functions[dtype] = describe_function(d, name ? name(d->request->memory, target, dtype) : NULL);
  return LLVMConstArray2(d->ptr, functions, NUMBER_CHANNEL_TYPES);
}

LLVMValueRef describe_leaf(describer *d, const char *name, int operand, int n_heads, LLVMValueRef *values, int count) {
  LLVMValueRef data = describe_array(d, name, LLVMTypeOf(values[0]), values, count);
  bool placed = LLVMTypeOf(values[0]) == d->i32;
  return DESCRIBE(d, pegen_leaf, F(operand, operand), F(n_heads, n_heads), F(offsets, placed ? data : describe_null(d)),
                  F(values, placed ? describe_null(d) : data));
}

LLVMValueRef describe_rows(describer *d, const char *name, LLVMValueRef *values, int count) {
  return count ? describe_array(d, name, LLVMTypeOf(values[0]), values, count) : describe_null(d);
}

/* Where a part has fewer blocks than others, its last one stands for those that are missing, or (marked) -1. */
static LLVMValueRef leaf(describer *d, const expr *x, int blocks, int room, bool marked) {
  int count = x->n_heads * room;
  LLVMValueRef *values = arena_array(d->request->memory, LLVMValueRef, count);
  for (int j = 0; j < count; j++) {
    int block = j % room < blocks ? j % room : blocks - 1, at = j / room * blocks + block;
    bool is_missing = marked && j % room >= blocks;
    values[j] = x->offsets ? describe_i32(d, is_missing ? -1 : x->offsets[at]) : describe_f64(d, x->table[at]);
  }
  return describe_leaf(d, "leaf", x->offsets ? x->index : -1, x->n_heads, values, count);
}

LLVMValueRef describe_leaves(describer *d, const plan *p) { return describe_leaves_of(d, &p, 1, p->spec->n_blocks); }

static LLVMValueRef leaves_of(describer *d, const plan *const *plans, int n_plans, int blocks, bool marked) {
  int count = 0;
  for (int i = 0; i < n_plans; i++) count += plans[i]->n_leaves;
  LLVMValueRef *rows = arena_array(d->request->memory, LLVMValueRef, count + 1), *next = rows;
  for (int i = 0; i < n_plans; i++)
    for (int k = 0; k < plans[i]->n_leaves; k++)
      *next++ = leaf(d, plans[i]->leaf[k], plans[i]->spec->n_blocks, blocks, marked);
  return describe_rows(d, "leaves", rows, count);
}

LLVMValueRef describe_leaves_of(describer *d, const plan *const *plans, int n_plans, int blocks) {
  return leaves_of(d, plans, n_plans, blocks, false);
}

LLVMValueRef describe_places_of(describer *d, const plan *const *plans, int n_plans, int blocks) {
  return leaves_of(d, plans, n_plans, blocks, true);
}

LLVMValueRef describe_skew(describer *d, const spec_skew *g, int blocks) {
  int count = g->n_heads * blocks;
  LLVMValueRef *offsets = arena_array(d->request->memory, LLVMValueRef, count);
  for (int i = 0; i < count; i++) offsets[i] = describe_i32(d, g->offset[i]);
  return DESCRIBE(d, pegen_skew, F(operand, g->operand), F(difference, g->rule == SKEW_DIFFERENCE),
                  F(n_heads, g->n_heads), F(offset, describe_array(d, "offsets", d->i32, offsets, count)));
}
