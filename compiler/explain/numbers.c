/* explain/numbers: phases, generators, rotors and scores as arrays; see explain/numbers.h.
 *
 * An array is an object: its units, the names of its dimensions, its shape, and its values in row-major order.
 */
#include "explain/numbers.h"

#include "base/diag.h"
#include "explain/words.h"
#include "verify/reference.h"

enum { MOST_NUMBERS = 1 << 22, MOST_DIMENSIONS = SPEC_MAX_AXES + 2 };

typedef struct shape {
  int rank;
  const char *name[MOST_DIMENSIONS];
  int64_t size[MOST_DIMENSIONS];
} shape;

static void add(shape *d, const char *name, int64_t size) {
  d->name[d->rank] = name;
  d->size[d->rank++] = size;
}

static int64_t count_of(const shape *d) {
  int64_t count = 1;
  for (int i = 0; i < d->rank; i++) count *= d->size[i];
  return count;
}

static void begin_array(json_writer *w, const char *key, const char *units, const shape *d) {
  json_begin(w, key, '{');
  json_text(w, "units", units);
  json_begin(w, "dimensions", '[');
  for (int i = 0; i < d->rank; i++) json_text(w, NULL, d->name[i]);
  json_end(w, ']');
  double sizes[MOST_DIMENSIONS];
  for (int i = 0; i < d->rank; i++) sizes[i] = (double)d->size[i];
  json_numbers(w, "shape", sizes, d->rank);
}

static void put_array(json_writer *w, const char *key, const char *units, const shape *d, const double *values) {
  begin_array(w, key, units, d);
  json_numbers(w, "values", values, count_of(d));
  json_end(w, '}');
}

/* ---- operands ---- */

static void put_operands(json_writer *w, const spec *s, const operand_values *operands) {
  json_begin(w, "operands", '{');
  for (int i = 0; i < s->n_operands; i++) {
    const spec_operand *o = &s->operand[i];
    shape d = {0};
    for (int k = 0; k < o->rank; k++) add(&d, o->dimension[k] ? o->dimension[k] : "", o->shape[k]);
    begin_array(w, o->name, o->units, &d);
    json_text(w, "from", operands->from[i]);
    json_numbers(w, "values", operands->values[i], count_of(&d));
    json_end(w, '}');
  }
  json_end(w, '}');
}

/* ---- phases and generators ---- */

static shape of_blocks(const spec *s) {
  shape d = {0};
  add(&d, "heads", s->heads);
  add(&d, "blocks", s->n_blocks);
  add(&d, "axes", s->n_axes);
  return d;
}

static expr_environment at(const spec *s, const double *const *operands, int head, int block, const double *positions) {
  expr_environment env = reference_environment(s, positions, operands, head, block);
  env.blocks = expr_pool_blocks(s->pool);
  return env;
}

double explain_unit_phase(const spec *s, const double *const *operands, int head, int block, int axis) {
  double positions[SPEC_MAX_AXES] = {0};
  expr_environment env = at(s, operands, head, block, positions);
  double origin = expr_eval(s->angle[axis], &env);
  positions[axis] = 1;
  return expr_eval(s->angle[axis], &env) - origin;
}

static void put_phases(json_writer *w, arena *a, const spec *s, const operand_values *operands) {
  shape d = of_blocks(s);
  double *values = arena_array(a, double, count_of(&d)), *next = values;
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++)
      for (int axis = 0; axis < s->n_axes; axis++) *next++ = explain_unit_phase(s, operands->values, head, block, axis);
  put_array(w, "phases", "radians for the first unit of position", &d, values);
}

static double coefficient(const spec *s, const operand_values *operands, int head, int block, int axis,
                          unsigned blade) {
  const double origin[SPEC_MAX_AXES] = {0};
  const spec_bivector *b = &s->generator[axis];
  expr_environment env = at(s, operands->values, head, block, origin);
  for (int i = 0; i < b->count; i++)
    if (b->blade[i] == blade) return expr_eval(b->coefficient[i], &env);
  return 0;
}

/* Coefficients of the bivectors that some axis has, in the order of their bits. */
static void put_bivectors(json_writer *w, arena *a, const spec *s, const operand_values *operands) {
  unsigned blades[SPEC_MAX_BLADES];
  int count = 0;
  for (unsigned blade = 0; blade < SPEC_MAX_BLADES; blade++) {
    bool used = false;
    for (int axis = 0; axis < s->n_axes; axis++)
      for (int i = 0; i < s->generator[axis].count; i++) used |= s->generator[axis].blade[i] == blade;
    if (used) blades[count++] = blade;
  }
  shape d = of_blocks(s);
  add(&d, "bivectors", count);
  double *values = arena_array(a, double, count_of(&d) + 1), *next = values;
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++)
      for (int axis = 0; axis < s->n_axes; axis++)
        for (int i = 0; i < count; i++) *next++ = coefficient(s, operands, head, block, axis, blades[i]);
  begin_array(w, "generators", "1", &d);
  json_begin(w, "bivectors", '[');
  for (int i = 0; i < count; i++) json_text(w, NULL, explain_blade(a, blades[i]));
  json_end(w, ']');
  json_numbers(w, "values", values, count_of(&d));
  json_end(w, '}');
}

static void put_matrices(json_writer *w, arena *a, const spec *s, const operand_values *operands) {
  int n = s->n_components;
  shape d = of_blocks(s);
  add(&d, "rows", n);
  add(&d, "columns", n);
  double *values = arena_array(a, double, count_of(&d)), *next = values;
  long double *matrix = arena_array(a, long double, n *n);
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++)
      for (int axis = 0; axis < s->n_axes; axis++) {
        reference_skew(&s->dense->generator[axis], n, head, block, s->n_blocks, operands->values, matrix);
        for (int i = 0; i < n * n; i++) *next++ = (double)matrix[i];
      }
  put_array(w, "generators", "1", &d, values);
}

/* ---- rotors ---- */

static void put_rotors_of(json_writer *w, arena *a, const spec *s, const char *name, const explain_request *request,
                          const operand_values *operands) {
  int n = s->n_components;
  shape d = {0};
  add(&d, "positions", request->n_positions);
  add(&d, "heads", s->heads);
  add(&d, "blocks", s->n_blocks);
  add(&d, "rows", n);
  add(&d, "columns", n);
  double *values = arena_array(a, double, count_of(&d)), *next = values;
  long double *matrix = arena_array(a, long double, n *n);
  for (int p = 0; p < request->n_positions; p++)
    for (int head = 0; head < s->heads; head++)
      for (int block = 0; block < s->n_blocks; block++) {
        reference_block(s, request->position + p * s->n_axes, operands->values, head, block, matrix);
        for (int i = 0; i < n * n; i++) *next++ = (double)matrix[i];
      }
  put_array(w, name, "1", &d, values);
}

static void put_positions(json_writer *w, const spec *s, const explain_request *request) {
  shape positions = {0};
  add(&positions, "positions", request->n_positions);
  add(&positions, "axes", s->n_axes);
  put_array(w, "positions", "units of position", &positions, request->position);
}

/* Where rows of q and k differ, those of each. */
static void put_rotors(json_writer *w, arena *a, const spec *s, const explain_request *request,
                       const operand_values *operands) {
  put_positions(w, s, request);
  put_rotors_of(w, a, s, s->pairwise ? "rotors_of_displacements" : "rotors", request, operands);
  if (!spec_has_sides(s)) return;
  spec keys = spec_of_side(s, 1);
  put_rotors_of(w, a, &keys, "rotors_of_keys", request, operands);
}

/* ---- heads of several parts ---- */

static void put_part(json_writer *w, arena *a, const spec *whole, const spec_part *part, const explain_request *request,
                     const operand_values *operands) {
  const spec *s = part->of;
  double *own = arena_array(a, double, request->n_positions * s->n_axes + 1);
  explain_request at = *request;
  for (int p = 0; p < request->n_positions; p++)
    reference_place_of_part(part, request->position + p * whole->n_axes, own + p * s->n_axes);
  at.position = own;
  json_begin(w, NULL, '{');
  put_phases(w, a, s, operands);
  put_bivectors(w, a, s, operands);
  if (at.n_positions) put_rotors_of(w, a, s, "rotors", &at, operands);
  json_end(w, '}');
}

/* Writes the positions of the head, and of each part what one kind of blocks has, by the part's own axes. */
static void put_parts(json_writer *w, arena *a, const spec *s, const explain_request *request,
                      const operand_values *operands) {
  if (request->n_positions) put_positions(w, s, request);
  json_begin(w, "parts", '[');
  for (int i = 0; i < s->n_parts; i++) put_part(w, a, s, &s->part[i], request, operands);
  json_end(w, ']');
}

/* ---- scores ---- */

static void put_quantiles(json_writer *w, const score_map *m, const shape *of_heads) {
  shape d = *of_heads;
  d.name[0] = "quantiles";
  d.size[0] = SCORE_QUANTILES;
  begin_array(w, "random", "1", &d);
  json_text(w, "meaning", "a random query and a random key, of all heads that are shown");
  json_numbers(w, "quantiles", score_quantile, SCORE_QUANTILES);
  json_numbers(w, "values", m->random, count_of(&d));
  json_end(w, '}');
}

static void put_scores(json_writer *w, const spec *s, const score_map *m) {
  shape d = {0};
  double first[SPEC_MAX_AXES], grid[SPEC_MAX_AXES];
  add(&d, "heads", m->n_heads);
  for (int axis = 0; axis < s->n_axes; axis++) {
    add(&d, s->axis[axis], m->size[axis]);
    first[axis] = -(grid[axis] = (double)m->grid[axis]) + 1;
  }
  json_begin(w, "scores", '{');
  json_numbers(w, "grid", grid, s->n_axes);
  json_begin(w, "heads", '[');
  for (int i = 0; i < m->n_heads; i++) json_integer(w, NULL, m->head[i]);
  json_end(w, ']');
  json_numbers(w, "first_displacement", first, s->n_axes);
  if (m->equal) {
    begin_array(w, "equal", "1", &d);
    json_text(w, "meaning", m->meaning);
    json_numbers(w, "values", m->equal, count_of(&d));
    json_numbers(w, "lowest", m->lowest, count_of(&d));
    json_numbers(w, "highest", m->highest, count_of(&d));
    json_end(w, '}');
  }
  if (m->random) put_quantiles(w, m, &d);
  if (m->bias) put_array(w, "bias", "scale q . k; null hides the key", &d, m->bias);
  json_end(w, '}');
}

/* ---- all of it ---- */

static bool has_blocks(const spec *s) { return s->n_components > 0 && !s->polynomial && !s->additive; }

/* Numbers of the largest arrays. */
static double size_of(const spec *s, const explain_request *request) {
  double blocks = (double)s->heads * s->n_blocks, block = (double)s->n_components * s->n_components, operands = 0;
  for (int i = 0; i < s->n_operands; i++) operands += (double)spec_operand_elements(&s->operand[i]);
  for (int i = 0; i < s->n_parts; i++) {
    const spec *of = s->part[i].of;
    operands += (double)s->heads * of->n_blocks * request->n_positions * of->n_components * of->n_components;
  }
  return operands + (has_blocks(s) ? blocks * ((s->dense ? s->n_axes * block : 0) + request->n_positions * block) : 0);
}

bool numbers_measure(arena *a, const spec *s, const explain_request *request, explain_numbers *out) {
  *out = (explain_numbers){.scores = {.count = 0}};
  if (request->n_positions && request->axes_of_positions != s->n_axes) {
    diag_error(s->file, s->line, "--at has %d coordinates; the description has %d ax%s", request->axes_of_positions,
               s->n_axes, s->n_axes > 1 ? "es" : "is");
    return false;
  }
  if (size_of(s, request) > MOST_NUMBERS) {
    diag_error(s->file, s->line, "its arrays have %.0f numbers; at most %d are written: fewer heads, or fewer --at",
               size_of(s, request), MOST_NUMBERS);
    return false;
  }
  if (request->n_grid && !scores_open(s, request, &out->scores)) return false;
  if (!operand_values_find(a, s, request, &out->operands)) return false;
  if (request->n_grid && request->format == EXPLAIN_JSON) scores_measure(a, s, &out->operands, &out->scores);
  return true;
}

void numbers_print(json_writer *w, arena *a, const spec *s, const explain_request *request, const explain_numbers *n) {
  json_begin(w, "numbers", '{');
  put_operands(w, s, &n->operands);
  if (has_blocks(s)) {
    put_phases(w, a, s, &n->operands);
    if (s->dense) put_matrices(w, a, s, &n->operands);
    else put_bivectors(w, a, s, &n->operands);
    if (request->n_positions) put_rotors(w, a, s, request, &n->operands);
  }
  if (s->n_parts) put_parts(w, a, s, request, &n->operands);
  if (n->scores.count) put_scores(w, s, &n->scores);
  json_end(w, '}');
}
