/* What the C runtime's start files have on Windows: thread-local memory, and stacks that grow page by page. */
#include <windows.h>

int _fltused = 1;
ULONG _tls_index = 0;
__attribute__((section(".tls"))) char _tls_start = 0;
__attribute__((section(".tls$ZZZ"))) char _tls_end = 0;
__attribute__((section(".rdata$T"), used)) const IMAGE_TLS_DIRECTORY64 _tls_used = {
    (ULONG64)&_tls_start, (ULONG64)&_tls_end, (ULONG64)&_tls_index, 0, 0, 0};

/* Touches each page of rax bytes of the stack below the caller's; it changes no register. */
__asm__(".globl ___chkstk_ms\n"
        ".globl __chkstk\n"
        "___chkstk_ms:\n"
        "__chkstk:\n"
        "  push %rcx\n"
        "  push %rax\n"
        "  lea 24(%rsp), %rcx\n"
        "1:\n"
        "  cmp $4096, %rax\n"
        "  jb 2f\n"
        "  sub $4096, %rcx\n"
        "  orq $0, (%rcx)\n"
        "  sub $4096, %rax\n"
        "  jmp 1b\n"
        "2:\n"
        "  sub %rax, %rcx\n"
        "  orq $0, (%rcx)\n"
        "  pop %rax\n"
        "  pop %rcx\n"
        "  ret\n");
