#include "report/json_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "base/json_text.hpp"

namespace cryptmpi::report {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Result<Json> read_json(const fs::path& file) {
    errno = 0;
    std::ifstream stream(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    if (!stream) {
        const int code = errno != 0 ? errno : EIO;
        return fail(code, "cannot read report " + file.string() + ": " + std::strerror(code));
    }
    auto json = parse_json<Json>(text);
    if (!json.is_object())
        return fail(EINVAL, file.string() +
                                " is not a report of CryptMPI: no JSON object in it, or one that has a key "
                                "twice, a number that is no integer, or is nested too deep");
    return json;
}

}  // namespace cryptmpi::report
