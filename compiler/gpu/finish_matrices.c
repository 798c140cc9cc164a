/* gpu/finish_matrices: from sums of what learned skew matrices gain to elements of the operands that hold them.
 *
 * A thread has an element of a raw matrix F and adds up the chunks' sums, in order, of every generator, head and block
 * that is made of it, above the diagonal: of F - F^T an element below it gains the opposite.
 */
#include "base/diag.h"
#include "gpu/exponential.h"
#include "gpu/finish.h"
#include "gpu/index.h"

#include "kernel/launch.h"

bool gpu_generates(const program_op *matrix, int operand) {
  for (int k = 0; k < matrix->skew.count; k++)
    if (matrix->skew.of[k].operand == operand) return true;
  return false;
}

const program_op *gpu_learned_matrix(const program *encode) {
  for (int v = 0; v < encode->n_values; v++)
    if (encode->value[v].kind == KIND_MATRIX && encode->value[v].maker->skew.count > 0) return encode->value[v].maker;
  diag_bug("gpu/finish_matrices", "'%s' has no learned matrix", encode->entry);
}

/* ---- entries ---- */

static const gpu_matrices *matrices_of(arena *a, const gpu_program *program, const program_op *matrix,
                                       int thread_bytes) {
  const spec *s = program->spec;
  gpu_matrices *m = arena_new(a, gpu_matrices);
  int padded = team_padded(matrix->blocks.size), heads = program->per_head ? s->heads : 1;
  m->numbers = matrix->skew.count * heads * matrix->blocks.count * padded * padded;
  m->thread_bytes = thread_bytes;
  for (int i = 0; i < s->n_operands; i++)
    if (gpu_generates(matrix, i)) m->elements += (int)spec_operand_elements(&s->operand[i]);
  return m;
}

static void add_finishing(arena *a, gpu_program *program, gpu_entry_kind kind, const char *word) {
  program->entry[program->n_entries++] =
      gpu_finish_entry(a, program->spec, PEGEN_LAUNCH_encode_backward_finish, kind, word);
}

void gpu_finish_matrices(arena *a, gpu_program *program, int thread_bytes) {
  const program_op *matrix = gpu_learned_matrix(program->encode);
  int others = 0;
  program->matrices = matrices_of(a, program, matrix, thread_bytes);
  for (int i = 0; i < program->spec->n_operands; i++) others += !gpu_generates(matrix, i);
  add_finishing(a, program, GPU_SUM, PEGEN_PTX_WORD_SUM);
  add_finishing(a, program, GPU_MATRICES, PEGEN_PTX_WORD_MATRICES);
  if (program->of && gpu_gains_of(program)->n_boundaries)
    add_finishing(a, program, GPU_SCATTER, PEGEN_PTX_WORD_SCATTER);
  if (others) add_finishing(a, program, GPU_GATHER, PEGEN_PTX_WORD_GATHER);
  if (program->of && plan_gradient_has_positions(program->of))
    add_finishing(a, program, GPU_POSITIONS, PEGEN_PTX_WORD_POSITIONS);
}

/* ---- sums ---- */

/* Matrices of all such operands in one line: uses[first[m]] up to uses[first[m + 1]] are the generators, heads and
 * blocks of matrix m, as sums are numbered. */
typedef struct matrix_uses {
  int matrices, heads, blocks, size, padded;
  int *begin; /* [operands]: its first matrix */
  int32_t *first, *uses;
} matrix_uses;

static matrix_uses uses_of(const finisher *f, const program_op *matrix) {
  const spec *s = f->program->spec;
  int n = matrix->blocks.size, total;
  matrix_uses u = {.heads = f->program->per_head ? s->heads : 1, .blocks = matrix->blocks.count, .size = n};
  u.padded = team_padded(n);
  u.begin = arena_array(f->memory, int, s->n_operands);
  for (int i = 0; i < s->n_operands; i++) {
    u.begin[i] = u.matrices;
    if (gpu_generates(matrix, i)) u.matrices += (int)(spec_operand_elements(&s->operand[i]) / (n * n));
  }
  total = matrix->skew.count * u.heads * u.blocks;
  u.first = arena_array(f->memory, int32_t, u.matrices + 2);
  u.uses = arena_array(f->memory, int32_t, total);
  for (int pass = 0; pass < 2; pass++) { /* counts, then places */
    for (int use = 0; use < total; use++) {
      const spec_skew *g = &matrix->skew.of[use / (u.heads * u.blocks)];
      int head = use / u.blocks % u.heads, block = use % u.blocks;
      int offset = g->offset[(g->n_heads > 1 ? head * u.blocks : 0) + block],
          m = u.begin[g->operand] + offset / (n * n);
      if (offset % (n * n)) diag_bug("gpu/finish_matrices", "a matrix begins inside of another");
      if (pass == 0) u.first[m + 2]++;
      else u.uses[u.first[m + 1]++] = use;
    }
    for (int m = 0; pass == 0 && m <= u.matrices; m++) u.first[m + 1] += u.first[m];
  }
  return u;
}

static ir_value table_element(ir *b, const char *name, ir_value index) {
  return ir_load(b, b->i32, ir_offset(b, ir_table_address(b, name), wide(b, scaled(b, index, 4))), 4);
}

/* Where an operand's gradient goes, of the one that matrix `index` is of. */
typedef struct destination {
  ir_value address, type, begin; /* begin: i32, its first matrix */
  ir_value differs;              /* i1: A is F - F^T */
} destination;

static destination destination_of(const finisher *f, const program_op *matrix, const matrix_uses *u, ir_value index) {
  ir *b = f->b;
  destination d = {{NULL}, {NULL}, {NULL}, {NULL}};
  for (int k = 0; k < matrix->skew.count; k++) {
    const spec_skew *g = &matrix->skew.of[k];
    const ir_value *of = f->parameter + PEGEN_PTX_MATRICES_OPERANDS + g->operand * PEGEN_PTX_OPERAND_COUNT;
    int end = u->begin[g->operand] +
              (int)(spec_operand_elements(&f->program->spec->operand[g->operand]) / (u->size * u->size));
    ir_value here =
        both(b, ir_compare_int(b, "uge", index, i32(b, u->begin[g->operand])), below(b, index, i32(b, end)));
    destination own = {of[PEGEN_PTX_OPERAND_ADDRESS], of[PEGEN_PTX_OPERAND_TYPE], i32(b, u->begin[g->operand]),
                       ir_int(b, b->i1, g->rule == SKEW_DIFFERENCE)};
    if (!d.address.ptr) {
      d = own;
      continue;
    }
    d.address = ir_select(b, here, own.address, d.address);
    d.type = ir_select(b, here, own.type, d.type);
    d.begin = ir_select(b, here, own.begin, d.begin);
    d.differs = ir_select(b, here, own.differs, d.differs);
  }
  return d;
}

/* The sum over uses [begin, end) and chunks of element `at` (i32) of a padded matrix. */
static two_float sum_uses(finisher *f, const matrix_uses *u, const char *list, ir_value begin, ir_value end,
                          ir_value at, int uses) {
  ir *b = f->b;
  ir_value zero = ir_float(b, b->f32, 0), values[2] = {zero, zero};
  int64_t elements = (int64_t)u->padded * u->padded;
  ir_loop each = ir_for_with(b, wide(b, begin), wide(b, end), 2, values, values);
  ir_value first =
      add(b, mul(b, wide(b, table_element(b, list, narrow(b, each.index))), i64(b, elements)), wide(b, at));
  ir_loop loop = ir_for_with(b, i64(b, 0), f->parameter[PEGEN_PTX_MATRICES_CHUNKS], 2, values, values);
  ir_value index = add(b, first, mul(b, loop.index, i64(b, elements * uses)));
  two_float x = two_float_load(b, finish_number_at(b, f->parameter[PEGEN_PTX_MATRICES_SUMS], index));
  two_float old = {.hi = values[0], .lo = values[1]}, sum = two_float_add(b, old, x);
  ir_end_for_with(b, loop, 2, (ir_value[]){sum.hi, sum.lo}, values);
  ir_end_for_with(b, each, 2, values, values);
  return (two_float){.hi = values[0], .lo = values[1]};
}

void finish_matrices(finisher *f, bool host) {
  ir *b = f->b;
  const spec *s = f->program->spec;
  const program_op *matrix = gpu_learned_matrix(f->program->encode);
  matrix_uses u = uses_of(f, matrix);
  int n = u.size, uses = matrix->skew.count * u.heads * u.blocks;
  const char *first = arena_printf(f->memory, "%s_first", f->entry->name),
             *list = arena_printf(f->memory, "%s_uses", f->entry->name);
  finish_open(f, PEGEN_PTX_MATRICES_OPERANDS + s->n_operands * PEGEN_PTX_OPERAND_COUNT, host);
  ir_table(b, first, u.matrices + 1, NULL, u.first);
  ir_table(b, list, uses, NULL, u.uses);
  ir_branch inside = ir_if(b, below(b, f->line, i32(b, (int64_t)u.matrices * n * n)));
  ir_value index = quotient(b, f->line, n * n), element = rest(b, f->line, n * n), row = quotient(b, element, n),
           column = rest(b, element, n);
  destination d = destination_of(f, matrix, &u, index);
  ir_branch wanted = ir_if(b, ir_compare_int(b, "ne", d.address, i64(b, 0)));
  ir_value upper = below(b, row, column), lower = both(b, below(b, column, row), d.differs);
  ir_value begin = table_element(b, first, index), end = table_element(b, first, add(b, index, i32(b, 1)));
  ir_value counts = ir_op2(b, "arith.ori", upper, lower);
  ir_value at = ir_select(b, upper, add(b, scaled(b, row, u.padded), column), add(b, scaled(b, column, u.padded), row));
  two_float sum = sum_uses(f, &u, list, begin, ir_select(b, counts, end, begin), at, uses);
  two_float less = two_float_neg(b, sum);
  sum = s->inverse ? two_float_select(b, upper, less, sum) : two_float_select(b, upper, sum, less);
  ir_value is_f64 = ir_compare_int(b, "eq", d.type, i64(b, PEGEN_PTX_OPERAND_F64));
  ir_value own = add(b, scaled(b, sub(b, index, d.begin), (int64_t)n * n), element);
  ir_value to = add(b, d.address, mul(b, wide(b, own), ir_select(b, is_f64, i64(b, 8), i64(b, 4))));
  ir_value adds = ir_compare_int(b, "ne", f->parameter[PEGEN_PTX_MATRICES_ADDS], i64(b, 0));
  finish_store(b, is_f64, adds, sum, ir_pointer(b, to));
  ir_end_if(b, wanted);
  ir_end_if(b, inside);
}
