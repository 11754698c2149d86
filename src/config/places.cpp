#include "config/places.hpp"

#include <dlfcn.h>
#include <pwd.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include "base/hex.hpp"
#include "config/internal_variables.hpp"

namespace cryptmpi::config {

namespace fs = std::filesystem;

namespace {

constexpr char kInThisObject = 0;

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
    std::ifstream stream(report_token_file(report_file));
    std::string found;
    if (std::getline(stream, found) && found == *token) return report_file;
    return local_report_folder(*token) / report_file.filename();
}

}  // namespace cryptmpi::config
