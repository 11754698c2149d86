// Text that came from elsewhere (names of programs and hosts, lines of errors), made fit to be shown.
#pragma once

#include <string>
#include <string_view>

namespace cryptmpi {

/// With a replacement character for each control character, for each that turns the direction of writing, and for each
/// byte that is not UTF-8: a terminal would obey the former, and a reader would be misled by the others. Line feeds
/// are control characters.
std::string printable(std::string_view text);

}  // namespace cryptmpi
