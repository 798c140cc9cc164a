/* random_bias_test SEED COUNT: random expressions as pair functions, biases and scores, against the reference; of every
 * other one the gradients, too.
 *
 * Every operation keeps its result within +-8, so that float32 loses the same few digits everywhere; what
 * jumps (where, floor) is asked of whole coordinates alone.
 */
#include "loader.h"
#include "scoped.h"
#include "verify/trial_attention_backward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Gradients are beside the sizes of their own terms, but a slope may be of a value whose terms cancelled. */
static const long double BOUND = 0x1p-18L, GRADIENT_BOUND = 0x1p-16L;

typedef struct draw {
  arena *memory;
  uint64_t random;
  int axes, heads;
  bool scores; /* functions of the product and of indices, too */
  bool gradients; /* compiled and checked, too */
} draw;

static int below(draw *d, int bound) { return random_below(&d->random, bound); }
#define TEXT(...) arena_printf(d->memory, __VA_ARGS__)

static const char *coordinate(draw *d) {
  if (d->scores && below(d, 2)) return below(d, 2) ? "(0.125 * query.i)" : "(0.125 * key.j)";
  return TEXT("delta[%d]", 1 + below(d, d->axes));
}

static const char *number(draw *d) {
  double value = random_uniform(&d->random, -4, 4);
  return below(d, 3) ? TEXT("%.17g", value) : TEXT("(%.17g + 0.25 * head)", value);
}

/* How a description writes each operation: $x and $y are expressions, $c a coordinate, $n a small number, $h a head or
 * a number, $i an input. "": what only the compiler writes. An operation that is missing here fails the test. */
static const char *const operation[EXPR_OP_COUNT] = {
    [EXPR_CONST] = "$r",
    [EXPR_TABLE] = "$r",
    [EXPR_POSITION] = "0.5 * $c",
    [EXPR_OPERAND] = "w(head, $w)",
    [EXPR_INPUT] = "$i",
    [EXPR_TERMS] = "", /* indices of the sums below */
    [EXPR_CHANNEL] = "",
    [EXPR_COTANGENT] = "",
    [EXPR_ADD] = "0.5 * ($x + $y)",
    [EXPR_SUB] = "0.5 * ($x - $y)",
    [EXPR_MUL] = "0.125 * ($x) * ($y)",
    [EXPR_DIV] = "($x) / (1 + pe.abs($y))",
    [EXPR_MIN] = "pe.min($x, $y)",
    [EXPR_MAX] = "pe.max($x, $y)",
    [EXPR_LESS] = "pe.where($c, $n, $x, $y)",
    [EXPR_SELECT] = "pe.where($c, $n, -($x), $y)",
    [EXPR_NEG] = "-($x)",
    [EXPR_ABS] = "-pe.abs($x)",
    [EXPR_SQRT] = "pe.sqrt(1 + pe.abs($x))",
    [EXPR_FLOOR] = "0.5 * pe.floor(0.5 * $c) + 0.25 * ($x)",
    [EXPR_EXP] = "4 * pe.exp(-pe.abs($x))",
    [EXPR_LOG] = "pe.log(1 + ($x) ^ 2)",
    [EXPR_LOG1P] = "pe.log1p(pe.abs($x))",
    [EXPR_ROUND32] = "pe.float32($x)",
    [EXPR_TANH] = "pe.tanh($x)",
    [EXPR_SIGMOID] = "pe.sigmoid($x)",
    [EXPR_SOFTPLUS] = "pe.relu($x) - pe.softplus(-($y))",
    [EXPR_ATAN2] = "pe.atan2($x, 1 + pe.abs($y))",
    [EXPR_SINQ] = "pe.sin($x)",
    [EXPR_COSQ] = "pe.cos($x)",
    [EXPR_SIN_FOLDED] = "", /* of unit quaternions */
    [EXPR_COS_FOLDED] = "",
    [EXPR_SUM] = "0.25 * pe.sum(3, function(k) return "
                 "w(head, (2 * k) % 3) * pe.cos($c * k) + pe.tanh($x + k * ($y)) end)",
    [EXPR_ELEMENT] = "tables($c + 8, $h)",
    [EXPR_INPUT_AT] = "rows($c + 4)",
    [EXPR_NARROW] = "",
    [EXPR_WIDEN] = "",
};

static const char *expression(draw *d, int depth);

static const char *filled(draw *d, const char *pattern, int depth) {
  const char *text = "";
  for (const char *at = pattern; *at; at++) {
    if (*at != '$') {
      text = TEXT("%s%c", text, *at);
      continue;
    }
    switch (*++at) {
    case 'x':
    case 'y': text = TEXT("%s%s", text, expression(d, depth - 1)); break;
    case 'c': text = TEXT("%s%s", text, coordinate(d)); break;
    case 'n': text = TEXT("%s%d", text, below(d, 7) - 3); break;
    case 'i': text = TEXT("%s%s", text, below(d, 3) ? "pair()" : "single()"); break;
    case 'w': text = TEXT("%s%d", text, below(d, 3)); break;
    case 'h': text = TEXT("%s%s", text, below(d, 2) ? "head" : TEXT("%s * 0.5", coordinate(d))); break;
    default: text = TEXT("%s%s", text, number(d)); break;
    }
  }
  return text;
}

static const char *expression(draw *d, int depth) {
  if (depth == 0 && d->scores && below(d, 2)) return below(d, 2) ? "2 * pe.tanh(s)" : "pe.min(pe.max(s, -2), 2)";
  if (depth == 0 && below(d, 5) == 0) return "0.25 * pe.norm(delta)";
  for (;;) {
    int op = below(d, EXPR_OP_COUNT);
    if (!operation[op]) {
      printf("FAILED: operation '%s' has no row\n", expr_op_name((expr_op)op));
      exit(1);
    }
    bool leaf = expr_op_arity((expr_op)op) == 0 || op == EXPR_ELEMENT || op == EXPR_INPUT_AT;
    if (*operation[op] && leaf == (depth == 0)) return filled(d, operation[op], depth);
  }
}

/* A third of them hide keys. No operation is done on what hides: infinity times 0 would be no number. */
static const char *function(draw *d) {
  const char *x = expression(d, 1 + below(d, 4));
  if (d->scores) x = TEXT("(%s + 0.5 * s)", x);
  return below(d, 3) ? x : TEXT("pe.where(%s, %d, pe.masked, %s)", coordinate(d), below(d, 7) - 6, x);
}

/* A third of them have a sink. */
static const char *sink(draw *d) {
  static const char *const of_head[] = {"w(head, 1)", "0.5 * head - 1",
                                        "pe.tanh(w(head, 0)) + pe.exp(-w(head, 2) ^ 2)"};
  return below(d, 3) ? "" : TEXT(",\n  sink = function(head) return %s end", of_head[below(d, 3)]);
}

/* Declares what the text calls by its name; nothing else, since what is not read has no gradient. */
static const char *declared(draw *d, const char *text, const char *name, const char *kind, const char *rest) {
  if (!strstr(text, TEXT("%s(", name))) return "";
  return TEXT("local %s = pe.%s { name = \"%s\", doc = \"numbers\", test_scale = 4.0, %s }\n", name, kind, name, rest);
}

static const char *of_row(draw *d, const char *size) {
  return TEXT("shape = { %s }, of = \"%s\"", size, below(d, 2) ? "query" : "key");
}

/* What else a description may have: rows that turn, a scale. */
static const char *others(draw *d, int head_dim) {
  const char *scale = below(d, 4) ? "" : TEXT("  scale = %.6g,\n", random_uniform(&d->random, 0.1, 1));
  if (below(d, 4) || head_dim < 2) return scale;
  return TEXT(
      "%s  role = \"pairwise\", block = pe.plane(), generators = pe.turn \"e12\", combine = pe.sum, layout = \"%s\",\n"
      "  phase = function(_, i) return %.6g / (i + 1) end,\n",
      scale, below(d, 2) ? "split" : "interleaved", random_uniform(&d->random, 0.2, 2));
}

static const char *description(draw *d) {
  static const char *const axes[] = {"\"x\"", "\"x\", \"y\"", "\"x\", \"y\", \"z\""};
  int head_dim = 1 + below(d, 20), value_dim = 1 + below(d, 20);
  const char *x = function(d), *last = sink(d), *all = TEXT("%s%s", x, last), *more = others(d, head_dim);
  const char *w = declared(d, all, "w", "learned", "shape = { \"heads\", 3 }"),
             *tables = declared(d, all, "tables", "learned", "shape = { 17, \"heads\" }"),
             *rows = declared(d, all, "rows", "input", of_row(d, "9")),
             *single = declared(d, all, "single", "input", of_row(d, "")),
             *pair = declared(d, all, "pair", "input", "shape = {}, of = \"pair\"");
  return TEXT("local pe = require \"pegen\"\n%s%s%s%s%sreturn pe.encoding { name = \"random\", axes = { %s }, "
              "head_dim = %d, value_dim = %d, heads = %d,\n%s"
              "  %s = function(%sdelta, head%s) return %s end%s }\n",
              w, tables, rows, single, pair, axes[d->axes - 1], head_dim, value_dim, d->heads, more,
              d->scores ? "score" : "bias", d->scores ? "s, " : "", d->scores ? ", query, key" : "", x, last);
}

static const DLTensor *places(draw *d, int64_t tokens) {
  double *values = arena_array(d->memory, double, tokens * d->axes);
  for (int64_t i = 0; i < tokens * d->axes; i++) values[i] = below(d, 8);
  return tensor_contiguous(d->memory, NUMBER_F32, 2, (int64_t[]){tokens, d->axes}, values);
}

/* One head's numbers for all heads. */
static void share_pairs(draw *d, attention_trial *t) {
  for (int i = 0; i < t->spec->n_inputs; i++) {
    if (!spec_input_is_pair(&t->spec->input[i])) continue;
    DLTensor *shared = arena_new(d->memory, DLTensor);
    *shared = *t->inputs.tensors[i];
    shared->shape = arena_array(d->memory, int64_t, shared->ndim);
    memcpy(shared->shape, t->inputs.tensors[i]->shape, (size_t)shared->ndim * sizeof *shared->shape);
    shared->shape[1] = 1;
    t->inputs.tensors[i] = shared;
  }
}

/* Whether all gradients that the kernel has are the reference's, and the same bits in several parts. */
static bool gradients_agree(draw *d, const pegen_kernel *kernel, attention_gradients *g, trial_error *worst) {
  attention_gradients_of_positions(d->memory, g, NUMBER_F64);
  int error = attention_gradients_call(kernel, g, 1);
  if (error == PEGEN_ERROR_NO_GRADIENT) {
    g->positions = g->k_positions = NULL;
    error = attention_gradients_call(kernel, g, 1);
  }
  if (error) {
    printf("gradients: refused with error %d\n", error);
    return false;
  }
  attention_answer exact = attention_gradients_answer(d->memory, g, 1);
  attention_gradients_compare(g->q, exact.q, exact.score, worst);
  attention_gradients_compare(g->k, exact.k, exact.score, worst);
  attention_gradients_compare(g->v, exact.v, exact.score, worst);
  attention_gradients_compare_inputs(g, &exact, worst);
  attention_gradients_compare_operands(g, &exact, worst);
  attention_gradients_compare_positions(g, &exact, worst);
  attention_gradients parted = attention_gradients_room(d->memory, g);
  return !attention_gradients_call(kernel, &parted, 3) && attention_gradients_same(g, &parted);
}

static bool agrees(draw *d, const spec *s, const char *target, trial_error *worst) {
  SCOPED_KERNEL *loaded = d->gradients ? trial_load_gradients(d->memory, s, target, PEGEN_DTYPE_F32, 1)
                                       : trial_load(d->memory, s, target, PEGEN_DTYPE_F32, 1);
  if (!loaded) return false;
  attention_trial t = {.spec = s, .causal = below(d, 2)};
  attention_sizes sizes = {1, d->heads, d->heads, s->skip_tokens + 1 + below(d, 40), s->skip_tokens + 1 + below(d, 90)};
  attention_trial_fill(d->memory, &t, &sizes, NUMBER_F32, ROWS_BHND, &d->random);
  t.positions = places(d, sizes.tokens);
  t.k_positions = places(d, sizes.keys);
  t.operands = trial_random_operands(d->memory, s, NUMBER_F32, &d->random);
  if (below(d, 2)) share_pairs(d, &t);
  const pegen_kernel *kernel = run_kernel(loaded);
  attention_gradients g = {.out = attention_trial_out(d->memory, &t, ROWS_BHND)};
  int error = d->gradients ? attention_gradients_fill(d->memory, &g, &t, kernel, below(d, 2), 1, ROWS_BNHD, &d->random)
                           : attention_trial_call(kernel, &t, g.out, 1);
  if (error) return false;
  attention_trial_compare(d->memory, kernel, &t, g.out, 1, worst);
  if (worst->spoilt || !(worst->error <= BOUND)) return false;
  if (!d->gradients) return true;
  return gradients_agree(d, kernel, &g, worst) && !worst->spoilt && worst->error <= GRADIENT_BOUND;
}

static bool one(uint64_t seed, int index, const char *const *targets, int n_targets, long double *largest) {
  uint64_t which = (uint64_t)index;
  SCOPED draw d = {.memory = arena_create(), .random = seed};
  d.random = random_next(&d.random) ^ random_next(&which);
  d.axes = 1 + below(&d, 3);
  d.heads = 1 + below(&d, 3);
  d.scores = index % 3 == 0;
  d.gradients = index % 2;
  const char *path = arena_printf(d.memory, "random_bias_%llu_%d_%d.lua", (unsigned long long)seed, index, getpid()),
             *text = description(&d);
  FILE *file = fopen(path, "w");
  if (!file || fputs(text, file) < 0 || fclose(file)) exit(2);
  loader_define prefix = {"skip_tokens", below(&d, 2) ? "1" : "2"};
  spec *s = loader_load(d.memory, path, DSL_DIR, !below(&d, 4), &prefix);
  const char *target = targets[below(&d, n_targets)];
  trial_error worst = {0};
  bool passed = s && agrees(&d, s, target, &worst);
  if (passed) remove(path);
  else
    printf("FAILED: seed %llu case %d, target %s; kept as %s\n%s%s\n", (unsigned long long)seed, index, target, path,
           text, trial_error_text(d.memory, &worst));
  *largest = fmaxl(*largest, worst.error);
  return passed;
}

int main(int argc, char **argv) {
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
  int count = argc > 2 ? atoi(argv[2]) : 60, failed = 0;
  SCOPED arena *a = arena_create();
  const char **targets;
  int n_targets = trial_targets(a, argc > 3 ? argv[3] : NULL, &targets);
  long double largest = 0;
  for (int i = 0; i < count; i++) failed += !one(seed, i, targets, n_targets, &largest);
  printf("%d of %d failed; largest error 2^%.1Lf\n", failed, count, log2l(largest));
  return failed != 0;
}
