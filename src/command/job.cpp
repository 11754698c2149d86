#include "command/job.hpp"

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "aead/registry.hpp"
#include "keys/job_key.hpp"

namespace cryptmpi::command {

namespace fs = std::filesystem;

fs::path library_file(const config::Settings& settings) {
    return settings.module_folder / "libcryptmpi-channel.so";
}

fs::path agent_file(const config::Settings& settings) {
    return settings.module_folder / "cryptmpi-agent";
}

Result<void> check_installation(const config::Settings& settings) {
    const std::string library = library_file(settings).string();
    std::error_code ignored;
    if (!fs::exists(library, ignored)) {
        return fail(ENOENT,
                    "library " + library + " is missing; install CryptMPI on this node, or correct module_folder");
    }
    if (library.find_first_of(" :") != std::string::npos) {
        return fail(EINVAL,
                    "library " + library +
                        " cannot be preloaded, because its path has a space or a colon; install CryptMPI elsewhere");
    }
    if (settings.module != "auto") {
        auto module = aead::choose(settings.module_folder.string(), settings.module, settings.suite);
        if (!module) return tl::unexpected<Error>(module.error());
    }
    auto key = keys::read_job_key(settings.key_file);
    if (!key) return tl::unexpected<Error>(key.error());
    return {};
}

std::string preload_without(const fs::path& library, const config::Environment& environment) {
    const std::string all = environment("LD_PRELOAD").value_or("");
    std::string others;
    for (std::size_t start = 0; start < all.size();) {
        const auto end = std::min(all.find_first_of(" :", start), all.size());
        const std::string_view entry(all.data() + start, end - start);
        if (!entry.empty() && entry != library.native()) others += (others.empty() ? "" : ":") + std::string(entry);
        start = end + 1;
    }
    return others;
}

std::string preload_with(const fs::path& library, const config::Environment& environment) {
    const std::string others = preload_without(library, environment);
    return others.empty() ? library.string() : library.string() + ":" + others;
}

void set_variable(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace cryptmpi::command
