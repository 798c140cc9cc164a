/* explain/operand_values: values of operands to explain a description with: a checkpoint's, or drawn. */
#pragma once

#include "explain/explain.h"

typedef struct operand_values {
  const double **values; /* [operands], each row-major */
  const char **from;     /* [operands]: where each is from, in words */
} operand_values;

/* False after a diag_error: a name that is no operand's, a file that cannot be read or does not fit. */
bool operand_values_find(arena *a, const spec *s, const explain_request *request, operand_values *out);
