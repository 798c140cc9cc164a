/* failing: the library's writes fail where a test wants it; the linker's --wrap sends them here. */
#ifndef PEGEN_TESTS_FAILING_H
#define PEGEN_TESTS_FAILING_H

/* Writes to files below the folder find the disk full; NULL: no more. */
void failing_writes_below(const char *folder);

#endif
