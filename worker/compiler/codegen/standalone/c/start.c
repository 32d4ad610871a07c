/* The first instructions of ./run: they pass the stack to libc, whichever it is.
 *
 * glibc and musl take (main, argc, argv, ...) and call main with the environment.
 */
int main(int argc, char **argv);
extern int __libc_start_main(int (*)(int, char **), int, char **, void (*)(void), void (*)(void),
                             void (*)(void), void *);

#if defined(__x86_64__)
__asm__(".globl _start\n"
        "_start:\n"
        "  xor %ebp, %ebp\n"
        "  mov %rsp, %rdi\n"
        "  and $-16, %rsp\n"
        "  call bessemer_start\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n"
        "_start:\n"
        "  mov x29, #0\n"
        "  mov x30, #0\n"
        "  mov x0, sp\n"
        "  and sp, x0, #-16\n"
        "  b bessemer_start\n");
#elif defined(__riscv)
__asm__(".globl _start\n"
        "_start:\n"
        "  mv a0, sp\n"
        "  andi sp, sp, -16\n"
        "  tail bessemer_start\n");
#endif

__attribute__((used, noreturn)) void bessemer_start(long *stack) {
  __libc_start_main(main, (int)stack[0], (char **)(stack + 1), 0, 0, 0, stack);
  __builtin_trap();
}
