/* sparse_test SEED COUNT [TARGET]: attention under masks, so that tiles are skipped and others are not masked, against
 * the reference, which asks every pair: the masks of masked.lua and random ones, positions of all kinds, gradients,
 * parts, rows that are no numbers.
 *
 * Masks are comparisons of whole numbers below 2^24, which float32 computes as the reference does, on their borders
 * too.
 */
#include "described.h"
#include "scoped.h"
#include "verify/trial_attention_backward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const long double BOUND = 0x1p-17L, GRADIENT_BOUND = 0x1p-14L;
enum { MANY_PARTS = 7 };

typedef struct draw {
  arena *memory;
  uint64_t random;
  const char **targets;
  int n_targets, failed;
  number_type type; /* of rows under random masks */
  bool scores; /* random masks are those of scores */
  long double largest;
} draw;

static int below(draw *d, int bound) { return random_below(&d->random, bound); }

/* How tokens lie: in rows of `width`, each coordinate times `step` from `origin`. */
typedef struct layout {
  const char *name;
  double origin, step;
  number_type type;
  int width;
  bool is_shuffled;
} layout;

static const layout LAYOUTS[] = {
    {"in rows", 0, 1, NUMBER_F32, 40, false},
    {"far away", 1e6, 1, NUMBER_F64, 24, false},
    {"in steps of .25", -3, 0.25, NUMBER_F64, 64, false},
    {"shuffled", 0, 1, NUMBER_F32, 24, true},
};

static const DLTensor *places(draw *d, const spec *s, const layout *l, int64_t tokens) {
  double *values = arena_array(d->memory, double, tokens * s->n_axes + 1);
  for (int64_t i = 0; i < tokens; i++) {
    int64_t token = l->is_shuffled ? below(d, (int)tokens) : i;
    for (int axis = s->n_axes - 1; axis >= 0; axis--) {
      int64_t rest = axis ? token % l->width : token;
      values[i * s->n_axes + axis] = l->origin + l->step * (double)rest;
      token /= l->width;
    }
  }
  return tensor_contiguous(d->memory, l->type, 2, (int64_t[]){tokens, s->n_axes}, values);
}

static void fail(draw *d, const char *what, const char *how, const trial_error *worst) {
  d->failed++;
  printf("FAILED: %s, %s %s\n", what, how, worst ? trial_error_text(d->memory, worst) : "");
}

static void note(draw *d, const char *what, const char *how, const trial_error *worst, long double bound) {
  if (worst->spoilt || !(worst->error <= bound)) fail(d, what, how, worst);
  d->largest = fmaxl(d->largest, worst->error);
}

static void gradients(draw *d, const pegen_kernel *kernel, const attention_trial *t, const char *what) {
  attention_gradients g;
  trial_error worst = {0};
  int error = attention_gradients_fill(d->memory, &g, t, kernel, true, 1, ROWS_BHND, &d->random);
  g.operands = NULL; /* no mask gives them any */
  if (error || attention_gradients_call(kernel, &g, 1)) {
    fail(d, what, "gradients are refused", NULL);
    return;
  }
  attention_answer exact = attention_gradients_answer(d->memory, &g, 1);
  const DLTensor *rows[] = {g.q, g.k, g.v};
  const gradient_sum *sums[] = {exact.q, exact.k, exact.v};
  for (int i = 0; i < 3; i++) attention_gradients_compare(rows[i], sums[i], exact.score, &worst);
  note(d, what, "gradients", &worst, fmaxl(GRADIENT_BOUND, attention_gradients_bound(&g)));
  attention_gradients parted = attention_gradients_room(d->memory, &g);
  if (attention_gradients_call(kernel, &parted, MANY_PARTS) || !attention_gradients_same(&g, &parted))
    fail(d, what, "gradients in parts", NULL);
}

static void forward(draw *d, const pegen_kernel *kernel, attention_trial *t, const char *what) {
  trial_error worst = {0};
  DLTensor *out = attention_trial_out(d->memory, t, ROWS_BHND), *parted = attention_trial_out(d->memory, t, ROWS_BHND);
  t->lse = attention_trial_lse(d->memory, t);
  if (attention_trial_call(kernel, t, out, 1)) {
    fail(d, what, "is refused", NULL);
    return;
  }
  attention_trial_compare(d->memory, kernel, t, out, 1, &worst);
  note(d, what, "outputs", &worst, BOUND);
  attention_trial_compare_lse(d->memory, kernel, t, 1, &worst);
  note(d, what, "log-sum-exp", &worst, BOUND);
  if (attention_trial_call(kernel, t, parted, MANY_PARTS) || !tensor_identical(out, parted))
    fail(d, what, "parts", NULL);
}

/* 16-bit rows are those of tensor cores, whose tiles are larger: they have more tokens. */
static void ask_of(draw *d, const spec *s, const char *name, bool has_gradients, number_type type) {
  const char *target = d->targets[below(d, d->n_targets)];
  unsigned dtype = number_type_info(type)->dtype;
  int more = type == NUMBER_F32 ? 1 : 2;
  SCOPED_KERNEL *loaded =
      has_gradients ? trial_load_gradients(d->memory, s, target, dtype, 1) : trial_load(d->memory, s, target, dtype, 1);
  if (!loaded) exit(2);
  for (size_t i = 0; i < sizeof LAYOUTS / sizeof *LAYOUTS; i++) {
    const layout *l = &LAYOUTS[i];
    attention_trial t = {.spec = s, .causal = below(d, 2)};
    attention_sizes sizes = {1, 2, 1 + below(d, 2), 1 + below(d, below(d, 3) ? 70 * more : 5),
                             below(d, 9) ? 1 + below(d, 300 * more) : 0};
    const char *what = arena_printf(d->memory, "%s, %s, %lld x %lld%s, %s", name, l->name, (long long)sizes.tokens,
                                    (long long)sizes.keys, t.causal ? ", causal" : "", target);
    attention_trial_fill(d->memory, &t, &sizes, type, ROWS_BHND, &d->random);
    t.positions = places(d, s, l, sizes.tokens);
    t.k_positions = places(d, s, l, sizes.keys);
    t.operands = trial_random_operands(d->memory, s, NUMBER_F32, &d->random);
    forward(d, run_kernel(loaded), &t, what);
    if (has_gradients && sizes.keys) gradients(d, run_kernel(loaded), &t, what);
  }
}

static void ask(draw *d, const spec *s, const char *name, bool has_gradients) {
  ask_of(d, s, name, has_gradients, NUMBER_F32);
}

/* Keys that a window hides because they are nowhere, the first among them, from which others may not count. */
static void nowhere(draw *d, const spec *s, const char *target) {
  SCOPED_KERNEL *loaded = held(trial_load_gradients(d->memory, s, target, number_type_info(d->type)->dtype, 1));
  for (int tokens = 3; tokens <= 60; tokens += 57) { /* few queries, and many */
    attention_trial t = {.spec = s};
    attention_sizes sizes = {1, 2, 2, tokens, 60};
    attention_trial_fill(d->memory, &t, &sizes, d->type, ROWS_BHND, &d->random);
    t.positions = places(d, s, &LAYOUTS[0], sizes.tokens);
    t.k_positions = places(d, s, &LAYOUTS[0], sizes.keys);
    float *values = (float *)t.k_positions->data;
    for (int axis = 0; axis < s->n_axes; axis++) {
      values[axis] = NAN;
      values[s->n_axes + axis] = -INFINITY;
    }
    values[s->n_axes * 3 - 1] = NAN; /* of the third one coordinate alone */
    t.operands = trial_random_operands(d->memory, s, NUMBER_F32, &d->random);
    forward(d, run_kernel(loaded), &t, "keys nowhere");
    gradients(d, run_kernel(loaded), &t, "keys nowhere");
  }
}

/* Keys that a score hides, whose rows are no numbers: what is added to the product, and a choice. */
static void hidden_faults_of(draw *d, number_type type) {
  static const char *const kinds[] = {"document", "window"};
  for (int i = 0; i < 2; i++) {
    const spec *s = described(d->memory, "./scores kind=%s", kinds[i]);
    SCOPED_KERNEL *loaded =
        held(trial_load_gradients(d->memory, s, d->targets[i % d->n_targets], number_type_info(type)->dtype, 1));
    attention_trial t = {.spec = s};
    attention_sizes sizes = {1, 2, 2, 40, 60};
    attention_trial_fill(d->memory, &t, &sizes, type, ROWS_BHND, &d->random);
    t.positions = places(d, s, &LAYOUTS[0], sizes.tokens);
    t.k_positions = places(d, s, &LAYOUTS[0], sizes.keys);
    float *values = (float *)t.k_positions->data;
    values[0] = values[30] = 1000;
    for (int head = 0; head < 2; head++) {
      number_store(type, tensor_at(t.k, 0, head, 0, 3), NAN);
      number_store(type, tensor_at(t.k, 0, head, 30, 1), INFINITY);
      number_store(type, tensor_at(t.v, 0, head, 30, 2), NAN);
    }
    t.operands = trial_random_operands(d->memory, s, NUMBER_F32, &d->random);
    forward(d, run_kernel(loaded), &t, "hidden faults of a score");
    gradients(d, run_kernel(loaded), &t, "hidden faults of a score");
  }
}

static void hidden_faults(draw *d) {
  hidden_faults_of(d, NUMBER_F32);
  hidden_faults_of(d, NUMBER_BF16); /* on tensor cores a weight of 0 is multiplied by them */
}

/* What a query sees is the same to the bit where a key that it does not see is no number, and no number where it does:
 * of a window that slides over tokens in their order, whose edges some queries of a tile see alone. */
static void lone_fault(draw *d, const pegen_kernel *kernel, attention_trial *t, int64_t key, const char *what) {
  DLTensor *good = attention_trial_out(d->memory, t, ROWS_BHND), *bad = attention_trial_out(d->memory, t, ROWS_BHND);
  int error = attention_trial_call(kernel, t, good, 1), wrong = 0;
  float *value = tensor_at(t->v, 0, 0, key, 1), *channel = tensor_at(t->k, 0, 1, key, 2), kept = *value, own = *channel;
  *value = INFINITY;
  *channel = NAN;
  error |= attention_trial_call(kernel, t, bad, MANY_PARTS);
  *value = kept;
  *channel = own;
  int64_t tokens = good->shape[2], ahead = t->k->shape[2] - tokens;
  for (int64_t head = 0; head < 2; head++)
    for (int64_t n = 0; n < tokens; n++) {
      bool sees = key - n > -44 && key - n < 4 && (!t->causal || key <= n + ahead);
      for (int64_t c = 0; c < good->shape[3]; c++) {
        const float *x = tensor_at(good, 0, head, n, c), *y = tensor_at(bad, 0, head, n, c);
        bool reached = sees && (head == 1 || c == 1);
        wrong += reached ? isfinite(*y) : memcmp(x, y, sizeof *x) != 0;
      }
    }
  if (error || wrong) fail(d, what, arena_printf(d->memory, "key %d, %d outputs", (int)key, wrong), NULL);
}

static void sliding(draw *d) {
  static const layout in_order = {"in order", 0, 1, NUMBER_F32, 4096, false};
  const spec *s = described(d->memory, "./masked kind=sliding");
  for (int i = 0; i < d->n_targets; i++) {
    SCOPED_KERNEL *loaded = held(trial_load(d->memory, s, d->targets[i], PEGEN_DTYPE_F32, 1));
    for (int round = 0; round < 4; round++) {
      attention_trial t = {.spec = s, .causal = round % 2};
      attention_sizes sizes = {1, 2, 2, 100, round < 2 ? 100 : 93};
      attention_trial_fill(d->memory, &t, &sizes, NUMBER_F32, ROWS_BHND, &d->random);
      t.positions = places(d, s, &in_order, sizes.tokens);
      t.k_positions = places(d, s, &in_order, sizes.keys);
      t.operands = trial_random_operands(d->memory, s, NUMBER_F32, &d->random);
      const char *what = arena_printf(d->memory, "a window that slides, %s, %d", d->targets[i], round);
      forward(d, run_kernel(loaded), &t, what);
      for (int64_t key = 0; key < sizes.keys; key += 1 + below(d, 12)) lone_fault(d, run_kernel(loaded), &t, key, what);
    }
  }
  if (!s) d->failed++;
}

/* Copies rows of keys to memory that can be read in its first page alone. Few queries do not read keys that are proved
 * unseen, which lie behind it. */
static DLTensor *behind_first_page(draw *d, const DLTensor *of, char **room) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), element = of->dtype.bits / 8,
         bytes = (size_t)(of->shape[2] * of->shape[3]) * element;
  DLTensor *t = arena_new(d->memory, DLTensor);
  *t = *of;
  *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*room == MAP_FAILED) exit(2);
  for (int64_t i = 0; i < of->shape[2] * of->shape[3]; i++)
    memcpy(*room + (size_t)i * element, tensor_at(of, 0, 0, i / of->shape[3], i % of->shape[3]), element);
  t->data = *room;
  t->byte_offset = 0;
  if (bytes > page && mprotect(*room + page, bytes - page, PROT_NONE)) exit(2);
  return t;
}

static void unread(draw *d, const spec *s) {
  for (int i = 0; i < d->n_targets; i++) {
    if (!strcmp(d->targets[i], "x86-64-v2")) continue; /* which goes by tiles */
    SCOPED_KERNEL *loaded = held(trial_load(d->memory, s, d->targets[i], PEGEN_DTYPE_F32, 1));
    int64_t keys = 4 * sysconf(_SC_PAGESIZE) / (s->head_dim * (int64_t)sizeof(float));
    attention_trial t = {.spec = s}, other;
    attention_sizes sizes = {1, 2, 1, 3, keys};
    char *room[2];
    attention_trial_fill(d->memory, &t, &sizes, NUMBER_F32, ROWS_BHND, &d->random);
    t.positions = places(d, s, &LAYOUTS[0], sizes.tokens);
    t.k_positions = places(d, s, &LAYOUTS[0], sizes.keys);
    t.operands = trial_random_operands(d->memory, s, NUMBER_F32, &d->random);
    other = t;
    other.k = behind_first_page(d, t.k, &room[0]);
    other.v = behind_first_page(d, t.v, &room[1]);
    DLTensor *out = attention_trial_out(d->memory, &t, ROWS_BHND),
             *same = attention_trial_out(d->memory, &t, ROWS_BHND);
    forward(d, run_kernel(loaded), &t, "keys that are not read");
    if (attention_trial_call(run_kernel(loaded), &t, out, 1) ||
        attention_trial_call(run_kernel(loaded), &other, same, 2) || !tensor_identical(out, same))
      fail(d, "keys that are not read", d->targets[i], NULL);
    size_t bytes = (size_t)(keys * s->head_dim) * sizeof(float);
    munmap(room[0], bytes);
    munmap(room[1], bytes);
  }
}

/* A GPU reads no tile that is unseen: of few queries, of many, and where these gain. Rows are of 16 bits and 16
 * channels, so that a page has two tiles. */
static void unread_tiles(draw *d, const spec *s, const char *target) {
  SCOPED_KERNEL *loaded = held(trial_load_gradients(d->memory, s, target, PEGEN_DTYPE_BF16, 1));
  for (int tokens = 3; tokens <= 100; tokens += 97) {
    int64_t keys = 4 * sysconf(_SC_PAGESIZE) / (s->head_dim * 2LL);
    attention_trial t = {.spec = s}, other;
    attention_sizes sizes = {1, 2, 1, tokens, keys};
    attention_gradients gains, same_gains;
    char *room[2];
    attention_trial_fill(d->memory, &t, &sizes, NUMBER_BF16, ROWS_BHND, &d->random);
    t.positions = places(d, s, &LAYOUTS[0], sizes.tokens);
    t.k_positions = places(d, s, &LAYOUTS[0], sizes.keys);
    t.operands = trial_random_operands(d->memory, s, NUMBER_F32, &d->random);
    forward(d, run_kernel(loaded), &t, "tiles that are not read");
    other = t;
    other.k = behind_first_page(d, t.k, &room[0]);
    other.v = behind_first_page(d, t.v, &room[1]);
    DLTensor *out = attention_trial_out(d->memory, &t, ROWS_BHND),
             *same = attention_trial_out(d->memory, &t, ROWS_BHND);
    if (attention_trial_call(run_kernel(loaded), &t, out, 1) ||
        attention_trial_call(run_kernel(loaded), &other, same, 1) || !tensor_identical(out, same))
      fail(d, "tiles that are not read", target, NULL);
    if (attention_gradients_fill(d->memory, &gains, &t, run_kernel(loaded), true, 1, ROWS_BHND, &d->random)) exit(2);
    gains.k = gains.v = NULL;
    gains.operands = NULL;
    same_gains = attention_gradients_room(d->memory, &gains);
    same_gains.forward.k = other.k;
    same_gains.forward.v = other.v;
    if (attention_gradients_call(run_kernel(loaded), &gains, 1) ||
        attention_gradients_call(run_kernel(loaded), &same_gains, 1) || !attention_gradients_same(&gains, &same_gains))
      fail(d, "tiles that are not read by gradients", target, NULL);
    size_t bytes = (size_t)(keys * s->head_dim) * 2;
    munmap(room[0], bytes);
    munmap(room[1], bytes);
  }
}

/* Prefix tokens see and are seen whatever the mask is: of places, and of the tokens' own indices. */
static void prefixed(draw *d) {
  static const char *const kinds[] = {"window", "causal"};
  for (int i = 0; i < 2; i++) {
    const spec *s = described(d->memory, "./scores kind=%s skip_tokens=2", kinds[i]);
    SCOPED_KERNEL *loaded =
        held(trial_load_gradients(d->memory, s, d->targets[0], number_type_info(d->type)->dtype, 1));
    attention_trial t = {.spec = s};
    attention_sizes sizes = {1, 2, 2, 290, 290};
    attention_trial_fill(d->memory, &t, &sizes, d->type, ROWS_BHND, &d->random);
    t.positions = places(d, s, &LAYOUTS[0], sizes.tokens);
    t.operands = trial_random_operands(d->memory, s, NUMBER_F32, &d->random);
    forward(d, run_kernel(loaded), &t, "prefix tokens");
    if (i == 0) gradients(d, run_kernel(loaded), &t, "prefix tokens");
  }
}

/* ---- random masks ---- */

#define TEXT(...) arena_printf(d->memory, __VA_ARGS__)

/* Whole numbers, or quarters of them, below 2^24; of a score also the tokens' own. */
static const char *whole(draw *d, int depth) {
  const char *coordinate = below(d, 2) ? "delta.s" : "delta.t";
  if (d->scores && below(d, 2)) coordinate = below(d, 2) ? "query.i" : "(key.j - query.i)";
  if (depth == 0) return below(d, 3) ? coordinate : TEXT("%d", below(d, 25) - 12);
  const char *x = whole(d, depth - 1), *y = whole(d, depth - 1);
  switch (below(d, 11)) {
  case 0: return TEXT("(%s + %s)", x, y);
  case 1: return TEXT("(%s - %s)", x, y);
  case 2: return TEXT("(%s) * %s", coordinate, whole(d, 0));
  case 3: return TEXT("pe.abs(%s)", x);
  case 4: return TEXT("pe.min(%s, %s)", x, y);
  case 5: return TEXT("pe.max(%s, %s)", x, y);
  case 6: return TEXT("-(%s)", x);
  case 7: return TEXT("pe.floor(0.5 * (%s))", x);
  case 8: return TEXT("(%s) * (1 - 2 * head)", x);
  case 9: return TEXT("pe.sum(3, function(k) return (%s) * (k - 1) + k end)", x);
  default: return TEXT("pe.where(%s, %s, %s, %s)", x, y, coordinate, y);
  }
}

static const char *mask(draw *d, int depth) {
  const char *x = whole(d, 1 + below(d, 2)), *y = whole(d, below(d, 2));
  const char *seen = depth ? mask(d, depth - 1) : below(d, 2) ? "t - 0.125 * pe.abs(delta.t)" : "t";
  if (below(d, 2)) return TEXT("pe.where(%s, %s, %s, pe.masked)", x, y, seen);
  return TEXT("pe.where(%s, %s, pe.masked, %s) + 0.5", x, y, seen);
}

static void random_mask(draw *d, uint64_t seed, int index) {
  const char *path = TEXT("sparse_%llu_%d_%d.lua", (unsigned long long)seed, index, getpid());
  const char *text = TEXT("local pe = require \"pegen\"\n"
                          "return pe.encoding { name = \"random\", axes = { \"s\", \"t\" }, head_dim = 8, heads = 2,\n"
                          "  %s return %s + 0 * head end }\n",
                          d->scores ? below(d, 2) ? "score = function(s, delta, head, query, key) local t = s;"
                                                  : "score = function(s, delta, head, query, key) local t = 2 * s;"
                                    : "bias = function(delta, head) local t = 0;",
                          mask(d, below(d, 3)));
  FILE *file = fopen(path, "w");
  if (!file || fputs(text, file) < 0 || fclose(file)) exit(2);
  const spec *s = loader_load(d->memory, path, DSL_DIR, 0, NULL);
  int failed = d->failed;
  if (s) ask_of(d, s, path, index % 3 == 0, d->type);
  else d->failed++;
  if (d->failed == failed) remove(path);
  else printf("kept as %s\n%s", path, text);
}

int main(int argc, char **argv) {
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
  int count = argc > 2 ? atoi(argv[2]) : 12;
  const char *target = argc > 3 ? argv[3] : NULL; /* a GPU: rows of 16 bits; keys that are nowhere, or hidden */
  static const char *const kinds[] = {"window", "document", "ring",   "corner", "learned",  "dilated",
                                      "table",  "clamped",  "nested", "never",  "logarithm"};
  SCOPED draw d = {.memory = arena_create(), .random = seed};
  d.n_targets = trial_targets(d.memory, NULL, &d.targets);
  d.type = target ? NUMBER_BF16 : NUMBER_F32;
  if (target) d.targets = &target, d.n_targets = 1;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    const spec *s = described(d.memory, "./masked kind=%s", kinds[i]);
    /* To compile a GPU's code takes seconds: of some kinds, of one with gradients. */
    if (!target || i % 3 == 0) ask_of(&d, s, kinds[i], target ? i == 3 : i % 2 == 0, d.type);
    if (i == 0) nowhere(&d, s, d.targets[0]);
    if (i == 1) target ? unread_tiles(&d, s, target) : unread(&d, s);
  }
  static const char *const beside[] = {"window", "document", "ring", "corner", "dilated", "clamped", "nested"};
  for (size_t i = 0; i < sizeof beside / sizeof *beside && !target; i++) {
    const spec *s = described(d.memory, "./masked kind=%s columns=true", beside[i]);
    ask(&d, s, arena_printf(d.memory, "%s beside a polynomial", beside[i]), i % 2 == 0);
    if (i == 0) nowhere(&d, s, d.targets[0]);
  }
  for (int i = 0; i < count; i++) {
    d.scores = i % 2;
    random_mask(&d, seed, i);
  }
  if (target) prefixed(&d);
  else sliding(&d);
  hidden_faults(&d);
  printf("%d failed; largest error 2^%.1Lf\n", d.failed, log2l(d.largest));
  return d.failed != 0;
}
