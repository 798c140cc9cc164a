/* confine: a process gives up all it could do to the machine but compute and talk over one socket. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* For good, and for all that this process becomes: no files, processes, network, signals or code but what is mapped
 * now; `bytes` more memory and `seconds` of processor time. Descriptor 0 is the socket (it was *channel), the others
 * are closed. NULL, or what the system lacks to do so. In builds with PEGEN_UNCONFINED (sanitizers) nothing but
 * *channel stays as it was. */
const char *confine(int *channel, size_t bytes, int seconds);

/* Whether this build confines at all. */
bool confine_is_built(void);
