#include "channel/arena.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/secret.hpp"
#include "channel/real.hpp"
#include "channel/table.hpp"

namespace cryptmpi::channel {

namespace {
// Address space only: the memory file is sparse, and a slot's pages appear as they are used.
constexpr std::size_t kSlots = 16384;
}  // namespace

struct Arena::Header {
    std::atomic<std::uint32_t> high;  // slots ever used
};

Result<void> Arena::create() {
    const int made = memfd_create("cryptmpi", MFD_CLOEXEC);
    if (made < 0) return fail(errno, std::string("no memory file for sealed connections: ") + std::strerror(errno));
    fd_ = table_.own(made);
    if (ftruncate(fd_, static_cast<off_t>(4096 + kSlots * sizeof(Shared))) != 0)
        return fail(errno, std::string("no memory for sealed connections: ") + std::strerror(errno));
    return map();
}

Result<void> Arena::map() {
    const std::size_t size = 4096 + kSlots * sizeof(Shared);
    void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
    if (at == MAP_FAILED)
        return fail(errno, std::string("cannot map the memory of sealed connections: ") + std::strerror(errno));
    madvise(at, size, MADV_DONTDUMP);  // keys are in it
    header_ = static_cast<Header*>(at);
    slots_ = reinterpret_cast<Shared*>(static_cast<std::uint8_t*>(at) + 4096);
    return {};
}

Result<void> Arena::adopt(int fd) {
    fd_ = fd;
    table_.add(fd, Kind::own);
    return map();
}

Result<Shared*> Arena::take(ProcessName process) {
    {
        const std::lock_guard guard(create_lock_);
        if (header_ == nullptr) {
            if (auto made = create(); !made) return fail(made.error().code, made.error().line);
        }
    }
    Shared* slot = nullptr;
    for (std::uint32_t i = 0; i < kSlots && slot == nullptr; ++i) {
        std::uint32_t free = 0;
        if (!slots_[i].in_use.compare_exchange_strong(free, 1)) continue;
        slot = &slots_[i];
        std::uint32_t high = header_->high.load();
        while (high < i + 1 && !header_->high.compare_exchange_weak(high, i + 1)) {
        }
    }
    if (slot == nullptr) return fail(ENFILE, fmt::format("more than {} sealed connections in one process", kSlots));
    if (!slot->locks_made) {
        slot->receive_lock.init();
        slot->send_lock.init();
        slot->locks_made = true;
    }
    slot->holders.join(slot->holders.generation());
    slot->holders.sign(slot->holders.generation(), process);
    return slot;
}

void Arena::give_back(Shared* slot) {
    {
        // Who was not counted may be in a call on it, or come later: none of them may use what follows here.
        const std::lock_guard receive_guard(slot->receive_lock);
        const std::lock_guard send_guard(slot->send_lock);
        slot->holders.finish();
    }
    wipe(slot->raw, slot->raw_high);
    wipe(slot->plain, slot->plain_high);
    wipe(slot->gathered, slot->gathered_high);
    const std::size_t from = offsetof(Shared, inode);
    wipe(reinterpret_cast<std::uint8_t*>(slot) + from, offsetof(Shared, raw) - from);
    slot->in_use.store(0);
}

Shared* Arena::slot(std::size_t number) {
    if (header_ == nullptr || number >= header_->high.load() || slots_[number].in_use.load() == 0) return nullptr;
    return &slots_[number];
}

Shared* Arena::find(std::uint64_t inode) {
    if (header_ == nullptr) return nullptr;
    const std::uint32_t high = header_->high.load();
    for (std::uint32_t i = 0; i < high; ++i) {
        if (slots_[i].in_use.load() != 0 && slots_[i].inode == inode && slots_[i].holders.count() > 0)
            return &slots_[i];
    }
    return nullptr;
}

}  // namespace cryptmpi::channel
