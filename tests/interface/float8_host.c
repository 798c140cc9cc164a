/* float8_host CODE SCALE: float32 from the standard input to float8 on the standard output, by a kernel in whose rows
 * channels from 32 on pass through, and whose first token goes by the driver's hand. CODE: DLPack's. It needs nothing
 * but pegen.h, so that it runs on other processors too; float8_test.py says what must come out. */
#include "pegen/pegen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const pegen_kernel rope_kernel;

enum { CHANNELS = 64, FREE = 32, MOST = 1 << 14 };

static float rows[MOST][CHANNELS], positions[MOST];
static unsigned char out[MOST][CHANNELS];

int main(int argc, char **argv) {
  int64_t tokens = 0;
  if (argc != 3) return 2;
  while (tokens < MOST && fread(&rows[tokens][FREE], sizeof(float), FREE, stdin) == FREE) tokens++;
  float scale = strtof(argv[2], NULL);
  int64_t shape[] = {1, 1, tokens, CHANNELS}, places[] = {tokens, 1};
  DLDataType f32 = {kDLFloat, 32, 1}, f8 = {(uint8_t)atoi(argv[1]), 8, 1};
  DLTensor k = {.data = rows, .device = {kDLCPU, 0}, .ndim = 4, .dtype = f32, .shape = shape};
  DLTensor k_out = {.data = out, .device = {kDLCPU, 0}, .ndim = 4, .dtype = f8, .shape = shape};
  DLTensor at = {.data = positions, .device = {kDLCPU, 0}, .ndim = 2, .dtype = f32, .shape = places};
  DLTensor by = {.data = &scale, .device = {kDLCPU, 0}, .dtype = f32};
  pegen_args args = {.struct_size = sizeof args, .k = &k, .k_out = &k_out, .positions = &at, .k_scale = &by};
  int error = rope_kernel.encode(&args, 0, 1);
  for (int64_t t = 0; t < tokens && !error; t++)
    if (fwrite(&out[t][FREE], 1, FREE, stdout) != FREE) return 1;
  return error;
}
