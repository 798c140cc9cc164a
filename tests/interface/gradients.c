/* gradients.c: gradients by way of a table, asked of one kernel as a host would: two layers add to a table of
 * gradients, from which operands and positions then get theirs. Any number of parts gives the same bits, and rows are
 * as without the table.
 */
#include "host.h"
#include "test.h"

#include <string.h>

enum { LAYERS = 2, AXES_MOST = 8, TOKENS_MOST = 16 };

/* What comes of all calls. */
typedef struct gains {
  double *operand[HOST_OPERANDS], positions[TOKENS_MOST * AXES_MOST];
  size_t bytes[HOST_OPERANDS];
} gains;

static DLTensor float64_like(const DLTensor *of, double *data) {
  DLTensor made = *of;
  made.dtype = (DLDataType){kDLFloat, 64, 1};
  made.data = data;
  made.strides = NULL;
  return made;
}

static void *aligned(size_t bytes) {
  void *room = aligned_alloc(64, (bytes + 64) / 64 * 64);
  assert_non_null(room);
  return memset(room, 0x5a, (bytes + 64) / 64 * 64);
}

static void run(pegen_entry *entry, const pegen_args *args, int parts) {
  for (int part = parts - 1; part >= 0; part--) assert_int_equal(entry(args, part, parts), 0);
}

/* A layer's rows: what encode wrote of `kept`, and gradients that come in where `rows` has q and k. */
static void turn_back(const pegen_kernel *kernel, host *kept, host *rows, void *table, pegen_grad_args *grad,
                      int parts) {
  pegen_args args = kept->args;
  grad->q_out = &rows->q.dl, grad->k_out = &rows->k.dl;
  grad->q = &rows->q_out.dl, grad->k = &rows->k_out.dl;
  args.q = &kept->q_out.dl, args.k = &kept->k_out.dl;
  args.table = table;
  args.table_bytes = kernel->table_bytes(&kept->args);
  args.grad = grad;
  run(kernel->encode_backward, &args, parts);
}

static void prepare_back(const pegen_kernel *kernel, const host *h, void *torques, size_t bytes, int parts, gains *of) {
  DLTensor operand[HOST_OPERANDS], *operands[HOST_OPERANDS];
  DLTensor positions = h->args.positions ? float64_like(h->args.positions, of->positions) : (DLTensor){.ndim = 0};
  pegen_grad_args grad = {.struct_size = sizeof grad, .table = torques, .table_bytes = bytes};
  pegen_args args = h->args;
  for (int i = 0; i < kernel->n_operands; i++) {
    of->bytes[i] = (size_t)pegen_operand_size(kernel, i) * 8;
    of->operand[i] = aligned(of->bytes[i]);
    operand[i] = float64_like(h->args.operands[i], of->operand[i]);
    operands[i] = &operand[i];
  }
  if (kernel->n_operands) grad.operands = operands;
  if (h->args.positions) grad.positions = &positions;
  args.grad = &grad;
  args.table = NULL;
  size_t workspace = kernel->prepare_backward_workspace(&args);
  args.workspace = aligned(workspace);
  run(kernel->prepare_backward, &args, parts);
  run(kernel->prepare_backward_finish, &args, parts + 1);
  free(args.workspace);
}

static void walk(const pegen_kernel *kernel, const host_shape *shape, int parts, gains *of, host *rows) {
  host kept;
  host_begin(&kept, kernel, shape);
  host_encode(&kept, 1);
  pegen_args prepare = kept.args;
  prepare.table_bytes = kernel->table_bytes(&kept.args);
  prepare.table = aligned(prepare.table_bytes);
  run(kernel->prepare, &prepare, parts);
  pegen_grad_args grad = {.struct_size = sizeof grad}, alone = grad;
  grad.table_bytes = kernel->gradient_table_bytes(&kept.args);
  grad.table = aligned(grad.table_bytes);
  for (int layer = 0; layer < LAYERS; layer++) {
    host_begin(rows, kernel, shape);
    turn_back(kernel, &kept, rows, prepare.table, &alone, 1);
    host first = *rows;
    host_begin(rows, kernel, shape);
    grad.flags = layer ? PEGEN_GRAD_ACCUMULATE : 0;
    turn_back(kernel, &kept, rows, prepare.table, &grad, parts);
    host_assert_same_outputs(&first, rows);
    host_end(&first);
    if (layer + 1 < LAYERS) host_end(rows);
  }
  prepare_back(kernel, &kept, grad.table, grad.table_bytes, parts, of);
  free(grad.table);
  free(prepare.table);
  host_end(&kept);
}

void host_gradients_by_table(const pegen_kernel *kernel) {
  host_shape usual = host_usual(kernel);
  gains once = {.positions = {0}}, again = {.positions = {0}};
  host rows[2];
  if (!kernel->prepare_backward || !host_supports(kernel, HOST_F32)) return;
  assert_true(usual.tokens <= TOKENS_MOST && kernel->n_axes <= AXES_MOST);
  walk(kernel, &usual, 1, &once, &rows[0]);
  walk(kernel, &usual, 3, &again, &rows[1]);
  host_assert_same_outputs(&rows[0], &rows[1]);
  assert_memory_equal(once.positions, again.positions, sizeof once.positions);
  for (int i = 0; i < kernel->n_operands; i++) {
    assert_memory_equal(once.operand[i], again.operand[i], once.bytes[i]);
    double size = 0;
    for (size_t k = 0; k < once.bytes[i] / 8; k++)
      size += once.operand[i][k] < 0 ? -once.operand[i][k] : once.operand[i][k];
    assert_true(size > 0);
    free(once.operand[i]);
    free(again.operand[i]);
  }
  for (int i = 0; i < 2; i++) host_end(&rows[i]);
}
