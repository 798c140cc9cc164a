/* launch_check_attention.c: the checks of the driver of attention, as launch_check.c has those of encode. */
#include "launch_names.h"

#include "../kernel/check_attention.c"
