/* gpu/team: what a team of threads (gpu/exponential) reads and writes: elements of skew operands, and rows of q and
 * k, which lie in its right matrix as float32 while its left one is multiplied with them.
 */
#pragma once

#include "gpu/body.h"
#include "gpu/exponential.h"

typedef struct team_rows {
  ir *b;
  arena *memory;
  const program_blocks *blocks; /* of up to 64 channels */
  gpu_body *body;
  matrix_team *team;
  ir_value unit;           /* i32: block of the encoding */
  ir_value exists;         /* i1: the team has one; otherwise it does as the last one does, and stores nothing */
  row_thread *source; /* rows that are read; NULL: the body's */
  int64_t base;       /* bytes of the right matrix before rows */
  ir_value (*is_written)(gpu_body *body, ir_value row); /* i1: rows that are; NULL: all */
  /* filled by team_rows_begin */
  ir_value first_channel;  /* i32; null: channels lie anyhow */
} team_rows;

/* Rows that a team has in shared memory together, of blocks of `size` channels. */
int team_flight(int size);

/* Entries of the number types, wide ones first, whose rows' blocks are in pieces; like: what they have in common, the
 * call, the word, the kind, threads of a token (or share of one) and blocks of ir_kernel. */
void gpu_add_team_entries(arena *a, gpu_program *program, const program_blocks *blocks, gpu_entry like,
                          unsigned dtypes);

/* A - A^T as the operand's rule has it: elements row, 4 quad ... 4 quad + 3, zeros beyond the block. first: i32, where
 * the raw matrix begins, one for each of `count` generators, which are added up times factor[count]. is_transposed: of
 * the transpose. */
ir_value team_skew_quad(team_rows *r, int count, const spec_skew *generator, const ir_value *first,
                        const two_float *factor, bool is_transposed, ir_value row, ir_value quad);
/* Fills the left matrix with it; complete but for a barrier. */
void team_skew(team_rows *r, int count, const spec_skew *generator, const ir_value *first, const two_float *factor,
               bool is_transposed);

/* Before the first rows; the right matrix is free. */
void team_rows_begin(team_rows *r);
/* Before rows where the right matrix was something else: what lies beyond the block's channels is multiplied by zeros,
 * and must be finite. A barrier behind it, where there is anything. */
void team_rows_clear(team_rows *r);
/* Channels of no block: their number, and those of a flight from row `first` on. */
int team_rows_passing(team_rows *r);
void team_rows_pass(team_rows *r, const row_origin *origin, ir_value first, int count);
/* Rows first ... into shared memory, those from the body's end on as the last one. A barrier is still to come. */
void team_rows_in(team_rows *r, const row_origin *origin, ir_value first);
/* The address of a channel of a row in shared memory (i32). */
ir_value team_row_address(team_rows *r, ir_value row, ir_value channel);
/* Every row becomes the product of the transpose of the left matrix with it, times amplitude, where `changed` (i1,
 * null: all). A thread takes out the pieces that it put in: from out to the next rows in there need be no barrier. */
void team_rows_multiply(team_rows *r, double amplitude, ir_value changed);
void team_rows_out(team_rows *r, const row_origin *origin, ir_value first);
/* All of that, flight by flight, for the body's rows; passing: of team_rows_passing. */
void team_rows_turn(team_rows *r, const row_origin *origin, int passing, double amplitude, ir_value changed);
