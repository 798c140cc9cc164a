/* turns.h: threads that ask for the same thing take turns, so that the second finds what the first has made. */
#pragma once

#include <stdint.h>

/* Waits while another thread of this process has the turn of that number. */
void pegen_turn_take(uint64_t number);
void pegen_turn_give(uint64_t number);
