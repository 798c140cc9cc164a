/* emit_encode: the loops over tokens, heads and tensors of one target, number type and kind of store. */
#ifndef PEGEN_EMIT_ENCODE_H
#define PEGEN_EMIT_ENCODE_H

#include "emit_cpu.h"

void emit_encode(ir *b, arena *a, const plan *p, const plan_tile *t, const cpu_target *target, int dtype, bool streaming);

#endif
