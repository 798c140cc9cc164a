/* gpu/attention: which entries attention has on a chip; see gpu/attention.h. */
#include "gpu/attention.h"
#include "gpu/attention_backward.h"
#include "gpu/gradient.h"
#include "gpu/mma.h"

#include "base/diag.h"
#include "base/number.h"

#include "kernel/launch.h"

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  switch (entry->kind) {
  case GPU_MMA_FINISH: gpu_emit_mma_finish(b, a, program, entry, host); break;
  case GPU_MMA_TURN: gpu_emit_mma_turn(b, a, program, entry, native, host); break;
  case GPU_MMA_COPY: gpu_emit_mma_copy(b, a, entry, host); break;
  case GPU_MMA:
  case GPU_MMA_FEW:
  case GPU_MMA_QUERIES:
  case GPU_MMA_KEYS:
  case GPU_MMA_VALUES:
  case GPU_MMA_QUERIES_GAINS:
  case GPU_MMA_KEYS_GAINS: gpu_emit_mma(b, a, program, entry, native, host); break;
  case GPU_ATTENTION_WEIGHTS: gpu_emit_attention_weights(b, a, program, entry, native, host); break;
  default: diag_bug("gpu_attention", "no code for %s", entry->name);
  }
}

/* What turns rows for tile programs. */
static void add_turn_entry(arena *a, gpu_program *program, const attend_design *d, int dtype) {
  static const char *const words[2][2] = {{PEGEN_PTX_WORD_TURN, PEGEN_PTX_WORD_TURN_ALL},
                                          {PEGEN_PTX_WORD_TURN_EACH, PEGEN_PTX_WORD_TURN_EACH_ALL}};
  int element = number_bytes(dtype);
  if (d->products == d->p) return;
  program->entry[program->n_entries++] =
      (gpu_entry){.name = arena_printf(a, "%s_attention_%s_turn", program->spec->name, number_name(dtype)),
                  .of = PEGEN_LAUNCH_attention,
                  .word = words[attend_turns_by_head(d->p)][d->p->turns_values],
                  .kind = GPU_MMA_TURN,
                  .dtype = dtype,
                  .access = element,
                  .tile = thread_tile_of_blocks(a, expr_pool_blocks(d->p->spec->pool), element, element)};
}

/* What copies rows that tile programs do not take as they lie. */
static void add_copy_entry(arena *a, gpu_program *program, int dtype) {
  int element = number_bytes(dtype);
  program->entry[program->n_entries++] =
      (gpu_entry){.name = arena_printf(a, "%s_attention_%s_copy", program->spec->name, number_name(dtype)),
                  .of = PEGEN_LAUNCH_attention,
                  .word = PEGEN_PTX_WORD_COPY,
                  .kind = GPU_MMA_COPY,
                  .dtype = dtype,
                  .access = element,
                  .tile = thread_tile_of_blocks(a, 1, element, element)};
}

/* Adds the entry of a tile program. */
static void add_mma_entry(arena *a, gpu_program *program, const gpu_target *chip, int dtype, mma_kind kind,
                          const mma_plan *plan) {
  static const struct {
    pegen_launch_entry of;
    const char *word[3]; /* of rows as they are; of rows that come turned; of what gains beside rows alone */
  } rows[MMA_KIND_COUNT] = {
      [MMA_FORWARD] = {PEGEN_LAUNCH_attention, {NULL, PEGEN_PTX_WORD_TURNED}},
      [MMA_FEW] = {PEGEN_LAUNCH_attention, {PEGEN_PTX_WORD_FEW, PEGEN_PTX_WORD_FEW_TURNED}},
      [MMA_QUERIES] = {PEGEN_LAUNCH_attention_backward, {PEGEN_PTX_WORD_QUERIES_MMA, PEGEN_PTX_WORD_QUERIES_TURNED}},
      [MMA_KEYS] = {PEGEN_LAUNCH_attention_backward, {PEGEN_PTX_WORD_KEYS_MMA, PEGEN_PTX_WORD_KEYS_TURNED}},
      [MMA_VALUES] = {PEGEN_LAUNCH_attention_backward, {PEGEN_PTX_WORD_VALUES_MMA, PEGEN_PTX_WORD_VALUES_TURNED}},
      [MMA_QUERIES_GAINS] = {PEGEN_LAUNCH_attention_backward,
                             {PEGEN_PTX_WORD_QUERIES_GAINS, PEGEN_PTX_WORD_QUERIES_GAINS_TURNED,
                              PEGEN_PTX_WORD_QUERIES_GIVES}},
      [MMA_KEYS_GAINS] = {PEGEN_LAUNCH_attention_backward,
                          {PEGEN_PTX_WORD_KEYS_GAINS, PEGEN_PTX_WORD_KEYS_GAINS_TURNED, PEGEN_PTX_WORD_KEYS_GIVES}},
  };
  const attend_design *d = program->plan;
  int element = number_bytes(dtype);
  thread_tile *tile = thread_tile_of_blocks(a, expr_pool_blocks(d->p->spec->pool), element, THREAD_PIECE);
  tile->owners = plan->shape.tile.own;
  program->entry[program->n_entries++] =
      (gpu_entry){.name = arena_printf(a, "%s_%s_%s_%s", program->spec->name, plan->program->name, number_name(dtype),
                                       plan->machine->name),
                  .of = rows[kind].of,
                  .word = rows[kind].word[mma_gives_alone(plan) ? 2 : d->products != d->p],
                  .kind = (gpu_entry_kind)(GPU_MMA + kind),
                  .dtype = dtype,
                  .access = THREAD_PIECE,
                  .tile = tile,
                  .flight = plan->shape.tile.streamed,
                  .blocks = 2,
                  .mma = plan,
                  .shared = chip->vendor->ir.has_dynamic ? (int)plan->shape.shared : 0};
  if (kind != MMA_FEW) return;
  program->entry[program->n_entries++] = (gpu_entry){
      .name = arena_printf(a, "%s_attention_finish_%s", program->spec->name, number_name(dtype)),
      .of = PEGEN_LAUNCH_attention_finish,
      .kind = GPU_MMA_FINISH,
      .dtype = dtype,
      .access = THREAD_PIECE,
      .tile = thread_tile_of_blocks(a, expr_pool_blocks(d->p->spec->pool), number_bytes(dtype), THREAD_PIECE)};
}

/* Those of a kind that serve a type, in the order in which they are taken. A device may have less shared memory than
 * tensor cores' have; then that of float32 serves. */
static void add_mma_entries(arena *a, gpu_program *program, const gpu_target *chip, int dtype, mma_kind kind) {
  const attend_design *d = program->plan;
  const mma_plan *floats = d->mma[MMA_FLOATS][kind],
                 *plan = number_bytes(dtype) > 2 ? floats : d->mma[MMA_16_BITS][kind];
  if (plan) add_mma_entry(a, program, chip, dtype, kind, plan);
  if (floats && (!plan || plan->shape.shared > chip->shared)) add_mma_entry(a, program, chip, dtype, kind, floats);
}

/* Whether an entry's blocks are tiles of queries. */
static bool has_grid(const gpu_program *program, int entry) { return program->entry[entry].kind == GPU_MMA; }

static void print_work(FILE *f, const gpu_program *program) {
  const attend_design *design = program->plan;
  const attention_plan *p = design->products;
  fprintf(f, "// attention, head_dim %d, value_dim %d; ", p->head_dim, p->value_dim);
  if (p->columns)
    fprintf(f, "%d terms of a bias, as %d columns beside the products", p->spec->n_blocks, p->columns->n_columns);
  else fprintf(f, "%d operations of a pair beside the products", p->operations);
  if (p != design->p) fprintf(f, "; rows are turned once each");
  fprintf(f, ".\n//\n// entry, bytes of an access\n");
  for (int i = 0; i < program->n_entries; i++)
    fprintf(f, "//   %-40s %4d\n", program->entry[i].name, program->entry[i].access);
  fprintf(f, "// Parameters, 8 bytes each: queries (N), keys (M), heads, heads of q for one of k, causal (0 or 1), "
             "scale times log2(e) as float32 bits,\n");
  fprintf(f, "//   positions of queries, their type (0 f32, 1 f64, 2 i32, 3 i64) and strides (batch, token, axis); the "
             "same of keys,\n");
  fprintf(f, "//   q, k, v, out: address and strides (batch, token, head)");
  const spec *s = p->spec;
  if (s->n_operands) fprintf(f, ",\n//   operands, address and type each (0 f32, 1 f64, 2 f16, 3 bf16):");
  for (int i = 0; i < s->n_operands; i++) fprintf(f, "%s %s", i ? "," : "", s->operand[i].name);
  for (int i = 0; i < s->n_inputs; i++)
    fprintf(f, "%s %s",
            i ? ","
              : ",\n//   inputs of a query or key, address, type (as of operands), strides (batch, token, head) each:",
            s->input[i].name);
  fprintf(f, ",\n//   lse (float32; 0: not wanted): address and strides (batch, token, head)");
  if (attention_reads_inputs(p)) fprintf(f, ",\n//   of each input the heads of q that read one of its");
  fprintf(f, ".\n// Strides are in bytes. Grid of a kind of entry; of few queries docs/embedding-ptx.md.\n");
  for (int i = 0; i < program->n_entries; i++)
    if (program->entry[i].of == PEGEN_LAUNCH_attention && has_grid(program, i))
      fprintf(f, "//   %-40s x = ceil(queries / %d) * heads * batches\n", program->entry[i].name,
              program->entry[i].tile->owners);
  attend_print_gradients(f, program);
}

/* NULL after a diag_error: what does not fit, in words. */
static const attend_design *make_design(arena *a, const gpu_target *chip, const attention_plan *p) {
  const spec *s = p->spec;
  if (p->columns && p->score) {
    diag_error(
        s->file, s->line,
        "a score beside a pe.polynomial is made for processors only; expected --target x86-64-v3 or the like, or "
        "a description without 'score'");
    return NULL;
  }
  attend_design *d = arena_new(a, attend_design);
  *d = (attend_design){.p = p};
  d->products = attend_plan_of_products(a, p);
  const mma_machine *const machines[MMA_MACHINES] = {[MMA_16_BITS] = chip->has_mma ? &mma_sync : &mma_simt,
                                                     [MMA_FLOATS] = &mma_simt};
  for (int i = 0; i < MMA_MACHINES; i++) {
    for (int kind = 0; kind < MMA_KIND_COUNT; kind++)
      d->mma[i][kind] = mma_plan_of(a, p, chip, machines[i], (mma_kind)kind);
    if (attend_has_columns(p) && !d->mma[i][MMA_QUERIES]) /* it keeps the weights that those of keys read */
      d->mma[i][MMA_KEYS] = d->mma[i][MMA_VALUES] = NULL;
  }
  if (d->mma[MMA_FLOATS][MMA_FORWARD]) return d;
  const char *columns = p->columns ? arena_printf(a, " and %d columns", p->columns->n_columns) : "";
  diag_error(s->file, s->line,
             "kernels of this kind are made for processors only: tiles of %d and %d channels%s do not fit in a GPU's "
             "shared memory; expected smaller head_dim and value_dim%s, or --target x86-64-v3 or the like",
             p->head_dim, p->value_dim, columns, p->columns ? ", a lower degree" : "");
  return NULL;
}

const gpu_program *gpu_attention_program(arena *a, const gpu_target *chip, const attention_plan *p, unsigned dtypes,
                                         bool gradients) {
  const spec *s = p->spec;
  const attend_design *design = make_design(a, chip, p);
  if (!design) return NULL;
  gpu_program *program = arena_new(a, gpu_program);
  gpu_attention_facts *attention = arena_new(a, gpu_attention_facts);
  *attention = (gpu_attention_facts){.n_parameters = attend_parameters(s),
                                     .value_dim = p->value_dim,
                                     .placed = attention_is_placed(p),
                                     .grid_only = p->by_rows,
                                     .indexed = p->indexed,
                                     .gaining = gradients ? attend_gaining(design) : 0,
                                     .n_sums = gradients ? attend_summed(design) : 0};
  *program = (gpu_program){.spec = s,
                           .plan = design,
                           .per_head = p->per_head,
                           .operations = p->operations,
                           .emit = emit,
                           .print_work = print_work,
                           .attention = attention};
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    add_turn_entry(a, program, design, dtype);
    add_copy_entry(a, program, dtype);
    add_mma_entries(a, program, chip, dtype, MMA_FORWARD);
    add_mma_entries(a, program, chip, dtype, MMA_FEW);
  }
  for (int dtype = 0; gradients && dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype) || !attend_has_gradients(design)) continue;
    for (int kind = MMA_QUERIES; kind < MMA_KIND_COUNT; kind++)
      add_mma_entries(a, program, chip, dtype, (mma_kind)kind);
  }
  if (gradients) gpu_add_attention_gradients(a, program, design, dtypes);
  return program;
}
