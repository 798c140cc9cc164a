/* cpu/encode: the loops over tokens, heads and tensors of one target, number type and kind of store. */
#pragma once

#include "cpu/rotors.h"
#include "program/program.h"

/* What emit_encode's functions of a target read, before any of them. */
void emit_encode_tables(ir *b, arena *a, const spec *s, const cpu_target *target);
typedef struct gradient_code gradient_code;
/* A function of rows of one number type, which are written as it, or as either it or `out`. */
typedef struct encode_kind {
  const program *program; /* of cpu_schedule */
  const row_code *row; /* of its evals and matrices; of the transposed ones, where there is a gradient */
  const cpu_target *target;
  int dtype, out;
  bool streaming, normalises; /* normalises: first or not, as a call says of q and of k */
  const gradient_code *gradient; /* of what operands and positions gain, too; NULL: rows alone */
  bool rounds; /* bfloat16 by the processor's own instruction; the caller sets features */
  int most; /* of rows in the caches: rotors of so many tokens (of heads of them) on the stack; 0: as is best */
} encode_kind;
void emit_encode(ir *b, arena *a, const encode_kind *k);
