/* gpu/attention_backward_entries: which entries gradients of attention have beside tile programs; see
 * gpu/attention_backward.h. */
#include "gpu/attention_backward.h"
#include "gpu/mma.h"

#include "kernel/launch.h"

#include <string.h>

/* Programs that take rows of any type. */
static const mma_plan *const *plans_of(const attend_design *design) { return design->mma[MMA_FLOATS]; }

bool attend_has_gradients(const attend_design *design) {
  return plans_of(design)[MMA_QUERIES] && plans_of(design)[MMA_KEYS];
}

static bool gives(const attend_design *design, mma_kind kind) {
  return attend_has_gradients(design) && plans_of(design)[kind];
}

/* Whether tokens' coordinates, or inputs that are read of them, gain, of queries and of keys. */
static bool gives_tokens(const attend_design *design) {
  return design->p->n_sums > 0 && gives(design, MMA_QUERIES_GAINS) && gives(design, MMA_KEYS_GAINS);
}

static bool gives_weights(const attend_design *design) {
  const attention_plan *p = design->p;
  return p->weights && attend_weights_fit(p) && gives(design, MMA_QUERIES_GAINS);
}

int attend_summed(const attend_design *design) {
  return design->p->sums_inputs && gives_tokens(design) ? design->p->sum_width : 0;
}

unsigned attend_gaining_of_pairs(const attention_plan *p) {
  unsigned bits = 0, turning = attend_turning_operands(p);
  if (p->columns) return 0;
  for (int i = 0; i < p->n_scatters; i++) bits |= 1u << p->scatter[i].leaf->index;
  for (int i = 0; i < p->n_sinks; i++) bits |= 1u << p->of_sink[i].leaf->index;
  for (int i = 0; p->torques && i < p->torques->n_scatters; i++) bits |= 1u << p->torques->scatter[i].leaf->index;
  for (int i = 0; p->torques && i < p->torques->n_scatters; i++) /* of an operand all or nothing */
    if (!(turning >> p->torques->scatter[i].leaf->index & 1)) bits &= ~(1u << p->torques->scatter[i].leaf->index);
  return bits;
}

static int elements_of(const spec_input *input) { return (int)spec_input_numbers(input); }

/* Which of a token's sums the elements of its inputs' rows gain, in a plan whose inputs gain. */
static const gpu_input_sums *input_sums_of(arena *a, const attention_plan *p) {
  gpu_input_sums *s = arena_new(a, gpu_input_sums);
  int own = p->n_places - p->n_numbers;
  s->n_sums = p->sum_width;
  s->terms = arena_array(a, int32_t, p->sum_width);
  for (int i = 0; i < p->spec->n_inputs; i++) s->count += elements_of(&p->spec->input[i]);
  s->first = arena_array(a, int32_t, s->count + 1);
  for (int i = 0, element = 0; i < p->spec->n_inputs; i++)
    for (int k = 0; k < elements_of(&p->spec->input[i]); k++) {
      for (int n = 0; n < p->n_numbers; n++) {
        if (p->number[n].input != i) continue;
        if (attention_is_row(p, n)) s->terms[s->n_terms++] = attention_first_element(p, i) + k;
        else if (!attention_is_pair(p, n) && p->number[n].element == k) s->terms[s->n_terms++] = own + n;
      }
      s->first[++element] = s->n_terms;
    }
  return s;
}

unsigned attend_gaining(const attend_design *design) {
  const attention_plan *p = design->p;
  unsigned bits = gives(design, MMA_QUERIES_GAINS) ? attend_gaining_of_pairs(p) : 0;
  for (int i = 0; gives_weights(design) && i < p->weights->n_scatters; i++)
    bits |= 1u << p->weights->scatter[i].leaf->index;
  return bits;
}

static void add_finish(arena *a, gpu_program *program, gpu_entry_kind kind, const char *word) {
  program->entry[program->n_entries++] =
      gpu_finish_entry(a, program->spec, PEGEN_LAUNCH_attention_backward_finish, kind, word);
}

static void add_weights(arena *a, gpu_program *program, const attend_design *design, unsigned dtypes) {
  program->of = plan_gradient_row_of(a, design->p->weights);
  attend_add_weight_entries(a, program, design->p, dtypes);
  if (!attend_gaining(design)) return;
  add_finish(a, program, GPU_SUM, PEGEN_PTX_WORD_ATTENTION_SUM);
  add_finish(a, program, GPU_SCATTER, PEGEN_PTX_WORD_ATTENTION_SCATTER);
  add_finish(a, program, GPU_GATHER, PEGEN_PTX_WORD_ATTENTION_GATHER);
}

void gpu_add_attention_gradients(arena *a, gpu_program *program, const attend_design *design, unsigned dtypes) {
  const attention_plan *p = design->p;
  if (!attend_has_gradients(design)) return;
  if (gives_tokens(design) && p->has_places) add_finish(a, program, GPU_POSITIONS, PEGEN_PTX_WORD_ATTENTION_POSITIONS);
  if (attend_summed(design)) {
    program->inputs = input_sums_of(a, p);
    add_finish(a, program, GPU_INPUTS, PEGEN_PTX_WORD_ATTENTION_INPUTS);
    if (attend_pair_rows(p)) add_finish(a, program, GPU_PAIRS, PEGEN_PTX_WORD_ATTENTION_PAIRS);
  }
  if (attend_has_columns(p)) program->n_weights = p->columns->p->n_weights;
  if (gives_weights(design)) add_weights(a, program, design, dtypes);
  if (p->columns || !attend_gaining(design)) return;
  add_finish(a, program, GPU_SUM, PEGEN_PTX_WORD_ATTENTION_SUM);
  add_finish(a, program, GPU_TOTAL, PEGEN_PTX_WORD_TOTAL);
}

void attend_print_gradients(FILE *f, const gpu_program *program) {
  const attend_design *design = program->plan;
  bool has_some = false;
  for (int i = 0; i < program->n_entries; i++)
    has_some = has_some || program->entry[i].of == PEGEN_LAUNCH_attention_backward;
  if (!has_some) return;
  fprintf(f,
          "// Entries of gradients have these parameters and then: gradients of out and lse coming in, of q, k and v "
          "going out (rows as above;\n"
          "//   0: none), a number of each query, tiles of queries, tiles of a block, sums of chunks, "
          "shares of positions,\n"
          "//   of a polynomial what weights gain, and weights (docs/embedding-ptx.md).\n");
  for (int i = 0; i < program->n_entries; i++) {
    const gpu_entry *entry = &program->entry[i];
    if (entry->kind < GPU_MMA_QUERIES || entry->kind > GPU_MMA_KEYS_GAINS) continue;
    bool of_queries = entry->kind == GPU_MMA_QUERIES || entry->kind == GPU_MMA_QUERIES_GAINS,
         is_each = attend_turns_by_head(design->p) && strstr(entry->word, "_turned");
    fprintf(f, "//   %-40s x = ceil(%s / %d) * heads%s * batches\n", entry->name, of_queries ? "queries" : "keys",
            entry->tile->owners,
            of_queries ? " or fewer"
            : is_each  ? ""
                       : " of k");
  }
}
