#include "report/live_reader.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>

#include "base/printable.hpp"
#include "report/live.hpp"

namespace cryptmpi::report {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFiles = 65536;  // of a folder: its owner may fill it with what he likes
constexpr int kTries = 100;                // a page's texts are being written for less than a microsecond

std::optional<uid_t> as_user(std::string_view digits) {
    uid_t user = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), user);
    return error == std::errc{} && end == digits.data() + digits.size() ? std::optional(user) : std::nullopt;
}

std::vector<std::string> names_in(DIR* folder, std::size_t most) {
    std::vector<std::string> names;
    while (const dirent* entry = readdir(folder)) {
        if (entry->d_name[0] == '.') continue;
        if (names.size() == most) break;
        names.emplace_back(entry->d_name);
    }
    return names;
}

std::vector<std::string> names_in(const fs::path& folder) {
    const std::unique_ptr<DIR, int (*)(DIR*)> opened(opendir(folder.c_str()), closedir);
    return opened ? names_in(opened.get(), kMostFiles) : std::vector<std::string>();
}

/// Which user a process acts for; nullopt: it is gone.
std::optional<uid_t> user_of(pid_t pid) {
    std::ifstream stream(fmt::format("/proc/{}/status", pid));
    for (std::string line; std::getline(stream, line);) {
        if (!line.starts_with("Uid:")) continue;
        std::istringstream fields(line.substr(4));
        uid_t real = 0;
        uid_t effective = 0;
        return fields >> real >> effective ? std::optional(effective) : std::nullopt;
    }
    return std::nullopt;
}

template <std::size_t Room>
std::string text_of(const LiveText<Room>& room) {
    const auto end = std::find(room.begin(), room.end(), '\0');
    return printable({room.data(), static_cast<std::size_t>(end - room.begin())});
}

std::uint64_t count_of(const std::atomic<std::uint64_t>& count) {
    return count.load(std::memory_order_relaxed);
}

enum class Page { good, being_written, of_other_version, none };

/// By itself: the kernel copies the bytes of a page in whatever order, so that a page's own may be younger than its
/// texts.
std::optional<std::uint64_t> sequence_of(int file) {
    std::uint64_t sequence = 0;
    const ssize_t got = pread(file, &sequence, sizeof sequence, offsetof(LivePage, sequence));
    return got == static_cast<ssize_t>(sizeof sequence) ? std::optional(sequence) : std::nullopt;
}

/// By copying: who maps somebody else's file is ended when that is cut short.
Page read_page(int file, uid_t user, LivePage& page) {
    struct stat information {};
    if (fstat(file, &information) != 0 || !S_ISREG(information.st_mode) || information.st_uid != user ||
        (information.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return Page::none;
    constexpr std::size_t kHead = offsetof(LivePage, pid_namespace);
    if (pread(file, &page, kHead, 0) != static_cast<ssize_t>(kHead) || page.magic != kLiveMagic) return Page::none;
    if (page.version != kLiveVersion || page.size != sizeof page) return Page::of_other_version;
    for (int i = 0; i < kTries; ++i) {
        const auto before = sequence_of(file);
        if (pread(file, &page, sizeof page, 0) != static_cast<ssize_t>(sizeof page)) return Page::none;
        const auto after = sequence_of(file);
        if (!before || !after) return Page::none;
        const bool whole = *before == *after && *after % 2 == 0;
        // It may say something else by now.
        const bool ours = page.magic == kLiveMagic && page.version == kLiveVersion && page.size == sizeof page;
        if (whole) return ours ? Page::good : Page::none;
    }
    return Page::being_written;
}

LiveProcess process_of(const LivePage& page, uid_t user) {
    LiveProcess process;
    process.user = user;
    process.pid = page.pid;
    process.rank = page.rank;
    process.ranks = page.ranks;
    process.began = page.began;
    const LiveTexts& texts = page.texts;
    process.job_id = text_of(texts.job_id);
    process.layer = text_of(texts.layer);
    process.library = text_of(texts.library);
    process.role = text_of(texts.role);
    process.node = text_of(texts.node);
    process.group = text_of(texts.group);
    process.suite = text_of(texts.suite);
    process.module = text_of(texts.module);
    process.mpi = text_of(texts.mpi);
    process.program = text_of(texts.program);
    for (const Traffic& traffic : page.traffic) {
        process.sealed_records += traffic.sealed_records;
        process.sealed_bytes += traffic.sealed_bytes;
        process.opened_records += traffic.opened_records;
        process.opened_bytes += traffic.opened_bytes;
        process.sealed_connections += traffic.connections;
        process.rekeys += traffic.rekeys;
    }
    for (const Sizes::Class& of_size : page.sizes.sent.classes()) {
        process.sealed_records += of_size.messages;
        process.sealed_bytes += of_size.bytes;
    }
    for (const Sizes::Class& of_size : page.sizes.received.classes()) {
        process.opened_records += of_size.messages;
        process.opened_bytes += of_size.bytes;
    }
    process.native_connections = count_of(page.native_connections);
    process.unsealed_connections = count_of(page.unsealed_connections);
    process.failed_opens = count_of(page.failed_opens);
    process.refused_handshakes = count_of(page.refused_handshakes);
    process.refused_roads = count_of(page.refused_roads);
    process.errors = count_of(page.errors);
    process.id = fmt::format("{}.{}.{}.{}", user, page.pid, page.started, process.library);
    return process;
}

/// May a process have the number that stands first in this name? Asked of each page when a rank begins, so in one call.
bool may_be_there(const std::string& name) {
    std::istringstream fields(name);
    pid_t pid = 0;
    return fields >> pid && pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

/// Does the process run whose page has this name? All versions call it PID.START.LIBRARY.
bool names_a_process(const std::string& name) {
    std::istringstream fields(name);
    pid_t pid = 0;
    std::uint64_t started = 0;
    char dot = 0;
    return fields >> pid >> dot >> started && pid > 0 && start_of(pid) == started;
}

class Reader {
public:
    enum class Which : std::uint8_t { all, gone };
    /// `gone`: those alone whose process is not there.
    void read(const LiveFolder& folder, Which which = Which::all) {
        const int fd = open_live_folder(folder.path, folder.user, Make::no);
        if (fd < 0) return;
        const std::unique_ptr<DIR, int (*)(DIR*)> opened(fdopendir(fd), closedir);
        if (!opened) {
            close(fd);
            return;
        }
        for (const auto& name : names_in(opened.get(), kMostFiles)) {
            if (name.ends_with(".new") || (which == Which::gone && may_be_there(name))) continue;
            read_file(fd, name, folder.user);
        }
    }

    LiveProcesses result() && {
        std::sort(found_.processes.begin(), found_.processes.end(), [](const LiveProcess& a, const LiveProcess& b) {
            const auto order = [](const LiveProcess& one) {
                return std::tie(one.job_id, one.user, one.node, one.group, one.rank, one.pid, one.library);
            };
            return order(a) < order(b);
        });
        return std::move(found_);
    }

private:
    void read_file(int folder, const std::string& name, uid_t user) {
        const int file = openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (file < 0) return;
        const Page what = read_page(file, user, page_);
        close(file);
        if (what == Page::of_other_version && names_a_process(name)) ++found_.of_other_versions;
        // Numbers of another PID namespace say nothing here.
        if (what != Page::good || page_.pid <= 0 || page_.pid_namespace != namespace_) return;
        const auto started = start_of(page_.pid);
        if (!started || *started != page_.started) {
            if (user == geteuid()) unlinkat(folder, name.c_str(), 0);
            return;
        }
        // Nobody speaks for another user's process, and each for itself once.
        if (user_of(page_.pid) != user) return;
        auto process = process_of(page_, user);
        if (seen_.insert(process.id).second) found_.processes.push_back(std::move(process));
    }

    const std::uint64_t namespace_ = own_pid_namespace();
    LivePage page_{};
    std::set<std::string> seen_;
    LiveProcesses found_;
};

}  // namespace

std::vector<LiveFolder> folders_to_read(const char* runtime_folder, uid_t user, Whose whose) {
    std::vector<LiveFolder> folders;
    std::set<std::string> known;
    const auto add = [&](const fs::path& path, uid_t owner) {
        if (known.insert(path.lexically_normal().string()).second) folders.push_back({path, owner});
    };
    for (const auto& path : live_folders(runtime_folder, user)) add(path, user);
    // A process that a remote shell started may know its user's folder, where this one does not.
    add(fmt::format("/run/user/{}/cryptmpi", user), user);
    if (user != 0 || whose == Whose::own) return folders;
    for (const auto& name : names_in("/run/user")) {
        if (const auto owner = as_user(name)) add("/run/user/" + name + "/cryptmpi", *owner);
    }
    constexpr std::string_view kPrefix = "cryptmpi-";
    for (const auto& name : names_in("/dev/shm")) {
        if (!name.starts_with(kPrefix)) continue;
        if (const auto owner = as_user(std::string_view(name).substr(kPrefix.size()))) add("/dev/shm/" + name, *owner);
    }
    return folders;
}

LiveProcesses read_live(const std::vector<LiveFolder>& folders) {
    Reader reader;
    for (const auto& folder : folders) reader.read(folder);
    return std::move(reader).result();
}

void remove_stale_pages(const char* runtime_folder) {
    Reader reader;
    for (const auto& folder : folders_to_read(runtime_folder, geteuid(), Whose::own))
        reader.read(folder, Reader::Which::gone);
}

}  // namespace cryptmpi::report
