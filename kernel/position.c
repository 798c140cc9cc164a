/* position.c: coordinates and operands of any number type, as the doubles that the arithmetic takes. */
#include "driver.h"

/* ---- coordinates ---- */

void pegen_coordinates(const char *at, int64_t type, int64_t step, int64_t axes, double *out) {
  switch (type) {
  case PEGEN_POSITION_F32:
    for (int64_t i = 0; i < axes; i++, at += step) out[i] = *(const float *)at;
    break;
  case PEGEN_POSITION_F64:
    for (int64_t i = 0; i < axes; i++, at += step) out[i] = *(const double *)at;
    break;
  case PEGEN_POSITION_I32:
    for (int64_t i = 0; i < axes; i++, at += step) out[i] = *(const int32_t *)at;
    break;
  default:
    for (int64_t i = 0; i < axes; i++, at += step) out[i] = (double)*(const int64_t *)at;
    break;
  }
}

void pegen_driver_position(const pegen_loop *loop, int64_t token, int64_t axes, double *out) {
  pegen_coordinates(loop->positions + token * loop->position_token, loop->position_type, loop->position_axis, axes,
                    out);
}

/* The sequence that has the token. */
static int64_t sequence_of(const pegen_bounds *b, int64_t token) {
  int64_t low = 0, high = b->sequences;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (b->at[middle] <= token) low = middle;
    else high = middle;
  }
  return low;
}

static double median(const double *x) {
  double low = x[0] < x[1] ? x[0] : x[1], high = x[0] < x[1] ? x[1] : x[0];
  return x[2] < low ? low : x[2] > high ? high : x[2];
}

/* The tokens whose median columns count from: bytes from view.base. 0: none of them is encoded. */
static int middle_of(const pegen_origin *o, int64_t which, int64_t skipped, int64_t *at) {
  const int64_t *stride = o->view.stride;
  int64_t first = 0, tokens = o->view.size[PEGEN_POSITION_TOKEN], step;
  if (o->bounds.sequences) {
    first = o->bounds.at[which];
    tokens = o->bounds.at[which + 1] - first;
  }
  int64_t middle = pegen_middle_token(tokens, skipped, &step);
  if (middle < 0) return 0;
  for (int i = 0; i < 3; i++)
    at[i] = (first + middle + (i - 1) * step) * stride[PEGEN_POSITION_TOKEN] +
            (o->bounds.sequences ? 0 : which * stride[PEGEN_POSITION_BATCH]);
  return 1;
}

void pegen_driver_centre(const pegen_loop *loop, int64_t token, int64_t axes, double *place) {
  const pegen_origin *o = loop->origin;
  int64_t which = loop->sequences->sequences ? sequence_of(loop->sequences, token) : loop->origin_batch, at[3];
  double from[3][PEGEN_MAX_ROTOR_AXES];
  int is_fixed = o->type < 0;
  if (o->is_given) at[0] = at[1] = at[2] = which * o->view.stride[PEGEN_POSITION_TOKEN];
  else is_fixed = is_fixed || !middle_of(o, which, loop->skipped, at);
  for (int i = 0; i < 3 && !is_fixed; i++)
    pegen_coordinates((const char *)(o->view.base + (uintptr_t)at[i]), o->type, o->view.stride[PEGEN_POSITION_AXIS],
                      axes, from[i]);
  for (int64_t axis = 0; axis < axes; axis++) {
    double x[3];
    for (int i = 0; i < 3; i++) x[i] = !is_fixed && from[i][axis] - from[i][axis] == 0 ? from[i][axis] : o->fixed[axis];
    place[axis] -= median(x);
  }
}

void pegen_cell(const int64_t *grid, int64_t axes, int64_t cell, double *out) {
  for (int64_t axis = axes - 1; axis >= 0; axis--) {
    int64_t next = axis ? cell / grid[axis] : 0;
    out[axis] = (double)(cell - next * grid[axis]);
    cell = next;
  }
}

void pegen_grid_position(const pegen_kernel *kernel, int64_t token, double *out) {
  pegen_cell(kernel->grid, kernel->n_axes, token - kernel->skip_tokens, out);
}

/* ---- operands ---- */

/* Elements offsets[i], or first + i where there are no offsets. */
static void gather(const DLTensor *operand, const int32_t *offsets, int64_t first, int64_t n, double *out) {
  const char *data = (const char *)operand->data + operand->byte_offset;
#define AT(i) (offsets ? offsets[i] : first + (i))
  switch (pegen_number_of(operand->dtype)) {
  case PEGEN_NUMBER_F32:
    for (int64_t i = 0; i < n; i++) out[i] = ((const float *)data)[AT(i)];
    break;
  case PEGEN_NUMBER_F64:
    for (int64_t i = 0; i < n; i++) out[i] = ((const double *)data)[AT(i)];
    break;
  case PEGEN_NUMBER_BF16:
    for (int64_t i = 0; i < n; i++) out[i] = pegen_bf16_load(((const uint16_t *)data)[AT(i)]);
    break;
  case PEGEN_NUMBER_F16:
    for (int64_t i = 0; i < n; i++) out[i] = pegen_f16_load(((const uint16_t *)data)[AT(i)]);
    break;
  }
#undef AT
}

void pegen_gather(const DLTensor *operand, const int32_t *offsets, int64_t n, double *out) {
  gather(operand, offsets, 0, n, out);
}

void pegen_gather_run(const DLTensor *operand, int64_t first, int64_t count, double *out) {
  gather(operand, 0, first, count, out);
}

void pegen_gather_leaves(const pegen_leaf *leaves, int64_t n_leaves, int64_t n_blocks, int64_t lanes,
                         const pegen_args *args, int64_t head, double *out) {
  for (int64_t i = 0; i < n_leaves; i++) {
    const pegen_leaf *leaf = &leaves[i];
    int64_t first = leaf->n_heads > 1 ? head * n_blocks : 0;
    double *row = out + i * lanes;
    if (leaf->operand >= 0) pegen_gather(args->operands[leaf->operand], leaf->offsets + first, n_blocks, row);
    else
      for (int64_t block = 0; block < n_blocks; block++) row[block] = leaf->values[first + block];
    for (int64_t lane = n_blocks; lane < lanes; lane++) row[lane] = 0;
  }
}
