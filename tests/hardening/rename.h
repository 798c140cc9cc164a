/* rename.h: what redefine.txt is for archives, for the program's main file. */
#include <stdio.h>
#include <stdlib.h>

#include "own_alloc.h"

#define main pegen_main
#define malloc own_malloc
#define calloc own_calloc
#define realloc own_realloc
#define free own_free
#define fopen own_fopen
#define open_memstream own_open_memstream

int pegen_main(int argc, char **argv);
