/* bench/seen: which share of a call's pairs is seen, by the reference. */
#ifndef PEGEN_BENCH_SEEN_H
#define PEGEN_BENCH_SEEN_H

#include "verify/trial_attention.h"

/* Of the pairs of all queries, or of every n-th where there are many, those that neither the bias nor the call's
 * `causal` hides: 0 to 1. */
double bench_seen_share(const attention_trial *t);

#endif
