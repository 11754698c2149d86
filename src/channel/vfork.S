// vfork returns twice, first in the child, which goes on where it was called, on its parent's stack. So nothing that the
// parent still needs may be there: the address to return to, and what was noted before, stay in registers.
        .text
        .globl  vfork
        .globl  __vfork
        .type   vfork, %function
        .type   __vfork, %function
vfork:
__vfork:
        .cfi_startproc
#if defined(__x86_64__)
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    cryptmpi_before_vfork
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        movq    %rax, %rsi
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        .cfi_register %rip, %rdx
        movl    $58, %eax       // SYS_vfork
        syscall
        testq   %rax, %rax
        jz      1f
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rip, -8
        movq    %rax, %rdi
        jmp     cryptmpi_after_vfork
1:      .cfi_adjust_cfa_offset -8
        .cfi_register %rip, %rdx
        jmp     *%rdx
#elif defined(__aarch64__)
        stp     x29, x30, [sp, #-16]!
        .cfi_def_cfa_offset 16
        .cfi_offset x29, -16
        .cfi_offset x30, -8
        bl      cryptmpi_before_vfork
        ldp     x29, x30, [sp], #16
        .cfi_def_cfa_offset 0
        .cfi_restore x29
        .cfi_restore x30
        mov     x9, x0
        mov     x0, #0x4111     // CLONE_VFORK | CLONE_VM | SIGCHLD
        mov     x1, #0          // the same stack
        mov     x8, #220        // SYS_clone
        svc     #0
        cbz     x0, 1f
        mov     x1, x9
        b       cryptmpi_after_vfork
1:      ret
#else
#error "no entry for this processor: vfork.S has those of x86-64 and aarch64"
#endif
        .cfi_endproc
        .size   vfork, . - vfork
        .size   __vfork, . - __vfork

        .section .note.GNU-stack,"",%progbits
