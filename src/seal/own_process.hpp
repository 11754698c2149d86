// The keys and counts of the MPI layer belong to one process. A forked child has a copy of both, and would seal under
// nonces that its parent uses, too: nothing seals or opens there. (What the channel layer shares with children is in
// its arena, with one count for all.)
#pragma once

#include <cerrno>
#include <cstdint>

#include "base/result.hpp"

namespace cryptmpi::seal {

namespace detail {
/// Not zero in the process that has the keys. In memory that the kernel wipes in a forked child, however it was forked.
extern const volatile std::uint8_t* own_mark;
}  // namespace detail

/// From now on this process has keys, and no child that is forked later. The first call counts, in children, too: one
/// that was forked before it may have keys of its own.
void claim_keys();

/// HOT PATH. Is this the process that called claim_keys()?
inline bool owns_keys() {
    return *detail::own_mark != 0;
}

inline auto forked() {
    return fail(EPERM,
                "a forked child of an MPI process cannot send or receive sealed messages: the keys and the "
                "numbers of messages are its parent's; call MPI in the process that called MPI_Init");
}

}  // namespace cryptmpi::seal
