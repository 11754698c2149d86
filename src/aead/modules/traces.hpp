// What a crypto library leaves of the key where others find it: in vector registers, which the loader writes to the
// stack when it binds the program's next call, and on the stack, where they did not suffice.
#pragma once

#include <strings.h>

#include <cstddef>
#include <cstdint>

namespace cryptmpi::modules {

#if defined(__x86_64__)
[[gnu::noinline, gnu::target("avx512f")]] inline void wipe_upper_registers() {
    asm volatile(
        "vpxord %%zmm16, %%zmm16, %%zmm16\n vpxord %%zmm17, %%zmm17, %%zmm17\n vpxord %%zmm18, %%zmm18, %%zmm18\n"
        "vpxord %%zmm19, %%zmm19, %%zmm19\n vpxord %%zmm20, %%zmm20, %%zmm20\n vpxord %%zmm21, %%zmm21, %%zmm21\n"
        "vpxord %%zmm22, %%zmm22, %%zmm22\n vpxord %%zmm23, %%zmm23, %%zmm23\n vpxord %%zmm24, %%zmm24, %%zmm24\n"
        "vpxord %%zmm25, %%zmm25, %%zmm25\n vpxord %%zmm26, %%zmm26, %%zmm26\n vpxord %%zmm27, %%zmm27, %%zmm27\n"
        "vpxord %%zmm28, %%zmm28, %%zmm28\n vpxord %%zmm29, %%zmm29, %%zmm29\n vpxord %%zmm30, %%zmm30, %%zmm30\n"
        "vpxord %%zmm31, %%zmm31, %%zmm31\n" ::
            : "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26",
              "xmm27", "xmm28", "xmm29", "xmm30", "xmm31");
}

[[gnu::noinline, gnu::target("avx")]] inline void wipe_all_of_avx() {
    asm volatile("vzeroall" ::
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                       "xmm12", "xmm13", "xmm14", "xmm15");
}

[[gnu::noinline]] inline void wipe_all_of_sse() {
    asm volatile(
        "pxor %%xmm0, %%xmm0\n pxor %%xmm1, %%xmm1\n pxor %%xmm2, %%xmm2\n pxor %%xmm3, %%xmm3\n"
        "pxor %%xmm4, %%xmm4\n pxor %%xmm5, %%xmm5\n pxor %%xmm6, %%xmm6\n pxor %%xmm7, %%xmm7\n"
        "pxor %%xmm8, %%xmm8\n pxor %%xmm9, %%xmm9\n pxor %%xmm10, %%xmm10\n pxor %%xmm11, %%xmm11\n"
        "pxor %%xmm12, %%xmm12\n pxor %%xmm13, %%xmm13\n pxor %%xmm14, %%xmm14\n pxor %%xmm15, %%xmm15\n" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
              "xmm13", "xmm14", "xmm15");
}

inline const bool kHasAvx = __builtin_cpu_supports("avx") != 0;
inline const bool kHasAvx512 = __builtin_cpu_supports("avx512f") != 0;

inline void wipe_registers() {
    if (!kHasAvx) return wipe_all_of_sse();
    wipe_all_of_avx();
    if (kHasAvx512) wipe_upper_registers();
}
#else
inline void wipe_registers() {}
#endif

/// Called where the library was: the array has the place of its frames, as far down as `kDepth` bytes.
/// AddressSanitizer would put it elsewhere.
template <std::size_t kDepth>
[[gnu::noinline, gnu::no_sanitize_address]] void wipe_traces() {
    std::uint8_t left[kDepth];
    explicit_bzero(left, sizeof left);
    wipe_registers();
}

}  // namespace cryptmpi::modules
