/* launch_check_attention_backward.c: the checks of the driver of attention's gradients, as launch_check.c has those of
 * encode. */
#define PEGEN_CHECK_ANY_DEVICE

#include "../kernel/check_attention_backward.c"
