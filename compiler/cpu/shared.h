/* cpu/shared: of a head's parts, whose heads are alike though another's are not. */
#ifndef PEGEN_CPU_SHARED_H
#define PEGEN_CPU_SHARED_H

#include "plan/plan.h"

/* Its coefficients are those of a run's first head. */
bool emit_is_shared(const plan *p);

#endif
