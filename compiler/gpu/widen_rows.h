/* gpu/widen_rows: tokens whose rows columns widen, each of some neighbouring lanes, and their channels, which no column
 * changes. */
#pragma once

#include "gpu/body.h"
#include "gpu/weights.h"

#include "kernel/launch.h"

/* Tokens of a warp have so many lanes. */
const thread_tile *widen_tile(arena *a, const plan_widen *p, int element, int access, int lanes);
/* An entry's rows, each of so many lanes, of like's number type: of whole pieces, where rows are of such, and narrow.
 * like: what they have in common, the call, the word, the kind. Their number. */
int widen_row_entries(arena *a, const plan_widen *p, const gpu_entry *like, int lanes, gpu_entry *entries);
/* The lanes of an entry: which token's the thread is, and which of them. */
weight_lanes widen_lanes_of(const gpu_body *t, const plan_widen *p);
/* The token of a launch of rows that they have, and its rows; i1: it exists, else they have another's. */
ir_value widen_own(gpu_body *t, const weight_lanes *l);
/* Channels as they are: bits, so that no NaN changes. */
void widen_move_row(gpu_body *t, weight_lanes *l, const row_place *place, ir_value valid);
/* What an access of the entry loads and stores. */
MlirType widen_piece_type(const gpu_body *t);

/* The token's coordinates, counted from what stands at `origin` among its parameters (gpu_origin). */
void widen_load_place(gpu_body *t, const ir_value *origin, two_float *place);
