/* plan/widen_gradient: what inputs and operands gain of a polynomial bias.
 *
 * A query's weights are sums over terms of products of what its inputs say and what operands say (plan/widen.h). From
 * what weights gain, inputs gain term by term, and so do the operands' halves of the products, which are summed over
 * queries and become what operands' elements gain by expressions (plan/gradient.h).
 */
#pragma once

#include "plan/gradient.h"
#include "plan/widen.h"

/* NULL: the bias has neither inputs nor operands. */
const plan_gradient *plan_widen_gradient(arena *a, const plan_widen *p);
