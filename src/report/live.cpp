#include "report/live.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/process_stat.hpp"

namespace cryptmpi::report {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kPermissions = 07777;
constexpr const char* kLibraries[] = {"channel", "fabric", "mpi"};

template <std::size_t Room>
void write(LiveText<Room>& room, std::string_view text) {
    room = {};
    std::copy_n(text.begin(), std::min(text.size(), Room), room.begin());
}

/// Memory of ours, of zeros; at `place` if there is one, in the stead of what is there.
void* private_memory(void* place) {
    return mmap(place, sizeof(LivePage), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | (place != nullptr ? MAP_FIXED : 0), -1, 0);
}

/// The kernel never pages it out to a disk or a server, and never has to wait for one when somebody counts.
bool is_in_memory(int fd) {
    struct statfs information {};
    if (fstatfs(fd, &information) != 0) return false;
    const auto type = static_cast<unsigned long>(information.f_type);
    return type == static_cast<unsigned long>(TMPFS_MAGIC) || type == static_cast<unsigned long>(RAMFS_MAGIC);
}

int refused(int error) {
    errno = error;
    return -1;
}

std::string file_of(pid_t pid, std::uint64_t started, std::string_view library) {
    return fmt::format("{}.{}.{}", pid, started, library);
}

tl::unexpected<Error> no_page(const fs::path& at, int error) {
    return fail(error, "no page for cryptmpi top in " + at.string() + ": " + std::strerror(error));
}

}  // namespace

std::vector<fs::path> live_folders(const char* runtime_folder, uid_t user) {
    std::vector<fs::path> folders;
    if (runtime_folder != nullptr && *runtime_folder == '/') folders.push_back(fs::path(runtime_folder) / "cryptmpi");
    folders.emplace_back(fmt::format("/dev/shm/cryptmpi-{}", user));
    return folders;
}

std::vector<fs::path> own_live_folders() {
    return live_folders(own_runtime_folder(), geteuid());
}

const char* own_runtime_folder() {
    return std::getenv("XDG_RUNTIME_DIR");
}

int open_live_folder(const fs::path& folder, uid_t user, Make make) {
    const Descriptor above(open(folder.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    struct stat information {};
    if (*above < 0 || fstat(*above, &information) != 0) return -1;
    if (information.st_uid != 0 && information.st_uid != user) return refused(EPERM);
    const std::string name = folder.filename().string();
    if (make == Make::yes && mkdirat(*above, name.c_str(), S_IRWXU) != 0 && errno != EEXIST) return -1;
    Descriptor opened(openat(*above, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (*opened < 0 || fstat(*opened, &information) != 0) return -1;
    // Somebody else may have made it first, where all may write.
    if (information.st_uid != user || (information.st_mode & kPermissions) != S_IRWXU) return refused(EPERM);
    if (!is_in_memory(*opened)) return refused(EMEDIUMTYPE);
    return opened.release();
}

std::uint64_t own_pid_namespace() {
    struct stat information {};
    return stat("/proc/self/ns/pid", &information) == 0 ? information.st_ino : 0;
}

std::uint64_t own_user_namespace() {
    struct stat information {};
    return stat("/proc/self/ns/user", &information) == 0 ? information.st_ino : 0;
}

std::optional<std::uint64_t> start_of(pid_t pid) {
    const ProcessStat process(pid);
    const auto state = process[ProcessStat::kState];
    const auto field = process[ProcessStat::kStart];
    const bool ended = state == "Z" || state == "X";
    if (ended || !field) return std::nullopt;
    std::uint64_t started = 0;
    const auto [end, error] = std::from_chars(field->data(), field->data() + field->size(), started);
    return error == std::errc{} && end == field->data() + field->size() ? std::optional(started) : std::nullopt;
}

Live::Live() : owner_(getpid()) {
    void* const memory = private_memory(nullptr);
    // Without memory for a page a program has none for itself either.
    page_ = memory == MAP_FAILED ? new LivePage{} : new (memory) LivePage{};
}

TrafficCounter Live::counter(TrafficCounter::Threads threads) {
    const std::lock_guard guard(lock_);
    // The first place is for all that several threads count.
    for (std::size_t i = 1; threads == TrafficCounter::Threads::one && i < kTrafficPlaces; ++i) {
        if (!std::exchange(taken_[i], true)) return {page_->traffic[i], threads};
    }
    return {page_->traffic[0], TrafficCounter::Threads::several};
}

void Live::give_back(const TrafficCounter& counter) {
    const std::lock_guard guard(lock_);
    for (std::size_t i = 1; i < kTrafficPlaces; ++i) {
        if (counter.counts_in(page_->traffic[i])) taken_[i] = false;
    }
}

Result<void> Live::publish(const std::vector<fs::path>& folders, const Part& part) {
    const std::lock_guard guard(lock_);
    if (!is_shared_) owner_ = getpid();  // of a page in memory that nobody shares, a child has its own
    if (getpid() != owner_ || std::exchange(published_, true)) return {};
    Result<void> done = fail(ENOENT, "no folder for pages of cryptmpi top is known");
    for (const auto& folder : folders) {
        done = publish_in(folder, part);
        if (done) break;
    }
    return done;
}

Result<void> Live::publish_in(const fs::path& folder, const Part& part) {
    const auto started = start_of(owner_);
    if (!started) return no_page(folder, ENOENT);
    // A program that may write no files would get a signal for this one.
    rlimit most{};
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < sizeof(LivePage)) return no_page(folder, EFBIG);
    const Descriptor place(open_live_folder(folder, geteuid(), Make::yes));
    if (*place < 0) return no_page(folder, errno);
    const std::string name = file_of(owner_, *started, part.library);
    const std::string fresh = name + ".new";
    unlinkat(*place, fresh.c_str(), 0);
    const Descriptor file(
        openat(*place, fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (*file < 0) return no_page(folder, errno);
    const auto no_file = [&](int error) {
        unlinkat(*place, fresh.c_str(), 0);
        return no_page(folder, error);
    };
    // All of it is there from the start: where memory is short, this fails, and not the program when it counts.
    if (const int error = posix_fallocate(*file, 0, sizeof(LivePage)); error != 0) return no_file(error);
    if (const auto written = pwrite(*file, static_cast<const void*>(page_), sizeof(LivePage), 0);
        written != static_cast<ssize_t>(sizeof(LivePage)))
        return no_file(written < 0 ? errno : ENOSPC);
    // To where counters look already, and all at once. Not by mremap, of which UCX's own one loses the address.
    if (mmap(page_, sizeof(LivePage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, *file, 0) == MAP_FAILED)
        return no_file(errno);
    is_shared_ = true;
    page_->magic = kLiveMagic;
    page_->version = kLiveVersion;
    page_->size = sizeof(LivePage);
    page_->pid_namespace = own_pid_namespace();
    page_->started = *started;
    page_->began = part.began;
    page_->pid = owner_;
    write_texts(part);
    if (renameat(*place, fresh.c_str(), *place, name.c_str()) != 0) return no_file(errno);
    file_ = (folder / name).string();
    return {};
}

void Live::write_texts(const Part& part) {
    const std::uint64_t before = page_->sequence.load(std::memory_order_relaxed);
    page_->sequence.store(before + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    page_->rank = part.rank;
    page_->ranks = part.ranks;
    LiveTexts& texts = page_->texts;
    write(texts.job_id, part.job_id);
    write(texts.layer, part.layer);
    write(texts.library, part.library);
    write(texts.role, part.role);
    write(texts.node, part.node);
    write(texts.group, part.group);
    write(texts.suite, part.suite);
    write(texts.module, part.module);
    write(texts.mpi, part.mpi);
    write(texts.program, part.program);
    page_->sequence.store(before + 2, std::memory_order_release);
}

void Live::tell(const Part& part, std::uint64_t unsealed_connections) {
    const std::lock_guard guard(lock_);
    if (file_.empty() || getpid() != owner_) return;
    const auto set = [](std::atomic<std::uint64_t>& count, std::uint64_t value) {
        count.store(value, std::memory_order_relaxed);
    };
    set(page_->native_connections, part.native_connections);
    set(page_->unsealed_connections, unsealed_connections);
    set(page_->failed_opens, part.failed_opens);
    set(page_->refused_handshakes, part.refused_handshakes);
    set(page_->refused_roads, part.refused_roads.size());
    set(page_->errors, part.errors.size());
}

void Live::describe(const Part& part) {
    const std::lock_guard guard(lock_);
    if (!file_.empty() && getpid() == owner_) write_texts(part);
}

void Live::withdraw() {
    const std::lock_guard guard(lock_);
    if (file_.empty() || getpid() != owner_) return;
    unlink(file_.c_str());
    file_.clear();
}

void Live::after_fork_in_child() {
    new (&lock_) std::mutex;  // whoever held it is not in this process
    owner_ = getpid();
    published_ = false;
    file_.clear();
    if (!std::exchange(is_shared_, false)) return;
    // Where counters look, there are zeros of this process's own from now on.
    if (private_memory(page_) != MAP_FAILED) new (page_) LivePage{};
}

void Live::remove_leftovers(const std::vector<fs::path>& folders) {
    for (const auto& folder : folders) {
        const Descriptor place(open_live_folder(folder, geteuid(), Make::no));
        if (*place < 0) continue;
        const auto started = start_of(getpid());
        if (!started) return;
        for (const char* library : kLibraries) unlinkat(*place, file_of(getpid(), *started, library).c_str(), 0);
    }
}

}  // namespace cryptmpi::report
