/* random_spec: descriptions nobody would write, all of them valid; see random_spec.h.
 *
 * In four and more dimensions sums of generators are simple bivectors here: all generators are multiples of one
 * bivector or share the vector e1, and a single one is a product of two vectors. Those that are not simple are
 * tests/check/bivectors.lua's.
 */
#include "random_spec.h"

#include "base/number.h"

#include <stdbool.h>
#include <string.h>

typedef struct draw {
  arena *memory;
  uint64_t *random;
  int n, p, q, r;
  int axes, heads, blocks, components;
  int head_dim, first, span;
  const char *axis[4];
  const char *combine;
  bool adds;         /* sum or mean: generators meet in one exponent */
  bool one_plane;    /* only e12 occurs */
  bool learned_weight, learned_freq;
  int weights;       /* elements of the operand w per axis, head and block */
} draw;

static int below(draw *d, int bound) { return random_below(d->random, bound); }
static bool chance(draw *d, int percent) { return below(d, 100) < percent; }
static double uniform(draw *d, double low, double high) { return random_uniform(d->random, low, high); }

#define TEXT(d, ...) arena_printf((d)->memory, __VA_ARGS__)

static void shuffle(draw *d, int *list, int count) {
  for (int i = count - 1; i > 0; i--) {
    int j = below(d, i + 1), kept = list[i];
    list[i] = list[j];
    list[j] = kept;
  }
}

/* ---- blocks ---- */

/* "e31": a blade's indices in a random order, which sets its sign. */
static const char *blade_name(draw *d, unsigned blade) {
  int index[SPEC_MAX_DIMENSIONS], count = 0;
  if (blade == 0) return "1";
  for (int i = 0; i < d->n; i++)
    if (blade & 1u << i) index[count++] = i + 1;
  if (chance(d, 40)) shuffle(d, index, count);
  const char *name = "e";
  for (int i = 0; i < count; i++) name = TEXT(d, "%s%d", name, index[i]);
  return name;
}

static const char *blade_list(draw *d, const int *blades, int count) {
  const char *list = "";
  for (int i = 0; i < count; i++) list = TEXT(d, "%s%s\"%s\"", list, i ? ", " : "", blade_name(d, (unsigned)blades[i]));
  d->components = count;
  return TEXT(d, "pe.multivector { algebra = { %d, %d, %d }, blades = { %s } }", d->p, d->q, d->r, list);
}

/* Blades that the plane e12 keeps among themselves, though their grades are not whole. */
static const char *part_of_grades(draw *d) {
  static const int sets[][4] = {{1, 2}, {1, 2, 4}, {5, 6}, {0, 3}, {4}, {1, 2, 0, 7}};
  static const int sizes[] = {2, 3, 2, 2, 1, 4};
  int which = below(d, 6), list[4];
  memcpy(list, sets[which], sizeof list);
  shuffle(d, list, sizes[which]);
  return blade_list(d, list, sizes[which]);
}

static const char *draw_block(draw *d) {
  bool euclidean = d->q == 0 && d->r == 0;
  d->one_plane = d->n == 3 && chance(d, 10);
  if (d->one_plane) return part_of_grades(d);
  if (euclidean && chance(d, 35)) {
    d->components = d->n;
    return d->n == 2 && chance(d, 50) ? "pe.plane()" : TEXT(d, "pe.vector(%d)", d->n);
  }
  unsigned grades = 0;
  while (!grades || (grades & ~(1u | 1u << d->n)) == 0) grades = (unsigned)below(d, 1 << (d->n + 1));
  int list[SPEC_MAX_BLADES], count = 0;
  for (int blade = 0; blade < 1 << d->n; blade++)
    if (grades & 1u << __builtin_popcount((unsigned)blade)) list[count++] = blade;
  if (chance(d, 60)) {
    shuffle(d, list, count);
    return blade_list(d, list, count);
  }
  const char *text = "";
  for (int grade = 0; grade <= d->n; grade++)
    if (grades & 1u << grade) text = TEXT(d, "%s%s%d", text, *text ? ", " : "", grade);
  d->components = count;
  return TEXT(d, "pe.multivector { algebra = { %d, %d, %d }, grades = { %s } }", d->p, d->q, d->r, text);
}

/* Blocks, channels, span and layout; returns the fields' text. */
static const char *draw_channels(draw *d) {
  int most = 72 / d->components;
  d->blocks = 1 + below(d, most < 1 ? 1 : most > 33 ? 33 : most);
  int covered = d->blocks * d->components;
  d->first = chance(d, 25) ? below(d, 9) : 0;
  d->span = covered + below(d, d->components);
  d->head_dim = d->first + d->span + (chance(d, 25) ? below(d, 9) : 0);
  const char *text = TEXT(d, "  head_dim = %d,\n", d->head_dim);
  if (d->first || d->span / d->components != d->head_dim / d->components)
    text = TEXT(d, "%s  span = { %d, %d },\n", text, d->first, d->span);
  switch (below(d, 5)) {
  case 0: return TEXT(d, "%s  layout = \"split\",\n", text);
  case 1: return TEXT(d, "%s  layout = \"interleaved\",\n", text);
  case 2:
    return TEXT(d, "%s  layout = function(c, i) return %d - (i * %d + c) end,\n", text, d->head_dim - 1, d->components);
  case 3:
    return TEXT(d, "%s  layout = function(c, i) return %d + (c * %d + %d - i) end,\n", text, d->first, d->blocks,
                d->blocks - 1);
  default: return text;
  }
}

/* ---- generators ---- */

static const char *signed_plane(draw *d, int i, int j) {
  return chance(d, 50) ? TEXT(d, "e%d%d", i + 1, j + 1) : TEXT(d, "e%d%d", j + 1, i + 1);
}

static void random_plane(draw *d, int *i, int *j) {
  *i = below(d, d->n - 1);
  *j = *i + 1 + below(d, d->n - 1 - *i);
  if (d->one_plane) *i = 0, *j = 1;
}

/* u ^ v with random vectors, or below four dimensions any bivector. */
static const char *fixed_bivector(draw *d) {
  double u[SPEC_MAX_DIMENSIONS], v[SPEC_MAX_DIMENSIONS];
  const char *text = "";
  for (int i = 0; i < d->n; i++) {
    u[i] = uniform(d, -1, 1);
    v[i] = uniform(d, -1, 1);
  }
  for (int i = 0; i < d->n; i++)
    for (int j = i + 1; j < d->n; j++)
      if (!d->one_plane || j == 1)
        text = TEXT(d, "%s%se%d%d = %.17g", text, *text ? ", " : "", i + 1, j + 1, u[i] * v[j] - u[j] * v[i]);
  return TEXT(d, "pe.bivector { %s }", text);
}

/* e1 ^ v, v random: numbers, or elements of the operand w. */
static const char *about_e1(draw *d, bool learned) {
  const char *text = "";
  for (int j = 1; j < (d->one_plane ? 2 : d->n); j++) {
    text = TEXT(d, "%s%s%s = ", text, j > 1 ? ", " : "", signed_plane(d, 0, j));
    text = learned ? TEXT(d, "%sw(a, head, i, %d)", text, j - 1) : TEXT(d, "%s%.17g", text, uniform(d, -1, 1));
  }
  return TEXT(d, "pe.bivector { %s }", text);
}

/* All three planes of three dimensions from the operand w. */
static const char *learned_axis(draw *d) {
  return d->n == 2 || d->one_plane
             ? about_e1(d, true)
             : "pe.bivector { e23 = w(a, head, i, 0), e31 = w(a, head, i, 1), e12 = w(a, head, i, 2) }";
}

static const char *one_generator(draw *d) {
  int i, j;
  random_plane(d, &i, &j);
  const char *basis = TEXT(d, "pe.turn \"%s\"", signed_plane(d, i, j));
  if (d->n == 3 && !d->one_plane && chance(d, 20)) return TEXT(d, "pe.quaternion \"%c\"", "ijk"[below(d, 3)]);
  if (chance(d, 35)) return chance(d, 30) ? TEXT(d, "%s * %.6g", basis, uniform(d, -1.5, 1.5)) : basis;
  return d->adds && d->n > 3 ? about_e1(d, false) : fixed_bivector(d);
}

static const char *draw_generators(draw *d) {
  d->weights = d->n > 1 ? d->n - 1 : 1;
  if (d->n == 3) d->weights = 3;
  bool common_vector = d->adds && d->n > 3 && d->axes > 1;
  if (chance(d, 35)) {
    d->learned_weight = true;
    const char *body = d->n <= 3                         ? learned_axis(d)
                       : chance(d, 50) && !common_vector ? TEXT(d, "%s * w(a, head, i, 0)", fixed_bivector(d))
                                                         : about_e1(d, true);
    return TEXT(d, "  generators = function(a, i, head) return %s end,\n", body);
  }
  if (common_vector && chance(d, 50))
    return TEXT(d, "  generators = function(a, i) return %s * (%.6g + 0.125 * i) end,\n", fixed_bivector(d),
                uniform(d, 0.2, 1));
  const char *text = "";
  for (int axis = 0; axis < d->axes; axis++) {
    const char *body = common_vector ? about_e1(d, false) : one_generator(d);
    if (chance(d, 15)) body = TEXT(d, "function(a, i) return %s * (1 + 0.03125 * i) end", body);
    text = TEXT(d, "%s%s%s = %s", text, axis ? ", " : "", d->axis[axis], body);
  }
  return TEXT(d, "  generators = { %s },\n", text);
}

/* ---- the rest ---- */

static const char *draw_combine(draw *d) {
  static const char *const words[] = {"sum", "mean", "product", "symmetric"};
  int which = below(d, 4), order[4] = {0, 1, 2, 3};
  d->adds = which < 2;
  if (d->adds) return TEXT(d, "  combine = pe.%s,\n", words[which]);
  shuffle(d, order, d->axes);
  const char *names = "";
  for (int i = 0; i < d->axes; i++) names = TEXT(d, "%s%s\"%s\"", names, i ? ", " : "", d->axis[order[i]]);
  return TEXT(d, "  combine = pe.%s { %s },\n", words[which], names);
}

static const char *draw_phase(draw *d) {
  double size = uniform(d, 0.2, 2);
  switch (below(d, 6)) {
  case 0: return TEXT(d, "  phase = %.6g,\n", size);
  case 1: return TEXT(d, "  phase = function(a, i) return %.6g * 100 ^ (-2 * i / %d) end,\n", size, d->head_dim);
  case 2: return TEXT(d, "  phase = function(a, i, head) return (head + 1) * %.6g / (i + 1) end,\n", size);
  case 3:
    return TEXT(d, "  phase = function(a, i) return (a == \"%s\" and -0.5 or %.6g) * (1 - 0.01 * i) end,\n", d->axis[0],
                size);
  case 4: d->learned_freq = true; return "  phase = freq,\n";
  default:
    d->learned_freq = true;
    return TEXT(d, "  phase = function(a, i, head) return freq(a, head, i) * %.6g + 0.25 end,\n", size);
  }
}

static void draw_algebra(draw *d) {
  static const int dimensions[] = {2, 2, 2, 3, 3, 3, 3, 4, 4, 5};
  d->n = dimensions[below(d, 10)];
  if (chance(d, 22)) {
    d->q = below(d, d->n + 1);
    d->r = below(d, d->n - d->q + 1);
  }
  d->p = d->n - d->q - d->r;
}

static void draw_axes(draw *d) {
  static const char *const names[] = {"t", "h", "w", "depth"};
  int order[4] = {0, 1, 2, 3};
  shuffle(d, order, 4);
  d->axes = 1 + below(d, 4);
  for (int i = 0; i < 4; i++) d->axis[i] = names[order[i]];
}

/* ---- what is drawn beside them ---- */

/* The text of what turns, field by field. */
typedef struct fields {
  const char *block, *channels, *generators, *combine, *phase, *more;
  bool stays; /* nothing turns it back */
} fields;

static const char *draw_gain(draw *d) {
  return TEXT(d, "function(r, i, head) return %.6g + pe.exp(-pe.abs(r.%s) / %d) / (i + head + 1) end",
              uniform(d, 0.5, 2), d->axis[below(d, d->axes)], 1 + below(d, 9));
}

static const char *draw_amplitude(draw *d) {
  const char *q = draw_gain(d);
  if (chance(d, 50)) return TEXT(d, "  amplitude = %s,\n", q);
  return TEXT(d, "  amplitude = { q = %s, k = %s },\n", q, chance(d, 50) ? draw_gain(d) : "1.25");
}

static const char *draw_map(draw *d) {
  static const char *const maps[] = {"pe.tanh",
                                     "pe.softplus",
                                     "pe.sigmoid",
                                     "pe.relu",
                                     "function(x) return x * x - x / 2 end",
                                     "function(x) return pe.where(x, 0.25, x, 2 * x - 0.25) end"};
  return TEXT(d, "  pre = %s,\n", maps[below(d, sizeof maps / sizeof *maps)]);
}

/* Draws a function of rotors, for two axes or more in a group whose rotors have logarithms. */
static const char *draw_function(draw *d) {
  const char *one = d->axis[0], *other = d->axis[1];
  switch (below(d, 4)) {
  case 0: return "  combine = pe.chordal,\n";
  case 1: return TEXT(d, "  combine = pe.karcher { steps = %d },\n", 1 + below(d, 4));
  case 2:
    return TEXT(d, "  combine = pe.slerp { from = \"%s\", to = \"%s\", at = %.6g },\n", one, other,
                uniform(d, 0.1, 0.9));
  default: return TEXT(d, "  combine = function(R) return R.%s * R.%s ^ %.6g end,\n", one, other, uniform(d, -1, 1));
  }
}

/* Draws nothing at random, so that descriptions without the field are as they would be. */
static const char *choose_products(const draw *d) {
  static const char *const products[] = {"fused", "float32", "rounded"};
  return d->head_dim % 5 ? "" : TEXT(d, "  products = \"%s\",\n", products[d->head_dim / 5 % 3]);
}

static const char *draw_order(draw *d) { return chance(d, 50) ? "split" : "interleaved"; }

/* The blocks as one part, and planes of one axis behind them as another. */
static void make_parts(draw *d, fields *f) {
  int behind = d->first + d->span, planes = 1 + below(d, 6);
  const char *blocks = TEXT(d, "{ span = { %d, %d }, block = %s, layout = \"%s\",\n%s%s%s%s  }", d->first, d->span,
                            f->block, draw_order(d), f->generators, f->combine, f->phase, f->more);
  const char *others = TEXT(d,
                            "{ span = { %d, %d }, axes = { \"%s\" }, block = pe.plane(), generators = pe.turn \"e12\", "
                            "phase = function(_, i) return %.6g / (i + 1) end }",
                            behind, 2 * planes, d->axis[below(d, d->axes)], uniform(d, 0.2, 2));
  d->head_dim = behind + 2 * planes + below(d, 3);
  *f = (fields){.channels = TEXT(d, "  head_dim = %d,\n  parts = { %s, %s },\n", d->head_dim, blocks, others)};
}

/* In place of the blocks. */
static void make_matrices(draw *d, fields *f) {
  int n = 1 + below(d, 4);
  d->head_dim = n * (1 + below(d, 20)) + below(d, n);
  d->learned_weight = d->learned_freq = false; /* whose readers are gone */
  const char *entry = TEXT(d, "(a + b) %% %d == 0 and a - b + 1 or pe.sin(r.%s * a + b * (i + head))", 2 + below(d, 3),
                           d->axis[below(d, d->axes)]);
  const char *matrix = TEXT(d,
                            "  matrix = function(r, i, head)\n    local m = {}\n    for a = 1, %d do\n      m[a] = {}\n"
                            "      for b = 1, %d do m[a][b] = %s end\n    end\n    return m\n  end,\n",
                            n, n, entry);
  *f = (fields){.block = TEXT(d, "pe.linear(%d)", n),
                .channels = TEXT(d, "  head_dim = %d,\n  layout = \"%s\",\n", d->head_dim, draw_order(d)),
                .generators = matrix,
                .stays = true};
}

static void draw_more(draw *d, fields *f) {
  bool compact = d->q == 0 && d->r == 0;
  switch (below(d, 5)) {
  case 0: f->more = draw_amplitude(d); return;
  case 1:
    f->more = TEXT(d, "%s%s", f->more, draw_map(d));
    f->stays = true;
    return;
  case 2:
    if (d->axes > 1 && d->n <= 3 && compact) f->combine = draw_function(d);
    return;
  case 3:
    if (compact) make_parts(d, f);
    return;
  default: make_matrices(d, f);
  }
}

static const char *shown(const char *field) { return field ? field : ""; }

static void define(random_spec *s, const char *name, const char *value) {
  s->define[s->n_defines++] = (loader_define){name, value};
}

static void draw_options(draw *d, random_spec *s, bool stays) {
  if (chance(d, 25) && !stays) define(s, "inverse", "true");
  if (chance(d, 20)) define(s, "skip_tokens", TEXT(d, "%d", 1 + below(d, 2)));
  if (chance(d, 15)) {
    const char *grid = "";
    for (int i = 0; i < d->axes; i++) grid = TEXT(d, "%s%s%d", grid, i ? "," : "", 1 + below(d, d->axes > 2 ? 2 : 4));
    define(s, "grid", grid);
  }
}

random_spec random_spec_draw(arena *a, uint64_t *random, bool with_more) {
  draw d = {.memory = a, .random = random};
  random_spec s = {0};
  draw_algebra(&d);
  draw_axes(&d);
  d.heads = chance(&d, 35) ? 2 + below(&d, 2) : 1;
  const char *block = draw_block(&d), *channels = draw_channels(&d), *combine = draw_combine(&d);
  const char *generators = draw_generators(&d), *phase = draw_phase(&d);
  fields f = {.block = block, .channels = channels, .combine = combine, .generators = generators, .phase = phase};
  const char *axes = "", *operands = "";
  for (int i = 0; i < d.axes; i++) axes = TEXT(&d, "%s%s\"%s\"", axes, i ? ", " : "", d.axis[i]);
  double weight = d.learned_weight ? uniform(&d, 0.3, 1.2) : 0, freq = d.learned_freq ? uniform(&d, 0.3, 1.2) : 0;
  f.more = chance(&d, 20) ? TEXT(&d, "  amplitude = %.6g,\n", uniform(&d, 0.4, 2.5)) : "";
  if (chance(&d, 12))
    f.more = TEXT(&d, "%s  position = function(a, r) return r * %.6g %s end,\n", f.more, uniform(&d, 0.2, 2),
                  chance(&d, 30) ? "+ 0.1" : "");
  if (with_more) draw_more(&d, &f);
  if (d.learned_weight)
    operands = TEXT(&d,
                    "local w = pe.learned { name = \"w\", shape = { \"axes\", \"heads\", \"blocks\", %d }, doc = "
                    "\"weights\", test_scale = %.3g }\n",
                    d.weights, weight);
  if (d.learned_freq)
    operands = TEXT(&d,
                    "%slocal freq = pe.learned { name = \"freq\", shape = { \"axes\", \"heads\", \"blocks\" }, doc = "
                    "\"speeds\", test_scale = %.3g }\n",
                    operands, freq);
  s.text = TEXT(&d,
                "local pe = require \"pegen\"\n%sreturn pe.encoding {\n  name = \"random\",\n  axes = { %s },\n  heads "
                "= %d,\n%s%s%s%s%s%s}\n",
                operands, axes, d.heads, f.block ? TEXT(&d, "  block = %s,\n%s", f.block, choose_products(&d)) : "",
                f.channels, shown(f.generators), shown(f.combine), shown(f.phase), shown(f.more));
  draw_options(&d, &s, f.stays);
  return s;
}
