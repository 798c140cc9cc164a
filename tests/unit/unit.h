/* unit.h: what the unit tests share: cmocka with the headers it wants first. */
#ifndef PEGEN_TESTS_UNIT_H
#define PEGEN_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
