/* bench/seen: which share of a call's pairs is seen, by the reference. */
#pragma once

#include "verify/trial_attention.h"

/* The share of pairs that neither the bias nor the call's `causal` hides, 0 to 1: of all queries, or of every n-th
 * where there are many. */
double bench_seen_share(const attention_trial *t);
