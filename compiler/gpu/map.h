/* gpu/map: a map of channels in a GPU thread, number by number. */
#ifndef PEGEN_GPU_MAP_H
#define PEGEN_GPU_MAP_H

#include "mlir/ir.h"
#include "spec/spec.h"

/* An expression of channels alone, float32, by index of their leaves. */
ir_value emit_thread_map(ir *b, arena *a, const spec *s, const expr *map, const ir_value *channels);

#endif
