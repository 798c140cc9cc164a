/* Heads that blocks of several kinds share: random ones, each against one kernel a part on the part's span, against the
 * slow reference and by the program's interpreter. By x86-64-v2, which has no fused multiply-add, rows of one kernel
 * and of several are the same bits; elsewhere LLVM may fuse other products of a token's numbers, an entry's last bit.
 *
 * parts_test [SEED [COUNT [FIRST [TARGETS]]]]; case i of a seed is always the same.
 */
#include "base/number.h"
#include "compile.h"
#include "forms/form.h"
#include "interpret/program.h"
#include "interpret/trial.h"
#include "loader.h"
#include "plan/gradient.h"
#include "scoped.h"
#include "verify/check_kind.h"
#include "verify/oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_PARTS = 4, AXES = 3, TOKENS = 9, HEADS = 3, K_HEADS = 2, BATCH = 2 };
static const char *const axis_names[AXES] = {"t", "y", "x"};
static const long double ROW_BOUND = 0x1p-20L, PROGRAM_BOUND = 0x1p-26L;
static const double FUSED = 0x1p-21; /* of the numbers of a row, which are below 1, times an amplitude below 2 */
static const char *const UNFUSED = "x86-64-v2";

/* What a part is turned by, as its fields in the whole's words; which of the axes it reads. */
typedef struct drawn_part {
  const char *fields;
  int n_axes, axis[AXES];
} drawn_part;

typedef struct drawn {
  arena *memory;
  uint64_t random;
  int head_dim, heads, skip, n_parts;
  const char *operands;
  drawn_part part[MOST_PARTS];
} drawn;

static int below(drawn *d, int bound) { return random_below(&d->random, bound); }

/* Size, what a block is, and a generator that turns it; a string of %d takes 1 to 3. */
static const struct {
  int size;
  const char *block, *generator, *combine[3];
} kinds[] = {
    {2, "pe.plane()", "pe.turn \"e12\"", {"pe.sum", "pe.mean", "pe.sum"}},
    {3, "pe.vector(3)", "pe.quaternion(({ \"i\", \"j\", \"k\" })[%d])", {"pe.mean", "pe.sum", "pe.symmetric { %s }"}},
    {3, "pe.vector(3)", "pe.quaternion(({ \"i\", \"j\", \"k\" })[%d])", {"pe.product { %s }", "pe.chordal", "pe.mean"}},
    {4,
     "pe.multivector { algebra = { 3, 0, 0 }, blades = { \"1\", \"e1\", \"e2\", \"e3\" } }",
     "pe.turn(({ \"e12\", \"e23\", \"e13\" })[%d])",
     {"pe.sum", "pe.product { %s }", "pe.mean"}},
    {4, "pe.vector(4)", "pe.turn \"e14\"", {"pe.sum", "pe.mean", "pe.sum"}},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void draw_axes(drawn *d, drawn_part *part, const char **list, const char **generators, const char *generator) {
  int order[AXES] = {0, 1, 2};
  for (int i = AXES - 1; i > 0; i--) {
    int j = below(d, i + 1), kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
  part->n_axes = 1 + below(d, AXES);
  *list = *generators = "";
  for (int i = 0; i < part->n_axes; i++) {
    const char *name = axis_names[part->axis[i] = order[i]];
    *list = arena_printf(d->memory, "%s%s\"%s\"", *list, i ? ", " : "", name);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const char *one = arena_printf(d->memory, generator, i + 1);
#pragma GCC diagnostic pop
    *generators = arena_printf(d->memory, "%s%s = %s, ", *generators, name, one);
  }
}

/* Channels from `first` on; the first one behind them. */
static int draw_part(drawn *d, int index, int first) {
  drawn_part *part = &d->part[index];
  int kind = below(d, KINDS), size = kinds[kind].size, blocks = 1 + below(d, 1 + below(d, 24));
  int count = size * blocks + below(d, size);
  const char *list, *generators;
  draw_axes(d, part, &list, &generators, kinds[kind].generator);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const char *combine = arena_printf(d->memory, kinds[kind].combine[below(d, 3)], list);
#pragma GCC diagnostic pop
  const char *phase = arena_printf(d->memory, "function(_, i) return 0.%d ^ (i / 4) end", 2 + below(d, 7));
  if (below(d, 2)) {
    d->operands =
        arena_printf(d->memory, "%slocal f%d = pe.learned { name = \"f%d\", shape = { \"heads\", %d }, doc = \"x\" }\n",
                     d->operands, index, index, blocks);
    phase = arena_printf(d->memory, "function(_, i, head) return f%d(head, i) end", index);
  }
  const char *amplitude[] = {"1", "0.75", "function(r, i) return 1 + 1 / (2 + i + r[1] * r[1]) end"};
  part->fields = arena_printf(d->memory,
                              "span = { %d, %d }, axes = { %s }, block = %s, layout = \"%s\", generators = { %s}, "
                              "combine = %s, phase = %s, amplitude = %s",
                              first, count, list, kinds[kind].block, below(d, 2) ? "split" : "interleaved", generators,
                              combine, phase, amplitude[below(d, 3)]);
  return first + count;
}

static void draw(drawn *d) {
  int behind = 0;
  d->n_parts = 1 + below(d, MOST_PARTS);
  d->heads = below(d, 3) ? 1 : HEADS;
  d->skip = below(d, 2);
  d->operands = "";
  for (int i = 0; i < d->n_parts; i++) behind = draw_part(d, i, behind + (below(d, 3) ? 0 : below(d, 20)));
  d->head_dim = behind + (below(d, 2) ? 0 : below(d, 20));
}

/* ---- descriptions ---- */

static const char *whole_text(const drawn *d) {
  const char *text = arena_printf(d->memory,
                                  "local pe = require \"pegen\"\n%sreturn pe.encoding { name = \"whole\", axes = { "
                                  "\"t\", \"y\", \"x\" }, head_dim = %d, heads = %d, parts = {\n",
                                  d->operands, d->head_dim, d->heads);
  for (int i = 0; i < d->n_parts; i++) text = arena_printf(d->memory, "%s  { %s },\n", text, d->part[i].fields);
  return arena_printf(d->memory, "%s} }\n", text);
}

static const char *part_text(const drawn *d, int index) {
  return arena_printf(
      d->memory,
      "local pe = require \"pegen\"\n%sreturn pe.encoding { name = \"part\", head_dim = %d, heads = %d,\n"
      "  %s }\n",
      d->operands, d->head_dim, d->heads, d->part[index].fields);
}

static spec *load(const drawn *d, const char *name, const char *text) {
  const char *path = arena_printf(d->memory, "%s-%d.lua", name, getpid()); /* other tests run in this folder, too */
  FILE *file = fopen(path, "w");
  if (!file || fputs(text, file) < 0 || fclose(file)) exit(2);
  loader_define skip = {"skip_tokens", d->skip ? "1" : "0"};
  spec *s = loader_load(d->memory, path, DSL_DIR, 1, &skip);
  if (!s) printf("%s\n", text);
  else remove(path);
  return s;
}

/* ---- calls ---- */

typedef struct rows {
  DLTensor *q, *k;
} rows;

static const DLTensor *positions_of(const drawn *d, const double *all, const int *axis, int n_axes) {
  double values[TOKENS * AXES];
  for (int n = 0; n < TOKENS; n++)
    for (int a = 0; a < n_axes; a++) values[n * n_axes + a] = all[n * AXES + axis[a]];
  return tensor_contiguous(d->memory, NUMBER_F64, 2, (int64_t[]){TOKENS, n_axes}, values);
}

/* In place, by the kernel of a description. */
static bool encode(loaded_kernel *loaded, const DLTensor *positions, const trial_operands *operands, rows r,
                   int parts) {
  int error = trial_call(run_kernel(loaded), positions, operands, r.q, r.q, r.k, r.k, parts);
  if (error) printf("refused: %s\n", pegen_strerror(error));
  return error == 0;
}

/* The largest difference of two tensors of one shape. */
static double apart(const DLTensor *x, const DLTensor *y, number_type type) {
  double most = 0;
  for (int64_t b = 0; b < x->shape[0]; b++)
    for (int64_t h = 0; h < x->shape[1]; h++)
      for (int64_t n = 0; n < x->shape[2]; n++)
        for (int64_t c = 0; c < x->shape[3]; c++)
          most = fmax(most,
                      fabs(number_load(type, tensor_at(x, b, h, n, c)) - number_load(type, tensor_at(y, b, h, n, c))));
  return most;
}

static bool program_agrees(drawn *d, const spec *s, oracle *o, const double *values, const trial_operands *operands) {
  const program *p = trial_program(d->memory, s, "encode");
  DLTensor *q = tensor_rows(d->memory, NUMBER_F64, ROWS_BHND, 1, HEADS, TOKENS, d->head_dim);
  tensor_randomize(q, &d->random);
  DLTensor *rounded = tensor_copy(d->memory, q);
  const long double *out = trial_interpret(d->memory, p, values, operands, q);
  for (int64_t i = 0; i < (int64_t)HEADS * TOKENS * d->head_dim; i++) ((double *)rounded->data)[i] = (double)out[i];
  trial_error worst = {0};
  trial_compare_rows(o, q, rounded, &worst);
  if (worst.spoilt || worst.error > PROGRAM_BOUND) printf("program: %s\n", trial_error_text(d->memory, &worst));
  return !worst.spoilt && worst.error <= PROGRAM_BOUND;
}

/* The kernels of a target: of the whole, and of each part. */
typedef struct kernels {
  loaded_kernel *whole, *part[MOST_PARTS];
} kernels;

static bool rows_agree(drawn *d, const kernels *of, oracle *o, const double *values, const trial_operands *operands,
                       bool fused, number_type type) {
  const int all_axes[] = {0, 1, 2};
  int k_heads = d->heads > 1 ? HEADS : K_HEADS;
  row_order order = (row_order)below(d, ROW_ORDER_COUNT);
  rows in = {tensor_rows(d->memory, type, order, BATCH, HEADS, TOKENS, d->head_dim),
             tensor_rows(d->memory, type, order, BATCH, k_heads, TOKENS, d->head_dim)};
  tensor_randomize(in.q, &d->random);
  tensor_randomize(in.k, &d->random);
  rows once = {tensor_copy(d->memory, in.q), tensor_copy(d->memory, in.k)};
  rows each = {tensor_copy(d->memory, in.q), tensor_copy(d->memory, in.k)};
  if (!encode(of->whole, positions_of(d, values, all_axes, AXES), operands, once, 1 + below(d, 3))) return false;
  for (int i = 0; i < d->n_parts; i++) {
    const DLTensor *positions = positions_of(d, values, d->part[i].axis, d->part[i].n_axes);
    if (!encode(of->part[i], positions, operands, each, 1)) return false;
  }
  trial_error worst = {0};
  trial_compare_rows(o, in.q, once.q, &worst);
  trial_compare_rows(o, in.k, once.k, &worst);
  bool near = !worst.spoilt && worst.error <= ROW_BOUND;
  bool same = tensor_identical(once.q, each.q) && tensor_identical(once.k, each.k);
  double off = fmax(apart(once.q, each.q, type), apart(once.k, each.k, type));
  if (fused) same = off <= (type == NUMBER_F32 ? FUSED : 0x1p-7);
  bool gaps = tensor_gaps_identical(once.q, in.q) && tensor_gaps_identical(once.k, in.k);
  if (!near) printf("rows: %s\n", trial_error_text(d->memory, &worst));
  if (!same) printf("%s: %g off what a kernel for each part gives\n", number_type_info(type)->name, off);
  if (!gaps) printf("bytes between rows were written\n");
  return near && same && gaps;
}

static bool target_agrees(drawn *d, const spec *whole, spec *const *part, oracle *o, const double *values,
                          const trial_operands *operands, const char *target) {
  const unsigned dtypes = PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16;
  bool fused = strcmp(target, UNFUSED) != 0, loaded = true;
  kernels of = {.whole = trial_load(d->memory, whole, target, dtypes, 1)};
  for (int i = 0; i < d->n_parts; i++)
    loaded = (of.part[i] = trial_load(d->memory, part[i], target, dtypes, 1)) != NULL && loaded;
  bool agree = loaded && of.whole && rows_agree(d, &of, o, values, operands, fused, NUMBER_F32) &&
               rows_agree(d, &of, o, values, operands, fused, NUMBER_BF16);
  if (of.whole) run_unload(of.whole);
  for (int i = 0; i < d->n_parts; i++)
    if (of.part[i]) run_unload(of.part[i]);
  return agree;
}

/* ---- gradients ---- */

/* A call of the program, and a direction in which all that it reads moves. */
typedef struct moved {
  const spec *spec;
  int64_t rows;
  const double *x, *x_by, *position, *position_by;
  const double **operand, **operand_by;
} moved;

static double *drawn_numbers(drawn *d, int64_t count, double size) {
  double *numbers = arena_array(d->memory, double, count + 1);
  for (int64_t i = 0; i < count; i++) numbers[i] = random_uniform(&d->random, -size, size);
  return numbers;
}

static const double *stepped(drawn *d, const double *from, const double *by, int64_t count, double step) {
  double *to = arena_array(d->memory, double, count + 1);
  for (int64_t i = 0; i < count; i++) to[i] = from[i] + step * by[i];
  return to;
}

static program_call call_of(void) {
  return (program_call){.tokens = TOKENS, .batches = 1, .heads = {HEADS}, .run_heads = HEADS};
}

/* What encode's program writes, moved so far. */
static long double *encoded(drawn *d, const moved *m, double step) {
  const spec *s = m->spec;
  program_call call = call_of();
  const double **operands = arena_array(d->memory, const double *, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++)
    operands[i] = stepped(d, m->operand[i], m->operand_by[i], spec_operand_elements(&s->operand[i]), step);
  call.operands = operands;
  call.positions = stepped(d, m->position, m->position_by, TOKENS * AXES, step);
  call.rows[0][0] = stepped(d, m->x, m->x_by, m->rows, step);
  call.results[1][0] = arena_array(d->memory, long double, m->rows);
  program_interpret(trial_program(d->memory, s, "encode"), &call);
  return call.results[1][0];
}

/* Sums of what the parts' arrays hold, times the directions of what they are of. */
static long double along_operands(const plan_gradient *g, const moved *m, const long double *gained, int heads) {
  const spec *s = g->leaves->spec;
  long double sum = 0;
  for (int head = 0; head < heads; head++)
    for (int i = 0; i < g->n_scatters; i++)
      for (int block = 0; block < s->n_blocks; block++, gained++) {
        const expr *leaf = g->scatter[i].leaf;
        int row = leaf->n_heads > 1 ? head : 0;
        sum += *gained * m->operand_by[leaf->index][leaf->offsets[row * s->n_blocks + block]];
      }
  return sum;
}

static long double along_positions(const spec_part *part, const moved *m, const long double *gained) {
  long double sum = 0;
  for (int n = m->spec->skip_tokens; n < TOKENS; n++)
    for (int axis = 0; axis < part->of->n_axes; axis++)
      sum += gained[n * part->of->n_axes + axis] * m->position_by[n * AXES + part->axis[axis]];
  return sum;
}

/* What the program of gradients gives of rows, operands and positions, along the directions. */
static long double gained_along(drawn *d, const moved *m, const plan_row *row, const plan_gradient_row *of,
                                const double *g) {
  const program *back = trial_program(d->memory, m->spec, "encode_backward");
  program_call call = call_of();
  const long double *y = encoded(d, m, 0);
  double *kept = arena_array(d->memory, double, m->rows);
  long double sum = 0;
  for (int64_t i = 0; i < m->rows; i++) kept[i] = (double)y[i];
  call.operands = m->operand;
  call.positions = m->position;
  call.rows[0][0] = g;
  call.rows[2][0] = kept;
  call.results[1][0] = arena_array(d->memory, long double, m->rows);
  for (int i = 0; i < back->n_arrays; i++)
    call.arrays[i] = arena_array(d->memory, long double, (TOKENS + HEADS) * d->head_dim * 16 * AXES);
  program_interpret(back, &call);
  for (int64_t i = 0; i < m->rows; i++) sum += call.results[1][0][i] * m->x_by[i];
  for (int i = 0, array = 0; i < of->n_parts; i++) {
    if (!of->part[i]) continue;
    int heads = row->part[i]->per_head ? m->spec->heads : 1;
    if (of->part[i]->n_boundaries) sum += along_operands(of->part[i], m, call.arrays[array++], heads);
    if (of->part[i]->has_positions) sum += along_positions(row->part[i]->part, m, call.arrays[array++]);
  }
  return sum;
}

/* The adjoint identity: <g, dy> = <what they gain, how all that is read moves>, with dy by differences of encode. */
static bool is_adjoint(drawn *d, const spec *s) {
  const double step = 0x1p-18;
  const plan_row *row = form_of(s)->plan(d->memory, s);
  const plan_gradient_row *of = plan_gradient_build_row(d->memory, (const plan *const *)row->part, row->n_parts);
  if (!of) return true;
  int64_t rows = (int64_t)HEADS * TOKENS * d->head_dim;
  moved m = {.spec = s,
             .rows = rows,
             .x = drawn_numbers(d, rows, 1),
             .x_by = drawn_numbers(d, rows, 1),
             .position = drawn_numbers(d, TOKENS * AXES, 2),
             .position_by = drawn_numbers(d, TOKENS * AXES, 1)};
  m.operand = arena_array(d->memory, const double *, s->n_operands + 1);
  m.operand_by = arena_array(d->memory, const double *, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++) {
    int64_t count = spec_operand_elements(&s->operand[i]);
    m.operand[i] = drawn_numbers(d, count, s->operand[i].test_scale);
    m.operand_by[i] = drawn_numbers(d, count, s->operand[i].test_scale);
  }
  const double *g = drawn_numbers(d, rows, 1);
  const long double *up = encoded(d, &m, step), *down = encoded(d, &m, -step);
  long double expected = 0, size = 0, got = gained_along(d, &m, row, of, g);
  for (int64_t i = 0; i < rows; i++) {
    long double moved_by = (up[i] - down[i]) / (2 * (long double)step);
    expected += g[i] * moved_by;
    size += fabsl(g[i] * moved_by);
  }
  bool holds = fabsl(got - expected) <= 1e-7L * size;
  if (!holds) printf("gradients along a direction: %.9Lg, by differences %.9Lg\n", got, expected);
  return holds;
}

/* Kernels' gradients of rows, operands and positions against the reference, at once and by a table. */
static bool gradients_agree(drawn *d, const spec *s, const char *target) {
  SCOPED_KERNEL *loaded = trial_load_gradients(d->memory, s, target, PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16, 1);
  if (!loaded) return false;
  checker check = {.memory = d->memory, .spec = s, .kernel = run_kernel(loaded), .random = d->random, .target = "host"};
  check_encode_backward(&check);
  return !check.n_failed;
}

static bool run_case(drawn *d, const char *target) {
  spec *part[MOST_PARTS], *whole = load(d, "whole", whole_text(d));
  double values[TOKENS * AXES] = {0};
  for (int i = AXES; i < TOKENS * AXES; i++) values[i] = random_uniform(&d->random, -1, 1) * (i % 5 ? 8 : 4000);
  for (int i = 0; whole && i < d->n_parts; i++)
    if (!(part[i] = load(d, "part", part_text(d, i)))) return false;
  if (!whole) return false;
  trial_operands operands = trial_random_operands(d->memory, whole, NUMBER_F32, &d->random);
  oracle *o = oracle_create(d->memory, whole, 1, TOKENS, values, &operands);
  return program_agrees(d, whole, o, values, &operands) && is_adjoint(d, whole) && gradients_agree(d, whole, target) &&
         (!trial_runnable(UNFUSED) || target_agrees(d, whole, part, o, values, &operands, UNFUSED)) &&
         (!strcmp(target, UNFUSED) || target_agrees(d, whole, part, o, values, &operands, target));
}

int main(int argc, char **argv) {
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
  int count = argc > 2 ? atoi(argv[2]) : 14, first = argc > 3 ? atoi(argv[3]) : 0, failed = 0;
  SCOPED arena *a = arena_create();
  const char **targets;
  int n_targets = trial_targets(a, argc > 4 ? argv[4] : NULL, &targets);
  if (n_targets == 0) return 77;
  for (int i = first; i < first + count; i++) {
    uint64_t which = (uint64_t)i;
    SCOPED drawn d = {.memory = arena_create(), .random = seed};
    d.random = random_next(&d.random) ^ random_next(&which);
    draw(&d);
    const char *target = targets[below(&d, n_targets)];
    if (!run_case(&d, target)) {
      failed++;
      printf("FAILED: seed %llu case %d, target %s\n%s\n", (unsigned long long)seed, i, target, whole_text(&d));
    }
  }
  printf("%d of %d failed\n", failed, count);
  return failed != 0;
}
