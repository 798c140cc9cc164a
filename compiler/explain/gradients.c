/* explain/gradients: what the entries of gradients cost and what they need kept; see explain/explain.h. */
#include "algebra/exponential.h"
#include "algebra/torque_dense.h"
#include "explain/explain.h"
#include "explain/words.h"
#include "forms/form.h"
#include "gpu/widen_gains.h"
#include "plan/change_of_basis.h"
#include "plan/dense.h"
#include "plan/gradient.h"
#include "plan/widen_gradient.h"

#include <math.h>

/* Products and sums of a row: of every pair of components that some torque is made of. */
static int torque_operations(const plan_gradient *g, const plan *p) {
  int count = 0;
  if (plan_is_sum(p)) return p->spec->head_dim;
  for (int k = 0; k < torque_count(&g->basis); k++) count += g->basis.element[k].n_entries;
  return 2 * count * p->spec->n_blocks;
}

static void count_token(arena *a, const plan_gradient *g, const plan *p, operation_count *out) {
  const spec *s = p->spec;
  unsigned char *seen = arena_alloc(a, (size_t)expr_pool_count(s->pool) + 1);
  for (int i = 0; i < g->n_boundaries; i++) operation_count_add(out, g->of_boundary[TORQUE_OF_Y][i], s->n_blocks, seen);
  for (int axis = 0; axis < s->n_axes && g->has_positions; axis++)
    operation_count_add(out, g->of_position[TORQUE_OF_Y][axis], s->n_blocks, seen);
}

static void of_rotors(arena *a, const void *of, int row_operations, explain_gradient *out) {
  const plan *p = of;
  const plan_gradient *g = plan_gradient_build(a, p);
  out->row_operations = plan_is_sum(p) ? 0 : row_operations;
  if (!g) return;
  out->torques = g->n_torques;
  out->torque_operations = torque_operations(g, p);
  out->keeps_rows = !plan_is_sum(p);
  count_token(a, g, p, &out->token);
  out->table_bytes = (int64_t)g->n_torques * p->lanes * 8;
  out->chunk_bytes = (int64_t)(p->per_head ? p->spec->heads : 1) * g->n_boundaries * p->lanes * 8;
}

/* The head's torque, D x D, of which turns gain the entries within blocks; turned on both sides it is what the change
 * of basis gains. */
static void of_basis(arena *a, const void *of, int row_operations, explain_gradient *out) {
  const plan_basis *p = of;
  const spec *s = p->spec;
  const plan_gradient *g = plan_gradient_build(a, p->turns);
  int d = s->head_dim;
  out->row_operations = row_operations;
  out->torques = d * (d - 1) / 2;
  out->table_bytes = (int64_t)d * d * 8;
  out->torque_operations = 2 * d * d;
  out->keeps_rows = true;
  if (g) count_token(a, g, p->turns, &out->token);
  out->token.arithmetic += s->inverse ? 4 * d * d * d : 4 * s->n_components * d * d + 2 * d * d;
  out->chunk_bytes = (int64_t)(p->per_head ? s->heads : 1) * (d * d + (g ? g->n_boundaries * p->turns->lanes : 0)) * 8;
}

/* The exponential, whose halvings are undone by three products each, and a commutator for each term of a series. */
static void of_exponentials(arena *a, const void *of, int row_operations, explain_gradient *out) {
  const plan_dense *p = of;
  const spec *s = p->spec;
  (void)a;
  double series[TORQUE_MOST_TERMS], reach = p->is_f64 ? EXPONENTIAL_REACH_F64 : EXPONENTIAL_REACH_F32;
  double b = s->n_components, products = exponential_products(TYPICAL_NORM, p->is_f64);
  double halvings = TYPICAL_NORM > reach ? ceil(log2(TYPICAL_NORM / reach)) : 0;
  products += 2 * halvings + torque_series(2 * reach, p->is_f64, series) - 1;
  out->row_operations = row_operations;
  out->torques = s->n_components * (s->n_components - 1) / 2;
  out->torque_operations = 2 * s->n_components * s->n_components * s->n_blocks;
  out->keeps_rows = true;
  out->table_bytes = (int64_t)s->n_blocks * s->n_components * s->n_components * (p->is_f64 ? 8 : 4);
  out->token.arithmetic = (int)(s->n_blocks * (2 * products * b * b * b + 4 * p->n_generators * b * b));
  out->chunk_bytes =
      (int64_t)(p->per_head ? s->heads : 1) * p->n_generators * s->n_blocks * s->n_components * s->n_components * 8;
}

/* An integral for each pair of planes, whose sines and polynomials are counted as 60 operations of a component. */
static void of_planes(arena *a, const void *of, int row_operations, explain_gradient *out) {
  const plan_dense *p = of;
  const spec *s = p->spec;
  int b = s->n_components;
  (void)a;
  out->row_operations = row_operations;
  out->torques = b * (b - 1) / 2;
  out->torque_operations = 2 * b * b * s->n_blocks;
  out->keeps_rows = true;
  out->table_bytes = (int64_t)s->n_blocks * b * b * (p->is_f64 ? 8 : 4);
  out->token.arithmetic = 60 * ((b + 1) / 2) * b * s->n_blocks;
  out->chunk_bytes = (int64_t)(p->per_head ? s->heads : 1) * s->n_blocks * b * b * 8;
}

/* Weights gain sums over columns, products of which and queries' halves their terms do; where positions gain, weights
 * are made again. */
static void of_columns(arena *a, const void *of, int row_operations, explain_gradient *out) {
  const plan_widen *p = of;
  const spec *s = p->spec;
  const plan_gradient *g = plan_widen_gradient(a, p);
  (void)row_operations;
  out->weights = p->p->n_weights;
  out->torque_operations = 2 * p->n_gains;
  if (!gpu_widen_gains_fit(a, p, g))
    out->missing = "on GPUs: of rows alone; what a token has does not fit in their shared memory";
  if (!g) return;
  unsigned char *seen = arena_alloc(a, (size_t)expr_pool_count(s->pool) + 1);
  for (int i = 0; i < g->n_inputs; i++) operation_count_add(&out->token, g->of_input[i].gradient, s->n_blocks, seen);
  for (int i = 0; i < g->n_boundaries; i++) operation_count_add(&out->token, g->of_boundary[0][i], s->n_blocks, seen);
  out->of_inputs = g->n_inputs > 0;
  out->of_operands = g->n_boundaries > 0;
  out->chunk_bytes = (int64_t)(p->values->per_head ? s->heads : 1) * g->n_boundaries * p->values->lanes * 8;
}

/* Torques are those of a block of each kind. */
static void of_parts(arena *a, const void *of, int row_operations, explain_gradient *out) {
  const plan_row *row = of;
  int lanes = row->part[0]->lanes;
  out->row_operations = row_operations;
  for (int i = 0; i < row->n_parts; i++) {
    const plan *p = row->part[i];
    const plan_gradient *g = plan_gradient_build(a, p);
    if (!g) continue;
    out->torques += g->n_torques;
    out->torque_operations += torque_operations(g, p);
    out->keeps_rows = true;
    count_token(a, g, p, &out->token);
    out->table_bytes += (int64_t)g->n_torques * lanes * 8;
    out->chunk_bytes += (int64_t)(p->per_head ? p->spec->heads : 1) * g->n_boundaries * lanes * 8;
  }
}

typedef void gradient_function(arena *a, const void *plan, int row_operations, explain_gradient *out);

static gradient_function *const of_form[FORM_COUNT] = {
    [FORM_PARTS] = of_parts,       [FORM_POLYNOMIAL] = of_columns, [FORM_ADDITIVE] = of_rotors,
    [FORM_ROW_BLADES] = of_rotors, [FORM_BLADES] = of_rotors,      [FORM_DENSE_FOUR] = of_rotors,
    [FORM_SCHUR] = of_planes,      [FORM_DENSE] = of_exponentials, [FORM_CHANGE_OF_BASIS] = of_basis};

bool explain_gradients(arena *a, const form *f, const spec *s, int row_operations, explain_gradient *out) {
  const void *plan = of_form[f->kind] ? f->plan(a, s) : NULL;
  if (!of_form[f->kind]) return true;
  if (!plan) return false;
  out->has_rows = true;
  of_form[f->kind](a, plan, row_operations, out);
  if (!f->entries.prepare_backward) out->table_bytes = 0;
  return true;
}
