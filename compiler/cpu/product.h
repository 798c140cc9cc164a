/* cpu/product: products of square matrices in memory, as register-blocked code of one target.
 *
 * A matrix is `padded` rows of as many elements, padded to whole vectors with zeros. Matrices that commute and
 * are symmetric or skew have symmetric or skew products, so half of such a product is computed: a matrix is
 * cut into at most MATRIX_TILES tiles a side, and the tiles above the diagonal stand for those below.
 */
#pragma once

#include "mlir/ir.h"
#include "target/processor.h"

enum { MATRIX_TILES = 4 };

typedef struct matrix_shape {
  const cpu_target *target;
  MlirType element; /* f32 or f64 */
  int bytes;        /* of an element */
  int lanes;        /* elements of a vector */
  int size;         /* rows and columns that are meant */
  int padded;       /* rows and columns that are stored: a multiple of lanes */
  int tile;         /* rows and columns of a tile: a multiple of lanes */
} matrix_shape;

matrix_shape matrix_shape_of(ir *b, const cpu_target *target, int size, bool is_f64);
int64_t matrix_bytes(const matrix_shape *m);

/* x y + z, fused where the target does that; z null: x y. */
ir_value emit_multiply_add(ir *b, const cpu_target *target, ir_value x, ir_value y, ir_value z);
/* The transpose of n vectors of n lanes, in place; n is a power of two. */
void emit_transpose(ir *b, int n, ir_value *rows);
/* The sum, or what `fold` makes (add, smaller, larger), of all lanes: a half with the other, again and again. */
typedef ir_value lane_fold(ir *b, ir_value x, ir_value y);
ir_value emit_across(ir *b, ir_value x, lane_fold *fold);

/* Emits NAME(out, x, y): out = x y; upper: only its tiles on and above the diagonal. out is neither x nor y. */
void emit_product(ir *b, const matrix_shape *m, const char *name, bool upper);
/* Emits NAME(out, in): the tiles of out below the diagonal become the transposes of those of `in` above it. */
void emit_mirror(ir *b, const matrix_shape *m, const char *name);

/* A loop over the vectors of a matrix, or of its tiles on and above the diagonal; the body is given each vector's
 * byte offset and changes `carried` (count values, each turn's result the next one's input). */
typedef void matrix_body(void *context, ir_value offset, ir_value *carried);
void emit_each_vector(ir *b, const matrix_shape *m, bool upper, int count, ir_value *carried, matrix_body *body,
                      void *context);
