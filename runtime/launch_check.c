/* launch_check.c: the checks of the CPU's driver, compiled for calls whose memory is a GPU's.
 *
 * They look at shapes, strides and addresses, never at elements, so they hold for any
 * device; which device the tensors are on is asked by the launcher. Kernels carry their own copy, whose names
 * are local to their objects.
 */
#define PEGEN_CHECK_ANY_DEVICE

#include "../kernel/check.c"
#include "../kernel/check_backward.c"
#include "../kernel/check_gradient.c"
#include "../kernel/check_slots.c"
#include "../kernel/memory.c"
#include "../kernel/sequences.c"
#include "../kernel/table.c"
#include "../kernel/view.c"
