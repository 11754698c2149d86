/* One entry for each procedure of the table, under its MPI_ and its PMPI_ name: a jump through the procedure's slot. A slot
 * first leads to the code behind its entry, which asks cryptmpi_resolve for the address and goes there with the call's
 * registers as they were. Spare entries without a name serve procedures that the table does not know. */

        .set    index, 0
        .hidden cryptmpi_slots
        .globl  cryptmpi_slots
        .hidden cryptmpi_resolve
        .hidden cryptmpi_entries
        .globl  cryptmpi_entries
        .hidden cryptmpi_find_symbol
        .hidden cryptmpi_prepare_dlopen

        .section .data.cryptmpi_slots, "aw"
        .p2align 3
        .type   cryptmpi_slots, %object
cryptmpi_slots:

        .section .data.rel.ro.cryptmpi_entries, "aw"
        .p2align 3
        .type   cryptmpi_entries, %object
cryptmpi_entries:

        .macro  remember entry, unbound
        .pushsection .data.rel.ro.cryptmpi_entries
        .quad   \entry
        .popsection
        .pushsection .data.cryptmpi_slots
        .quad   \unbound
        .popsection
        .set    index, index + 1
        .endm

#if defined(__x86_64__)

        .macro  entry
.Lentry\@:
        .cfi_startproc
        jmp     *(cryptmpi_slots + 8 * index)(%rip)
.Lunbound\@:
        pushq   $index
        .cfi_adjust_cfa_offset 8
        jmp     .Lbind_and_go
        .cfi_endproc
        remember .Lentry\@, .Lunbound\@
        .endm

        .text
        .p2align 4
        .type   .Lbind_and_go, %function
.Lbind_and_go:
        .cfi_startproc
        .cfi_def_cfa_offset 16
        pushq   %rbp
        .cfi_def_cfa_offset 24
        .cfi_offset %rbp, -24
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        pushq   %rax
        pushq   %rdi
        pushq   %rsi
        pushq   %rdx
        pushq   %rcx
        pushq   %r8
        pushq   %r9
        pushq   %r10
        subq    $136, %rsp
        movaps  %xmm0, 0(%rsp)
        movaps  %xmm1, 16(%rsp)
        movaps  %xmm2, 32(%rsp)
        movaps  %xmm3, 48(%rsp)
        movaps  %xmm4, 64(%rsp)
        movaps  %xmm5, 80(%rsp)
        movaps  %xmm6, 96(%rsp)
        movaps  %xmm7, 112(%rsp)
        movq    8(%rbp), %rdi
        call    cryptmpi_resolve
        movq    %rax, %r11
        movaps  0(%rsp), %xmm0
        movaps  16(%rsp), %xmm1
        movaps  32(%rsp), %xmm2
        movaps  48(%rsp), %xmm3
        movaps  64(%rsp), %xmm4
        movaps  80(%rsp), %xmm5
        movaps  96(%rsp), %xmm6
        movaps  112(%rsp), %xmm7
        addq    $136, %rsp
        popq    %r10
        popq    %r9
        popq    %r8
        popq    %rcx
        popq    %rdx
        popq    %rsi
        popq    %rdi
        popq    %rax
        popq    %rbp
        .cfi_restore %rbp
        .cfi_def_cfa %rsp, 16
        addq    $8, %rsp
        .cfi_def_cfa_offset 8
        jmp     *%r11
        .cfi_endproc

        /* RTLD_DEFAULT and RTLD_NEXT mean something to dlsym by who calls it: what is not ours goes on as its caller's. */
        .globl  dlsym
        .type   dlsym, %function
dlsym:
        .cfi_startproc
        movq    (%rsp), %rcx
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $24, %rsp
        .cfi_adjust_cfa_offset 24
        movq    %rsp, %rdx
        call    cryptmpi_find_symbol
        movq    (%rsp), %r11
        addq    $24, %rsp
        .cfi_adjust_cfa_offset -24
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %r11, %r11
        jz      1f
        jmp     *%r11
1:      ret
        .cfi_endproc
        .size   dlsym, . - dlsym

        /* It looks for libraries by who calls it, too: libc's goes on as its caller's, with the flags that it is to have. */
        .globl  dlopen
        .type   dlopen, %function
dlopen:
        .cfi_startproc
        movq    (%rsp), %rdx
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        leaq    8(%rsp), %rdi
        movq    %rdx, %rsi
        call    cryptmpi_prepare_dlopen
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .cfi_endproc
        .size   dlopen, . - dlopen

#elif defined(__aarch64__)

        .macro  entry
.Lentry\@:
        .cfi_startproc
        adrp    x16, cryptmpi_slots + 8 * index
        ldr     x16, [x16, :lo12:cryptmpi_slots + 8 * index]
        br      x16
.Lunbound\@:
        mov     w17, index
        b       .Lbind_and_go
        .cfi_endproc
        remember .Lentry\@, .Lunbound\@
        .endm

        .text
        .p2align 4
        .type   .Lbind_and_go, %function
.Lbind_and_go:
        .cfi_startproc
        stp     x29, x30, [sp, #-224]!
        .cfi_def_cfa_offset 224
        .cfi_offset x29, -224
        .cfi_offset x30, -216
        stp     x0, x1, [sp, #16]
        stp     x2, x3, [sp, #32]
        stp     x4, x5, [sp, #48]
        stp     x6, x7, [sp, #64]
        str     x8, [sp, #80]
        stp     q0, q1, [sp, #96]
        stp     q2, q3, [sp, #128]
        stp     q4, q5, [sp, #160]
        stp     q6, q7, [sp, #192]
        mov     w0, w17
        bl      cryptmpi_resolve
        mov     x16, x0
        ldp     q6, q7, [sp, #192]
        ldp     q4, q5, [sp, #160]
        ldp     q2, q3, [sp, #128]
        ldp     q0, q1, [sp, #96]
        ldr     x8, [sp, #80]
        ldp     x6, x7, [sp, #64]
        ldp     x4, x5, [sp, #48]
        ldp     x2, x3, [sp, #32]
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #224
        .cfi_def_cfa_offset 0
        br      x16
        .cfi_endproc

        .globl  dlsym
        .type   dlsym, %function
dlsym:
        .cfi_startproc
        stp     x29, x30, [sp, #-48]!
        .cfi_def_cfa_offset 48
        .cfi_offset x29, -48
        .cfi_offset x30, -40
        stp     x0, x1, [sp, #16]
        mov     x3, x30
        add     x2, sp, #32
        bl      cryptmpi_find_symbol
        ldr     x16, [sp, #32]
        cbz     x16, 1f
        ldp     x0, x1, [sp, #16]
1:      ldp     x29, x30, [sp], #48
        .cfi_def_cfa_offset 0
        cbz     x16, 2f
        br      x16
2:      ret
        .cfi_endproc
        .size   dlsym, . - dlsym

        .globl  dlopen
        .type   dlopen, %function
dlopen:
        .cfi_startproc
        stp     x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset x29, -32
        .cfi_offset x30, -24
        stp     x0, x1, [sp, #16]
        add     x0, sp, #24
        mov     x1, x30
        bl      cryptmpi_prepare_dlopen
        mov     x16, x0
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_def_cfa_offset 0
        br      x16
        .cfi_endproc
        .size   dlopen, . - dlopen

#else
#error "no entries for this processor: trampolines.S has those of x86-64 and aarch64"
#endif

        .macro  procedure name
        .globl  \name
        .type   \name, %function
        .globl  P\name
        .type   P\name, %function
        .p2align 4
\name:
P\name:
        entry
        .size   \name, . - \name
        .size   P\name, . - P\name
        .endm

#define PROCEDURE(name, group, reason) procedure name
#include "procedures.inc"

        .rept   64
        .p2align 4
        entry
        .endr

        .section .note.GNU-stack, "", %progbits
