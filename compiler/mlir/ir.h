/* mlir/ir: a thin builder over the MLIR C API, one call a node.
 *
 * Arith, vector, scf and llvm dialects export no builders to C, so ops are made by
 * name through MlirOperationState. Every op is checked when it is made: a null op
 * or a type that cannot be inferred aborts with the op's name (MLIR says nothing by
 * itself there). Values are SSA; scalars and vectors share one set of calls.
 */
#pragma once

#include "base/order.h"
#include "mlir/gpu_dialect.h"

#include <mlir-c/IR.h>
#include <stdbool.h>
#include <stdint.h>

/* What the builder must know of a kind of GPU. Kernels are functions of the gpu dialect in a module of its own. */
typedef struct ir_gpu {
  gpu_conversion *convert;        /* from the gpu dialect */
  const char *threads;            /* attribute: threads of a block; NULL: the dialect's own, known_block_size */
  const char *blocks;             /* attribute: blocks that a multiprocessor should hold; NULL: there is none */
  const char *warp_barrier;       /* LLVM's intrinsic: all lanes of a warp have come here; the dialect has none */
  bool has_mask;                  /* it takes the mask of lanes */
  const char *warp_scope;         /* scope of the fences around it; NULL: it orders memory by itself */
  bool has_dynamic;     /* more than 48 KiB of shared memory come by the launch alone */
  const char *exp2;               /* LLVM's intrinsic: a fast 2^x of float32; NULL: the instruction is not used */
  const char *sine, *cosine; /* fast ones of float32 from -pi to pi, with an error of 2^-20 */
  const char *log2, *reciprocal, *root; /* others of float32, with an error of some units of the last place */
  int global_space, shared_space; /* address spaces of the device's memory, and of a block's */
} ir_gpu;

typedef MlirValue ir_value;

typedef struct ir {
  MlirContext context;
  MlirModule module;
  MlirLocation location;
  MlirBlock symbols; /* where functions and tables go */
  MlirBlock block; /* where the next op goes: appended */
  const ir_gpu *gpu;   /* NULL: functions are a processor's */
  const char *chip;    /* of that kind, as its vendor calls it */
  bool has_mma;        /* it has what ir_mma, ir_load_matrices, ir_copy_async and ir_pack are there */
  MlirType ptr, i1, i8, i16, i32, i64, f16, bf16, f32, f64;
  const char *target_cpu, *target_features; /* attributes of the functions to come */
  const char *host_wait; /* GPU code for the host: the function that stands for barriers; NULL: the GPU's own */
  const char *host_warp; /* and the one that stands for what the lanes of a warp do together */
  ir_value host_words;   /* IR_WARP_WORDS words of the thread, through which that one gets and gives numbers */
  bool exact; /* every sum and product of the ops to come rounds by itself: none contracts to a fused one */
} ir;

/* Context with every dialect loaded, diagnostics sent to diag as our own bug. */
void ir_create(ir *b, const char *file, int line);
void ir_destroy(ir *b);

MlirType ir_vector(ir *b, int lanes, MlirType element);
MlirType ir_type(ir_value v);
int ir_lanes(ir_value v); /* 0: a scalar */
bool ir_is_float(ir_value v); /* floats, not integers; of a vector its elements */
/* element with the lanes of v (a scalar where v is one). */
MlirType ir_like(ir *b, ir_value v, MlirType element);

/* ---- functions ---- */
enum { IR_MAX_ARGUMENTS = 160 };
/* Opens an llvm.func returning void (or i32/i64 by result, null type: void) and makes its entry
 * block current; arguments receive the block's arguments. Linkage is external: who finishes the module
 * decides what stays so. */
MlirOperation ir_function(ir *b, const char *name, bool noinline, MlirType result, int count, const MlirType *types,
                          ir_value *arguments);
/* Opens one that gives nothing and is not inlined. types: a letter an argument, p a pointer, i an i64, n an i32, b an
 * i1, f a float32, d a float64. */
void ir_open(ir *b, const char *name, const char *types, ir_value *arguments);
/* Declares one that is defined elsewhere, and gives nothing. */
void ir_declare(ir *b, const char *name, const char *types);
void ir_return(ir *b);
void ir_call(ir *b, const char *name, int count, const ir_value *arguments);
void ir_call_pointer(ir *b, ir_value function, int count, const ir_value *arguments);
ir_value ir_function_address(ir *b, const char *name);
/* An intrinsic of LLVM that no dialect has an op for; result: the null type where it has none. */
ir_value ir_intrinsic(ir *b, const char *name, MlirType result, int count, const ir_value *arguments);
/* Functions and tables to come are a GPU's, in a gpu.module; b->ptr points into its global memory. */
void ir_begin_gpu(ir *b, const ir_gpu *gpu, const char *chip, bool has_mma);
/* Opens a kernel, launched with blocks of `threads`. blocks: that a multiprocessor should hold at once, and no more
 * need be thought of (an assembler that sees shared memory bound them spills registers for the last ones); 0: nothing
 * is said. */
void ir_kernel(ir *b, const char *name, int threads, int blocks, int count, const MlirType *types, ir_value *arguments);
ir_value ir_gpu_index(ir *b, const char *name, const char *dimension); /* gpu.thread_id, gpu.block_id; x, y: i32 */
/* All threads of a warp, or of a block, wait for one another; what they wrote before is seen by all after. */
typedef enum ir_barrier { IR_BARRIER_WARP, IR_BARRIER_BLOCK } ir_barrier;
void ir_wait(ir *b, ir_barrier of);

/* ---- constants ---- */
ir_value ir_int(ir *b, MlirType type, int64_t value);                    /* scalar or splat */
ir_value ir_float(ir *b, MlirType type, double value);                   /* scalar or splat */
ir_value ir_floats(ir *b, MlirType vector, const double *values);        /* one per lane */
ir_value ir_bools(ir *b, int lanes, const bool *values);

/* ---- arithmetic; names are those of arith, math and vector ---- */
ir_value ir_op1(ir *b, const char *name, ir_value x);                    /* result like x */
ir_value ir_op2(ir *b, const char *name, ir_value x, ir_value y);        /* result like x */
ir_value ir_cast(ir *b, const char *name, ir_value x, MlirType element); /* lanes kept */
ir_value ir_bitcast_lanes(ir *b, ir_value x, MlirType vector);          /* vector.bitcast: lanes of another width */
ir_value ir_compare_float(ir *b, const char *predicate, ir_value x, ir_value y);
ir_value ir_compare_int(ir *b, const char *predicate, ir_value x, ir_value y);
ir_value ir_select(ir *b, ir_value condition, ir_value x, ir_value y);
ir_value ir_fma(ir *b, ir_value x, ir_value y, ir_value z);              /* x y + z rounded once */
ir_value ir_broadcast(ir *b, MlirType vector, ir_value scalar);
/* Lanes of x followed by those of y, picked by mask[lanes]; -1: any value. */
ir_value ir_shuffle(ir *b, ir_value x, ir_value y, int lanes, const int64_t *mask);
ir_value ir_extract(ir *b, ir_value vector, int lane);
ir_value ir_elements(ir *b, MlirType vector, int count, const ir_value *values);

/* ---- memory ---- */
ir_value ir_offset(ir *b, ir_value pointer, ir_value bytes);
ir_value ir_offset_const(ir *b, ir_value pointer, int64_t bytes);
ir_value ir_pointer(ir *b, ir_value address); /* an i64 as a pointer */
ir_value ir_address(ir *b, ir_value pointer); /* and back */
ir_value ir_load(ir *b, MlirType type, ir_value pointer, int alignment);
/* A load that is made where it stands, and not where its value is used (volatile). */
ir_value ir_load_here(ir *b, MlirType type, ir_value pointer, int alignment);
void ir_store(ir *b, ir_value value, ir_value pointer, int alignment, bool nontemporal);
void ir_prefetch(ir *b, ir_value pointer, int level); /* for reading, into the caches from this level on: 1, 2 */
ir_value ir_alloca(ir *b, int64_t bytes, int alignment);
/* A constant array of the module and, in a function, its address. values of f32, integers of i32. */
void ir_table(ir *b, const char *name, int count, const float *values, const int32_t *integers);
void ir_table_floats(ir *b, const char *name, bool is_f32, int count, const double *values);
/* One by its content, made where it is not there yet; gives its name, which lives as long as the module. */
const char *ir_table_of(ir *b, int count, const float *values, const int32_t *integers);
ir_value ir_table_address(ir *b, const char *name);
/* Memory that the threads of a block share: an array of the module and, in a function, its address. */
void ir_shared(ir *b, const char *name, int64_t bytes);
/* Shared memory, aligned to 16 bytes, whose size NVIDIA's launch says, and which may be more than 48 KiB
 * (gpu_entry.shared). All such arrays of a kernel begin at one address. */
void ir_shared_dynamic(ir *b, const char *name, int64_t bytes);
ir_value ir_shared_address(ir *b, const char *name);

/* ---- what the lanes of a warp do together ----
 *
 * All 32 lanes call these at the same place. In a tile of 8 lines and 4 columns of numbers a lane stands at
 * g = lane / 4, t = lane % 4. Numbers of 16 bits are bfloat16 or float16, two in an i32, the first in the low half. */

/* x (f32 or i32) of the lane whose number differs in the bits of `lanes`. */
ir_value ir_warp_exchange(ir *b, ir_value x, int lanes);
/* On chips that have it: c += a x, of matrices 16 x 16 and 16 x 8 of 16-bit numbers and sums in float32
 * (mma.sync.m16n8k16, PTX ISA): a[4]  i32: row g + 8 (i % 2), columns 2t + 8 (i / 2) and the next one x[2]  i32: column
 * g, rows 2t + 8 i and the next one c[4]  f32: row g + 8 (i / 2), column 2t + i % 2; read and replaced The order in
 * which products are added up is the machine's own, and so are the last bits. */
void ir_mma(ir *b, bool is_bf16, const ir_value *a, const ir_value *x, ir_value *c);
/* On those: four matrices of 8 x 8 16-bit numbers from shared memory (ldmatrix.x4). row: the address of row lane % 8 of
 * matrix lane / 8, a multiple of 16. x[i], an i32, receives of matrix i row g, columns 2t and 2t + 1; transposed:
 * column g, rows 2t and 2t + 1. */
void ir_load_matrices(ir *b, bool transposed, ir_value row, ir_value *x);

/* These are a lane's own: 16 bytes from global to shared memory while the thread goes on (cp.async.cg), both at
 * multiples of 16. A commit makes a group of the copies since the last one. The thread itself sees what it copied after
 * a wait for all groups but the latest `groups`, and others do after a barrier behind that wait. On chips without it
 * the thread waits for each copy. */
void ir_copy_async(ir *b, ir_value to, ir_value from);
void ir_copy_commit(ir *b);
void ir_copy_wait(ir *b, int groups);

/* Two float32, rounded to nearest even, as numbers of 16 bits in an i32; and back, exactly. */
ir_value ir_pack(ir *b, bool is_bf16, ir_value low, ir_value high);
void ir_unpack(ir *b, bool is_bf16, ir_value pair, ir_value *two);

/* On the host: NAME_host_warp(op, detail, in, out). A pointer is two words of `in`. */
typedef enum ir_warp_op {
  IR_WARP_EXCHANGE, /* detail: lanes */
  IR_WARP_MMA_F16, /* in: a, x, c */
  IR_WARP_MMA_BF16,
  IR_WARP_LOAD_MATRICES, /* detail: 1: transposed */
  IR_WARP_COLLECTIVES, /* those that follow are a lane's own */
  IR_WARP_COPY = IR_WARP_COLLECTIVES, /* in: to, from */
  IR_WARP_COPY_COMMIT,
  IR_WARP_COPY_WAIT /* detail: groups */
} ir_warp_op;
enum { IR_WARP_WORDS_IN = 12, IR_WARP_WORDS_OUT = 4, IR_WARP_WORDS = IR_WARP_WORDS_IN + IR_WARP_WORDS_OUT };

/* ---- control: the body is appended between begin and end ---- */
typedef struct ir_loop {
  MlirBlock outer;
  ir_value index; /* i64 */
  MlirOperation operation;
} ir_loop;
ir_loop ir_for(ir *b, ir_value begin, ir_value end); /* step 1 */
void ir_end_for(ir *b, ir_loop loop);
/* A loop with values that go from turn to turn: `current` receives them in the body, which ends by giving the
 * next ones; `results` receives the last. */
ir_loop ir_for_with(ir *b, ir_value begin, ir_value end, int count, const ir_value *initial, ir_value *current);
void ir_end_for_with(ir *b, ir_loop loop, int count, const ir_value *next, ir_value *results);

typedef struct ir_branch {
  MlirBlock outer, otherwise;
} ir_branch;
ir_branch ir_if(ir *b, ir_value condition); /* then the "then" block is current */
void ir_else(ir *b, ir_branch *branch);
void ir_end_if(ir *b, ir_branch branch);

/* An if with values: each side ends by giving them. */
enum { IR_MAX_RESULTS = 192 };
typedef struct ir_choice {
  MlirBlock outer, otherwise;
  MlirOperation operation;
} ir_choice;
ir_choice ir_choose(ir *b, ir_value condition, int count, const MlirType *types);
ir_choice ir_choose_alike(ir *b, ir_value condition, int count, MlirType type); /* values of one type */
void ir_choose_else(ir *b, ir_choice *choice, int count, const ir_value *values);
void ir_end_choose(ir *b, ir_choice choice, int count, const ir_value *values, ir_value *results);

/* See base/order.h. */
#define ir_op2(b, name, x, y) ORDERED2(x, y, ir_op2(b, name, x_, y_))
#define ir_compare_float(b, predicate, x, y) ORDERED2(x, y, ir_compare_float(b, predicate, x_, y_))
#define ir_compare_int(b, predicate, x, y) ORDERED2(x, y, ir_compare_int(b, predicate, x_, y_))
#define ir_select(b, condition, x, y) ORDERED3(condition, x, y, ir_select(b, x_, y_, z_))
#define ir_fma(b, x, y, z) ORDERED3(x, y, z, ir_fma(b, x_, y_, z_))
#define ir_offset(b, pointer, bytes) ORDERED2(pointer, bytes, ir_offset(b, x_, y_))
#define ir_store(b, value, pointer, alignment, nontemporal) \
  ORDERED2(value, pointer, ir_store(b, x_, y_, alignment, nontemporal))
#define ir_copy_async(b, to, from) ORDERED2(to, from, ir_copy_async(b, x_, y_))
#define ir_pack(b, is_bf16, low, high) ORDERED2(low, high, ir_pack(b, is_bf16, x_, y_))
#define ir_for(b, begin, end) ORDERED2(begin, end, ir_for(b, x_, y_))
#define ir_for_with(b, begin, end, count, initial, current) \
  ORDERED2(begin, end, ir_for_with(b, x_, y_, count, initial, current))
