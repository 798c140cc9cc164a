/* object/describe: the descriptors of pegen.h and of the driver; see object/describe.h. */
#include "object/describe.h"

#include "base/number.h"
#include "object/describe_form.h"
#include "spec/expr_facts.h"

#include "kernel/driver.h"
#include "kernel/launch.h"

#include <stddef.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

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
    values[i] = DESCRIBE(d, pegen_operand, F(name, o->name), F(doc, operand_doc(d->request->memory, o)),
                         F(units, o->units), F(initializer, o->initializer ? o->initializer : ""), F(rank, o->rank),
                         F(shape, describe_sizes(d, "shape", o->shape, o->rank)),
                         F(dimension, describe_strings(d, "dimension", o->dimension, o->rank)));
  }
  return describe_rows(d, "operands", values, s->n_operands);
}

static LLVMValueRef inputs(describer *d) {
  const spec *s = d->request->spec;
  LLVMValueRef *values = arena_array(d->request->memory, LLVMValueRef, s->n_inputs + 1);
  for (int i = 0; i < s->n_inputs; i++) {
    const spec_input *in = &s->input[i];
    bool sourced = in->source && *in->source;
    const char *doc = arena_printf(d->request->memory, "%s [%s]%s%s", in->doc, in->units, sourced ? "; " : "",
                                   sourced ? in->source : "");
    values[i] = DESCRIBE(d, pegen_input, F(name, in->name), F(doc, doc), F(units, in->units), F(size, in->size));
  }
  return describe_rows(d, "inputs", values, s->n_inputs);
}

/* Bits: of inputs that scores read; of_keys: of keys. */
static int64_t pair_inputs(const spec *s, bool of_keys) {
  int64_t bits = 0;
  for (int i = 0; i < s->n_inputs; i++)
    if (spec_input_is_of_pairs(s, i) && (!of_keys || s->input[i].of_keys)) bits |= (int64_t)1 << i;
  return bits;
}

static bool reads_indices(const spec *s) {
  const expr *score = s->pairwise ? s->pairwise->score : NULL;
  return score && expr_reads_places(score, SPEC_OF_QUERY, SPEC_OF_KEY + 1);
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
    values[type] = DESCRIBE(d, pegen_width, F(out_dim, out_dim), F(n_columns, count), F(columns, list));
    if (found || !(r->dtypes & 1u << type)) continue;
    found = true;
    *first = (pegen_width){.out_dim = out_dim, .n_columns = count};
    *columns = list;
  }
  return describe_rows(d, "widths", values, NUMBER_CHANNEL_TYPES);
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
  return describe_global(d, "ptx_attention",
                         DESCRIBE(d, pegen_ptx_attention, F(first_entry, of->first_entry),
                                  F(n_parameters, of->n_parameters), F(value_dim, of->value_dim), F(placed, of->placed),
                                  F(grid_only, of->grid_only), F(indexed, (int32_t)of->indexed),
                                  F(gaining, (int32_t)of->gaining), F(n_sums, of->n_sums)),
                         true);
}

static LLVMValueRef ptx_gradient(describer *d, const gpu_program *p) {
  const plan_gradient_row *of = p->of;
  const gpu_matrices *m = p->matrices;
  bool columns = p->has_columns;
  if (!of && !m && !columns && !p->n_weights) return describe_null(d);
  bool reads_rows = !columns && !p->n_weights && (m || !plan_is_sum(plan_gradient_first(of)->token));
  int blocks = of ? plan_gradient_blocks(of) : p->spec->n_blocks;
  int input_gains = of ? plan_gradient_first(of)->n_row_inputs[TORQUE_OF_Y] * blocks : 0;
  return describe_global(
      d, "ptx_gradient",
      DESCRIBE(d, pegen_ptx_gradient, F(n_sums, of ? plan_gradient_sums(of, of->n_parts) : 0),
               F(n_gained, of ? plan_gradient_scatters(of, of->n_parts) : 0), F(n_blocks, blocks),
               F(has_positions, columns || (of && plan_gradient_has_positions(of))), F(needs_kept, reads_rows),
               F(n_shares, columns ? 1
                           : m     ? p->spec->n_blocks
                                   : 0),
               F(matrix_sums, m ? m->numbers : 0), F(matrix_elements, m ? m->elements : 0),
               F(thread_bytes, m ? m->thread_bytes : 0), F(n_weights, p->n_weights), F(n_input_gains, input_gains)),
      true);
}

static int ptx_per_head(const describe_request *r) {
  return spec_turns_rows(r->spec) ? PEGEN_PER_HEAD_ROWS : r->form->per_head(r->plan);
}

static LLVMValueRef ptx(describer *d) {
  const gpu_module *m = d->request->ptx;
  if (!m) return describe_null(d);
  LLVMValueRef values[GPU_MAX_ENTRIES];
  const char *words[GPU_MAX_ENTRIES];
  LLVMValueRef shared[GPU_MAX_ENTRIES];
  for (int i = 0; i < m->program->n_entries; i++) {
    const gpu_entry *e = &m->program->entry[i];
    words[i] = gpu_entry_word(e);
    shared[i] = describe_i32(d, e->shared);
    unsigned dtype = e->tile ? number_pair(e->dtype, e->other ? e->other : e->dtype) : 0; /* 0: not of rows */
    values[i] = DESCRIBE(d, pegen_ptx_entry, F(name, e->name), F(dtype, dtype), F(access, e->access),
                         F(units, gpu_entry_units(e)), F(flight, e->flight), F(columns, e->tile ? e->tile->owners : 0));
  }
  XXH128_hash_t hash = XXH3_128bits(m->text, m->size);
  LLVMValueRef digest[] = {describe_i64(d, (int64_t)hash.high64), describe_i64(d, (int64_t)hash.low64)};
  return describe_global(d, "ptx",
                         DESCRIBE(d, pegen_ptx, F(text, m->text), F(size, (int64_t)m->size), F(digest, digest),
                                  F(chip, m->target->name), F(block, PEGEN_PTX_BLOCK), F(n_parameters, m->n_parameters),
                                  F(per_head, ptx_per_head(d->request)), F(n_entries, m->program->n_entries),
                                  F(entries, describe_rows(d, "ptx_entries", values, m->program->n_entries)),
                                  F(attention, ptx_attention_of(d, m->program)),
                                  F(words, describe_strings(d, "words", words, m->program->n_entries)),
                                  F(gradient, ptx_gradient(d, m->program)),
                                  F(shared, describe_array(d, "shared", d->i32, shared, m->program->n_entries)),
                                  F(cubin, describe_bytes(d, m->cubin, m->cubin_size)),
                                  F(cubin_size, (int64_t)m->cubin_size)),
                         true);
}

static LLVMValueRef kernel(describer *d, const cpu_target *const *targets, int n_targets, const LLVMValueRef *entry) {
  const describe_request *r = d->request;
  const spec *s = r->spec;
  arena *a = r->memory;
  pegen_width width = {.out_dim = s->head_dim};
  LLVMValueRef columns = describe_null(d),
               widths = r->form->out_dim ? number_type_widths(d, &width, &columns) : describe_null(d);
#define ENTRY(name, role, of, option, text) , F(name, entry[PEGEN_ENTRY_##name])
  LLVMValueRef value = DESCRIBE(
      d, pegen_kernel, F(struct_size, sizeof(pegen_kernel)), F(abi_version, PEGEN_ABI_VERSION), F(name, s->name),
      F(doc, s->doc), F(digest, r->digest), F(options, joined_options(a, s)),
      F(targets, joined_targets(a, targets, n_targets)), F(dtypes, r->dtypes), F(head_dim, s->head_dim),
      F(out_dim, width.out_dim), F(n_axes, s->n_axes), F(axes, describe_strings(d, "axes", s->axis, s->n_axes)),
      F(heads, r->form->per_head(r->plan) ? s->heads : 0), F(skip_tokens, s->skip_tokens),
      F(grid, s->grid[0] ? describe_sizes(d, "grid", s->grid, s->n_axes) : describe_null(d)),
      F(n_operands, s->n_operands), F(operands, operands(d)), F(ptx, ptx(d)), F(n_inputs, s->n_inputs),
      F(n_columns, width.n_columns), F(inputs, inputs(d)), F(columns, columns), F(widths, widths),
      F(has_sides, spec_has_sides(s)), F(pair_inputs, pair_inputs(s, false)), F(key_inputs, pair_inputs(s, true)),
      F(reads_indices, reads_indices(s)), F(needs_input, spec_needs_input(s)), F(ptx_size, sizeof(pegen_ptx)),
      F(scale, s->pairwise ? (double)spec_scale(s) : 0),
      F(has_origin, s->polynomial && !s->pairwise && s->polynomial->has_call_origin),
      F(reads_narrow_pairs, 1) PEGEN_ENTRIES(ENTRY));
#undef ENTRY
  LLVMValueRef g = describe_global(d, arena_printf(a, "%s_kernel", s->name), value, true);
  LLVMSetLinkage(g, LLVMExternalLinkage);
  return g;
}

/* ---- the driver's descriptor ---- */

static const describe_form *const parts[FORM_COUNT] = {
    [FORM_ATTENTION] = &describe_attention, [FORM_POLYNOMIAL] = &describe_polynomial,
    [FORM_ADDITIVE] = &describe_additive,   [FORM_PARTS] = &describe_parts,
    [FORM_BLADES] = &describe_blades,       [FORM_ROW_BLADES] = &describe_blades,
    [FORM_DENSE_FOUR] = &describe_blades,   [FORM_SCHUR] = &describe_dense,
    [FORM_DENSE] = &describe_dense,         [FORM_CHANGE_OF_BASIS] = &describe_change_of_basis,
};

static LLVMValueRef driver(describer *d, LLVMValueRef kernel, const cpu_target *const *targets, int n_targets) {
  const describe_request *r = d->request;
  LLVMValueRef levels[TARGET_MAX];
  for (int i = 0; i < n_targets; i++) levels[i] = describe_i64(d, targets[i]->level);
  return describe_global(d, "driver",
                         DESCRIBE(d, pegen_driver, F(kernel, kernel), F(per_head, r->form->per_head(r->plan)),
                                  F(has_sides, spec_has_sides(r->spec)), F(turns_rows, spec_turns_rows(r->spec)),
                                  F(n_targets, n_targets),
                                  F(levels, describe_array(d, "levels", d->i64, levels, n_targets)),
                                  F(chosen, describe_global(d, "chosen", describe_i32(d, 0), false)),
                                  F(form, parts[r->form->kind]->describe(d, r->plan, targets, n_targets))),
                         true);
}

/* ---- entries ---- */

/* NULL: the kernel has no such entry. */
static const char *callee_of(const describe_request *request, int kind) {
  return form_entry(request->form, (pegen_entry_kind)kind, request->entries);
}

/* An exported function; the descriptor refers to the entries and they to it, so bodies come later. */
static LLVMValueRef entry(describer *d, int kind) {
  if (!callee_of(d->request, kind)) return describe_null(d);
  LLVMTypeRef types[] = {d->ptr, d->i32, d->i32};
  bool is_size = entry_rows[kind].role == ENTRY_SIZE;
  LLVMTypeRef type = is_size ? LLVMFunctionType(d->i64, types, 1, false) : LLVMFunctionType(d->i32, types, 3, false);
  const char *name = arena_printf(d->request->memory, "%s_%s", d->request->spec->name, entry_rows[kind].name);
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
  LLVMValueRef target = driver_function(d, callee_of(d->request, kind), LLVMFunctionType(result, types, count, false));
  if (entry_rows[kind].role != ENTRY_SIZE) {
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

/* ---- packed functions of TVM-FFI ---- */

#define PACKED_PREFIX "__tvm_ffi_"
static const int packed[] = {
#define X(name) PEGEN_ENTRY_##name,
    PEGEN_TVM_FFI(X)
#undef X
};
enum { PACKED_COUNT = sizeof packed / sizeof *packed };

/* int (handle, arguments, count, result), which calls kernel/tvm_ffi.c with the kernel and the entry for the handle. */
static void packed_function(describer *d, LLVMValueRef kernel, int kind) {
  LLVMTypeRef types[] = {d->ptr, d->ptr, d->i32, d->ptr}, all[] = {d->ptr, d->i32, d->ptr, d->i32, d->ptr};
  const char *name =
      arena_printf(d->request->memory, PACKED_PREFIX "%s_%s", d->request->spec->name, entry_rows[kind].name);
  LLVMValueRef f = LLVMAddFunction(d->module, name, LLVMFunctionType(d->i32, types, 4, false));
  LLVMValueRef arguments[] = {kernel, describe_i32(d, kind), LLVMGetParam(f, 1), LLVMGetParam(f, 2),
                              LLVMGetParam(f, 3)};
  LLVMTypeRef type = LLVMFunctionType(d->i32, all, 5, false);
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(d->context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(d->context, f, "entry"));
  LLVMBuildRet(builder,
               LLVMBuildCall2(builder, type, driver_function(d, "pegen_driver_tvm_ffi", type), arguments, 5, ""));
  LLVMDisposeBuilder(builder);
}

static bool is_packed(const describe_request *request, int kind) {
  for (int i = 0; i < PACKED_COUNT; i++)
    if (packed[i] == kind) return request->tvm_ffi && callee_of(request, kind);
  return false;
}

void describe_add(LLVMModuleRef module, const describe_request *request, const cpu_target *const *targets,
                  int n_targets) {
  describer d = {.module = module, .context = LLVMGetModuleContext(module), .request = request};
  d.ptr = LLVMPointerTypeInContext(d.context, 0);
  d.i32 = LLVMInt32TypeInContext(d.context);
  d.i64 = LLVMInt64TypeInContext(d.context);
  LLVMValueRef entries[PEGEN_ENTRY_COUNT];
  for (int kind = 0; kind < PEGEN_ENTRY_COUNT; kind++) entries[kind] = entry(&d, kind);
  LLVMValueRef described = kernel(&d, targets, n_targets, entries);
  LLVMValueRef descriptor = driver(&d, described, targets, n_targets);
  for (int kind = 0; kind < PEGEN_ENTRY_COUNT; kind++) {
    if (callee_of(request, kind)) entry_body(&d, entries[kind], kind, descriptor);
    if (is_packed(request, kind)) packed_function(&d, described, kind);
  }
}

bool describe_is_exported(const describe_request *request, const char *symbol) {
  size_t length = strlen(request->spec->name);
  bool prefixed = !strncmp(symbol, PACKED_PREFIX, strlen(PACKED_PREFIX));
  if (prefixed) symbol += strlen(PACKED_PREFIX);
  if (strncmp(symbol, request->spec->name, length)) return false;
  symbol += length;
  if (!prefixed && !strcmp(symbol, "_kernel")) return true;
  for (int kind = 0; kind < PEGEN_ENTRY_COUNT; kind++)
    if ((prefixed ? is_packed(request, kind) : callee_of(request, kind) != NULL) && *symbol == '_' &&
        !strcmp(symbol + 1, entry_rows[kind].name))
      return true;
  return false;
}

/* ---- digest ---- */

const char *describe_digest(arena *a, const form *f, const spec *s, const void *plan) {
  digest *h = digest_begin(a, s->pool);
  digest_bytes(h, s->name, strlen(s->name) + 1);
  int sizes[] = {s->n_axes, s->head_dim, s->heads, s->n_components, s->n_blocks, s->skip_tokens};
  digest_bytes(h, sizes, sizeof sizes);
  digest_bytes(h, s->grid, sizeof s->grid);
  digest_bytes(h, s->channel, sizeof(int) * (size_t)(s->n_components * s->n_blocks));
  parts[f->kind]->digest(h, plan);
  for (int i = 0; i < s->n_operands; i++) {
    digest_bytes(h, s->operand[i].name, strlen(s->operand[i].name) + 1);
    digest_bytes(h, s->operand[i].shape, sizeof(int64_t) * (size_t)s->operand[i].rank);
  }
  for (int i = 0; i < s->n_inputs; i++) {
    digest_bytes(h, s->input[i].name, strlen(s->input[i].name) + 1);
    digest_bytes(h, &s->input[i].size, sizeof s->input[i].size);
  }
  return digest_end(a, h);
}
