/* rows_test: attention and its gradients against the reference. A row is the data of some calls; one loop makes, runs
 * and compares them.
 *
 *     attention_rows_test [TARGET [ROW]]    one processor or a GPU's threads; without it, all that this machine runs
 *     attention_rows_test --table           what is covered: a line for each row and description
 */
#include "fixture.h"
#include "gradients.h"
#include "scoped.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 20, ALL_SUBSETS = 22, F32 = PEGEN_DTYPE_F32, BF16 = PEGEN_DTYPE_BF16, F16 = PEGEN_DTYPE_F16 };

/* How a row's calls differ from the usual ones, where types, memory orders, scales and masks take turns. */
enum {
  EACH_TYPE = 1,         /* every size is called with all types */
  TYPE_BY_KERNEL = 2,    /* a kernel is made for one type, another one for the next target or description */
  ONE_TARGET = 4,        /* targets take turns from description to description */
  NEWEST = 8,            /* the first target alone */
  FORWARD = 0x10,        /* no gradients */
  PROCESSORS = 0x20,     /* not as a GPU's threads */
  GPUS = 0x40,           /* not on processors */
  CAUSAL = 0x80,         /* always */
  NOT_CAUSAL = 0x100,    /* never */
  STILL = 0x200,         /* positions have no gradient: a call that asks for it is refused */
  TENSOR_CORES = 0x400,  /* rows lie as tensor cores take them, and entries on these are launched */
  SPLITS = 0x800,        /* calls have a workspace, and finish behind them */
};
static const char *const FLAG_NAMES[] = {"each type",  "type by kernel",  "one target",   "newest target",
                                         "forward",    "processors",      "GPUs",         "causal",
                                         "not causal", "positions still", "tensor cores", "splits"};

typedef struct row {
  const char *name;
  unsigned flags, types; /* types: PEGEN_DTYPE_ bits; 0: all */
  unsigned frozen;       /* bit i: operand i has no gradient: a call that asks for it is refused */
  int step, subsets;     /* step: of the queries that are compared; 0: all. subsets: calls that ask for less */
  attention_sizes sizes[MOST];    /* up to one without heads; a description's own grid and heads replace these */
  const char *descriptions[MOST]; /* "NAME OPTION=VALUE ...", in specs/ */
} row;

#define LOCAL "../tests/attention/"
#define TABLE "relative_bias_table heads=2 head_dim=16 "
#define POLYNOMIAL "polynomial role=pairwise "
#define PAPE "pape role=pairwise "
/* Queries and keys of none, one, a tile of tensor cores, and a few more; grouped heads and batches. */
#define TILES \
  {{2, 4, 2, 1, 1},    {1, 4, 4, 31, 65}, {1, 4, 1, 64, 64}, {1, 4, 2, 129, 9}, \
   {1, 4, 2, 70, 130}, {1, 4, 4, 5, 0},   {0, 4, 4, 5, 5},   {1, 4, 4, 0, 5}}
#define TURNED \
  {{1, 4, 4, 1, 1}, {2, 4, 2, 3, 70}, {1, 4, 1, 33, 64}, {1, 4, 4, 5, 0}, {1, 4, 2, 40, 17}, {1, 4, 2, 290, 330}}
#define SCORED {{2, 2, 1, 40, 70}, {1, 2, 2, 5, 33}, {1, 2, 2, 70, 9}}
#define TWICE(...) \
  { \
    {__VA_ARGS__}, { __VA_ARGS__ } \
  }

static const row ROWS[] = {
    {"sizes", EACH_TYPE, .subsets = 1,
     .sizes = {{1, 4, 4, 1, 1},
               {2, 4, 2, 3, 70},
               {1, 4, 1, 33, 64},
               {1, 4, 4, 32, 65},
               {1, 4, 2, 70, 9},
               {2, 4, 4, 17, 130},
               {1, 4, 2, 40, 130},
               {1, 4, 4, 5, 0},
               {0, 4, 4, 5, 5},
               {1, 4, 4, 0, 5}},
     .descriptions = {"alibi axes=2 heads=4 head_dim=24 value_dim=35 skip_tokens=2"}},
    /* Rows that no register divides. */
    {"widths", TYPE_BY_KERNEL | STILL, .subsets = 10, .sizes = {{1, 2, 1, 19, 37}},
     .descriptions = {"attention head_dim=1 value_dim=48", "attention head_dim=3 value_dim=80",
                      "attention head_dim=17 value_dim=130", "attention head_dim=80 value_dim=1",
                      "attention head_dim=130 value_dim=3"}},
    {"widths on processors", TYPE_BY_KERNEL | STILL | PROCESSORS, .subsets = 10, .sizes = {{1, 2, 1, 19, 37}},
     .descriptions = {"attention head_dim=48 value_dim=300", "attention head_dim=300 value_dim=17"}},
    {"widths on GPUs", TYPE_BY_KERNEL | STILL | GPUS, .subsets = 10, .sizes = {{1, 2, 1, 19, 37}},
     .descriptions = {"attention head_dim=48 value_dim=256", "attention head_dim=256 value_dim=17"}},
    {"outputs of widths", EACH_TYPE | FORWARD, .sizes = {{1, 2, 1, 19, 37}},
     .descriptions = {"attention head_dim=1 value_dim=48", "attention head_dim=3 value_dim=80",
                      "attention head_dim=17 value_dim=130", "attention head_dim=80 value_dim=1",
                      "attention head_dim=130 value_dim=3", "attention head_dim=300 value_dim=17",
                      "attention head_dim=48 value_dim=256"}},
    {"outputs of the widest", EACH_TYPE | FORWARD | PROCESSORS, .sizes = {{1, 2, 1, 19, 37}},
     .descriptions = {"attention head_dim=48 value_dim=300"}},
    /* Where a processor multiplies pairs of bfloat16: rows and keys that fill no pair, register or tile. */
    {"pairs of bfloat16", PROCESSORS | NEWEST | STILL, BF16,
     .sizes = {{1, 4, 2, 19, 1},
               {1, 4, 2, 39, 2},
               {1, 4, 2, 19, 37},
               {1, 4, 2, 39, 64},
               {1, 4, 2, 19, 65},
               {1, 4, 2, 39, 129}},
     .descriptions = {"attention head_dim=2 value_dim=2", "attention head_dim=6 value_dim=34",
                      "attention head_dim=34 value_dim=6", "attention head_dim=64 value_dim=64",
                      "attention head_dim=66 value_dim=130", "attention head_dim=130 value_dim=66",
                      "attention head_dim=300 value_dim=48", "attention head_dim=33 value_dim=64",
                      "attention head_dim=64 value_dim=33"}},
    /* Runs of keys that end within a tile: those of a prefix, an odd number of them, have no bias. */
    {"an odd prefix", PROCESSORS | NEWEST, BF16, .sizes = TWICE(1, 2, 2, 50, 50),
     .descriptions = {"alibi skip_tokens=5 head_dim=16 heads=2"}},
    /* Tables of displacements on a grid, in runs that tiles of keys do not fill; rotations of pairs beside a bias. */
    {"kinds of pairs", ONE_TARGET, F32, .subsets = 2, .sizes = TWICE(1, 2, 2, 50, 50),
     .descriptions = {"alibi axes=2 grid=5,7 skip_tokens=3", TABLE "grid=2,70", TABLE "value_dim=9",
                      LOCAL "slopes heads=3 skip_tokens=2 grid=4,9", PAPE "parabolas=3 head_dim=20 skip_tokens=1",
                      "lookhere skip_tokens=1", LOCAL "mirrors skip_tokens=1 grid=5,9",
                      LOCAL "rope_pairwise biased=true", LOCAL "turning combine=sum grid=4,9"}},
    {"more kinds of pairs", ONE_TARGET | PROCESSORS, F32, .subsets = 2, .sizes = TWICE(1, 2, 2, 50, 50),
     .descriptions = {TABLE "grid=11,4", TABLE "grid=6,7", LOCAL "slopes heads=3", LOCAL "mirrors skip_tokens=2",
                      LOCAL "rope_pairwise", LOCAL "rope_pairwise grid=41", LOCAL "turning skip_tokens=2",
                      LOCAL "turning combine=mean head_dim=7"}},
    /* The reference exponentiates for every pair and block. */
    {"large grids", ONE_TARGET, F32, .step = 16, .subsets = 2, .sizes = TWICE(1, 2, 2, 1, 1),
     .descriptions = {"lingeope head_dim=10 value_dim=9 grid=2,70", "lingeope axes=3 grid=2,2,32 head_dim=12"}},
    {"rotations", EACH_TYPE, .step = 16, .subsets = 4,
     .sizes = {{1, 2, 2, 1, 1}, {2, 4, 2, 3, 70}, {1, 4, 1, 33, 64}, {1, 2, 2, 5, 0}, {1, 2, 1, 40, 17}},
     .descriptions = {"lingeope axes=3 head_dim=20 value_dim=35 skip_tokens=2 layout=split"}},
    /* Rows that are turned in a workspace, by rotors of each head's own, with prefix tokens, which are not turned, and
     * channels that stay; more tiles of queries than go through the keys together, more keys than a panel has. */
    {"turned rows", PROCESSORS, .step = 61, .subsets = 4, .sizes = TURNED,
     .descriptions = {LOCAL "rows_turned heads=4 head_dim=12 skip_tokens=2 value_dim=19"}},
    {"turned values", PROCESSORS | STILL, .step = 61, .subsets = 4, .sizes = TURNED,
     .descriptions = {LOCAL "values heads=4 head_dim=12"}},
    {"values by learned rotors", CAUSAL | STILL, F32, .frozen = 1, .sizes = {{1, 4, 2, 11, 37}},
     .descriptions = {LOCAL "values kind=learned heads=4 head_dim=6"}},
    /* Scores that are functions of the product, of the displacement, of tokens' indices, of operands and of tables. */
    {"scores", ONE_TARGET | STILL, F32, .frozen = 7, .subsets = 1, .sizes = SCORED,
     .descriptions = {LOCAL "scores kind=softcap head_dim=20 skip_tokens=2",
                      LOCAL "scores kind=prefix head_dim=12 skip_tokens=2",
                      LOCAL "scores kind=nothing head_dim=20 skip_tokens=2",
                      LOCAL "scores kind=tempered head_dim=12 skip_tokens=2"}},
    {"nested scores", ONE_TARGET, F32, .frozen = 7, .subsets = 1, .sizes = SCORED,
     .descriptions = {LOCAL "scores kind=nested head_dim=20 skip_tokens=2"}},
    {"learned scores", ONE_TARGET, F32, .frozen = 4, .subsets = 1, .sizes = SCORED,
     .descriptions = {LOCAL "scores kind=learned head_dim=12 skip_tokens=2"}},
    {"scores of a table", ONE_TARGET | STILL, F32, .frozen = 3, .subsets = 1, .sizes = SCORED,
     .descriptions = {LOCAL "scores kind=table head_dim=20 skip_tokens=2"}},
    {"scores of rotated pairs", ONE_TARGET, F32, .frozen = 6, .subsets = 1, .sizes = SCORED,
     .descriptions = {LOCAL "scores kind=turned head_dim=12 skip_tokens=2"}},
    {"scores of both", ONE_TARGET, F32, .frozen = 5, .subsets = 1, .sizes = SCORED,
     .descriptions = {LOCAL "scores kind=both head_dim=20 skip_tokens=2"}},
    /* A score more in every row, beside others and alone; of rows that see nothing, too. */
    {"sinks", ONE_TARGET | STILL, F32, .frozen = 4, .subsets = 2, .sizes = SCORED,
     .descriptions = {LOCAL "scores kind=sunk head_dim=12 skip_tokens=2", "more/gpt_oss heads=4 head_dim=12"}},
    {"sinks of rotated rows", ONE_TARGET | CAUSAL, F32, .frozen = 4, .subsets = 2, .sizes = SCORED,
     .descriptions = {LOCAL "scores kind=sunk_turned head_dim=12",
                      LOCAL "scores kind=sunk_turned head_dim=12 skip_tokens=2"}},
    /* Operands by one number more than a GPU's thread sums at once, and by more than twice as many. */
    {"crowded operands", ONE_TARGET, F32, .sizes = {{1, 2, 1, 21, 21}},
     .descriptions = {LOCAL "crowded count=17 biased=false", LOCAL "crowded count=35 biased=false",
                      LOCAL "crowded count=17 biased=true", LOCAL "crowded count=35 biased=true"}},
    /* So many tiles, and so large an operand, that some share the sums of a chunk. */
    {"many tiles", NEWEST, F32, .sizes = {{350, 3, 3, 1, 3}}, .descriptions = {LOCAL "slopes heads=3"}},
    {"many tiles on tensor cores", GPUS | TENSOR_CORES, F16, .sizes = {{350, 3, 3, 1, 3}},
     .descriptions = {LOCAL "slopes heads=3"}},
    {"a large operand", NEWEST, F32, .sizes = {{9, 1, 1, 40, 20}},
     .descriptions = {"relative_bias_table window_h=128 window_w=128 heads=1"}},
    /* Batches that share positions keep what is computed of pairs: several tiles, the last of one register, more
     * batches than are summed in float32, units of more than one head, prefix tokens. Batches with their own keep
     * nothing. */
    {"pairs of 5 batches", NOT_CAUSAL, F32, .subsets = 1, .sizes = TWICE(5, 2, 1, 37, 70),
     .descriptions = {"relative_bias_table head_dim=16 window_h=5 window_w=5 heads=2 skip_tokens=0"}},
    {"pairs of 40 batches", NOT_CAUSAL, F32, .subsets = 1, .sizes = TWICE(40, 1, 1, 9, 9),
     .descriptions = {"relative_bias_table head_dim=16 window_h=18 window_w=18 heads=1 skip_tokens=0"}},
    {"pairs of 9 batches", NOT_CAUSAL, F32, .subsets = 1, .sizes = TWICE(9, 3, 3, 66, 40),
     .descriptions = {"relative_bias_table head_dim=16 window_h=3 window_w=3 heads=3 skip_tokens=2"}},
    {"pairs of 3 batches", CAUSAL, F32, .subsets = 1, .sizes = TWICE(3, 2, 2, 49, 49),
     .descriptions = {"relative_bias_table head_dim=16 window_h=7 window_w=7 heads=2 skip_tokens=0"}},
    {"polynomials", EACH_TYPE, .subsets = 1,
     .sizes = {{1, 4, 4, 1, 1},
               {2, 4, 2, 3, 70},
               {1, 4, 1, 33, 64},
               {1, 4, 4, 36, 131},
               {1, 4, 4, 36, 66},
               {1, 4, 4, 5, 0},
               {0, 4, 4, 5, 5},
               {1, 4, 4, 0, 5},
               {1, 4, 4, 2, 5}},
     .descriptions = {PAPE "heads=4 head_dim=20 value_dim=35 parabolas=7 skip_tokens=2"}},
    {"polynomials of the stock", ONE_TARGET | PROCESSORS, F32, .subsets = ALL_SUBSETS, .sizes = {{1, 1, 1, 37, 37}},
     .descriptions = {PAPE "axes=3 parabolas=90 grid=3,2,6 skip_tokens=1",
                      "pape_ri role=pairwise heads=3 axes=2 head_dim=9",
                      POLYNOMIAL "degree=5 leading=softplus axes=1 terms=3"}},
    {"a polynomial of three axes", .types = F32, .subsets = ALL_SUBSETS, .sizes = {{1, 2, 2, 37, 37}},
     .descriptions = {POLYNOMIAL "degree=4 axes=3 terms=5 heads=2"}},
    /* So many tokens that chunks of a GPU have some each, the last one fewer. */
    {"many tokens", NEWEST, F32, .step = 64, .sizes = {{1, 1, 1, 4099, 5}},
     .descriptions = {PAPE "parabolas=2 head_dim=4 value_dim=4"}},
    /* Prefix tokens are the first of the keys' sequence, at whose end queries end, too, be they fewer or more. */
    {"prefixes", .types = F32, .step = 7, .sizes = {{1, 4, 2, 40, 75}, {1, 4, 2, 73, 75}, {1, 4, 2, 50, 40}},
     .descriptions = {POLYNOMIAL "skip_tokens=3 heads=4 head_dim=16", "alibi skip_tokens=3 heads=4 head_dim=16 axes=2",
                      LOCAL "rows_turned skip_tokens=3 head_dim=12 heads=4 inverse=true",
                      LOCAL "score_inputs skip_tokens=3 heads=4 kind=mixed head_dim=12"}},
    /* All that a score on tensor cores is made of, and rows that come turned, which take a workspace. */
    {"tiles", GPUS | EACH_TYPE | TENSOR_CORES, BF16 | F16, .sizes = TILES,
     .descriptions = {"alibi axes=2 heads=4 head_dim=24 value_dim=40 skip_tokens=2"}},
    {"tiles of plain rows", GPUS | TENSOR_CORES | STILL, F16, .sizes = TILES,
     .descriptions = {"attention head_dim=72 value_dim=8"}},
    {"tiles of scores", GPUS | TENSOR_CORES, BF16, .frozen = 4, .sizes = TILES,
     .descriptions = {LOCAL "scores kind=learned"}},
    {"tiles of sinks", GPUS | TENSOR_CORES | STILL, F16, .frozen = 4, .sizes = TILES,
     .descriptions = {LOCAL "scores kind=sunk"}},
    /* The reference turns rows for every pair: it compares every seventh query, which are of all lanes of a tile. */
    {"tiles of turned rows", GPUS | TYPE_BY_KERNEL | TENSOR_CORES | SPLITS, BF16 | F16, .step = 7, .sizes = TILES,
     .descriptions = {LOCAL "rope_pairwise", LOCAL "rows_turned heads=4 head_dim=24 value_dim=40"}},
    {"tiles of turned values", GPUS | TENSOR_CORES | SPLITS | STILL, BF16, .step = 7, .sizes = TILES,
     .descriptions = {LOCAL "values head_dim=24"}},
};
enum { COUNT = sizeof ROWS / sizeof *ROWS };

static const char *wanted; /* a target; NULL: all that this machine runs */

static bool is_gpu(void) { return wanted && strncmp(wanted, "sm_", 3) == 0; }

/* A GPU takes rows of float32 in one way and 16-bit rows in another: each size has one of the two 16-bit types. */
static bool leaves_out(const row *r, int size, number_type type) {
  bool takes_all = r->flags & TENSOR_CORES || !(r->flags & EACH_TYPE) || !is_gpu();
  return !takes_all && type == (size % 2 ? NUMBER_F16 : NUMBER_BF16);
}

/* The n-th of a row's types, from the first again behind the last. */
static number_type nth_type(const row *r, int n) {
  number_type types[NUMBER_CHANNEL_TYPES];
  int count = 0;
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
    if (!r->types || r->types >> type & 1) types[count++] = (number_type)type;
  return types[n % count];
}

static int count_types(const row *r) { return r->types ? __builtin_popcount(r->types) : NUMBER_CHANNEL_TYPES; }

/* ---- a call ---- */

/* Coordinates of polynomials are real numbers, others whole ones. */
static const DLTensor *lay_positions(fixture *f, number_type type, int64_t batch, int64_t tokens) {
  if (!f->spec->polynomial) return fixture_positions(f, type, batch, tokens);
  int64_t count = tokens * f->spec->n_axes;
  double *values = arena_array(f->memory, double, count + 1);
  for (int64_t i = 0; i < count; i++) values[i] = random_uniform(&f->random, -3, 3);
  return tensor_contiguous(f->memory, type, 2, (int64_t[]){tokens, f->spec->n_axes}, values);
}

static attention_trial lay_trial(fixture *f, const row *r, attention_sizes sizes, number_type type, int round) {
  static const number_type numbers[] = {NUMBER_F32, NUMBER_F64, NUMBER_I32, NUMBER_I64};
  const spec *s = f->spec;
  attention_trial t = {.spec = s, .causal = r->flags & CAUSAL ? 1 : r->flags & NOT_CAUSAL ? 0 : round & 1};
  t.scale = round % 3 ? 0 : round % 2 ? 0.3 : -0.3;
  t.splits = r->flags & SPLITS;
  row_order order = (row_order)(round % ROW_ORDER_COUNT);
  if (r->flags & TENSOR_CORES) order = round % 4 < 2 ? ROWS_BHND : ROWS_BNHD;
  if (s->heads > 1 && s->heads != sizes.heads) sizes.heads = sizes.k_heads = s->heads;
  if (s->grid[0]) sizes.tokens = sizes.keys = spec_grid_tokens(s);
  attention_trial_fill(f->memory, &t, &sizes, type, order, &f->random);
  t.operands = trial_random_operands(f->memory, s, NUMBER_F32, &f->random);
  if (s->polynomial && round % 4 == 0)
    t.inputs = trial_pair_inputs(f->memory, s, NUMBER_F32, t.q->shape, sizes.keys, &f->random);
  if (!s->n_axes || s->grid[0]) return t;
  t.positions = lay_positions(f, numbers[round % 4], round % 3 ? 0 : sizes.batch, sizes.tokens);
  if (sizes.keys != sizes.tokens || round % 4)
    t.k_positions = lay_positions(f, numbers[(round + 1) % 4], round % 5 ? 0 : sizes.batch, sizes.keys);
  return t;
}

/* ---- properties ---- */

static void compare_outputs(const fixture *f, const pegen_kernel *kernel, const attention_gradients *g, int64_t step) {
  trial_error worst = {0};
  attention_trial_compare(f->memory, kernel, &g->forward, g->out, step, &worst);
  attention_trial_compare_lse(f->memory, kernel, &g->forward, step, &worst);
  if (worst.spoilt || !(worst.error <= 0x1p-18L)) fail_msg("outputs: %s", trial_error_text(f->memory, &worst));
}

/* Outputs are the reference's, nothing is written between their rows, and any number of parts gives the same bits. */
static void check_outputs(const fixture *f, const pegen_kernel *kernel, const row *r, const attention_gradients *g,
                          int round) {
  DLTensor *before = tensor_copy(f->memory, g->out);
  attention_trial parted = g->forward;
  assert_int_equal(attention_trial_call(kernel, &g->forward, g->out, 1), 0);
  if (r->flags & TENSOR_CORES)
    assert_true(fixture_is_mma(kernel, &g->forward, g->out) == (g->out->shape[0] && g->out->shape[2]));
  compare_outputs(f, kernel, g, r->step ? r->step : 1);
  assert_true(tensor_gaps_identical(g->out, before));
  parted.lse = NULL;
  /* On a GPU the memory order says whether tensor cores take rows, whose sums have other bits. */
  bool keeps_order = is_gpu() && !(r->flags & TENSOR_CORES);
  DLTensor *parts = attention_trial_out(f->memory, &parted,
                                        keeps_order ? ROWS_GAPS
                                        : round % 2 ? ROWS_BHND
                                                    : ROWS_BNHD);
  assert_int_equal(attention_trial_call(kernel, &parted, parts, 2 + round % 9), 0);
  assert_true(tensor_identical(parts, g->out));
}

enum { Q = 1, K = 2, V = 4, INPUTS = 8, OPERANDS = 16, POSITIONS = 32, ROWS_ALONE = Q | K | V, SUMS = 56 };

static attention_gradients ask_for(const fixture *f, const attention_gradients *g, unsigned what) {
  attention_gradients some = attention_gradients_room(f->memory, g);
  if (!(what & Q)) some.q = NULL;
  if (!(what & K)) some.k = NULL;
  if (!(what & V)) some.v = NULL;
  if (!(what & INPUTS)) some.inputs = NULL;
  if (!(what & OPERANDS)) some.operands = NULL;
  if (!(what & POSITIONS)) some.positions = some.k_positions = NULL;
  return some;
}

/* What is asked for has the same bits whatever else is. */
static void check_subsets(const fixture *f, const pegen_kernel *kernel, const attention_gradients *g, int count,
                          int round) {
  static const unsigned subsets[] = {ROWS_ALONE,
                                     SUMS,
                                     Q | V | SUMS,
                                     K | V | INPUTS,
                                     Q,
                                     K,
                                     V,
                                     Q | K,
                                     Q | V,
                                     K | V,
                                     INPUTS,
                                     OPERANDS,
                                     POSITIONS,
                                     INPUTS | OPERANDS,
                                     INPUTS | POSITIONS,
                                     OPERANDS | POSITIONS,
                                     ROWS_ALONE | INPUTS,
                                     ROWS_ALONE | OPERANDS,
                                     ROWS_ALONE | POSITIONS,
                                     ROWS_ALONE | OPERANDS | POSITIONS,
                                     ROWS_ALONE | INPUTS | OPERANDS,
                                     ROWS_ALONE | INPUTS | POSITIONS};
  _Static_assert(sizeof subsets / sizeof *subsets == ALL_SUBSETS, "of every subset");
  for (int i = 0; i < count; i++) {
    attention_gradients some = ask_for(f, g, subsets[i]);
    if (!(some.q || some.k || some.v || attention_gradients_has_finish(&some))) continue;
    assert_int_equal(attention_gradients_call(kernel, &some, 1 + (round + i) % 3 * 7), 0);
    assert_true(attention_gradients_same(g, &some));
  }
}

/* Leaves out what has no gradient, which a call refuses to give. */
static void leave_frozen(const fixture *f, const pegen_kernel *kernel, const row *r, attention_gradients *g) {
  bool gains = false;
  for (int i = 0; g->operands && i < f->spec->n_operands; i++) {
    attention_gradients alone = ask_for(f, g, OPERANDS);
    for (int k = 0; k < f->spec->n_operands; k++) alone.operands[k] = k == i ? g->operands[i] : NULL;
    if (!(r->frozen >> i & 1)) gains = true;
    else {
      assert_int_equal(attention_gradients_call(kernel, &alone, 1), PEGEN_ERROR_NO_GRADIENT);
      g->operands[i] = NULL;
    }
  }
  if (!gains) g->operands = NULL;
  if (!(r->flags & STILL) || !g->positions) return;
  attention_gradients alone = ask_for(f, g, POSITIONS);
  assert_int_equal(attention_gradients_call(kernel, &alone, 1), PEGEN_ERROR_NO_GRADIENT);
  g->positions = g->k_positions = NULL;
}

/* Gradients are the reference's, nothing is written between rows, and parts and what is asked for change no bit. */
static void check_gradients(const fixture *f, const pegen_kernel *kernel, const row *r, attention_gradients *g,
                            int round) {
  if (round % 4 != 3 || r->flags & STILL)
    attention_gradients_of_positions(f->memory, g, round & 1 ? NUMBER_F32 : NUMBER_F64);
  leave_frozen(f, kernel, r, g);
  attention_gradients before = attention_gradients_room(f->memory, g);
  assert_int_equal(attention_gradients_call(kernel, g, 1), 0);
  gradients_compare(f->memory, g, r->step ? r->step : 1);
  assert_true(tensor_gaps_identical(g->q, before.q) && tensor_gaps_identical(g->k, before.k) &&
              tensor_gaps_identical(g->v, before.v));
  for (int i = 0; i < f->spec->n_inputs; i++)
    if (f->spec->input[i].size) assert_true(tensor_gaps_identical(g->inputs[i], before.inputs[i]));
  gradients_assert_parts(f->memory, kernel, g, is_gpu() ? 1 : 4); /* threads run in another order each time */
  check_subsets(f, kernel, g, r->subsets, round);
}

/* ---- the loop ---- */

static void run_call(fixture *f, const pegen_kernel *kernel, const row *r, const attention_sizes *sizes,
                     number_type type, int round) {
  attention_trial t = lay_trial(f, r, *sizes, type, round);
  attention_gradients g;
  attention_gradients_lay(f->memory, &g, &t, kernel, round % 5 < 3, r->step ? r->step : 1,
                          r->flags & TENSOR_CORES ? ROWS_BNHD : ROWS_GAPS, &f->random);
  check_outputs(f, kernel, r, &g, round);
  if (!(r->flags & FORWARD)) check_gradients(f, kernel, r, &g, round);
}

static int run_sizes(fixture *f, const pegen_kernel *kernel, const row *r, int made, int round) {
  for (int i = 0; i < MOST && r->sizes[i].heads; i++)
    for (int n = 0; n < (r->flags & EACH_TYPE ? count_types(r) : 1); n++, round++) {
      number_type type = nth_type(r, r->flags & EACH_TYPE ? n : r->flags & TYPE_BY_KERNEL ? made : round);
      if (leaves_out(r, i, type)) continue;
      run_call(f, kernel, r, &r->sizes[i], type, round);
    }
  return round;
}

static void run_row(void **state) {
  const row *r = *state;
  int round = 0, made = 0;
  for (int i = 0; i < MOST && r->descriptions[i]; i++) {
    SCOPED fixture f = fixture_open(wanted, 11, "%s", r->descriptions[i]);
    for (int target = 0; target < f.n_targets; target++) {
      if ((r->flags & ONE_TARGET && target != i % f.n_targets) || (r->flags & NEWEST && target)) continue;
      unsigned types = r->flags & TYPE_BY_KERNEL ? 1u << nth_type(r, made) : r->types;
      SCOPED_KERNEL *loaded = (r->flags & FORWARD ? trial_load : trial_load_gradients)(
          f.memory, f.spec, f.targets[target], types, is_gpu() ? 1 : 2);
      assert_non_null(loaded);
      print_message("             %s, %s\n", r->descriptions[i], f.targets[target]);
      round = run_sizes(&f, run_kernel(loaded), r, made++, round);
    }
  }
}

/* ---- what is covered ---- */

static void print_row(const row *r) {
  for (int i = 0; i < MOST && r->descriptions[i]; i++) {
    const char *name = strrchr(r->descriptions[i], '/');
    printf("%s\t%s\t", r->name, name ? name + 1 : r->descriptions[i]);
    for (int n = 0; n < count_types(r); n++) printf("%s%s", n ? "," : "", number_name((int)nth_type(r, n)));
    for (int k = 0; k < MOST && r->sizes[k].heads; k++) {
      const attention_sizes *s = &r->sizes[k];
      printf("%s%d,%d:%d,%d:%d", k ? " " : "\t", (int)s->batch, (int)s->heads, (int)s->k_heads, (int)s->tokens,
             (int)s->keys);
    }
    for (size_t k = 0, first = 1; k < sizeof FLAG_NAMES / sizeof *FLAG_NAMES; k++)
      if (r->flags >> k & 1) printf("%s%s", first ? "\t" : ", ", FLAG_NAMES[k]), first = 0;
    printf("\n");
  }
}

int main(int arguments, char **argument) {
  wanted = arguments > 1 ? argument[1] : NULL;
  if (wanted && strcmp(wanted, "--table") == 0) {
    printf("row\tdescription\ttypes\tbatch,heads:k's,tokens:keys\tunlike others\n");
    for (int i = 0; i < COUNT; i++) print_row(&ROWS[i]);
    return 0;
  }
  for (int i = 0; i < COUNT; i++)
    if (!(ROWS[i].flags & (is_gpu() ? PROCESSORS : GPUS))) list_row(ROWS[i].name, run_row, &ROWS[i]);
  if (arguments > 2) cmocka_set_test_filter(argument[2]);
  return run_listed();
}
