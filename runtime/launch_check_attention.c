/* launch_check_attention.c: the checks of the driver of attention, as launch_check.c has those of encode. */
#define PEGEN_CHECK_ANY_DEVICE

#include "../kernel/check_attention.c"
