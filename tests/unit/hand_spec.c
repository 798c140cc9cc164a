/* hand_spec: see hand_spec.h. */
#include "hand_spec.h"

#include "algebra/clifford.h"
#include "base/number.h"

static const expr *random_table(spec *s, arena *a, uint64_t *random) {
  double *values = arena_array(a, double, s->heads * s->n_blocks);
  for (int i = 0; i < s->heads * s->n_blocks; i++) values[i] = random_uniform(random, -1, 1);
  return expr_table(s->pool, s->heads, values);
}

/* The vectors u and w of a generator u ^ w: u is e1 where generators are summed. */
static void random_generator(arena *a, spec *s, const hand_request *request, int axis, uint64_t *random) {
  int n = clifford_dimensions(s->algebra);
  bool shares_vector = s->combine == COMBINE_SUM || s->combine == COMBINE_MEAN;
  spec_bivector *generator = &s->generator[axis];
  const expr *u[SPEC_MAX_DIMENSIONS], *w[SPEC_MAX_DIMENSIONS];
  for (int i = 0; i < n; i++) {
    u[i] = shares_vector ? expr_const(s->pool, i == 0) : random_table(s, a, random);
    w[i] = random_table(s, a, random);
  }
  int plane = 0, wanted = axis % (shares_vector ? n - 1 : n * (n - 1) / 2);
  for (int i = 0; i < n; i++)
    for (int j = i + 1; j < n; j++, plane++) {
      if (request->basis_plane ? plane != wanted : shares_vector && i > 0) continue;
      generator->blade[generator->count] = 1u << i | 1u << j;
      const expr *area = expr_sub(s->pool, expr_mul(s->pool, u[i], w[j]), expr_mul(s->pool, u[j], w[i]));
      generator->coefficient[generator->count++] = request->basis_plane ? expr_const(s->pool, 1) : area;
    }
}

static const expr *angle_of(arena *a, spec *s, const hand_request *request, int axis, uint64_t *random) {
  const expr *speed = random_table(s, a, random);
  if (request->learned) {
    int32_t *offsets = arena_array(a, int32_t, s->heads * s->n_blocks);
    for (int i = 0; i < s->heads * s->n_blocks; i++) offsets[i] = axis * s->heads * s->n_blocks + i;
    speed = expr_operand(s->pool, 0, s->heads, offsets);
  }
  return expr_mul(s->pool, speed, expr_position(s->pool, axis));
}

spec *hand_spec(arena *a, const hand_request *request, uint64_t *random) {
  spec *s = arena_new(a, spec);
  *s =
      (spec){.file = "by hand", .line = 1, .name = "hand", .doc = "", .n_axes = request->axes, .heads = request->heads};
  s->algebra = request->algebra;
  s->n_blocks = request->blocks;
  s->combine = request->combine;
  s->inverse = request->inverse;
  s->amplitude = request->amplitude;
  s->pool = expr_pool_create(a, s->n_blocks);
  int n = clifford_dimensions(s->algebra);
  for (unsigned blade = 1u << n; blade-- > 0;)
    if (request->grades & 1u << clifford_grade(blade))
      s->component[s->n_components++] = (spec_component){blade, blade % 3 == 2 ? -1 : 1};
  s->head_dim = request->leftover + s->n_components * s->n_blocks;
  int *channel = arena_array(a, int, s->n_components * s->n_blocks);
  for (int c = 0; c < s->n_components; c++)
    for (int g = 0; g < s->n_blocks; g++) channel[c * s->n_blocks + g] = request->leftover + g * s->n_components + c;
  s->channel = channel;
  if (request->learned) {
    static spec_operand operand = {.name = "speed",
                                   .doc = "",
                                   .units = "1",
                                   .source = "",
                                   .initializer = "",
                                   .rank = 3,
                                   .dimension = {"axes", "heads", "blocks"},
                                   .test_scale = 1};
    s->operand = arena_new(a, spec_operand);
    *s->operand = operand;
    s->operand->shape[0] = s->n_axes;
    s->operand->shape[1] = s->heads;
    s->operand->shape[2] = s->n_blocks;
    s->n_operands = 1;
  }
  for (int axis = 0; axis < s->n_axes; axis++) {
    s->axis[axis] = arena_printf(a, "r%d", axis);
    s->order[axis] = s->combine == COMBINE_PRODUCT || s->combine == COMBINE_SYMMETRIC ? s->n_axes - 1 - axis : axis;
    random_generator(a, s, request, axis, random);
    s->angle[axis] = angle_of(a, s, request, axis, random);
  }
  return s;
}

const double *const *hand_operands(arena *a, const spec *s, uint64_t *random) {
  const double **operands = arena_array(a, const double *, 1);
  int count = s->n_axes * s->heads * s->n_blocks;
  double *values = arena_array(a, double, count);
  for (int i = 0; i < count; i++) values[i] = random_uniform(random, -1, 1);
  operands[0] = values;
  return operands;
}

void hand_positions(const spec *s, uint64_t *random, double *positions) {
  for (int axis = 0; axis < s->n_axes; axis++) positions[axis] = random_uniform(random, -2, 2);
}
