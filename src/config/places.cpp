#include "config/places.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <pwd.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include "base/descriptor.hpp"
#include "base/hex.hpp"
#include "base/own_names.hpp"
#include "config/internal_variables.hpp"

namespace cryptmpi::config {

namespace fs = std::filesystem;

namespace {

constexpr char kInThisObject = 0;

// Of statfs(2); the headers of older systems lack some.
constexpr std::uint32_t kOverlay = 0x794c7630;
constexpr std::uint32_t kFuse = 0x65735546;
constexpr std::array<std::uint32_t, 6> kRemote = {0x6969, 0xff534d42, 0xfe534d42, 0x00c36400, 0x5346414f, 0x6b414653};

std::string identity_of_parts(const fs::path& report_file) {
    const fs::path folder = report_token_file(report_file).parent_path();
    const Descriptor opened(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    return *opened < 0 ? std::string() : folder_identity(*opened);
}

std::string overlay_prefix() {
    return fmt::format("{:x}.", kOverlay);
}

}  // namespace

fs::path config_folder(const Environment& environment) {
    if (auto xdg = environment("XDG_CONFIG_HOME"); xdg && xdg->starts_with('/')) return fs::path(*xdg) / "cryptmpi";
    if (auto home = environment("HOME"); home && !home->empty()) return fs::path(*home) / ".config/cryptmpi";
    std::array<char, 4096> buffer{};
    passwd entry{};
    passwd* found = nullptr;
    if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
        return fs::path(found->pw_dir) / ".config/cryptmpi";
    }
    return "/etc/cryptmpi";
}

std::optional<fs::path> settings_file(const Environment& environment) {
    if (const auto named = environment(kConfigVariable)) return fs::absolute(*named);
    if (environment(kSettingsGivenVariable)) return std::nullopt;
    return config_folder(environment) / "config.toml";
}

fs::path default_module_folder() {
    Dl_info here{};
    const bool found = dladdr(&kInThisObject, &here) != 0;
    constexpr std::uintptr_t kPageMask = 4095;
    const bool in_executable =
        !found || reinterpret_cast<std::uintptr_t>(here.dli_fbase) == (getauxval(AT_PHDR) & ~kPageMask);
    std::error_code ignored;
    if (!in_executable) return fs::weakly_canonical(here.dli_fname, ignored).parent_path();
    const fs::path prefix = fs::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
    for (const char* lib : {"lib", CRYPTMPI_LIBDIR}) {
        if (auto folder = prefix / lib / "cryptmpi"; fs::is_directory(folder, ignored)) return folder;
    }
    return prefix / "lib" / "cryptmpi";
}

fs::path report_token_file(const fs::path& report_file) {
    return report_file.string() + ".parts/token";
}

TokenThere token_there(const fs::path& report_file, std::string_view token) {
    errno = 0;
    std::ifstream stream(report_token_file(report_file));
    if (!stream.is_open() && errno == EACCES) return TokenThere::unreadable;
    std::string found;
    return std::getline(stream, found) && found == token ? TokenThere::same : TokenThere::another;
}

std::string folder_identity(int folder) {
    struct stat found {};
    struct statfs system {};
    if (::fstat(folder, &found) != 0 || ::fstatfs(folder, &system) != 0) return {};
    const auto type = static_cast<std::uint32_t>(system.f_type);
    // These give a folder another number when they have forgotten it.
    const bool numbered = type != kOverlay && type != kFuse;
    // An automounter mounts these anew, each time under another number.
    const bool lasting = std::find(kRemote.begin(), kRemote.end(), type) == kRemote.end();
    return fmt::format("{:x}.{:x}.{:x}", type, lasting ? found.st_dev : 0, numbered ? found.st_ino : 0);
}

std::string seen_folder(const fs::path& report_file, const std::string& token) {
    const std::string identity = identity_of_parts(report_file);
    return identity.empty() ? std::string() : token + " " + boot_id() + " " + identity;
}

Seen compare_seen(const fs::path& report_file, std::string_view token, std::string_view seen) {
    const auto first = seen.find(' ');
    const auto last = seen.rfind(' ');
    if (first == std::string_view::npos || last == first || seen.substr(0, first) != token) return Seen::unknown;
    const std::string identity = identity_of_parts(report_file);
    const auto machine = seen.substr(first + 1, last - first - 1);
    const std::string own = boot_id();
    // An overlay is mounted by one machine: no folder that machines share is in it. Who cannot tell which machine this
    // is has the word of its parent.
    if (!own.empty() && machine != own) return identity.starts_with(overlay_prefix()) ? Seen::another : Seen::unknown;
    return identity == seen.substr(last + 1) ? Seen::same : Seen::another;
}

bool is_report_token(std::string_view token) {
    constexpr std::size_t kDigits = 32;
    return token.size() == kDigits && token.find_first_not_of(kHexDigits) == std::string_view::npos;
}

fs::path local_report_folder(std::string_view token) {
    return fs::path("/dev/shm") / ("cryptmpi-parts-" + std::string(token));
}

fs::path report_place(const fs::path& report_file, const Environment& environment) {
    const auto token = environment(kReportTokenVariable);
    if (!token || !is_report_token(*token) || report_file.empty()) return report_file;
    const TokenThere there = token_there(report_file, *token);
    const Seen seen = compare_seen(report_file, *token, environment(kSeenFolderVariable).value_or(""));
    const bool told = there == TokenThere::same || (there == TokenThere::unreadable && seen == Seen::same);
    if (told && seen != Seen::another) return report_file;
    return local_report_folder(*token) / report_file.filename();
}

}  // namespace cryptmpi::config
