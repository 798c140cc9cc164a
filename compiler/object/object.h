/* object/object: from a module of MLIR to the object with its driver and descriptor, or to what comes before it. */
#pragma once

#include "mlir/ir.h"
#include "object/describe.h"
#include "target/processor.h"
#include "target/request.h"

/* Lowers the module's MLIR, optimizes, adds the driver and the descriptor, and writes the form asked for. */
bool object_write(ir *b, const cpu_target *const *targets, int n_targets, const compile_options *options,
                  const describe_request *describe, compile_output *out);
