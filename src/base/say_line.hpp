// A line that a process of a job says to whoever reads its messages.
#pragma once

#include <string>

namespace cryptmpi {

/// Writes `line` to the descriptor `to`, with the name of whom it comes from (empty: of nobody). `write` is libc's: a
/// layer that stands before it has its own way to that. It is called once, so that lines of many ranks do not mix.
/// Nothing can be done where nobody reads them.
template <class Write>
void say_line(Write&& write, int to, const std::string& from, const std::string& line) {
    const std::string whole = "cryptmpi: " + (from.empty() ? line : from + ": " + line) + "\n";
    [[maybe_unused]] const auto written = write(to, whole.data(), whole.size());
}

}  // namespace cryptmpi
