// dlopen looks for libraries, and dlsym for what is next, by who calls them: both go on as their caller's. What is
// called before gets the arguments, which it may change, and the caller; it says where to go on, or null: the first
// argument is the answer.
        .text
#if defined(__x86_64__)
        .macro  lookup  name, before
        .globl  \name
        .type   \name, %function
\name:
        .cfi_startproc
        subq    $24, %rsp
        .cfi_adjust_cfa_offset 24
        movq    %rdi, (%rsp)
        movq    %rsi, 8(%rsp)
        movq    %rdx, 16(%rsp)
        movq    %rsp, %rdi
        movq    24(%rsp), %rsi
        call    \before
        movq    %rax, %r11
        movq    (%rsp), %rdi
        movq    8(%rsp), %rsi
        movq    16(%rsp), %rdx
        movq    %rdi, %rax
        addq    $24, %rsp
        .cfi_adjust_cfa_offset -24
        testq   %r11, %r11
        jz      1f
        jmp     *%r11
1:      ret
        .cfi_endproc
        .size   \name, . - \name
        .endm
#elif defined(__aarch64__)
        .macro  lookup  name, before
        .globl  \name
        .type   \name, %function
\name:
        .cfi_startproc
        stp     x29, x30, [sp, #-48]!
        .cfi_def_cfa_offset 48
        .cfi_offset x29, -48
        .cfi_offset x30, -40
        stp     x0, x1, [sp, #16]
        str     x2, [sp, #32]
        add     x0, sp, #16
        mov     x1, x30
        bl      \before
        mov     x16, x0
        ldp     x0, x1, [sp, #16]
        ldr     x2, [sp, #32]
        ldp     x29, x30, [sp], #48
        .cfi_def_cfa_offset 0
        cbz     x16, 1f
        br      x16
1:      ret
        .cfi_endproc
        .size   \name, . - \name
        .endm
#else
#error "no entries for this processor: lookups.S has those of x86-64 and aarch64"
#endif

        lookup  dlopen, cryptmpi_before_dlopen
        lookup  dlsym, cryptmpi_before_dlsym
        lookup  dlvsym, cryptmpi_before_dlvsym

        .section .note.GNU-stack,"",%progbits
