/* explain/blades: what is known of blocks that rotors turn.
 *
 * Proofs are about generators and phases as the description gives them: signs of the algebra,
 * commutators of bivectors, phases linear in the position. What they leave open is measured.
 */
#include "algebra/blade_facts.h"
#include "algebra/block.h"
#include "algebra/clifford.h"
#include "algebra/dense_vectors.h"
#include "explain/explain.h"
#include "explain/rotor_facts.h"
#include "explain/words.h"
#include "plan/plan.h"

#include <math.h>

static const char *group_text(arena *a, const spec *s, const rotor_proofs *proofs) {
  if (proofs->orthogonal && proofs->commute) return "torus: turns of planes that commute";
  if (proofs->orthogonal && s->algebra.q == 0 && s->algebra.r == 0)
    return arena_printf(a, "SO(%d)", clifford_dimensions(s->algebra));
  if (s->algebra.r == 0) return arena_printf(a, "SO+(%d,%d)", s->algebra.p, s->algebra.q);
  return arena_printf(a, "Spin(%d,%d,%d)", s->algebra.p, s->algebra.q, s->algebra.r);
}

/* Blocks that are multiplied by a matrix which the description writes: no group is known, and all is measured. */
static bool explain_written(arena *a, const spec *s, explanation *out) {
  block_program program;
  rotor_facts facts;
  if (!block_build(a, s, &program)) return false;
  rotor_facts_open(a, s, 1, out, &facts);
  rotor_proofs proofs = {.distortion = "a matrix of the description's own"};
  rotor_facts_fill(&facts, &proofs, out->property);
  explain_blocks(a, s, out);
  out->combine = NULL;
  for (int axis = 0; axis < s->n_axes; axis++) out->phase[axis] = NULL;
  out->role = "separable";
  out->block = arena_printf(a, "%d channels, multiplied by a matrix that the description writes", s->n_components);
  out->group = arena_printf(a, "%d x %d matrices", s->n_components, s->n_components);
  out->normal_form = block_normal_form(a, &program);
  explain_program_cost(a, plan_build(a, &program), &out->cost);
  out->entries_precision = "within 2^-22 of the largest entry of their block, or of 1";
  out->rows_precision =
      "float32 within 2^-20 of a block's norm times that; bfloat16 and float16 half a unit in the last place more";
  return true;
}

static const char *why_commute(const spec *s) {
  if (s->n_axes == 1) return "there is one axis";
  return blades_axes_of_a_block(s) <= 1 ? "no block listens to two axes" : BLADES_COMMUTE;
}

bool explain_blades(arena *a, const spec *s, explanation *out) {
  block_program program;
  rotor_facts facts;
  if (s->entries[0]) return explain_written(a, s, out);
  if (s->dense) s = dense_as_vectors(a, s);
  if (!block_build(a, s, &program)) return false;
  block_build_quaternions(a, s, &program); /* what processors compute, where that is another */
  int n = clifford_dimensions(s->algebra);
  rotor_facts_open(a, s, n > 3 ? ldexp(1, 2 * (n - 3)) : 1, out, &facts); /* a Cayley table has 4^n entries */
  rotor_proofs proofs = {.orthogonal = blades_are_orthogonal(s),
                         .is_function = s->function != NULL,
                         .distortion = blades_distortion(s),
                         .commute = blades_commute(s),
                         .why_commute = why_commute(s),
                         .commutator = blades_commutator(s, facts.operands.values),
                         .rebased = s->basis != NULL,
                         .inverse = "the reverse of a rotor is its inverse; -D inverse=true turns back"};
  rotor_facts_fill(&facts, &proofs, out->property);
  explain_blocks(a, s, out);
  out->role = "separable";
  out->gain = rotor_facts_gain(&facts);
  out->block = explain_blades_text(a, s);
  for (int axis = 0; axis < s->n_axes; axis++) out->generator[axis] = explain_generator(a, s, axis);
  out->group = group_text(a, s, &proofs);
  out->normal_form = block_normal_form(a, &program);
  explain_program_cost(a, plan_build(a, &program), &out->cost);
  bool compact = s->algebra.q == 0 && s->algebra.r == 0;
  if (s->function)
    out->entries_precision =
        "within 2^-22 and as far as they move where the axes' rotations move by 2^-42 and 2^-48 of "
        "their angles";
  else
    out->entries_precision = compact ? "within 2^-22 for phases up to 2^24 radians"
                                     : "within 2^-22 of the largest number that the axes' actions pass through";
  out->rows_precision =
      "float32 within 2^-20 of a block's norm; bfloat16 and float16 half a unit in the last place more";
  return true;
}
