#include "channel/table.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

#include "channel/real.hpp"

namespace cryptmpi::channel {

namespace {

constexpr rlim_t kUsualLimit = 1024;
constexpr long kOwnDescriptors = 960;

/// Where the library's descriptors begin: in the last sixteenth of the numbers that there are, or of the usual 1024.
long first_own_number() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kUsualLimit) return kOwnDescriptors;
    const auto numbers = static_cast<long>(limit.rlim_cur);
    return numbers - numbers / 16;
}

}  // namespace

Table::Table() {
    // Zero pages that appear as they are touched: one per 512 descriptors.
    void* at = mmap(nullptr, kMost * sizeof(std::atomic<Entry*>), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    slots_ = static_cast<std::atomic<Entry*>*>(at);
    closing_.kind.store(Kind::ended);
}

int Table::duplicate(int fd) {
    int copy = -1;
    // The program may have the numbers up there itself.
    for (long from = first_own_number(); copy < 0 && from > STDERR_FILENO; from = from * 3 / 4)
        copy = real::fcntl(fd, F_DUPFD_CLOEXEC, reinterpret_cast<void*>(from));
    return copy;
}

int Table::own(int fd) {
    if (fd < 0) return fd;
    int moved = duplicate(fd);
    if (moved < 0) moved = fd;
    if (moved != fd) real::close(fd);
    add(moved, Kind::own);
    return moved;
}

void Table::disown(int fd) {
    Entry* entry = remove(fd);
    real::close(fd);
    forget(fd);
    if (entry != nullptr) recycle(entry);
}

Entry* Table::add(int fd, Kind kind) {
    if (!holds(fd)) return nullptr;
    Entry* entry = nullptr;
    {
        std::lock_guard guard(free_lock_);
        if (!free_.empty()) {
            entry = free_.back();
            free_.pop_back();
        }
    }
    if (entry == nullptr) entry = new Entry;
    entry->descriptors.store(1);
    entry->fd.store(fd);
    entry->ending.store(false);
    entry->listening = false;
    entry->made_at = 0;
    entry->tried.store(false);
    entry->was_connected.store(false);
    entry->kind.store(kind, std::memory_order_release);
    slots_[fd].store(entry, std::memory_order_release);
    int highest = highest_.load();
    while (highest < fd && !highest_.compare_exchange_weak(highest, fd)) {
    }
    return entry;
}

void Table::share(int from, int to) {
    Entry* entry = find(from);
    if (entry == nullptr || !holds(to)) return;
    entry->descriptors.fetch_add(1);
    slots_[to].store(entry, std::memory_order_release);
    int highest = highest_.load();
    while (highest < to && !highest_.compare_exchange_weak(highest, to)) {
    }
}

void Table::keep(Entry* entry, int fd) {
    entry->fd.store(fd);
    entry->descriptors.store(1);
    entry->ending.store(false);
    slots_[fd].store(entry, std::memory_order_release);
    int highest = highest_.load();
    while (highest < fd && !highest_.compare_exchange_weak(highest, fd)) {
    }
}

Entry* Table::remove(int fd) {
    if (!holds(fd)) return nullptr;
    Entry* entry = slots_[fd].exchange(&closing_, std::memory_order_acq_rel);
    if (entry == nullptr || entry == &closing_) return nullptr;
    if (entry->descriptors.fetch_sub(1) == 1) return entry;
    for (int other = 0; entry->descriptor() == fd && other <= highest(); ++other) {
        if (find(other) == entry) entry->fd.store(other);
    }
    (void)unused(*entry);  // whoever still had the old number is in the kernel with it now
    return nullptr;
}

void Table::reserve(int fd) {
    if (!holds(fd)) return;
    Entry* expected = nullptr;
    slots_[fd].compare_exchange_strong(expected, &closing_);
}

void Table::forget(int fd) {
    if (!holds(fd)) return;
    Entry* expected = &closing_;
    slots_[fd].compare_exchange_strong(expected, nullptr);
}

bool Table::unused(const Entry& entry) {
    constexpr int kTries = 20;
    for (int tries = 0; entry.users.load() > 0; ++tries) {
        if (tries == kTries) return false;
        real::usleep(100);
    }
    return true;
}

void Table::recycle(Entry* entry) {
    entry->epoll = nullptr;
    std::lock_guard guard(free_lock_);
    free_.push_back(entry);
}

}  // namespace cryptmpi::channel
