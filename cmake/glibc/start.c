/* glibc/start: a program that was linked on glibc 2.34 or later leaves it to libc to run its constructors. Older libcs
 * expect a function for that, as these programs had. */
typedef void initialiser(int, char **, char **);
typedef void finisher(void);
typedef int started(int, char **, char **);

extern initialiser *__init_array_start[], *__init_array_end[]; /* the linker defines both */
extern void _init(void);

static void initialise(int count, char **words, char **environment) {
  _init();
  for (initialiser **each = __init_array_start; each < __init_array_end; each++) (*each)(count, words, environment);
}

/* The linker's option --wrap gives these names their sense. */
int __real___libc_start_main(started *, int, char **, initialiser *, finisher *, finisher *, void *);
int __wrap___libc_start_main(started *, int, char **, initialiser *, finisher *, finisher *, void *);
int __wrap___libc_start_main(started *start, int count, char **words, initialiser *none, finisher *finish,
                             finisher *finish_loader, void *stack_end) {
  (void)none;
  return __real___libc_start_main(start, count, words, initialise, finish, finish_loader, stack_end);
}
