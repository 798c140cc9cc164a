/* device: the driver's memory, for tests; libcuda is found at run time. */
#ifndef PEGEN_TESTS_DEVICE_H
#define PEGEN_TESTS_DEVICE_H

#include "base/arena.h"

#include <dlpack/dlpack.h>
#include <stdbool.h>

/* False, after a message, where there is no driver or no device. Makes the first device's primary context current. */
bool device_open(void);
void device_close(void);
/* The chip as its number: 90 for sm_90. */
int device_chip(void);
/* A symbol of libcuda; NULL where it has none. */
void *device_symbol(const char *name);

/* The host tensor's copy on the device (same strides, gaps included), and back over the host's. */
DLTensor *device_upload(arena *a, const DLTensor *host);
void device_download(const DLTensor *device, DLTensor *host);
void device_free(DLTensor *device);

#endif
