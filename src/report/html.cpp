#include "report/html.hpp"

#include "base/printable.hpp"

namespace cryptmpi::report {

std::string html(std::string_view text) {
    std::string escaped;
    for (const char letter : printable(text)) {
        switch (letter) {
            case '&':
                escaped += "&amp;";
                break;
            case '<':
                escaped += "&lt;";
                break;
            case '>':
                escaped += "&gt;";
                break;
            case '"':
                escaped += "&quot;";
                break;
            case '\'':
                escaped += "&#39;";
                break;
            default:
                escaped += letter;
        }
    }
    return escaped;
}

}  // namespace cryptmpi::report
