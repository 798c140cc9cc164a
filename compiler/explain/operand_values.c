/* explain/operand_values: from files, or drawn as the description says; see explain/operand_values.h. */
#include "explain/operand_values.h"

#include "base/diag.h"
#include "base/number.h"
#include "explain/npy.h"
#include "explain/safetensors.h"
#include "verify/trial.h"

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

/* The operand of that name; -1 after a diag_error. */
static int find_named(arena *a, const spec *s, const char *operand) {
  const char **names = arena_array(a, const char *, s->n_operands + 1), *all = "none";
  for (int i = 0; i < s->n_operands; i++) {
    names[i] = s->operand[i].name;
    if (!strcmp(names[i], operand)) return i;
    all = i ? arena_printf(a, "%s, %s", all, names[i]) : names[i];
  }
  const char *nearest = diag_nearest(operand, names, s->n_operands);
  if (nearest) diag_error(s->file, s->line, "no operand '%s', did you mean '%s'?", operand, nearest);
  else diag_error(s->file, s->line, "no operand '%s'; operands: %s", operand, all);
  return -1;
}

/* The only operand, for a file that names none. */
static int find_only(arena *a, const spec *s, const char *path) {
  const char *all = "none";
  if (s->n_operands == 1) return 0;
  for (int i = 0; i < s->n_operands; i++)
    all = i ? arena_printf(a, "%s, %s", all, s->operand[i].name) : s->operand[i].name;
  if (safetensors_is(path))
    diag_error(path, 0, "which tensors are meant? Expected --map NAME=TENSOR; operands: %s", all);
  else diag_error(path, 0, "for which operand? Expected NAME=%s; operands: %s", path, all);
  return -1;
}

static bool take(arena *a, const spec *s, int i, const char *path, const char *tensor, double *values,
                 const char **from) {
  const spec_operand *o = &s->operand[i];
  const char *what = arena_printf(a, "operand '%s'", o->name);
  *from = tensor ? arena_printf(a, "%s of %s", tensor, path) : path;
  return tensor ? safetensors_read(a, path, tensor, what, o->rank, o->shape, values)
                : npy_read(a, path, what, o->rank, o->shape, values);
}

/* What an operand is called in a checkpoint: its own name, where nothing else is said. */
static const char *tensor_of(const explain_request *request, const char *operand) {
  for (int k = 0; k < request->n_maps; k++)
    if (!strcmp(request->map[k].operand, operand)) return request->map[k].tensor;
  return operand;
}

static bool take_file(arena *a, const spec *s, const explain_request *request, const explain_file *file,
                      double **values, const char **from) {
  bool is_checkpoint = safetensors_is(file->path);
  if (is_checkpoint && !file->operand && request->n_maps) {
    for (int k = 0; k < request->n_maps; k++) {
      int i = find_named(a, s, request->map[k].operand);
      if (i < 0 || !take(a, s, i, file->path, request->map[k].tensor, values[i], &from[i])) return false;
    }
    return true;
  }
  int i = file->operand ? find_named(a, s, file->operand) : find_only(a, s, file->path);
  if (i < 0) return false;
  const char *tensor = is_checkpoint ? tensor_of(request, s->operand[i].name) : NULL;
  return take(a, s, i, file->path, tensor, values[i], &from[i]);
}

/* A map that no file makes use of would be passed over in silence. */
static bool maps_are_used(arena *a, const spec *s, const explain_request *request) {
  bool all = false, some = false;
  for (int f = 0; f < request->n_files; f++) {
    some |= safetensors_is(request->file[f].path);
    all |= safetensors_is(request->file[f].path) && !request->file[f].operand;
  }
  for (int k = 0; k < request->n_maps; k++) {
    const explain_map *map = &request->map[k];
    if (find_named(a, s, map->operand) < 0) return false;
    bool named = all;
    for (int f = 0; f < request->n_files && !named; f++)
      named = safetensors_is(request->file[f].path) && !strcmp(request->file[f].operand, map->operand);
    if (named) continue;
    diag_error(NULL, 0, "--map %s=%s: no checkpoint %s; expected --operands FILE.safetensors", map->operand,
               map->tensor, some ? "is for that operand" : "is given");
    return false;
  }
  return true;
}

bool operand_values_find(arena *a, const spec *s, const explain_request *request, operand_values *out) {
  double **values = arena_array(a, double *, s->n_operands + s->n_inputs + 1);
  *out = (operand_values){(const double **)values, arena_array(a, const char *, s->n_operands + 1)};
  for (int i = 0; i < s->n_operands; i++) {
    /* A stream of each operand's own: one more file changes none of the others. */
    uint64_t random = request->seed * 0x9e3779b97f4a7c15u + (uint64_t)i;
    values[i] = arena_array(a, double, spec_operand_elements(&s->operand[i]) + 1);
    out->from[i] = draw(a, &s->operand[i], request->seed, &random, values[i]);
  }
  uint64_t random = request->seed + 1;
  trial_typical_inputs(a, s, &random, out->values + s->n_operands);
  if (!maps_are_used(a, s, request)) return false;
  for (int k = 0; k < request->n_files; k++)
    if (!take_file(a, s, request, &request->file[k], values, out->from)) return false;
  return true;
}
