/* dense_maker.h: forming the matrices of dense blocks and of changes of basis, of one head after the other and one unit
 * of blocks after the other, so that a unit's generators are gathered once for all tokens.
 */
#pragma once

#include "dense.h"
#include "driver.h"

enum { PEGEN_MAKER_AXES = PEGEN_MAX_ROTOR_AXES };

/* Forms the matrices of one head after the other. */
typedef struct pegen_maker {
  const pegen_driver *driver;
  const pegen_dense *dense;
  const pegen_dense_code *code;
  const pegen_args *args;
  char *generators, *prepared;
  double *leaves, *angles, *raw;
  int64_t matrix_bytes; /* of a block */
  int transposed; /* 1: the transposes of encode's matrices are formed */
  int has_basis; /* generators hold the change of basis of all heads */
  double norms[PEGEN_MAKER_AXES]; /* bounds of the generators', where the action may be taken */
} pegen_maker;

/* Bytes of a table's row. */
PEGEN_INTERNAL int64_t pegen_dense_row_bytes(const pegen_dense *dense);
/* 1: every token, turned or not, is in another basis than the channels' own. */
PEGEN_INTERNAL int pegen_dense_is_rebased(const pegen_dense *dense);
PEGEN_INTERNAL int64_t pegen_maker_generator_bytes(const pegen_dense *dense, const pegen_dense_code *code);

/* The skew matrix of a head's block, double [size][size]. */
PEGEN_INTERNAL void pegen_maker_raw(const pegen_dense *dense, const pegen_skew *skew, const pegen_args *args,
                                    int64_t head, int64_t block, double *raw);

/* The memory that forming works on, on the caller's stack. */
#define PEGEN_MAKER_START(f, driver_, code_, args_, transposed_) \
  do { \
    const pegen_dense *d_ = (driver_)->form; \
    (f)->driver = (driver_); \
    (f)->dense = d_; \
    (f)->code = (code_); \
    (f)->args = (args_); \
    (f)->matrix_bytes = d_->size * d_->size * 4; \
    (f)->transposed = (transposed_); \
    (f)->has_basis = 0; \
    (f)->generators = PEGEN_STACK(pegen_maker_generator_bytes(d_, (code_))); \
    (f)->prepared = PEGEN_STACK(d_->prepared_bytes + 64); \
    (f)->leaves = PEGEN_STACK((d_->n_leaves * d_->leaf_lanes) * 8 + 64); \
    (f)->angles = PEGEN_STACK((d_->terms * d_->angle_lanes) * 8 + 64); \
    (f)->raw = PEGEN_STACK((d_->size * d_->size) * 8); \
    for (int64_t i_ = 0; i_ < d_->terms * d_->angle_lanes; i_++) \
      (f)->angles[i_] = 0; /* lanes past the last block stay so */ \
  } while (0)

/* What angles need of operands, before the head's first token. */
PEGEN_INTERNAL void pegen_maker_start_head(const pegen_maker *f, int64_t head);
/* Gathers what blocks [begin, begin + unit) of a head need. */
PEGEN_INTERNAL void pegen_maker_start_unit(pegen_maker *f, int64_t head, int64_t begin);
/* Bounds of the norms of the generators of a block. */
PEGEN_INTERNAL void pegen_maker_start_norms(pegen_maker *f);
/* f->angles of a token of a stream whose positions begin at loop->positions. */
PEGEN_INTERNAL void pegen_maker_angles(const pegen_maker *f, const pegen_loop *loop, int64_t grid, int64_t token);
/* Writes f->angles of a token by the function `angles` instead of code->angles. */
PEGEN_INTERNAL void pegen_maker_numbers(const pegen_maker *f, const pegen_loop *loop, int64_t grid, int64_t token,
                                        pegen_angles_function *angles);
/* The transpose of a matrix that lies column by column, in place. */
PEGEN_INTERNAL void pegen_dense_transpose(int64_t n, float *matrix);
/* Forms the unit's matrices for such a token. */
PEGEN_INTERNAL void pegen_maker_unit(const pegen_maker *f, const pegen_loop *loop, int64_t grid, int64_t token,
                                     int64_t begin, char *out);

/* What encode does once its call is checked, with the functions of `target`: rows times the matrices, or
 * (transposed 1) times their transposes; a share of the tokens of each batch (by_token 1) or of all. */
PEGEN_INTERNAL int pegen_dense_run(const pegen_driver *driver, const pegen_args *args, pegen_call *call, int target,
                                   const pegen_tuning *tuning, int transposed, int by_token, const pegen_part *part);
