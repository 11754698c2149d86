// Memory for secrets that outlive a call: in no core dump, kept from swap as far as the system lets us, wiped when it
// is given back.
//
// Its pages hold nothing else, so leaving them out of a dump takes nothing from whoever debugs the program. A forked
// child has a copy, left out of its dumps too, because it goes on with its parent's connections: MADV_WIPEONFORK is for
// these pages only where a library asks for it, which the MPI layer's does. What several processes must change together
// is in the channel layer's arena instead.
//
// Every library that links this has memory of its own. It is for the making of keys and flows, not for each message.
#pragma once

#include <cstddef>
#include <new>

namespace cryptmpi {

inline constexpr std::size_t kSecretAlignment = 64;  // a cache line, and the widest vectors of any cipher
inline constexpr std::size_t kMostSecretMemory = 16 * 1024;

/// `size` bytes, at most kMostSecretMemory, all zero, at a multiple of kSecretAlignment. Null: there is no memory.
void* take_secret_memory(std::size_t size) noexcept;
/// Wipes what was taken with this size, for others to take. Null is allowed.
void give_back_secret_memory(void* at, std::size_t size) noexcept;

/// Children that are forked later find zeros in what is taken from now on, where the kernel can do that (Linux 4.14).
void wipe_secret_memory_in_children() noexcept;

/// For what has allocators: std::list, std::allocate_shared.
template <class T>
struct SecretAllocator {
    using value_type = T;
    static_assert(alignof(T) <= kSecretAlignment);

    SecretAllocator() = default;
    template <class U>
    SecretAllocator(const SecretAllocator<U>&) noexcept {}

    T* allocate(std::size_t count) {
        void* const at = count <= kMostSecretMemory ? take_secret_memory(count * sizeof(T)) : nullptr;
        if (at == nullptr) throw std::bad_alloc();
        return static_cast<T*>(at);
    }
    void deallocate(T* at, std::size_t count) noexcept { give_back_secret_memory(at, count * sizeof(T)); }

    template <class U>
    bool operator==(const SecretAllocator<U>&) const noexcept {
        return true;
    }
};

}  // namespace cryptmpi
