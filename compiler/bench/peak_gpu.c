/* bench/peak_gpu: see bench/peak_gpu.h.
 *
 * Every warp repeats an operation on sums that do not wait for each other, from registers alone. Factors are random:
 * a device that multiplies zeros takes less power, and runs faster for it.
 */
#include "bench/peak_gpu.h"

enum {
  SUMS = 32,
  REPEATS = 8 /* in a turn of the loop, whose own instructions cost time */,
  THREADS = 256,
  WARP = 32,
  BLOCKS = 2 /* of a multiprocessor */,
  TURNS = 1024
};

typedef struct operation {
  const char *name, *head; /* the head of the module */
  int sums;                /* float32 sums of a thread that it adds to */
  double flops;            /* of a warp's operation */
  unsigned keep, set;      /* bits of factors: which ones are random, and which ones are set */
} operation;

#define MMA(type, bits_kept, bits_set) \
  {.name = "mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32", \
   .head = ".version 7.0\n.target sm_80\n", \
   .sums = 4, \
   .flops = 2.0 * 16 * 8 * 16, \
   .keep = bits_kept, \
   .set = bits_set}
static const operation operations[NUMBER_CHANNEL_TYPES] = {
    [NUMBER_F32] = {.name = "fma.rn.f32",
                    .head = ".version 6.3\n.target sm_75\n",
                    .sums = 1,
                    .flops = 2.0 * WARP,
                    .keep = 0x007fffff,
                    .set = 0x3f000000},
    [NUMBER_BF16] = MMA("bf16", 0x807f807f, 0x3f803f80), /* two numbers of +-[1, 2) */
    [NUMBER_F16] = MMA("f16", 0x83ff83ff, 0x3c003c00),
};

/* The next random bits. */
#define HASH "  mad.lo.u32 %%hash, %%hash, 1664525, 1013904223;\n"

static const char *write_seeds(arena *a, const operation *o) {
  char *text = "";
  for (int i = 0; i < 6; i++)
    text = arena_printf(a, "%s" HASH "  and.b32 %%a%d, %%hash, %u;\n  or.b32 %%a%d, %%a%d, %u;\n", text, i, o->keep, i,
                        i, o->set);
  for (int i = 0; i < SUMS; i++)
    text = arena_printf(a, "%s" HASH "  shr.u32 %%turn, %%hash, 24;\n  cvt.rn.f32.u32 %%s%d, %%turn;\n", text, i);
  return text;
}

static const char *write_operations(arena *a, const operation *o) {
  char *text = "";
  for (int n = 0; n < REPEATS * SUMS; n += o->sums) {
    int i = n % SUMS;
    const char *sums = arena_printf(a, "{%%s%d, %%s%d, %%s%d, %%s%d}", i, i + 1, i + 2, i + 3);
    text = o->sums == 1
               ? arena_printf(a, "%s  %s %%s%d, %%s%d, %%f0, %%f1;\n", text, o->name, i, i)
               : arena_printf(a, "%s  %s %s, {%%a0, %%a1, %%a2, %%a3}, {%%a4, %%a5}, %s;\n", text, o->name, sums, sums);
  }
  return text;
}

/* The sums are stored where they are infinite, which only the device finds out. */
static const char *write_module(arena *a, const operation *o) {
  const char *sum = "";
  for (int i = 1; i < SUMS; i++) sum = arena_printf(a, "%s  add.f32 %%s0, %%s0, %%s%d;\n", sum, i);
  return arena_printf(a,
                      "%s.address_size 64\n"
                      ".visible .entry pegen_peak(.param .u64 sink, .param .u32 turns)\n{\n"
                      "  .reg .pred %%more;\n  .reg .b32 %%hash, %%turn, %%turns, %%a<6>;\n"
                      "  .reg .f32 %%f<2>, %%s<%d>;\n  .reg .b64 %%sink;\n"
                      "  ld.param.u64 %%sink, [sink];\n  ld.param.u32 %%turns, [turns];\n  mov.u32 %%hash, %%tid.x;\n"
                      "%s  mov.b32 %%f0, %%a0;\n  mov.b32 %%f1, %%a1;\n  mov.u32 %%turn, 0;\nagain:\n"
                      "%s  add.u32 %%turn, %%turn, 1;\n  setp.lt.u32 %%more, %%turn, %%turns;\n  @%%more bra again;\n"
                      "%s  setp.eq.f32 %%more, %%s0, 0f7F800000;\n  @%%more st.global.f32 [%%sink], %%s0;\n  ret;\n}\n",
                      o->head, SUMS, write_seeds(a, o), write_operations(a, o), sum);
}

static const operation *operation_of(const gpu_target *target, number_type type) {
  return &operations[target->has_mma ? type : NUMBER_F32];
}

const char *peak_gpu_name(const gpu_target *target, number_type type) { return operation_of(target, type)->name; }

bool peak_gpu_open(arena *a, peak_gpu *p, const cuda_device *device, number_type type) {
  const operation *o = operation_of(device->target, type);
  double warps = (double)BLOCKS * device->multiprocessors * (THREADS / WARP);
  *p = (peak_gpu){.device = device, .flops = o->flops * warps * (SUMS / o->sums) * REPEATS * TURNS};
  return cuda_allocate(sizeof(float), &p->sink) &&
         cuda_works(cuda.cuModuleLoadData(&p->module, write_module(a, o)), "the loop of products") &&
         cuda_works(cuda.cuModuleGetFunction(&p->function, p->module, "pegen_peak"), "the loop of products");
}

bool peak_gpu_measure(const peak_gpu *p, double *flops_per_second) {
  unsigned turns = TURNS, blocks = (unsigned)(BLOCKS * p->device->multiprocessors);
  cuda_address sink = p->sink;
  void *parameters[] = {&sink, &turns};
  double seconds;
  if (!cuda_begin(p->device) ||
      !cuda_works(cuda.cuLaunchKernel(p->function, blocks, 1, 1, THREADS, 1, 1, 0, NULL, parameters, NULL), "launch") ||
      !cuda_end(p->device, &seconds))
    return false;
  *flops_per_second = p->flops / seconds;
  return true;
}

void peak_gpu_close(peak_gpu *p) {
  if (p->module) cuda.cuModuleUnload(p->module);
  if (p->sink) cuda.cuMemFree_v2(p->sink);
}
