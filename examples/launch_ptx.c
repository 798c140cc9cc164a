/* launch_ptx: a PTX file of pegen's in a program of one's own, over the CUDA driver's API alone.
 *
 *   pegen specs/geope3d.lua -o geope3d.ptx --target sm_80
 *   cc launch_ptx.c -I/usr/local/cuda/include -lcuda -lm && ./a.out geope3d.ptx
 *
 * Encodes queries and keys of a 4 x 4 x 4 volume in place, as [B,N,H,D] bfloat16, and checks
 * that every block of three kept its length. docs/embedding-ptx.md explains the parameters.
 */
#include <cuda.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 4, BATCHES = 2, TOKENS = SIDE * SIDE * SIDE, HEADS = 8, K_HEADS = 2, DIM = 64, AXES = 3, BLOCK = 3 };
/* From the comments at the head of the PTX file. */
enum { BLOCK_TOKENS = 16, THREADS = 128, ROWS = 10 /* all heads of q and k in one thread */ };

static void must(CUresult result, const char *what) {
  const char *name = "?";
  if (result == CUDA_SUCCESS) return;
  cuGetErrorName(result, &name);
  fprintf(stderr, "%s: %s\n", what, name);
  exit(1);
}

static char *read_text(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) {
    perror(path);
    exit(1);
  }
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  char *text = calloc((size_t)size + 1, 1);
  if (!text || fread(text, 1, (size_t)size, file) != (size_t)size) exit(1);
  fclose(file);
  return text;
}

static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static double length(const uint16_t *block) {
  double sum = 0;
  for (int i = 0; i < BLOCK; i++) sum += (double)from_bf16(block[i]) * from_bf16(block[i]);
  return sqrt(sum);
}

static CUdeviceptr upload(const void *data, size_t bytes) {
  CUdeviceptr memory;
  must(cuMemAlloc(&memory, bytes), "allocation");
  must(cuMemcpyHtoD(memory, data, bytes), "upload");
  return memory;
}

/* Nine parameters of a tensor in [B,N,H,D] memory: in, out, heads, and strides in bytes of batch, token and head,
 * twice. */
static void add_tensor(int64_t *parameter, int *count, CUdeviceptr memory, int64_t heads) {
  const int64_t row = DIM * 2;
  parameter[(*count)++] = (int64_t)memory;
  parameter[(*count)++] = (int64_t)memory;
  parameter[(*count)++] = heads;
  for (int side = 0; side < 2; side++) {
    parameter[(*count)++] = TOKENS * heads * row;
    parameter[(*count)++] = heads * row;
    parameter[(*count)++] = row;
  }
}

int main(int argc, char **argv) {
  static uint16_t q[BATCHES * TOKENS * HEADS * DIM], k[BATCHES * TOKENS * K_HEADS * DIM],
      out[BATCHES * TOKENS * HEADS * DIM];
  static int32_t positions[TOKENS][AXES];
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction encode;
  if (argc != 2) return fprintf(stderr, "usage: %s geope3d.ptx\n", argv[0]), 2;

  for (size_t i = 0; i < sizeof q / sizeof *q; i++) q[i] = to_bf16((float)rand() / (float)RAND_MAX - 0.5f);
  for (size_t i = 0; i < sizeof k / sizeof *k; i++) k[i] = to_bf16((float)rand() / (float)RAND_MAX - 0.5f);
  for (int n = 0; n < TOKENS; n++) {
    positions[n][0] = n / (SIDE * SIDE);
    positions[n][1] = n / SIDE % SIDE;
    positions[n][2] = n % SIDE;
  }

  must(cuInit(0), "driver");
  must(cuDeviceGet(&device, 0), "device");
  must(cuDevicePrimaryCtxRetain(&context, device), "context");
  must(cuCtxSetCurrent(context), "context");
  must(cuModuleLoadData(&module, read_text(argv[1])), "module"); /* the driver assembles it for its device */
  must(cuModuleGetFunction(&encode, module, "geope3d_encode_bf16"), "entry");
  CUdeviceptr q_memory = upload(q, sizeof q), k_memory = upload(k, sizeof k),
              positions_memory = upload(positions, sizeof positions);

  int64_t parameter[26];
  int count = 0;
  parameter[count++] = BATCHES;
  parameter[count++] = TOKENS;
  parameter[count++] = ROWS;
  parameter[count++] = (int64_t)positions_memory;
  parameter[count++] = 2;                    /* int32 */
  parameter[count++] = 0;                    /* batches share positions */
  parameter[count++] = AXES * sizeof(int32_t); /* from token to token */
  parameter[count++] = sizeof(int32_t);      /* from axis to axis */
  add_tensor(parameter, &count, q_memory, HEADS);
  add_tensor(parameter, &count, k_memory, K_HEADS);

  void *parameters[26];
  for (int i = 0; i < count; i++) parameters[i] = &parameter[i];
  unsigned grid_x = (BATCHES * TOKENS + BLOCK_TOKENS - 1) / BLOCK_TOKENS, grid_y = (HEADS + K_HEADS + ROWS - 1) / ROWS;
  must(cuLaunchKernel(encode, grid_x, grid_y, 1, THREADS, 1, 1, 0, NULL, parameters, NULL), "launch");
  must(cuMemcpyDtoH(out, q_memory, sizeof out), "download");

  double worst = 0;
  for (size_t row = 0; row < sizeof q / sizeof *q; row += DIM)
    for (int block = 0; block + BLOCK <= DIM; block += BLOCK)
      worst = fmax(worst, fabs(length(out + row + block) - length(q + row + block)));
  printf("geope3d_encode_bf16: grid %u x %u, the length of a block changed by at most %.2g\n", grid_x, grid_y, worst);
  must(cuDevicePrimaryCtxRelease(device), "context");
  return worst > 0.01;
}
