/* cpu/schedule: the order in which a processor walks the loops of a program.
 *
 * A row's channels are a processor's lanes, and so are blocks where numbers are computed; what is left to choose is the
 * order of the loops. cpu/encode.c emits what it is given, so another order is another row of the table in
 * cpu/schedule.c.
 */
#pragma once

#include "program/program.h"

/* An encode program with its tokens' loops in order; loops over skipped tokens stay: the driver copies those rows. */
const program *cpu_schedule(arena *a, const program *p);
/* The order of rows that turn by inputs, for calls in which heads share these: a token's coefficients serve its heads.
 */
const program *cpu_schedule_of_tokens(arena *a, const program *p);
