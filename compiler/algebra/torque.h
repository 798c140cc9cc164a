/* algebra/torque: gradients of what a rotor is made of, from what its rows gain.
 *
 * A row is y = R x, and g is the gradient that comes in for y. For a variation R -> (1 + d) R with d in the Lie algebra
 * the loss changes by the sum over the rows that share R of g^T d y. With a basis E_k of that algebra this is all about
 * the rows that any operand, phase or position can ask for: the torque
 *
 *     tau_k = sum over rows of g^T E_k y,
 *
 * one number for a plane, three for 3-vectors and whole multivectors over them, six for blocks of 4. E_k is sparse,
 * with entries 0 and +-1, and closed under commutators: all bivectors that the generators lead to. It needs y and not
 * x, which an attention that follows keeps anyway, and which is what stands in memory after an encode in place. Where y
 * does not hold what was turned (an amplitude of 0, outputs of 8 bits), the same sums over x, with R^T g in place of g,
 * are the torque in the row's own frame.
 *
 * From the torque on everything is expressions: the torque goes from factor to factor of a product by Ad(R)^T, through
 * the exponential of a sum by the transpose of
 *
 *     dexp_M = sum of ad_M^k / (k + 1)!,
 *
 * whose entire functions of M^2 have no difference of near numbers and no singularity at the identity. What comes out
 * are gradients of phases and of generators' coefficients, to be handed to spec/adjoint.h.
 */
#pragma once

#include "spec/adjoint.h"
#include "spec/spec.h"

/* E_k on a block's components: entry (row, column) is sign. At most one entry in each row and column. */
typedef struct torque_entry {
  int row, column, sign;
} torque_entry;

typedef struct torque_element {
  unsigned blade; /* the bivector's two vectors */
  int n_entries;
  torque_entry entry[SPEC_MAX_BLADES];
} torque_element;

/* Torques of a block at most: those of bivectors and one of a gain, or one of each entry of a matrix that the
 * description writes. */
enum { TORQUE_MOST = SPEC_MAX_ENTRIES * SPEC_MAX_ENTRIES };

/* Numbers of expr_cotangent from here on stand for parts of expressions while those are differentiated. */
enum { TORQUE_FIRST_LEAF = 1 << 24 };
_Static_assert((int)TORQUE_MOST > (int)SPEC_MAX_BIVECTORS, "there is room for the torques of rotors");

/* [E_i, E_j] = sign[i][j] E_to[i][j], sign 0 where they commute. */
typedef struct torque_basis {
  const spec *spec;
  int count;
  bool stretches; /* rows have a gain (spec.gain): element[count] is the identity, whose torque is what log(gain) gains
                   */
  torque_element element[TORQUE_MOST];
  signed char sign[SPEC_MAX_BIVECTORS][SPEC_MAX_BIVECTORS];
  signed char to[SPEC_MAX_BIVECTORS][SPEC_MAX_BIVECTORS];
} torque_basis;

/* The basis for a description whose blocks have a closed form (form_blades, form_dense_four): blades of Cl(p,q,r),
 * dense blocks of 2 to 4 channels as algebra/dense_vectors.h writes them (the spec in the basis is then that one). */
void torque_basis_of(arena *a, const spec *s, torque_basis *out);

/* Which element is a bivector; -1: none. */
static inline int torque_find(const torque_basis *basis, unsigned blade) {
  for (int k = 0; k < basis->count; k++)
    if (basis->element[k].blade == blade) return k;
  return -1;
}

/* How many torques there are. */
static inline int torque_count(const torque_basis *basis) { return basis->count + basis->stretches; }

/* Whether torques are the sums over rows of g_i x_j themselves, which is what the entries of a matrix that the
 * description writes gain: no group is there to say it by fewer numbers, nor an inverse to tell x from y. */
static inline bool torque_is_of_entries(const spec *s) { return s->entries[0] != NULL; }

/* Which frame torques are in. */
typedef enum torque_frame {
  TORQUE_OF_Y, /* g^T E_k y */
  TORQUE_OF_X /* (R^T g)^T E_k x */
} torque_frame;

/* What phases, generators and a gain do of torques tau[torque_count], expressions (as a rule expr_cotangent leaves) for
 * all blocks: values and gradients for adjoint_of and adjoint_scatters. The gradients are float64, with the precision
 * of the torques' float32, and near the identity as good as anywhere. Returns their number; *out: in a. */
int torque_outputs(arena *a, const torque_basis *basis, torque_frame frame, const expr *const *tau,
                   const adjoint_output **out);
