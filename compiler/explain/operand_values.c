/* explain/operand_values: from files, or drawn as the description says; see explain/operand_values.h. */
#include "explain/operand_values.h"

#include "base/diag.h"
#include "base/number.h"
#include "explain/npy.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- drawn ---- */

static double draw_one(const spec_initial *first, uint64_t *random) {
  enum { TRIES = 1000 }; /* bounds far outside of a distribution end at the bound */
  if (first->kind == INITIAL_VALUE) return 1;
  if (first->kind == INITIAL_UNIFORM) return random_uniform(random, first->low, first->high);
  if (first->kind == INITIAL_DIRECTION) return random_normal(random);
  double value = first->deviation * random_normal(random);
  for (int i = 0; i < TRIES && first->truncated && (value < first->low || value > first->high); i++)
    value = first->deviation * random_normal(random);
  return first->truncated ? fmin(fmax(value, first->low), first->high) : value;
}

/* An element of an array whose dimensions of size 1 are broadcast. */
static int64_t place(int rank, const int64_t *sizes, const int64_t *at) {
  int64_t index = 0;
  for (int d = 0; d < rank; d++) index = index * sizes[d] + (sizes[d] == 1 ? 0 : at[d]);
  return index;
}

static void step(int rank, const int64_t *shape, int64_t *at) {
  for (int d = rank - 1; d >= 0 && ++at[d] == shape[d]; d--) at[d] = 0;
}

/* Vectors along the dimension get length 1. */
static void normalize(const int64_t *sizes, int rank, int along, double *drawn) {
  int64_t inner = 1, outer = 1;
  for (int d = 0; d < rank; d++) *(d < along ? &outer : &inner) *= d == along ? 1 : sizes[d];
  for (int64_t i = 0; i < outer * inner; i++) {
    double *first = drawn + i / inner * inner * sizes[along] + i % inner, size = 0;
    for (int64_t k = 0; k < sizes[along]; k++) size = (double)hypotl(size, first[k * inner]);
    for (int64_t k = 0; k < sizes[along] && size > 0; k++) first[k * inner] /= size;
  }
}

static void draw_initial(arena *a, const spec_operand *o, uint64_t *random, double *values) {
  const spec_initial *first = o->initial;
  int64_t sizes[SPEC_MAX_RANK], count = 1, at[SPEC_MAX_RANK] = {0};
  for (int d = 0; d < o->rank; d++) count *= sizes[d] = first->same >> d & 1 ? 1 : o->shape[d];
  double *drawn = arena_array(a, double, count + 1);
  for (int64_t i = 0; i < count; i++) drawn[i] = draw_one(first, random);
  if (first->kind == INITIAL_DIRECTION) normalize(sizes, o->rank, first->direction, drawn);
  for (int64_t i = 0; i < spec_operand_elements(o); i++, step(o->rank, o->shape, at))
    values[i] = drawn[place(o->rank, sizes, at)] * first->factor[place(o->rank, first->sizes, at)];
}

static const char *draw(arena *a, const spec_operand *o, uint64_t seed, uint64_t *random, double *values) {
  if (o->initial) {
    draw_initial(a, o, random, values);
    return arena_printf(a, "drawn as its init says, seed %" PRIu64, seed);
  }
  for (int64_t i = 0; i < spec_operand_elements(o); i++)
    values[i] = random_uniform(random, -o->test_scale, o->test_scale);
  return arena_printf(a, "drawn uniformly from %g to %g, seed %" PRIu64, -o->test_scale, o->test_scale, seed);
}

/* ---- from files ---- */

static int find(arena *a, const spec *s, const explain_file *file) {
  const char **names = arena_array(a, const char *, s->n_operands + 1);
  if (!file->operand && s->n_operands == 1) return 0;
  for (int i = 0; i < s->n_operands; i++) {
    names[i] = s->operand[i].name;
    if (file->operand && !strcmp(names[i], file->operand)) return i;
  }
  const char *all = "none";
  for (int i = 0; i < s->n_operands; i++) all = i ? arena_printf(a, "%s, %s", all, names[i]) : names[i];
  const char *nearest = file->operand ? diag_nearest(file->operand, names, s->n_operands) : NULL;
  if (!file->operand) diag_error(file->path, 0, "for which operand? Expected NAME=%s; operands: %s", file->path, all);
  else if (nearest) diag_error(s->file, s->line, "no operand '%s', did you mean '%s'?", file->operand, nearest);
  else diag_error(s->file, s->line, "no operand '%s'; operands: %s", file->operand, all);
  return -1;
}

bool operand_values_find(arena *a, const spec *s, const explain_request *request, operand_values *out) {
  double **values = arena_array(a, double *, s->n_operands + 1);
  *out = (operand_values){(const double **)values, arena_array(a, const char *, s->n_operands + 1)};
  for (int i = 0; i < s->n_operands; i++) {
    /* A stream of each operand's own: one more file changes none of the others. */
    uint64_t random = request->seed * 0x9e3779b97f4a7c15u + (uint64_t)i;
    values[i] = arena_array(a, double, spec_operand_elements(&s->operand[i]) + 1);
    out->from[i] = draw(a, &s->operand[i], request->seed, &random, values[i]);
  }
  for (int k = 0; k < request->n_files; k++) {
    int i = find(a, s, &request->file[k]);
    if (i < 0) return false;
    const spec_operand *o = &s->operand[i];
    if (!npy_read(a, request->file[k].path, arena_printf(a, "operand '%s'", o->name), o->rank, o->shape, values[i]))
      return false;
    out->from[i] = request->file[k].path;
  }
  return true;
}
