/* verify/coroutine: see verify/coroutine.h. */
#include "verify/coroutine.h"

#if COROUTINE_BY_HAND

#include <stdint.h>

/* Keeps what a call preserves on the stack that is left, whose pointer goes to *from, and takes it from the other. */
void coroutine_switch(void **from, void *to) __attribute__((visibility("hidden")));
__asm__(".text\n"
        ".hidden coroutine_switch\n"
        ".globl coroutine_switch\n"
        ".type coroutine_switch, @function\n"
        "coroutine_switch:\n"
        "  pushq %rbp\n"
        "  pushq %rbx\n"
        "  pushq %r12\n"
        "  pushq %r13\n"
        "  pushq %r14\n"
        "  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n"
        "  popq %r14\n"
        "  popq %r13\n"
        "  popq %r12\n"
        "  popq %rbx\n"
        "  popq %rbp\n"
        "  ret\n"
        ".size coroutine_switch, . - coroutine_switch\n");

void coroutine_create(coroutine *c, void (*run)(void), char *stack, size_t bytes) {
  enum { PRESERVED = 6 };
  /* As behind a call: the stack is 8 below a multiple of 16, and the address to return to, of nowhere, on it. */
  uintptr_t *top = (uintptr_t *)(((uintptr_t)stack + bytes) & ~(uintptr_t)15) - 1;
  *top = 0;
  *--top = (uintptr_t)run;
  for (int i = 0; i < PRESERVED; i++) *--top = 0;
  c->stack_pointer = top;
}

void coroutine_resume(coroutine *c) { coroutine_switch(&c->caller, c->stack_pointer); }
void coroutine_wait(coroutine *c) { coroutine_switch(&c->stack_pointer, c->caller); }

#else

void coroutine_create(coroutine *c, void (*run)(void), char *stack, size_t bytes) {
  getcontext(&c->context);
  c->context.uc_stack.ss_sp = stack;
  c->context.uc_stack.ss_size = bytes;
  c->context.uc_link = NULL;
  makecontext(&c->context, run, 0);
}

void coroutine_resume(coroutine *c) { swapcontext(&c->caller, &c->context); }
void coroutine_wait(coroutine *c) { swapcontext(&c->context, &c->caller); }

#endif
