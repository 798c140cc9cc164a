/* forms/blades: rotors on blades of Cl(p,q,r), in closed form; see forms/form.h.
 *
 *   spec -> group (block program) -> plan -> cpu, gpu
 */
#include "algebra/block_of_four.h"
#include "algebra/dense_vectors.h"
#include "base/diag.h"
#include "cpu/rotors.h"
#include "forms/form.h"
#include "plan/plan.h"

#include "kernel/loop.h"

static bool is_plain(const spec *s) { return !s->basis && !s->polynomial && !s->pairwise && !s->additive; }

static bool takes(const spec *s) { return dense_is_vectors(s) || (is_plain(s) && !s->dense); }

static bool takes_four(const spec *s) { return is_plain(s) && s->dense && !s->dense->schur && s->n_components == 4; }

static void *build(arena *a, const spec *s) {
  block_program *program = arena_new(a, block_program);
  if (s->dense) s = dense_as_vectors(a, s);
  return group_build(a, s, program) ? plan_build(a, program) : NULL;
}

static void *build_four(arena *a, const spec *s) {
  block_program *program = arena_new(a, block_program);
  group_dense_four(a, s, program);
  return plan_build(a, program);
}

/* ---- programs ---- */

/* What tokens need of operands alone, once a call (and head); -1: nothing. */
static int eval_prepared(program_builder *b, const plan *p) {
  if (p->n_prepared == 0) return -1;
  int depth = b->depth;
  if (p->per_head) program_for(b, SPACE_HEADS, PART_ALL);
  int prepared = program_eval(b, p, p->prepared, p->n_prepared, NULL, 0);
  program_end_for(b, depth);
  return prepared;
}

/* Tokens that are encoded, and their heads where heads differ. */
static void for_tokens(program_builder *b, const plan *p) {
  program_for(b, SPACE_TOKENS, p->spec->skip_tokens ? PART_ENCODED : PART_ALL);
  if (p->per_head) program_for(b, SPACE_HEADS, PART_ALL);
}

/* A token's numbers, which a table may hold; -1: there are none. */
static int eval_values(program_builder *b, const plan *p, int prepared) {
  if (p->n_values == 0) return -1;
  return program_eval(b, p, p->value, p->n_values, &prepared, prepared >= 0);
}

static const program *prepare_program(arena *a, const plan *p) {
  program_builder b = program_begin(a, p->spec, "prepare");
  int table = program_array_out(&b, "table", p->per_head ? IN(TOKENS) | IN(HEADS) : IN(TOKENS));
  int prepared = eval_prepared(&b, p);
  for_tokens(&b, p);
  program_write(&b, table, eval_values(&b, p, prepared));
  program_end_for(&b, 0);
  return b.p;
}

/* Skipped tokens' rows stay as they are. */
static void copy_skipped(program_builder *b, int x, int y) {
  if (b->p->spec->skip_tokens == 0) return;
  program_for(b, SPACE_TOKENS, PART_SKIPPED);
  program_for_rows(b);
  program_store(b, y, program_load(b, x));
  program_end_for(b, 0);
}

static const program *encode_program(arena *a, const plan *p) {
  const spec *s = p->spec;
  const expr *const *entries = (const expr *const *)p->program->matrix.entry;
  program_blocks blocks = {s->n_components, s->n_blocks, s->channel};
  program_builder b = program_begin(a, s, "encode");
  int x = program_stream_in(&b, "x", s->head_dim), y = program_stream_out(&b, "y", s->head_dim, x);
  int prepared = eval_prepared(&b, p);
  copy_skipped(&b, x, y);
  for_tokens(&b, p);
  int values = eval_values(&b, p, prepared), token = values;
  if (values >= 0) program_set_tabled(&b, values);
  if (!p->is_sum) token = program_matrix(&b, p, blocks, entries, &values, values >= 0);
  else if (p->value[0] != entries[0]) token = program_eval(&b, p, entries, 1, &values, 1); /* turned back: less it */
  program_for_rows(&b);
  int row = program_load(&b, x);
  row = p->is_sum ? program_add(&b, token, row, blocks) : program_apply(&b, token, row, false);
  program_store(&b, y, row);
  program_end_for(&b, 0);
  return b.p;
}

static int programs(arena *a, const void *of, const program **out) {
  const plan *p = of;
  int count = 0;
  out[count++] = encode_program(a, p);
  if (p->n_values > 0 && !p->is_sum) out[count++] = prepare_program(a, p);
  return count;
}

static void print(FILE *out, const void *plan) { plan_print(out, plan); }

static void emit(ir *b, arena *a, const void *plan, const cpu_target *target, unsigned dtypes) {
  emit_cpu(b, a, encode_program(a, plan), target, dtypes);
}

static int per_head(const void *of) {
  const plan *p = of;
  return p->per_head ? PEGEN_PER_HEAD_ALL : PEGEN_PER_HEAD_NONE;
}

static void hash(describe_hash *h, const void *of) {
  const plan *p = of;
  for (int i = 0; i < p->spec->n_components * p->spec->n_components; i++)
    describe_hash_expr(h, p->program->matrix.entry[i]);
}

/* ---- pegen_blades ---- */

/* Functions by both types; none where no pair of types is compiled in. */
static LLVMValueRef converting(describer *d, const cpu_target *target) {
  enum { OTHERS = NUMBER_OUT_TYPES - NUMBER_CHANNEL_TYPES };
  LLVMValueRef encode[NUMBER_CHANNEL_TYPES * OTHERS];
  if (!(d->request->dtypes & number_all_pairs())) return describe_null(d);
  for (int i = 0; i < NUMBER_CHANNEL_TYPES * OTHERS; i++)
    encode[i] = describe_function(
        d, emit_converting_name(d->request->memory, target, i / OTHERS, NUMBER_CHANNEL_TYPES + i % OTHERS));
  return describe_array(d, "converting", d->ptr, encode, NUMBER_CHANNEL_TYPES * OTHERS);
}

static LLVMValueRef target_rows(describer *d, const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  for (int i = 0; i < count; i++) {
    LLVMValueRef encode[NUMBER_CHANNEL_TYPES * 2];
    for (int e = 0; e < NUMBER_CHANNEL_TYPES * 2; e++)
      encode[e] = describe_function(d, emit_encode_name(a, targets[i], e / 2, e % 2));
    describe_field fields[] = {
        FIELD(pegen_target_code, prepare, describe_function(d, emit_prepare_name(a, targets[i]))),
        FIELD(pegen_target_code, encode, LLVMConstArray2(d->ptr, encode, NUMBER_CHANNEL_TYPES * 2)),
        FIELD(pegen_target_code, values, describe_function(d, emit_values_name(a, targets[i]))),
        FIELD(pegen_target_code, converting, converting(d, targets[i]))};
    rows[i] = DESCRIBE(d, pegen_target_code, fields);
  }
  return describe_array(d, "targets", LLVMTypeOf(rows[0]), rows, count);
}

static LLVMValueRef describe(describer *d, const void *of, const cpu_target *const *targets, int n_targets) {
  const plan *p = of;
  describe_field fields[] = {FIELD(pegen_blades, n_blocks, describe_i64(d, p->spec->n_blocks)),
                             FIELD(pegen_blades, lanes, describe_i64(d, p->lanes)),
                             FIELD(pegen_blades, n_leaves, describe_i64(d, p->n_leaves)),
                             FIELD(pegen_blades, leaves, describe_leaves(d, p)),
                             FIELD(pegen_blades, prepared_bytes, describe_i64(d, emit_prepared_bytes(p))),
                             FIELD(pegen_blades, targets, target_rows(d, targets, n_targets)),
                             FIELD(pegen_blades, values_bytes, describe_i64(d, emit_values_bytes(p)))};
  return describe_global(d, "blades", DESCRIBE(d, pegen_blades, fields), true);
}

/* ---- GPUs ---- */

static const gpu_program *gpu(arena *a, const void *plan, unsigned dtypes) {
  return gpu_rotor_program(a, encode_program(a, plan), dtypes);
}

/* ---- sums: blocks of one channel, whose coefficients are added ---- */

static bool takes_sum(const spec *s) { return s->additive != NULL; }

static void *build_sum(arena *a, const spec *s) {
  const expr *value = s->additive->value;
  if (!(value->depends & DEPENDS_POSITION)) {
    diag_error(s->file, s->line, "what is added does not depend on the position");
    return NULL;
  }
  spec *channels = arena_new(a, spec);
  int *channel = arena_array(a, int, s->head_dim);
  for (int i = 0; i < s->head_dim; i++) channel[i] = i;
  *channels = *s;
  channels->n_components = 1;
  channels->channel = channel;
  block_program *program = arena_new(a, block_program);
  program->spec = channels;
  program->matrix.entry = arena_array(a, const expr *, 1);
  program->matrix.entry[0] = expr_unary(s->pool, EXPR_NARROW, s->inverse ? expr_neg(s->pool, value) : value);
  plan *p = plan_build(a, program);
  p->is_sum = true;
  return p;
}

static void hash_sum(describe_hash *h, const void *of) {
  static const char kind[] = "sum";
  describe_hash_bytes(h, kind, sizeof kind);
  hash(h, of);
}

const form form_additive = {
    .kind = FORM_ADDITIVE,
    .name = "additive",
    .entries = {.encode = "pegen_driver_encode", .workspace = "pegen_driver_workspace"},
    .takes = takes_sum,
    .plan = build_sum,
    .print = print,
    .programs = programs,
    .imports = emit_cpu_imports,
    .emit_cpu = emit,
    .describe = describe,
    .per_head = per_head,
    .hash = hash_sum,
    .converts = true,
    .gpu = gpu,
};

const form form_blades = {
    .kind = FORM_BLADES,
    .name = "blades",
    .entries = {.encode = "pegen_driver_encode",
                .prepare = "pegen_driver_prepare",
                .workspace = "pegen_driver_workspace",
                .table_bytes = "pegen_driver_table_bytes"},
    .takes = takes,
    .plan = build,
    .print = print,
    .programs = programs,
    .imports = emit_cpu_imports,
    .emit_cpu = emit,
    .describe = describe,
    .per_head = per_head,
    .hash = hash,
    .converts = true,
    .gpu = gpu,
};

const form form_dense_four = {
    .kind = FORM_DENSE_FOUR,
    .name = "blades",
    .entries = {.encode = "pegen_driver_encode",
                .prepare = "pegen_driver_prepare",
                .workspace = "pegen_driver_workspace",
                .table_bytes = "pegen_driver_table_bytes"},
    .takes = takes_four,
    .plan = build_four,
    .print = print,
    .programs = programs,
    .imports = emit_cpu_imports,
    .emit_cpu = emit,
    .describe = describe,
    .per_head = per_head,
    .hash = hash,
    .converts = true,
    .gpu = gpu,
};
