/* base/limit: what this process may spend on a compilation, as a watchdog enforces it.
 *
 * LLVM and MLIR cannot be stopped from within, so a stage that meets a limit ends the process: with the user's error
 * and exit code 1. That is safe between limit_begin and limit_end alone: output is written after them, all at once, so
 * no old file is touched and no temporary file is there yet. A process that sets no limits has none.
 */
#pragma once

/* Processor seconds of one compilation, and MiB of memory of the process; 0: no limit. Set once, by the command line.
 */
void limit_of_process(double seconds, long mebibytes);

/* file, line: whose description it is. */
void limit_begin(const char *file, int line);
void limit_end(void);
