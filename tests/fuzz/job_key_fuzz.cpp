// Arbitrary content of a key file: only the documented form is accepted.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <vector>

#include "keys/job_key.hpp"

using namespace cryptmpi;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::vector<std::uint8_t> content(data, data + size);
    keys::JobKey key;
    if (keys::parse_job_key(content, key)) {
        std::string text(content.begin(), content.end());
        if (text.size() == 84 && text.back() == '\n') {
            text.pop_back();
        }
        bool good = text.size() == 83 && text.substr(0, 19) == "cryptmpi-job-key-1 ";
        for (std::size_t i = 19; good && i < text.size(); ++i) {
            good = std::isxdigit(static_cast<unsigned char>(text[i])) != 0;
        }
        if (!good) {
            std::abort();
        }
    }
    // A file of several: what is read is what is written, but for the case of digits and the last newline.
    if (const auto keys = keys::parse_job_keys(content)) {
        std::string written;
        for (const auto& one : *keys) {
            Secret<keys::kJobKeyLineSize> line;
            keys::write_key_line(*one, line);
            written.append(reinterpret_cast<const char*>(line.data()), line.size());
        }
        std::string text(content.begin(), content.end());
        if (!text.ends_with('\n')) {
            text += '\n';
        }
        std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
        if (text != written || keys->size() > keys::kMostJobKeys) {
            std::abort();
        }
    }
    return 0;
}
