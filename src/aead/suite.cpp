#include "aead/suite.hpp"

#include <strings.h>

namespace cryptmpi::aead {

std::optional<Suite> suite_by_name(std::string_view text) {
    for (Suite suite : kAllSuites) {
        const std::string_view candidate = name(suite);
        if (candidate.size() == text.size() && strncasecmp(candidate.data(), text.data(), text.size()) == 0)
            return suite;
    }
    return std::nullopt;
}

std::optional<Suite> suite_by_number(unsigned number) {
    for (Suite suite : kAllSuites)
        if (static_cast<unsigned>(suite) == number) return suite;
    return std::nullopt;
}

}  // namespace cryptmpi::aead
