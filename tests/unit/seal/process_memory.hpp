// What this process has in its memory, as whoever takes it sees it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace cryptmpi::test {

/// Bytes to be looked for. Only a masked copy is kept, so that this one is not what is found; whoever makes it wipes
/// his.
class Hidden {
public:
    Hidden(const void* at, std::size_t size) : masked_(size) {
        const auto* bytes = static_cast<const std::uint8_t*>(at);
        for (std::size_t i = 0; i < size; ++i) masked_[i] = bytes[i] ^ kMask;
    }

    /// In whatever this process can write.
    bool is_in_memory() const {
        static std::vector<std::uint8_t> chunk(std::size_t{1} << 20);
        const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
        const auto own = reinterpret_cast<std::uintptr_t>(chunk.data());
        bool found = false;
        std::ifstream maps("/proc/self/maps");
        for (std::string line; std::getline(maps, line) && !found;) {
            unsigned long from = 0;
            unsigned long to = 0;
            char mode[5] = {};
            if (std::sscanf(line.c_str(), "%lx-%lx %4s", &from, &to, mode) != 3 || mode[1] != 'w') continue;
            if (to - from > std::size_t{1} << 30) continue;  // a sanitizer's
            for (std::uintptr_t at = from; at < to && !found;) {
                const bool ours = at >= own && at < own + chunk.size();
                if (ours) {
                    at = own + chunk.size();
                    continue;
                }
                const std::uintptr_t end = at < own ? std::min<std::uintptr_t>(to, own) : to;
                const auto got =
                    pread(memory, chunk.data(), std::min<std::size_t>(chunk.size(), end - at), static_cast<off_t>(at));
                if (got <= 0) break;
                found = is_in(chunk.data(), static_cast<std::size_t>(got));
                // What lies across two chunks is looked at with the second.
                const bool more = static_cast<std::size_t>(got) == chunk.size();
                at += static_cast<std::uintptr_t>(got) - (more ? masked_.size() : 0);
            }
        }
        close(memory);
        std::memset(chunk.data(), 0, chunk.size());
        return found;
    }

private:
    static constexpr std::uint8_t kMask = 0x5c;

    bool is_in(const std::uint8_t* bytes, std::size_t size) const {
        const std::uint8_t* const end = bytes + size;
        const std::uint8_t* at = bytes;
        while (static_cast<std::size_t>(end - at) >= masked_.size()) {
            const std::size_t left = static_cast<std::size_t>(end - at) - masked_.size() + 1;
            at = static_cast<const std::uint8_t*>(std::memchr(at, masked_[0] ^ kMask, left));
            if (at == nullptr) return false;
            std::size_t same = 1;
            while (same < masked_.size() && (at[same] ^ kMask) == masked_[same]) ++same;
            if (same == masked_.size()) return true;
            ++at;
        }
        return false;
    }

    std::vector<std::uint8_t> masked_;
};

}  // namespace cryptmpi::test
