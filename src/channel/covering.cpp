#include "channel/covering.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "channel/process_report.hpp"
#include "channel/real.hpp"
#include "config/internal_variables.hpp"
#include "programs/coverable.hpp"

namespace cryptmpi::channel {
namespace {

constexpr std::string_view kPreload = "LD_PRELOAD=";

std::string own_file() {
    Dl_info here{};
    return dladdr(reinterpret_cast<const void*>(&own_file), &here) != 0 && here.dli_fname != nullptr ? here.dli_fname
                                                                                                     : "";
}

/// The entries of an LD_PRELOAD, one after the other; empty: no more.
std::string_view next_entry(std::string_view& list) {
    while (!list.empty()) {
        const auto end = std::min(list.find_first_of(" :"), list.size());
        const std::string_view entry = list.substr(0, end);
        list.remove_prefix(std::min(end + 1, list.size()));
        if (!entry.empty()) return entry;
    }
    return {};
}

bool names(std::string_view list, std::string_view file) {
    for (auto entry = next_entry(list); !entry.empty(); entry = next_entry(list)) {
        if (entry == file) return true;
    }
    return false;
}

/// The value of the loader's variable: it takes the last one.
const char* preload_in(char* const* environment) {
    const char* found = nullptr;
    for (char* const* one = environment; one != nullptr && *one != nullptr; ++one) {
        if (std::strncmp(*one, kPreload.data(), kPreload.size()) == 0) found = *one + kPreload.size();
    }
    return found;
}

bool same_name(const char* entry, const std::string& variable) {
    const std::size_t name = variable.find('=') + 1;
    return std::strncmp(entry, variable.c_str(), name) == 0;
}

bool has_name(char* const* environment, const std::string& variable) {
    for (char* const* one = environment; one != nullptr && *one != nullptr; ++one) {
        if (same_name(*one, variable)) return true;
    }
    return false;
}

bool has(char* const* environment, const std::string& variable) {
    for (char* const* one = environment; one != nullptr && *one != nullptr; ++one) {
        if (variable == *one) return true;
    }
    return false;
}

bool is_same_file(const char* one, const char* other) {
    struct stat first {};
    struct stat second {};
    return stat(one, &first) == 0 && stat(other, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/// Does what the loader does first with a library. A sandbox (Landlock, a security module) hides or denies files that
/// access() calls readable. Nothing: it can be done.
std::string why_not_mapped(const std::string& library) {
    const int fd = real::open(library.c_str(), O_RDONLY | O_CLOEXEC, 0);
    // Too many descriptors here need not be too many there; and if they are, the loader finds no C library either.
    if (fd < 0) return errno == EMFILE ? std::string() : std::strerror(errno);
    struct stat status {};
    const bool known = fstat(fd, &status) == 0;
    const auto size = known ? static_cast<std::size_t>(status.st_size) : 0;
    void* const at = size < SELFMAG ? MAP_FAILED : mmap(nullptr, size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    const int error = errno;
    real::close(fd);
    if (size < SELFMAG) return "no library is there, but another file";
    if (at == MAP_FAILED) return std::strerror(error);
    const bool library_there = std::memcmp(at, ELFMAG, SELFMAG) == 0;
    munmap(at, size);
    return library_there ? std::string() : "no library is there, but another file";
}

}  // namespace

Covering::Covering(const config::Settings& settings, const config::Environment& environment) : settings_(settings) {
    libraries_.push_back(own_file());
    const std::string preload = environment("LD_PRELOAD").value_or("");
    std::string_view rest = preload;
    for (auto entry = next_entry(rest); !entry.empty(); entry = next_entry(rest)) {
        const auto name = entry.substr(entry.rfind('/') + 1);
        if (name.starts_with("libcryptmpi-") && entry != libraries_.front()) libraries_.emplace_back(entry);
    }
    for (const auto& [name, value] : environment.variables()) {
        if (name.starts_with("CRYPTMPI_") && name != config::kArenaVariable && name != config::kRoleVariable)
            variables_.push_back(fmt::format("{}={}", name, value));
    }
    const auto carry = [&](const char* variable, const std::string& value) {
        if (!environment(variable)) variables_.push_back(std::string(variable) + "=" + value);
    };
    carry(config::kCoveredVariable, "yes");
    if (!settings.report_file.empty()) carry(config::kReportFileVariable, settings.report_file.string());
    if (!environment("CRYPTMPI_KEY_FILE")) places_.push_back("CRYPTMPI_KEY_FILE=" + settings.key_file.string());
    const auto file = config::settings_file(environment);
    if (!environment("CRYPTMPI_CONFIG") && file && access(file->c_str(), F_OK) == 0)
        places_.push_back("CRYPTMPI_CONFIG=" + file->string());
    for (const char* name : {"HOME", "XDG_CONFIG_HOME"}) {
        if (const auto value = environment(name)) homes_.push_back(std::string(name) + "=" + *value);
    }
}

bool Covering::allows(const std::string& file) const {
    return std::any_of(settings_.allow_programs.begin(), settings_.allow_programs.end(),
                       [&](const auto& allowed) { return is_same_file(allowed.c_str(), file.c_str()); });
}

/// What makes the loader leave our libraries out of any program, which it does without an error.
std::string Covering::why_not_loaded() const {
    if (getuid() != geteuid() || getgid() != getegid())
        return "this process has another effective user or group than its real one, so the loader would take no "
               "library of ours; make both the same first";
    for (const std::string& library : libraries_) {
        if (access(library.c_str(), R_OK) != 0)
            return library +
                   " is not to be seen from where it would run (another root); make that folder visible there";
        struct statvfs mount {};
        if (statvfs(library.c_str(), &mount) == 0 && (mount.f_flag & ST_NOEXEC) != 0)
            return library + " lies where nothing may be run (noexec); mount that folder without it";
        if (const std::string why = why_not_mapped(library); !why.empty())
            return fmt::format(
                "{} cannot be loaded where it would run ({}); let that folder be read and run from there, "
                "in a sandbox, too",
                library, why);
    }
    return {};
}

bool Covering::may_start(ProcessReport& report, const std::string& file) const {
    const auto refusal = programs::judge(file, {});
    if (refusal && refusal->is_kernels) {  // the program's own affair, as it would be without us
        errno = refusal->code;
        return false;
    }
    if (refusal && allows(file)) {
        if (report.count_unsealed("allow_programs: " + file + " ran without CryptMPI", true)) return true;
        errno = EACCES;
        return false;
    }
    std::string line;
    if (refusal) {
        line = refusal->line + ". Not started; if it talks to no other node, name it in allow_programs";
    } else {
        const std::string why = why_not_loaded();
        if (why.empty()) return true;
        line = "program " + file + ": " + why + ", so its traffic would go out in clear";
    }
    const int code = refusal ? refusal->code : EACCES;
    // What the kernel would not start either is the program's own affair.
    if (code == EACCES) report.tell_of_refused("program " + file, line);
    errno = code;
    return false;
}

bool Covering::is_whole(char* const* environment) const {
    const char* preload = preload_in(environment);
    const auto named = [&](const std::string& library) { return preload != nullptr && names(preload, library); };
    return std::all_of(libraries_.begin(), libraries_.end(), named) &&
           std::all_of(variables_.begin(), variables_.end(),
                       [&](const std::string& variable) { return has_name(environment, variable); });
}

std::size_t Covering::most_entries(char* const* environment) const {
    std::size_t count = 0;
    for (char* const* one = environment; one != nullptr && *one != nullptr; ++one) ++count;
    return count + variables_.size() + places_.size() + 3;  // LD_PRELOAD, one more, and the end
}

std::size_t Covering::most_text(char* const* environment) const {
    const char* given = preload_in(environment);
    std::size_t size = kPreload.size() + (given == nullptr ? 0 : std::strlen(given)) + 1;
    for (const auto& library : libraries_) size += library.size() + 1;
    return size;
}

/// Ours first, then what was given; what else is ours comes last, because tools may stand before the MPI layer.
void Covering::compose_preload(const char* given, char* text) const {
    std::size_t at = 0;
    const auto append = [&](std::string_view more) {
        std::memcpy(text + at, more.data(), more.size());
        at += more.size();
    };
    const std::string_view list = given == nullptr ? "" : given;
    append(kPreload);
    for (std::size_t i = 0; i < libraries_.size(); ++i) {
        if (!names(list, libraries_[i])) {
            if (at > kPreload.size()) append(":");
            append(libraries_[i]);
        }
        if (i > 0 || list.empty()) continue;
        if (at > kPreload.size()) append(":");
        append(list);
    }
    text[at] = '\0';
}

void Covering::fill(char* const* environment, const char* without, const char* more, char** list, char* text) const {
    std::size_t count = 0;
    const auto starts_with = [](const char* entry, std::string_view name) {
        return std::strncmp(entry, name.data(), name.size()) == 0;
    };
    for (char* const* one = environment; one != nullptr && *one != nullptr; ++one) {
        const bool ours = starts_with(*one, kPreload) || starts_with(*one, without);
        if (!ours) list[count++] = *one;
    }
    list[count] = nullptr;
    const auto add_missing = [&](const std::vector<std::string>& variables) {
        for (const auto& variable : variables) {
            if (has_name(list, variable)) continue;
            list[count++] = const_cast<char*>(variable.c_str());
            list[count] = nullptr;
        }
    };
    add_missing(variables_);
    const bool at_home =
        std::all_of(homes_.begin(), homes_.end(), [&](const std::string& home) { return has(environment, home); });
    if (!at_home) add_missing(places_);
    compose_preload(preload_in(environment), text);
    list[count++] = text;
    if (more != nullptr) list[count++] = const_cast<char*>(more);
    list[count] = nullptr;
}

}  // namespace cryptmpi::channel
