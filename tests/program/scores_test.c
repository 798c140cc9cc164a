/* Programs of attention and of columns that widen rows, interpreted, against the reference: every stock spec that has
 * them, with its variants and with tokens that are skipped. Attention by its output, with grouped heads, all keys or
 * those up to the query; widened rows by their products, which are the scores, up to a constant a query where the plan
 * keeps none; and what these rows gain, by differences.
 */
#include "forms/form.h"
#include "interpret/trial.h"
#include "plan/widen_gradient.h"
#include "scoped.h"
#include "test.h"
#include "variants.h"
#include "verify/reference.h"
#include "verify/reference_attention.h"

#include <math.h>
#include <string.h>

enum { BATCHES = 2, TOKENS = 6, KEYS = 9, ANY_HEADS = 4, GROUP = 2, LEAST = 8, LEAST_GAINS = 20 };
/* STEP: of differences, whose errors are its square. */
static const long double BOUND = 0x1p-38L, STEP = 0x1p-16L, DIFFERENCE_BOUND = 0x1p-24L;

typedef struct fixture {
  arena *memory;
  const spec *spec;
  uint64_t random;
  program_call call;
  trial_operands operands;
} fixture;

static double *fill(fixture *f, int64_t count, double reach) {
  double *values = arena_array(f->memory, double, count + 1);
  for (int64_t i = 0; i < count; i++) values[i] = random_uniform(&f->random, -reach, reach);
  return values;
}

static double *places(fixture *f, int64_t count) {
  const spec *s = f->spec;
  double *at = fill(f, count * s->n_axes, 4);
  for (int64_t i = 0; i < count * s->n_axes; i++) at[i] = rint(at[i]); /* masks have edges, tables are of whole steps */
  for (int64_t n = s->skip_tokens; n < count && s->grid[0]; n++) reference_grid(s, n, at + n * s->n_axes);
  return at;
}

/* NULL: the spec has no program of that entry. */
static const program *open_fixture(fixture *f, const variant *v, const loader_define *more, const char *entry) {
  loader_define define[VARIANT_MAX_DEFINES + 1];
  int n = v->n_defines;
  memcpy(define, v->define, sizeof v->define);
  if (more) define[n++] = *more;
  *f = (fixture){.memory = arena_create(), .random = 11};
  f->spec = loader_load(f->memory, v->file, DSL_DIR, n, define);
  assert_non_null(f->spec);
  const spec *s = f->spec;
  const program *p = trial_program(f->memory, s, entry);
  if (!p || (!s->polynomial && !s->pairwise)) {
    arena_destroy(f->memory);
    return NULL;
  }
  const char *fault = program_fault(f->memory, p);
  if (fault) fail_msg("%s: %s", v->name, fault);
  f->operands = trial_random_operands(f->memory, s, NUMBER_F32, &f->random);
  int64_t heads = s->heads > 1 ? s->heads : ANY_HEADS;
  f->call = (program_call){.tokens = TOKENS,
                           .batches = BATCHES,
                           .heads = {heads, heads % GROUP ? heads : heads / GROUP},
                           .keys = KEYS,
                           .scale = 0.3,
                           .operands = f->operands.values};
  f->call.positions = places(f, TOKENS);
  f->call.k_positions = places(f, KEYS);
  for (int i = 0; i < s->n_inputs; i++) {
    int64_t tokens = s->input[i].of_keys ? KEYS : TOKENS;
    int64_t size = spec_input_is_pair(&s->input[i]) ? KEYS : spec_input_numbers(&s->input[i]);
    f->call.inputs[i] = fill(f, BATCHES * heads * tokens * size, 1);
  }
  return p;
}

static void inputs_of(const fixture *f, int64_t row, const double **inputs) {
  for (int i = 0; i < f->spec->n_inputs; i++) {
    int64_t size = spec_input_is_pair(&f->spec->input[i]) ? KEYS : spec_input_numbers(&f->spec->input[i]);
    inputs[i] = f->call.inputs[i] + (f->spec->input[i].of_keys ? row / TOKENS * KEYS : row) * size;
  }
}

/* ---- attention ---- */

static void attends(const variant *v, const loader_define *more, bool is_causal) {
  fixture f;
  const program *p = open_fixture(&f, v, more, "attention");
  if (!p) return;
  const spec *s = f.spec;
  int64_t heads = f.call.heads[0], k_heads = f.call.heads[1], width = s->pairwise->value_dim;
  const double *q = fill(&f, BATCHES * heads * TOKENS * s->head_dim, 1),
               *k = fill(&f, BATCHES * k_heads * KEYS * s->head_dim, 1),
               *values = fill(&f, BATCHES * k_heads * KEYS * width, 1);
  long double *out = arena_array(f.memory, long double, BATCHES * heads * TOKENS * width), scores[KEYS],
              *exact = arena_array(f.memory, long double, width);
  f.call.is_causal = is_causal;
  f.call.rows[0][0] = q, f.call.rows[1][0] = k, f.call.rows[2][0] = values, f.call.results[3][0] = out;
  program_interpret(p, &f.call);
  for (int64_t row = 0; row < BATCHES * heads * TOKENS; row++) {
    int64_t token = row % TOKENS, head = row / TOKENS % heads, batch = row / TOKENS / heads,
            of_keys = (batch * k_heads + head * k_heads / heads) * KEYS;
    const double *inputs[SPEC_MAX_INPUTS];
    inputs_of(&f, row, inputs);
    reference_query query = {.q = q + row * s->head_dim,
                             .position = f.call.positions + token * s->n_axes,
                             .token = token,
                             .index = token + KEYS - TOKENS,
                             .k = k + of_keys * s->head_dim,
                             .v = values + of_keys * width,
                             .positions = f.call.k_positions,
                             .keys = KEYS,
                             .visible = is_causal ? token + KEYS - TOKENS + 1 : KEYS,
                             .head = s->heads > 1 ? (int)head : 0,
                             .scale = f.call.scale,
                             .operands = f.operands.values,
                             .inputs = inputs};
    reference_attention(s, &query, scores, exact);
    for (int64_t c = 0; c < width; c++)
      if (!(fabsl(out[row * width + c] - exact[c]) <= BOUND))
        fail_msg("%s %s: row %d, channel %d: %.20Lg, not %.20Lg", v->name, more ? more->name : "", (int)row, (int)c,
                 out[row * width + c], exact[c]);
  }
  arena_destroy(f.memory);
}

/* ---- widened rows ---- */

static long double score(const long double *x, const long double *y, int from, int to) {
  long double sum = 0;
  for (int c = from; c < to; c++) sum += x[c] * y[c];
  return sum;
}

static void widens(const variant *v, const loader_define *more) {
  fixture f;
  const program *p = open_fixture(&f, v, more, "encode");
  if (!p) return;
  const spec *s = f.spec;
  long double *rows[2];
  int width = p->stream[1].channels;
  f.call.k_positions = NULL;
  f.call.keys = 0;
  for (int tensor = 0; tensor < 2; tensor++) {
    int64_t count = BATCHES * f.call.heads[tensor] * TOKENS;
    f.call.rows[0][tensor] = fill(&f, count * s->head_dim, 1);
    f.call.results[1][tensor] = rows[tensor] = arena_array(f.memory, long double, count *width);
  }
  program_interpret(p, &f.call);
  for (int64_t row = 0; row < BATCHES * f.call.heads[0] * TOKENS; row++) {
    int64_t i = row % TOKENS, head = row / TOKENS % f.call.heads[0], batch = row / TOKENS / f.call.heads[0],
            keys = (batch * f.call.heads[1] + head * f.call.heads[1] / f.call.heads[0]) * TOKENS;
    const double *inputs[SPEC_MAX_INPUTS];
    long double shift = 0, largest = 1;
    inputs_of(&f, row, inputs);
    for (int64_t j = s->skip_tokens; j < TOKENS; j++) {
      const long double *q = rows[0] + row * width, *k = rows[1] + (keys + j) * width;
      double delta[SPEC_MAX_AXES];
      for (int a = 0; a < s->n_axes; a++)
        delta[a] = f.call.positions[j * s->n_axes + a] - f.call.positions[i * s->n_axes + a];
      long double bias =
          i < s->skip_tokens ? 0 : reference_bias(s, delta, f.operands.values, inputs, s->heads > 1 ? (int)head : 0);
      long double off = score(q, k, s->head_dim, width) - bias;
      largest = fmaxl(largest, fabsl(bias));
      if (j == s->skip_tokens && !plan_widen_keeps_constant(s)) shift = off;
      if (!(fabsl(off - shift) <= BOUND * largest))
        fail_msg("%s %s: row %d, key %d: %.20Lg, not %.20Lg", v->name, more ? more->name : "", (int)row, (int)j,
                 off + bias, bias + shift);
    }
    for (int c = 0; c < s->head_dim; c++)
      assert_true(rows[0][row * width + c] == f.call.rows[0][0][row * s->head_dim + c]);
  }
  arena_destroy(f.memory);
}

/* ---- what widened rows gain ---- */

typedef struct gains {
  fixture f;
  const program *encode, *back;
  const plan_gradient *of;
  double *given[2]; /* what comes in for the rows */
  int64_t rows[2];
  program_call call; /* of `back` */
} gains;

static int compared; /* kinds of gradients */

static long double loss(const gains *g, const program_call *call) {
  long double sum = 0;
  program_interpret(g->encode, call);
  for (int tensor = 0; tensor < 2; tensor++)
    for (int64_t i = 0; i < g->rows[tensor] * g->encode->stream[1].channels; i++)
      sum += g->given[tensor][i] * call->results[1][tensor][i];
  return sum;
}

/* The loss of the calls with what is moved there and back, against what gradients say of that. */
static void moves(gains *g, const char *what, const double **moved, const long double *gradient, int64_t count) {
  const double *at = *moved;
  double *there = arena_array(g->f.memory, double, count + 1), *back = arena_array(g->f.memory, double, count + 1);
  long double expected = 0, size = 0;
  for (int64_t i = 0; i < count; i++) {
    double step = (double)STEP * random_uniform(&g->f.random, -1, 1);
    there[i] = at[i] + step;
    back[i] = at[i] - step;
    expected += gradient[i] * ((long double)there[i] - back[i]);
    size += fabsl(gradient[i] * ((long double)there[i] - back[i]));
  }
  *moved = there;
  long double difference = loss(g, &g->f.call);
  *moved = back;
  difference -= loss(g, &g->f.call);
  *moved = at;
  if (!(fabsl(difference - expected) <= DIFFERENCE_BOUND * size))
    fail_msg("%s: %s gain %.20Lg, not %.20Lg", g->f.spec->name, what, expected, difference);
  assert_true(size > 0);
  compared++;
}

static int array_of(const program *p, const char *name) {
  for (int i = 0; i < p->n_arrays; i++)
    if (!strcmp(p->array[i].name, name)) return i;
  return -1;
}

static void moves_positions(gains *g) {
  const spec *s = g->f.spec;
  long double *gained = g->call.arrays[array_of(g->back, "positions'")];
  memset(gained, 0, sizeof *gained * (size_t)(s->skip_tokens * s->n_axes));
  moves(g, "positions", &g->f.call.positions, gained, TOKENS * s->n_axes);
}

static void moves_operands(gains *g) {
  const spec *s = g->f.spec;
  int array = array_of(g->back, "operands'"), blocks = expr_pool_blocks(s->pool);
  const double **values = arena_array(g->f.memory, const double *, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++) values[i] = g->f.operands.values[i];
  g->f.call.operands = values;
  int heads = array >= 0 && g->back->array[array].spaces & IN(HEADS) ? s->heads : 1;
  for (int operand = 0; array >= 0 && operand < s->n_operands; operand++) {
    int64_t count = spec_operand_elements(&s->operand[operand]);
    long double *gained = arena_array(g->f.memory, long double, count + 1);
    bool any = false;
    for (int head = 0; head < heads; head++)
      for (int i = 0; i < g->of->n_scatters; i++)
        for (int block = 0; g->of->scatter[i].leaf->index == operand && block < blocks; block++) {
          const expr *leaf = g->of->scatter[i].leaf;
          gained[leaf->offsets[(leaf->n_heads > 1 ? head : 0) * blocks + block]] +=
              g->call.arrays[array][(head * g->of->n_scatters + i) * blocks + block];
          any = true;
        }
    if (any) moves(g, s->operand[operand].name, &values[operand], gained, count);
  }
}

static void moves_inputs(gains *g) {
  const spec *s = g->f.spec;
  int array = array_of(g->back, "inputs'"), blocks = expr_pool_blocks(s->pool), count = g->of ? g->of->n_inputs : 0;
  int64_t heads = g->f.call.heads[0];
  for (int input = 0; array >= 0 && input < s->n_inputs; input++) {
    int64_t size = s->input[input].size ? s->input[input].size : 1;
    long double *gained = arena_array(g->f.memory, long double, BATCHES * heads * TOKENS * size);
    for (int64_t row = 0; row < BATCHES * heads * TOKENS; row++) {
      int64_t token = row % TOKENS, head = row / TOKENS % heads, batch = row / TOKENS / heads,
              element = ((token * BATCHES + batch) * 2) * heads + head;
      for (int i = 0; token >= s->skip_tokens && i < count; i++)
        for (int block = 0; g->of->of_input[i].leaf->index == input && block < blocks; block++)
          gained[row * size + g->of->of_input[i].leaf->offsets[block]] +=
              g->call.arrays[array][(element * count + i) * blocks + block];
    }
    moves(g, s->input[input].name, &g->f.call.inputs[input], gained, BATCHES * heads * TOKENS * size);
  }
}

/* The first channels move back; inputs, operands and positions gain of the others. */
static void gains_by_differences(const variant *v, const loader_define *more) {
  gains g;
  g.encode = open_fixture(&g.f, v, more, "encode");
  if (!g.encode) return;
  const spec *s = g.f.spec;
  g.back = trial_program(g.f.memory, s, "encode_backward");
  assert_non_null(g.back);
  const char *fault = program_fault(g.f.memory, g.back);
  if (fault) fail_msg("%s: %s", v->name, fault);
  g.of = plan_widen_gradient(g.f.memory, form_of(s)->plan(g.f.memory, s));
  g.f.call.k_positions = NULL;
  g.f.call.keys = 0;
  g.call = g.f.call;
  int width = g.encode->stream[1].channels;
  for (int tensor = 0; tensor < 2; tensor++) {
    int64_t count = g.rows[tensor] = BATCHES * g.f.call.heads[tensor] * TOKENS;
    g.given[tensor] = fill(&g.f, count * width, 1);
    g.f.call.rows[0][tensor] = fill(&g.f, count * s->head_dim, 1);
    g.f.call.results[1][tensor] = arena_array(g.f.memory, long double, count *width);
    g.call.rows[0][tensor] = g.given[tensor];
    g.call.results[1][tensor] = arena_array(g.f.memory, long double, count * s->head_dim);
  }
  for (int i = 0; i < g.back->n_arrays; i++) {
    int64_t numbers = (g.of ? g.of->n_scatters + g.of->n_inputs : 0) + s->n_axes;
    g.call.arrays[i] = arena_array(g.f.memory, long double,
                                   TOKENS * BATCHES * 2 * g.f.call.heads[0] * numbers * expr_pool_blocks(s->pool));
  }
  program_interpret(g.back, &g.call);
  for (int tensor = 0; tensor < 2; tensor++)
    for (int64_t i = 0; i < g.rows[tensor] * s->head_dim; i++)
      assert_true(g.call.results[1][tensor][i] == g.given[tensor][i / s->head_dim * width + i % s->head_dim]);
  moves_positions(&g);
  moves_operands(&g);
  moves_inputs(&g);
  arena_destroy(g.f.memory);
}

static void reference(void **state) {
  static const loader_define skip = {"skip_tokens", "2"}, fused = {"role", "pairwise"};
  attends(*state, NULL, false);
  attends(*state, NULL, true);
  attends(*state, &skip, false);
  widens(*state, NULL);
  widens(*state, &skip);
  gains_by_differences(*state, NULL);
  gains_by_differences(*state, &skip);
  fixture f;
  if (!open_fixture(&f, *state, NULL, "encode")) return;
  arena_destroy(f.memory);
  attends(*state, &fused, true); /* the same bias inside attention */
}

/* Scores that are functions of the product. */
TEST(of_products) {
  static const char *const kinds[] = {"prefix", "learned", "turned", "table"};
  variant v = {.name = "scores", .file = SCORES};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) attends(&v, &(loader_define){"kind", kinds[i]}, i % 2);
}

/* And of inputs of the query and the key. */
TEST(of_inputs) {
  static const char *const kinds[] = {"forgetting", "documents", "mixed", "turned", "padded", "leaning"};
  variant v = {.name = "score_inputs", .file = SCORE_INPUTS};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) attends(&v, &(loader_define){"kind", kinds[i]}, i % 2);
}

int main(void) {
  SCOPED arena *a = arena_create();
  variant *variants;
  int count = variants_read(a, SPECS_DIR, VARIANTS, NULL, &variants), n = 0;
  for (int i = 0; i < count; i++) {
    fixture f;
    bool has = open_fixture(&f, &variants[i], NULL, "encode");
    if (has) arena_destroy(f.memory);
    if (!has && open_fixture(&f, &variants[i], NULL, "attention")) {
      has = true;
      arena_destroy(f.memory);
    }
    if (!has) continue;
    n++;
    list_row(variants[i].name, reference, &variants[i]);
  }
  int failed = run_listed();
  if (compared < LEAST_GAINS) {
    print_error("%d kinds of gradients\n", compared);
    failed++;
  }
  if (n < LEAST) { /* a form that loses its programs is a failure here */
    print_error("%d specs have a program\n", n);
    failed++;
  }
  return failed;
}
