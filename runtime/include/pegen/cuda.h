/* cuda.h: launching the PTX that is compiled into a kernel's object.
 *
 * `pegen NAME.lua -o NAME.o --target x86-64-v3,sm_90` puts PTX beside the CPU's code. The
 * runtime library loads libcuda.so.1 when it is first asked for, and links nothing
 * of CUDA; on a machine without it these functions return PEGEN_ERROR_NO_CUDA_DRIVER.
 *
 * An engine that has its own launcher reads kernel->ptx and follows docs/embedding-ptx.md.
 */
#ifndef PEGEN_CUDA_H
#define PEGEN_CUDA_H

#include <pegen/pegen.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Encodes q and k, gives gradients, or computes attention: tensors of device kDLCUDA (or
 * kDLCUDAManaged), on a stream (a CUstream or cudaStream_t; NULL: the default one). entry: "encode", "attention",
 * "encode_backward", "attention_backward" or one of the last three with "_finish"; NULL: the first of the first two
 * that the kernel has.
 *
 * Arguments are those of NAME_encode, NAME_attention or their backward entries and are checked like them before
 * anything is launched (attention's lse of a kernel that was compiled before there was one: PEGEN_ERROR_UNKNOWN_FIELD);
 * further, all tensors must be on one device (PEGEN_ERROR_DEVICE). A backward call that asks for gradients of operands
 * or positions, be it of positions alone, and any of attention, has a workspace of pegen_cuda_workspace() bytes on that
 * device; where operands gain, the entry with "_finish" is launched on the same stream, which is the barrier. Attention
 * with args->split_keys has a workspace where it has few queries (heads of q for one of k times queries at most 32) of
 * 16-bit rows and many keys; "attention_finish" follows it on the same stream, and does nothing where there is no
 * workspace. Attention whose rotations factorise has one for rotated rows, with split_keys or without, and attention
 * whose rows have addresses, strides or sizes that are no multiples of 16 bytes has one for copies of these. Rows of
 * other entries are accessed 16 bytes at a time where they allow that, else one channel at a time: right, and slower.
 *
 * Returns when the work is queued. The caller keeps tensors alive until the stream is done. The first
 * launch of a kernel in a context loads its module, which may wait for the device and
 * must not happen while the stream is captured. Safe from any thread. */
int pegen_launch(const pegen_kernel *kernel, const char *entry, const pegen_args *args, void *stream);

/* Bytes of args->workspace for an entry, by the sizes of the call, and of attention by addresses and strides of rows; 0
 * where none is needed, and where the call would be refused, for its size, too. No device is asked. */
size_t pegen_cuda_workspace(const pegen_kernel *kernel, const char *entry, const pegen_args *args);

/* After PEGEN_ERROR_CUDA in this thread: the driver's name of it, "CUDA_ERROR_NO_BINARY_FOR_GPU". After
 * PEGEN_ERROR_NO_CUDA_DRIVER: why a driver that is there did not start, or "" where there is none. Otherwise "". */
const char *pegen_cuda_error_name(void);

/* Seconds of the last pegen_launch in this thread in which the driver assembled PTX: of a first call, else 0. */
double pegen_cuda_assembly_seconds(void);

/* Devices that the driver sees; 0 where there is none, or no driver. */
int pegen_cuda_device_count(void);

/* The chip of a device as targets name it, 90 of sm_90; 0 where there is no such device. */
int pegen_cuda_chip(int device);

#ifdef __cplusplus
}
#endif
#endif
