/* gpu/schedule: which loops of a program are threads of a GPU, and which a thread walks. */
#pragma once

#include "program/program.h"

/* An encode program with its loops in order: the outermost two are threads, the others the rows of one. */
const program *gpu_schedule(arena *a, const program *p);
/* A program of gradients of operands and positions: tokens, and heads that differ, are threads. */
const program *gpu_schedule_gradient(arena *a, const program *p);
