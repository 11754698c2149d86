// Text made fit for the report's page.
#pragma once

#include <string>
#include <string_view>

namespace cryptmpi::report {

/// What printable() makes of it, and nothing in it is markup: for HTML's text and for its attributes in quotation
/// marks.
std::string html(std::string_view text);

}  // namespace cryptmpi::report
