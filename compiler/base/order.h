/* base/order: in which order arguments are evaluated.
 *
 * Where two arguments of one call make something (an op, an expression), C leaves open which comes first, and compilers
 * differ. What a description becomes must not depend on the compiler that pegen was built with, so the functions whose
 * arguments are mostly made in place are macros over themselves that evaluate the last argument first. In a call of any
 * other function one argument at most may make something; tests/order looks for calls that break this.
 */
#pragma once

#define ORDERED2(x, y, call) \
  __extension__({ \
    __auto_type y_ = (y); \
    __auto_type x_ = (x); \
    call; \
  })
#define ORDERED3(x, y, z, call) \
  __extension__({ \
    __auto_type z_ = (z); \
    __auto_type y_ = (y); \
    __auto_type x_ = (x); \
    call; \
  })
