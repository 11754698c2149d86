// A result that can fail and cannot be ignored.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace cryptmpi {

/// What went wrong: one line for people (what, where, how to mend it) and the errno a system call would give.
struct Error {
    std::string line;
    int code = 0;
};

template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
public:
    using tl::expected<T, Error>::expected;
};

inline tl::unexpected<Error> fail(int code, std::string line) {
    return tl::unexpected<Error>(Error{std::move(line), code});
}

}  // namespace cryptmpi
