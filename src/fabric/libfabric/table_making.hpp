// How a table of operations is made of the functions behind it: for the files that have these (calls_*.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/pieces.hpp"
#include "fabric/libfabric/objects.hpp"
#include "fabric/libfabric/tables.hpp"

namespace cryptmpi::fabric::libfabric {

// Around the process, for the refusing functions, which get objects of many kinds.
extern Surroundings* surroundings;

inline constexpr const char* kOperations[] = {
#include "names.inc"
};
inline constexpr std::size_t kBeyond = 16;

template <std::size_t Count>
struct Table {
    std::size_t size;
    std::array<void*, Count> operations;
    std::array<void*, kBeyond> beyond;
};

template <class Function>
void* address(Function function) {
    return reinterpret_cast<void*>(function);
}

template <class Function, std::size_t Index>
struct Refused;
template <class R, class... A, std::size_t Index>
struct Refused<R (*)(A...), Index> {
    static R call(A...) {
        constexpr std::string_view kName = kOperations[Index];
        if (surroundings != nullptr) surroundings->refuse(kOperations[Index], "it is not sealed");
        // An MPI that reads and writes memory although no provider shows it can waits for it for ever.
        if (surroundings != nullptr && (kName.starts_with("fi_ops_rma.") || kName.starts_with("fi_ops_atomic."))) {
            surroundings->give_up("MPI insists on " + std::string(kName) +
                                  ", which the fabric layer does not seal: take another layer for this program");
        }
        if constexpr (std::is_pointer_v<R>) return nullptr;
        if constexpr (std::is_integral_v<R>) return static_cast<R>(-FI_ENOSYS);
    }
};

template <class Shown>
Shown* real_of(Shown* shown) {
    return Object<Shown>::of(shown).real;
}

/// The provider has the object in ours's place. An operation that an older provider has not is -FI_ENOSYS.
template <auto Member>
struct Passed;
template <class T, class R, class Shown, class... A, R (*T::*Member)(Shown*, A...)>
struct Passed<Member> {
    static R call(Shown* shown, A... rest) {
        auto* const real = real_of(shown);
        const T* const operations = real->ops;
        const auto place =
            reinterpret_cast<const char*>(&(operations->*Member)) - reinterpret_cast<const char*>(operations);
        const bool known = operations->size > static_cast<std::size_t>(place);
        if (known && operations->*Member != nullptr) return (operations->*Member)(real, rest...);
        if constexpr (std::is_pointer_v<R>) return nullptr;
        if constexpr (std::is_integral_v<R>) return static_cast<R>(-FI_ENOSYS);
    }
};

template <class Base, class Shown>
Base& mine(Shown* shown) {
    return *static_cast<Base*>(shown);
}

template <class Fid>
Fid* as(fid* object) {
    return reinterpret_cast<Fid*>(object);
}

inline void show_base(fid& shown, const fid& real, void* context) {
    shown.fclass = real.fclass;
    shown.context = context;
    shown.ops = table<fi_ops>();
}

inline std::uint64_t send_flags(fid_ep* shown) {
    return mine<Endpoint>(shown).send_flags;
}

// What a newer caller finds behind a table's end.
inline int refuse_newer() {
    if (surroundings != nullptr) surroundings->refuse(kOperations[std::size(kOperations) - 1], "it is not known");
    return -FI_ENOSYS;
}

inline std::array<void*, kBeyond> beyond() {
    std::array<void*, kBeyond> refusing;
    refusing.fill(address<int (*)()>(&refuse_newer));
    return refusing;
}

}  // namespace cryptmpi::fabric::libfabric
