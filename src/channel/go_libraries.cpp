#include "channel/go_libraries.hpp"

#include <fmt/core.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "channel/covering.hpp"
#include "channel/process_report.hpp"
#include "programs/go_note.hpp"

namespace cryptmpi::channel {
namespace {

constexpr const char* kOwnProgram = "/proc/self/exe";

/// What the loader had loaded, and unloaded, at the last look, and what it had then.
struct Seen {
    std::atomic<unsigned long long> added{0};
    std::atomic<unsigned long long> removed{0};
    std::atomic<std::size_t> objects{0};
};

constinit Seen seen;
/// The process that looks just now; 0: none. One that forked meanwhile looks no more in the child.
constinit std::atomic<pid_t> looking{0};
/// The process that has looked: a forked child, which has a report of its own, counts anew.
constinit std::atomic<pid_t> looked{0};

[[gnu::tls_model("initial-exec")]] constinit thread_local bool may_not_look = false;

/// A segment of a loaded object; what lies outside is not there.
class Loaded {
public:
    Loaded(const dl_phdr_info& object, const ElfW(Phdr) & segment)
        : at_(reinterpret_cast<const char*>(object.dlpi_addr + segment.p_vaddr)), size_(segment.p_memsz) {}

    template <class T>
    std::optional<T> read(std::uint64_t offset) const {
        if (offset > size_ || size_ - offset < sizeof(T)) return std::nullopt;
        T value;
        std::memcpy(&value, at_ + offset, sizeof value);
        return value;
    }
    bool holds(std::uint64_t offset, std::string_view text) const {
        return offset <= size_ && size_ - offset > text.size() &&
               std::memcmp(at_ + offset, text.data(), text.size()) == 0 && at_[offset + text.size()] == '\0';
    }

private:
    const char* at_;
    std::uint64_t size_;
};

bool is_of_go(const dl_phdr_info& object) {
    const auto segments_end = object.dlpi_phdr + object.dlpi_phnum;
    return std::any_of(object.dlpi_phdr, segments_end, [&](const ElfW(Phdr) & notes) {
        // Notes may be in the file alone.
        const bool loaded = std::any_of(object.dlpi_phdr, segments_end, [&](const ElfW(Phdr) & segment) {
            return segment.p_type == PT_LOAD && (segment.p_flags & PF_R) != 0 && notes.p_vaddr >= segment.p_vaddr &&
                   notes.p_vaddr + notes.p_memsz <= segment.p_vaddr + segment.p_filesz;
        });
        return notes.p_type == PT_NOTE && loaded && programs::has_go_note(Loaded(object, notes), 0, notes.p_memsz);
    });
}

struct Walk {
    std::size_t known = 0;  // objects at the beginning of the list that were looked at
    std::size_t at = 0;
    unsigned long long added = 0;
    unsigned long long removed = 0;
    std::vector<std::string> files;  // of Go's; empty: the program
};

int visit(dl_phdr_info* object, std::size_t, void* to) {
    auto& walk = *static_cast<Walk*>(to);
    if (walk.at == 0) {
        walk.added = object->dlpi_adds;
        walk.removed = object->dlpi_subs;
        if (walk.removed != seen.removed.load()) walk.known = 0;
    }
    if (walk.at++ >= walk.known && is_of_go(*object))
        walk.files.emplace_back(object->dlpi_name == nullptr ? "" : object->dlpi_name);
    return 0;
}

int is_new(dl_phdr_info* object, std::size_t, void* answer) {
    *static_cast<bool*>(answer) = object->dlpi_adds != seen.added.load() || object->dlpi_subs != seen.removed.load();
    return 1;
}

std::string own_program() {
    char path[PATH_MAX] = {};
    const ssize_t size = readlink(kOwnProgram, path, sizeof path - 1);
    return size > 0 ? std::string(path, static_cast<std::size_t>(size)) : "of this process";
}

void count(ProcessReport& report, const Covering& covering, const std::string& file) {
    const bool allowed = covering.allows(kOwnProgram) || (!file.empty() && covering.allows(file));
    const std::string why =
        fmt::format("{}what the Go {} {} may have sent by system calls of its own", allowed ? "allow_programs: " : "",
                    file.empty() ? "program" : "library", file.empty() ? own_program() : file);
    // It is there, and cannot be refused any more.
    if (!report.count_unsealed(why, allowed)) report.complain("not sealed: " + why);
}

}  // namespace

NoLook::NoLook() : before_(std::exchange(may_not_look, true)) {}

NoLook::~NoLook() {
    may_not_look = before_;
}

bool is_something_loaded() {
    if (may_not_look) return false;
    bool answer = false;
    dl_iterate_phdr(is_new, &answer);
    return answer || looked.load() != getpid();
}

void look_for_go(ProcessReport& report, const Covering& covering) {
    const pid_t own = getpid();
    pid_t other = 0;
    while (!looking.compare_exchange_strong(other, own)) {
        if (other == own) return;
    }
    static auto* counted = new std::set<std::string>;
    Walk walk;
    if (looked.exchange(own) == own) {
        walk.known = seen.objects.load();
    } else {
        counted->clear();
    }
    dl_iterate_phdr(visit, &walk);
    seen.added.store(walk.added);
    seen.removed.store(walk.removed);
    seen.objects.store(walk.at);
    for (const auto& file : walk.files) {
        if (counted->insert(file).second) count(report, covering, file);
    }
    looking.store(0);
}

}  // namespace cryptmpi::channel
