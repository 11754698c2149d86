// fmt, compiled once, hidden as all of ours is: the other files include <fmt/core.h>, which only declares it. It is not
// a library of the system's: a program that we are preloaded into may bring another version of that.
#define FMT_HEADER_ONLY
#include <fmt/format.h>

namespace cryptmpi {

/// What fmt::format() calls. It is inline here, so that only a use of it puts it into the library.
[[gnu::used]] std::string (*const kFormatting)(fmt::string_view, fmt::format_args) = fmt::vformat;

}  // namespace cryptmpi
