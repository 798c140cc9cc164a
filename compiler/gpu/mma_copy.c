/* gpu/mma_copy: the entry that copies rows for tile programs; see gpu/mma.h and PEGEN_PTX_COPY_FROM in kernel/launch.h.
 *
 * Tile programs move 16 bytes at a time. Rows at other addresses, strides or widths are few, and a driver would compile
 * entries of their own for everybody. So such rows are copied once, behind which stand zeros up to a whole access.
 */
#include "gpu/index.h"
#include "gpu/mma.h"
#include "mlir/number.h"

#include "kernel/launch.h"

typedef struct copier {
  ir *b;
  const ir_value *parameter;
  ir_value batch, head, token; /* i32 */
} copier;

/* rows: PEGEN_PTX_COPY_FROM or PEGEN_PTX_COPY_TO. */
static ir_value row_at(const copier *c, int rows) {
  ir *b = c->b;
  const ir_value *of = c->parameter + rows;
  ir_value at = add(b, of[PEGEN_PTX_ROWS_ADDRESS], mul(b, wide(b, c->batch), of[PEGEN_PTX_ROWS_BATCH]));
  at = add(b, at, mul(b, wide(b, c->token), of[PEGEN_PTX_ROWS_TOKEN]));
  return ir_pointer(b, add(b, at, mul(b, wide(b, c->head), of[PEGEN_PTX_ROWS_HEAD])));
}

static void copy_channel(const copier *c, const gpu_entry *entry, ir_value channel) {
  ir *b = c->b;
  MlirType bits = number_bits(b, entry->dtype);
  int element = entry->tile->element;
  ir_value offset = mul(b, channel, i64(b, element)), to = ir_offset(b, row_at(c, PEGEN_PTX_COPY_TO), offset);
  ir_value read = ir_compare_int(b, "slt", channel, c->parameter[PEGEN_PTX_COPY_READ]),
           written = ir_compare_int(b, "slt", channel, c->parameter[PEGEN_PTX_COPY_WRITTEN]);
  ir_branch some = ir_if(b, read);
  ir_value x = ir_load(b, bits, ir_offset(b, row_at(c, PEGEN_PTX_COPY_FROM), offset), element);
  ir_store(b, x, to, element, false);
  ir_else(b, &some);
  ir_branch clears = ir_if(b, written);
  ir_store(b, ir_int(b, bits, 0), to, element, false);
  ir_end_if(b, clears);
  ir_end_if(b, some);
}

void gpu_emit_mma_copy(ir *b, arena *a, const gpu_entry *entry, bool host) {
  gpu_function f = gpu_open_function(b, a, entry->name, PEGEN_PTX_COPY_COUNT, 0, host);
  int lanes = THREAD_PIECE / entry->tile->element;
  ir_value tokens = narrow(b, f.parameter[PEGEN_PTX_COPY_TOKENS]), heads = narrow(b, f.parameter[PEGEN_PTX_COPY_HEADS]),
           pieces = quotient_up(b, narrow(b, f.parameter[PEGEN_PTX_COPY_WRITTEN]), lanes);
  ir_value line = add(b, scaled(b, f.block, PEGEN_PTX_BLOCK), f.thread), row = ir_op2(b, "arith.divui", line, pieces),
           piece = ir_op2(b, "arith.remui", line, pieces), above = ir_op2(b, "arith.divui", row, tokens);
  copier c = {.b = b, .parameter = f.parameter, .token = ir_op2(b, "arith.remui", row, tokens)};
  c.head = ir_op2(b, "arith.remui", above, heads);
  c.batch = ir_op2(b, "arith.divui", above, heads);
  ir_branch inside = ir_if(b, below(b, row, narrow(b, f.parameter[PEGEN_PTX_COPY_ROWS])));
  for (int i = 0; i < lanes; i++) copy_channel(&c, entry, wide(b, add(b, scaled(b, piece, lanes), i32(b, i))));
  ir_end_if(b, inside);
  ir_return(b);
}
