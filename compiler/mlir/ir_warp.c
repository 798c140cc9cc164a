/* mlir/ir_warp: what the lanes of a warp do together, and copies that go on beside a thread; see mlir/ir.h.
 *
 * On a GPU each is one of LLVM's intrinsics. On the host each is a call of the function that the runner of threads
 * (verify/run_block) has behind it: numbers go there and come back through ir.host_words, which an entry allocates
 * once.
 */
#include "mlir/number.h"
#include "mlir/op.h"

#include <mlir-c/BuiltinAttributes.h>
#include <mlir-c/Dialect/LLVM.h>

static const MlirType NONE = {NULL};

/* Values of 4 bytes, or pointers alone. */
static void call_host(ir *b, ir_warp_op op, int detail, int n_in, const ir_value *in, MlirType out_type, int n_out,
                      ir_value *out) {
  for (int i = 0; i < n_in; i++) {
    int bytes = mlirTypeEqual(ir_type(in[i]), b->ptr) ? 8 : 4;
    ir_value at = ir_offset_const(b, b->host_words, (int64_t)i * bytes);
    ir_store(b, in[i], at, bytes, false);
  }
  ir_value results = ir_offset_const(b, b->host_words, IR_WARP_WORDS_IN * 4), first = ir_int(b, b->i32, op);
  const ir_value arguments[] = {first, ir_int(b, b->i32, detail), b->host_words, results};
  ir_call(b, b->host_warp, 4, arguments);
  for (int i = 0; i < n_out; i++) out[i] = ir_load(b, out_type, ir_offset_const(b, results, i * 4), 4);
}

/* ---- intrinsics ---- */

static ir_value cast_bits(ir *b, ir_value v, MlirType type) { return op_made(b, "llvm.bitcast", type, OPERANDS(v)); }

/* One whose result is four values of a type. */
static void intrinsic_of_four(ir *b, const char *name, int count, const ir_value *arguments, MlirType type,
                              ir_value *results) {
  const MlirType types[] = {type, type, type, type};
  ir_value all = ir_intrinsic(b, name, mlirLLVMStructTypeLiteralGet(b->context, 4, types, false), count, arguments);
  for (int64_t i = 0; i < 4; i++) {
    op o = op_start(b, "llvm.extractvalue", OPERANDS(all));
    op_attribute(&o, "position", mlirDenseI64ArrayGet(b->context, 1, &i));
    results[i] = op_value(&o, type);
  }
}

/* ---- lanes ---- */

ir_value ir_warp_exchange(ir *b, ir_value x, int lanes) {
  if (b->host_warp) {
    ir_value other;
    call_host(b, IR_WARP_EXCHANGE, lanes, 1, &x, ir_type(x), 1, &other);
    return other;
  }
  enum { LAST_LANE = 31, DIFFERENCE_AT = 10 /* bits of a swizzle's pattern */ };
  if (!b->gpu->has_mask) { /* AMD's, among 32 lanes of a wave */
    ir_value word = cast_bits(b, x, b->i32), pattern = ir_int(b, b->i32, lanes << DIFFERENCE_AT | LAST_LANE);
    const ir_value both[] = {word, pattern};
    return cast_bits(b, ir_intrinsic(b, "llvm.amdgcn.ds.swizzle", b->i32, 2, both), ir_type(x));
  }
  const char *name = ir_is_float(x) ? "llvm.nvvm.shfl.sync.bfly.f32" : "llvm.nvvm.shfl.sync.bfly.i32";
  ir_value all = ir_int(b, b->i32, -1), difference = ir_int(b, b->i32, lanes);
  const ir_value arguments[] = {all, x, difference, ir_int(b, b->i32, LAST_LANE)};
  return ir_intrinsic(b, name, ir_type(x), 4, arguments);
}

void ir_mma(ir *b, bool is_bf16, const ir_value *a, const ir_value *x, ir_value *c) {
  enum { A = 4, X = 2, C = 4 };
  ir_value all[A + X + C];
  for (int i = 0; i < A; i++) all[i] = a[i];
  for (int i = 0; i < X; i++) all[A + i] = x[i];
  for (int i = 0; i < C; i++) all[A + X + i] = c[i];
  if (b->host_warp) {
    call_host(b, is_bf16 ? IR_WARP_MMA_BF16 : IR_WARP_MMA_F16, 0, A + X + C, all, b->f32, C, c);
    return;
  }
  for (int i = 0; i < A + X && !is_bf16; i++) all[i] = cast_bits(b, all[i], ir_vector(b, 2, b->f16));
  const char *name = is_bf16 ? "llvm.nvvm.mma.m16n8k16.row.col.bf16" : "llvm.nvvm.mma.m16n8k16.row.col.f32.f32";
  intrinsic_of_four(b, name, A + X + C, all, b->f32, c);
}

void ir_load_matrices(ir *b, bool transposed, ir_value row, ir_value *x) {
  if (b->host_warp) {
    call_host(b, IR_WARP_LOAD_MATRICES, transposed, 1, &row, b->i32, 4, x);
    return;
  }
  const char *name =
      transposed ? "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16" : "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16";
  intrinsic_of_four(b, name, 1, &row, b->i32, x);
}

/* ---- copies ---- */

enum { COPIED = 16 };

void(ir_copy_async)(ir *b, ir_value to, ir_value from) {
  const ir_value both[] = {to, from};
  MlirType piece = ir_vector(b, COPIED / 4, b->i32);
  if (b->host_warp) call_host(b, IR_WARP_COPY, 0, 2, both, NONE, 0, NULL);
  else if (!b->has_mma) ir_store(b, ir_load(b, piece, from, COPIED), to, COPIED, false);
  else ir_intrinsic(b, "llvm.nvvm.cp.async.cg.shared.global.16", NONE, 2, both);
}

void ir_copy_commit(ir *b) {
  if (b->host_warp) call_host(b, IR_WARP_COPY_COMMIT, 0, 0, NULL, NONE, 0, NULL);
  else if (b->has_mma) ir_intrinsic(b, "llvm.nvvm.cp.async.commit.group", NONE, 0, NULL);
}

void ir_copy_wait(ir *b, int groups) {
  if (b->host_warp) {
    call_host(b, IR_WARP_COPY_WAIT, groups, 0, NULL, NONE, 0, NULL);
    return;
  }
  if (!b->has_mma) return;
  ir_value latest = ir_int(b, b->i32, groups);
  ir_intrinsic(b, "llvm.nvvm.cp.async.wait.group", NONE, 1, &latest);
}

/* ---- pairs of 16-bit numbers ---- */

/* float16 is the type's own everywhere, as the host has it, too; bfloat16 is a float32's upper half. */
enum { NATIVE = NUMBER_BIT(NUMBER_F16) };

ir_value(ir_pack)(ir *b, bool is_bf16, ir_value low, ir_value high) {
  if (b->host_warp || !b->has_mma)
    return emit_pack_word(b, NATIVE, is_bf16 ? NUMBER_BF16 : NUMBER_F16, (ir_value[]){low, high});
  const ir_value both[] = {high, low}; /* the first operand is the upper half */
  const char *name = is_bf16 ? "llvm.nvvm.ff2bf16x2.rn" : "llvm.nvvm.ff2f16x2.rn";
  return cast_bits(b, ir_intrinsic(b, name, ir_vector(b, 2, is_bf16 ? b->bf16 : b->f16), 2, both), b->i32);
}

void ir_unpack(ir *b, bool is_bf16, ir_value pair, ir_value *two) {
  emit_unpack_word(b, NATIVE, is_bf16 ? NUMBER_BF16 : NUMBER_F16, pair, two);
}
