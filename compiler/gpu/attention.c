/* gpu/attention: which entries attention has on a chip; see gpu/attention.h. */
#include "gpu/attention.h"
#include "gpu/attention_backward.h"
#include "gpu/gradient.h"
#include "gpu/mma.h"

#include "base/diag.h"
#include "base/number.h"

#include "kernel/launch.h"

#include <string.h>

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  switch (entry->kind) {
  case GPU_MMA_FINISH: gpu_emit_mma_finish(b, a, program, entry, host); break;
  case GPU_MMA_TURN:
  case GPU_MMA_COPY: gpu_emit_mma_turn(b, a, program, entry, native, host); break;
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

/* Adds an entry, of which the caller says what is its own. */
static thread_tile *add_entry(arena *a, gpu_program *program, gpu_entry entry, int units) {
  thread_tile *tile = thread_tile_of_blocks(a, units, number_bytes(entry.dtype), entry.access);
  entry.tile = tile;
  program->entry[program->n_entries++] = entry;
  return tile;
}

/* Adds what turns rows for tile programs, copies those that these do not take as they lie, or merges chunks. */
static void add_entry_beside(arena *a, gpu_program *program, gpu_entry_kind kind, int dtype, int units) {
  static const char *const words[2][2] = {{PEGEN_PTX_WORD_TURN, PEGEN_PTX_WORD_TURN_ALL},
                                          {PEGEN_PTX_WORD_TURN_EACH, PEGEN_PTX_WORD_TURN_EACH_ALL}};
  const attend_design *d = program->plan;
  const char *spec = program->spec->name, *type = number_name(dtype);
  gpu_entry entry = {.of = PEGEN_LAUNCH_attention, .kind = kind, .dtype = dtype, .access = number_bytes(dtype)};
  if (kind == GPU_MMA_FINISH) {
    entry.name = arena_printf(a, "%s_attention_finish_%s", spec, type);
    entry.of = PEGEN_LAUNCH_attention_finish;
    entry.access = THREAD_PIECE;
  } else {
    entry.name = arena_printf(a, "%s_attention_%s_%s", spec, type, kind == GPU_MMA_COPY ? "copy" : "turn");
    entry.word = kind == GPU_MMA_COPY ? PEGEN_PTX_WORD_COPY : words[attend_turns_by_head(d->p)][d->p->turns_values];
  }
  add_entry(a, program, entry, units);
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
  thread_tile *tile =
      add_entry(a, program,
                (gpu_entry){.name = arena_printf(a, "%s_%s_%s_%s", program->spec->name, plan->program->name,
                                                 number_name(dtype), plan->machine->name),
                            .of = rows[kind].of,
                            .word = rows[kind].word[mma_gives_alone(plan) ? 2 : d->products != d->p],
                            .kind = (gpu_entry_kind)(GPU_MMA + kind),
                            .dtype = dtype,
                            .access = THREAD_PIECE,
                            .flight = plan->shape.tile.streamed,
                            .blocks = 2,
                            .mma = plan,
                            .shared = chip->vendor->ir.has_dynamic ? (int)plan->shape.shared : 0},
                expr_pool_blocks(program->spec->pool));
  tile->owners = plan->shape.tile.own;
}

/* Adds entries of some kinds, bits of mma_kind, for rows of a type: one machine's follow each other, in the order in
 * which machines are taken. A device may have less shared memory than tensor cores' tiles need, or these may not serve
 * the call; then float32's do. */
static void add_mma_entries(arena *a, gpu_program *program, const gpu_target *chip, int dtype, unsigned kinds) {
  const attend_design *d = program->plan;
  bool serves = false;
  for (int rows = number_bytes(dtype) > 2 || !chip->has_mma ? MMA_FLOATS : MMA_16_BITS; rows < MMA_MACHINES && !serves;
       rows++) {
    serves = true;
    for (int kind = 0; kind < MMA_KIND_COUNT; kind++) {
      const mma_plan *plan = d->mma[rows][kind];
      if (!(kinds >> kind & 1)) continue;
      if (plan) add_mma_entry(a, program, chip, dtype, (mma_kind)kind, plan);
      bool needed = kind != MMA_VALUES && d->mma[MMA_FLOATS][kind];
      serves = serves && (plan ? plan->shape.shared <= chip->shared : !needed);
    }
  }
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

/* Whether a machine has all that gradients need, and gains that float32 has. */
static bool reverses_all(const attend_design *d, int rows) {
  const mma_plan *const *plan = d->mma[rows], *const *floats = d->mma[MMA_FLOATS];
  return plan[MMA_QUERIES] && plan[MMA_KEYS] && !plan[MMA_QUERIES_GAINS] == !floats[MMA_QUERIES_GAINS] &&
         !plan[MMA_KEYS_GAINS] == !floats[MMA_KEYS_GAINS];
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
  for (int i = 0; i < MMA_MACHINES; i++)
    for (int kind = 0; kind < MMA_KIND_COUNT; kind++)
      d->mma[i][kind] = mma_plan_of(a, p, chip, machines[i], (mma_kind)kind);
  for (int i = 0; i < MMA_MACHINES; i++)
    if (!reverses_all(d, i)) memset(&d->mma[i][MMA_QUERIES], 0, (MMA_KIND_COUNT - MMA_QUERIES) * sizeof d->mma[i][0]);
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
    int lanes = THREAD_PIECE / number_bytes(dtype), width = p->head_dim > p->value_dim ? p->head_dim : p->value_dim;
    if (design->products != p) add_entry_beside(a, program, GPU_MMA_TURN, dtype, s->n_blocks);
    add_entry_beside(a, program, GPU_MMA_COPY, dtype, (width + lanes - 1) / lanes);
    add_mma_entries(a, program, chip, dtype, 1u << MMA_FORWARD);
    add_mma_entries(a, program, chip, dtype, 1u << MMA_FEW);
    if (design->mma[MMA_16_BITS][MMA_FEW] || design->mma[MMA_FLOATS][MMA_FEW])
      add_entry_beside(a, program, GPU_MMA_FINISH, dtype, 1);
  }
  for (int dtype = 0; gradients && dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype) || !attend_has_gradients(design)) continue;
    add_mma_entries(a, program, chip, dtype, 1u << MMA_QUERIES);
    add_mma_entries(a, program, chip, dtype, 1u << MMA_QUERIES_GAINS);
    add_mma_entries(a, program, chip, dtype, 1u << MMA_KEYS | 1u << MMA_VALUES | 1u << MMA_KEYS_GAINS);
  }
  if (gradients) gpu_add_attention_gradients(a, program, design, dtypes);
  return program;
}
