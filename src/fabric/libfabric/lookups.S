// RTLD_DEFAULT and RTLD_NEXT mean something to dlsym by who calls it: what is not ours goes on as its caller's.
        .text
#if defined(__x86_64__)
        .macro  lookup  name, find
        .globl  \name
        .type   \name, %function
\name:
        .cfi_startproc
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        subq    $16, %rsp
        .cfi_adjust_cfa_offset 16
        movq    %rsp, %rcx
        movq    40(%rsp), %r8           // who calls
        call    \find
        movq    (%rsp), %r11
        addq    $16, %rsp
        .cfi_adjust_cfa_offset -16
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %r11, %r11
        jz      1f
        jmp     *%r11
1:      ret
        .cfi_endproc
        .size   \name, . - \name
        .endm
#elif defined(__aarch64__)
        .macro  lookup  name, find
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
        add     x3, sp, #40
        mov     x4, x30                 // who calls
        bl      \find
        ldr     x16, [sp, #40]
        cbz     x16, 1f
        ldp     x0, x1, [sp, #16]
        ldr     x2, [sp, #32]
1:      ldp     x29, x30, [sp], #48
        .cfi_def_cfa_offset 0
        cbz     x16, 2f
        br      x16
2:      ret
        .cfi_endproc
        .size   \name, . - \name
        .endm
#endif

        lookup  cryptmpi_dlsym, cryptmpi_find_fabric_symbol
        lookup  cryptmpi_dlvsym, cryptmpi_find_fabric_version
        lookup  cryptmpi_dlsym_of_libdl, cryptmpi_find_fabric_symbol
        lookup  cryptmpi_dlvsym_of_libdl, cryptmpi_find_fabric_version
        // Programs are bound to the versions of libdl, or of the libc that took them in.
        .symver cryptmpi_dlsym, dlsym@@GLIBC_2.34
        .symver cryptmpi_dlvsym, dlvsym@@GLIBC_2.34
#if defined(__x86_64__)
        .symver cryptmpi_dlsym_of_libdl, dlsym@GLIBC_2.2.5
        .symver cryptmpi_dlvsym_of_libdl, dlvsym@GLIBC_2.2.5
#elif defined(__aarch64__)
        .symver cryptmpi_dlsym_of_libdl, dlsym@GLIBC_2.17
        .symver cryptmpi_dlvsym_of_libdl, dlvsym@GLIBC_2.17
#endif
        .section .note.GNU-stack,"",%progbits
