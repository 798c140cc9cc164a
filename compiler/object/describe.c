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
    describe_field fields[] = {
        FIELD(pegen_input, name, describe_string(d, in->name)), FIELD(pegen_input, doc, describe_string(d, doc)),
        FIELD(pegen_input, units, describe_string(d, in->units)), FIELD(pegen_input, size, describe_i64(d, in->size))};
    values[i] = DESCRIBE(d, pegen_input, fields);
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
    describe_field fields[] = {FIELD(pegen_width, out_dim, describe_i32(d, out_dim)),
                               FIELD(pegen_width, n_columns, describe_i32(d, count)),
                               FIELD(pegen_width, columns, list)};
    values[type] = DESCRIBE(d, pegen_width, fields);
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
  describe_field fields[] = {FIELD(pegen_ptx_attention, first_entry, describe_i32(d, of->first_entry)),
                             FIELD(pegen_ptx_attention, n_parameters, describe_i32(d, of->n_parameters)),
                             FIELD(pegen_ptx_attention, value_dim, describe_i32(d, of->value_dim)),
                             FIELD(pegen_ptx_attention, placed, describe_i32(d, of->placed)),
                             FIELD(pegen_ptx_attention, grid_only, describe_i32(d, of->grid_only)),
                             FIELD(pegen_ptx_attention, indexed, describe_i32(d, (int32_t)of->indexed)),
                             FIELD(pegen_ptx_attention, gaining, describe_i32(d, (int32_t)of->gaining)),
                             FIELD(pegen_ptx_attention, n_sums, describe_i32(d, of->n_sums))};
  return describe_global(d, "ptx_attention", DESCRIBE(d, pegen_ptx_attention, fields), true);
}

static LLVMValueRef ptx_gradient(describer *d, const gpu_program *p) {
  const plan_gradient_row *of = p->of;
  const gpu_matrices *m = p->matrices;
  bool columns = p->has_columns;
  if (!of && !m && !columns && !p->n_weights) return describe_null(d);
  bool reads_rows = !columns && !p->n_weights && (m || !plan_is_sum(plan_gradient_first(of)->token));
  int blocks = of ? plan_gradient_blocks(of) : p->spec->n_blocks;
  int input_gains = of ? plan_gradient_first(of)->n_row_inputs[TORQUE_OF_Y] * blocks : 0;
  describe_field fields[] = {
      FIELD(pegen_ptx_gradient, n_sums, describe_i32(d, of ? plan_gradient_sums(of, of->n_parts) : 0)),
      FIELD(pegen_ptx_gradient, n_gained, describe_i32(d, of ? plan_gradient_scatters(of, of->n_parts) : 0)),
      FIELD(pegen_ptx_gradient, n_blocks, describe_i32(d, blocks)),
      FIELD(pegen_ptx_gradient, has_positions, describe_i32(d, columns || (of && plan_gradient_has_positions(of)))),
      FIELD(pegen_ptx_gradient, needs_kept, describe_i32(d, reads_rows)),
      FIELD(pegen_ptx_gradient, n_shares,
            describe_i32(d, columns ? 1
                            : m     ? p->spec->n_blocks
                                    : 0)),
      FIELD(pegen_ptx_gradient, matrix_sums, describe_i32(d, m ? m->numbers : 0)),
      FIELD(pegen_ptx_gradient, matrix_elements, describe_i32(d, m ? m->elements : 0)),
      FIELD(pegen_ptx_gradient, thread_bytes, describe_i32(d, m ? m->thread_bytes : 0)),
      FIELD(pegen_ptx_gradient, n_weights, describe_i32(d, p->n_weights)),
      FIELD(pegen_ptx_gradient, n_input_gains, describe_i32(d, input_gains))};
  return describe_global(d, "ptx_gradient", DESCRIBE(d, pegen_ptx_gradient, fields), true);
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
    describe_field fields[] = {FIELD(pegen_ptx_entry, name, describe_string(d, e->name)),
                               FIELD(pegen_ptx_entry, dtype, describe_i32(d, dtype)),
                               FIELD(pegen_ptx_entry, access, describe_i32(d, e->access)),
                               FIELD(pegen_ptx_entry, units, describe_i32(d, gpu_entry_units(e))),
                               FIELD(pegen_ptx_entry, flight, describe_i32(d, e->flight)),
                               FIELD(pegen_ptx_entry, columns, describe_i32(d, e->tile ? e->tile->owners : 0))};
    values[i] = DESCRIBE(d, pegen_ptx_entry, fields);
  }
  XXH128_hash_t hash = XXH3_128bits(m->text, m->size);
  LLVMValueRef digest[] = {describe_i64(d, (int64_t)hash.high64), describe_i64(d, (int64_t)hash.low64)};
  describe_field fields[] = {
      FIELD(pegen_ptx, text, describe_string(d, m->text)),
      FIELD(pegen_ptx, size, describe_i64(d, (int64_t)m->size)),
      FIELD(pegen_ptx, digest, LLVMConstArray2(d->i64, digest, 2)),
      FIELD(pegen_ptx, chip, describe_string(d, m->target->name)),
      FIELD(pegen_ptx, block, describe_i32(d, PEGEN_PTX_BLOCK)),
      FIELD(pegen_ptx, n_parameters, describe_i32(d, m->n_parameters)),
      FIELD(pegen_ptx, per_head, describe_i32(d, ptx_per_head(d->request))),
      FIELD(pegen_ptx, n_entries, describe_i32(d, m->program->n_entries)),
      FIELD(pegen_ptx, entries, describe_rows(d, "ptx_entries", values, m->program->n_entries)),
      FIELD(pegen_ptx, attention, ptx_attention_of(d, m->program)),
      FIELD(pegen_ptx, words, describe_strings(d, "words", words, m->program->n_entries)),
      FIELD(pegen_ptx, gradient, ptx_gradient(d, m->program)),
      FIELD(pegen_ptx, shared, describe_array(d, "shared", d->i32, shared, m->program->n_entries)),
      FIELD(pegen_ptx, cubin, describe_bytes(d, m->cubin, m->cubin_size)),
      FIELD(pegen_ptx, cubin_size, describe_i64(d, (int64_t)m->cubin_size))};
  return describe_global(d, "ptx", DESCRIBE(d, pegen_ptx, fields), true);
}

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
      FIELD(pegen_kernel, ptx, ptx(d)),
      FIELD(pegen_kernel, n_inputs, describe_i32(d, s->n_inputs)),
      FIELD(pegen_kernel, n_columns, describe_i32(d, width.n_columns)),
      FIELD(pegen_kernel, inputs, inputs(d)),
      FIELD(pegen_kernel, columns, columns),
      FIELD(pegen_kernel, widths, widths),
      FIELD(pegen_kernel, has_sides, describe_i32(d, spec_has_sides(s))),
      FIELD(pegen_kernel, pair_inputs, describe_i16(d, pair_inputs(s, false))),
      FIELD(pegen_kernel, key_inputs, describe_i16(d, pair_inputs(s, true))),
      FIELD(pegen_kernel, reads_indices, describe_i32(d, reads_indices(s))),
      FIELD(pegen_kernel, needs_input, describe_i32(d, spec_needs_input(s))),
      FIELD(pegen_kernel, ptx_size, describe_i32(d, sizeof(pegen_ptx))),
      FIELD(pegen_kernel, scale, describe_f64(d, s->pairwise ? (double)spec_scale(s) : 0)),
      FIELD(pegen_kernel, has_origin, describe_i32(d, s->polynomial && !s->pairwise && s->polynomial->has_call_origin)),
#define X(name, role, of, option, text) FIELD(pegen_kernel, name, entry[PEGEN_ENTRY_##name]),
      PEGEN_ENTRIES(X)
#undef X
  };
  LLVMValueRef value = DESCRIBE(d, pegen_kernel, fields);
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
  describe_field fields[] = {FIELD(pegen_driver, kernel, kernel),
                             FIELD(pegen_driver, per_head, describe_i64(d, r->form->per_head(r->plan))),
                             FIELD(pegen_driver, has_sides, describe_i64(d, spec_has_sides(r->spec))),
                             FIELD(pegen_driver, turns_rows, describe_i64(d, spec_turns_rows(r->spec))),
                             FIELD(pegen_driver, n_targets, describe_i64(d, n_targets)),
                             FIELD(pegen_driver, levels, describe_array(d, "levels", d->i64, levels, n_targets)),
                             FIELD(pegen_driver, chosen, describe_global(d, "chosen", describe_i32(d, 0), false)),
                             FIELD(pegen_driver, form, parts[r->form->kind]->describe(d, r->plan, targets, n_targets))};
  return describe_global(d, "driver", DESCRIBE(d, pegen_driver, fields), true);
}

/* ---- entries ---- */

/* NULL: the kernel has no such entry. */
static const char *callee_of(const describe_request *request, int kind) {
  return form_entry(request->form, (pegen_entry_kind)kind, request->gradients);
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
