// How fast several threads seal one message together, each its own part of it: what the max-rate model of
// multi-threaded encryption is fitted to (Naser et al. 2020, section 6.2; CryptMPI 2020, figures 4 and 5).
//
//     cryptmpi-bench-threads FOLDER MODULE CIPHER THREADS SIZE...
//
// MODULE may be "auto". Prints "module NAME VERSION", then a line for each size: threads, bytes, and the microseconds
// in which all parts are sealed (the median of many rounds). What was sealed is opened again and compared.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "aead/registry.hpp"

using namespace cryptmpi;

namespace {

using Bytes = std::vector<std::uint8_t>;

int complain(const std::string& line) {
    std::fprintf(stderr, "cryptmpi-bench-threads: %s\n", line.c_str());
    return 1;
}

// One thread's piece of the message, with a context and a key of its own, as segments have.
class Part {
public:
    Part(const aead::Module& module, aead::Suite suite, const Bytes& message, std::size_t begin, std::size_t end)
        : aead_(*module.api->aead),
          plain_(message.begin() + static_cast<std::ptrdiff_t>(begin),
                 message.begin() + static_cast<std::ptrdiff_t>(end)),
          sealed_(plain_.size() + 1),
          opened_(plain_.size() + 1),
          context_(aead_.create(static_cast<int>(suite), kKey), aead_.destroy) {}

    bool usable() const { return context_ != nullptr; }

    bool seal() {
        const iovec piece{plain_.data(), plain_.size()};
        return aead_.seal(context_.get(), kNonce, nullptr, 0, &piece, 1, sealed_.data(), tag_) == CRYPTMPI_OK;
    }

    bool opens_as_it_was() {
        const iovec piece{opened_.data(), plain_.size()};
        return aead_.open(context_.get(), kNonce, nullptr, 0, sealed_.data(), plain_.size(), &piece, 1, tag_) ==
                   CRYPTMPI_OK &&
               std::equal(plain_.begin(), plain_.end(), opened_.begin());
    }

private:
    // The same nonce again and again: it is the same plaintext, and nothing is sent.
    static constexpr std::uint8_t kKey[32] = {1}, kNonce[CRYPTMPI_MAX_NONCE_SIZE] = {2};
    const cryptmpi_aead& aead_;
    Bytes plain_, sealed_, opened_;  // the outputs a byte longer: never a null pointer
    std::uint8_t tag_[CRYPTMPI_TAG_SIZE] = {};
    std::unique_ptr<void, void (*)(void*)> context_;
};

std::vector<Part> parts_of(const aead::Module& module, aead::Suite suite, const Bytes& message, std::size_t threads) {
    std::vector<Part> parts;
    for (std::size_t i = 0; i < threads; ++i)
        parts.emplace_back(module, suite, message, message.size() * i / threads, message.size() * (i + 1) / threads);
    return parts;
}

// About 10 ms for each size, and enough of them for a median.
int rounds_of(std::size_t size) {
    constexpr std::size_t kBytes = std::size_t{64} << 20;
    return static_cast<int>(std::clamp<std::size_t>(kBytes / std::max<std::size_t>(size, 1), 7, 2000));
}

// Microseconds until all threads have sealed their parts, which all begin together; negative if one could not.
double measure(std::vector<Part>& parts, int rounds) {
    using Clock = std::chrono::steady_clock;
    std::barrier together(static_cast<std::ptrdiff_t>(parts.size()));
    std::vector<double> times;
    std::vector<char> right(parts.size(), 1);
    const auto work = [&](std::size_t number) {
        for (int round = -1; round < rounds; ++round) {  // round -1 warms up
            together.arrive_and_wait();
            const auto began = Clock::now();
            right[number] = static_cast<char>(right[number] != 0 && parts[number].seal());
            together.arrive_and_wait();
            if (number == 0 && round >= 0)
                times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - began).count());
        }
    };
    {
        std::vector<std::jthread> others;
        for (std::size_t i = 1; i < parts.size(); ++i) others.emplace_back(work, i);
        work(0);
    }
    for (std::size_t i = 0; i < parts.size(); ++i)
        if (right[i] == 0 || !parts[i].opens_as_it_was()) return -1;
    const auto half = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), half, times.end());
    return *half;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 6) return complain("FOLDER MODULE CIPHER THREADS SIZE...");
    const auto suite = aead::suite_by_name(argv[3]);
    if (!suite) return complain(std::string("no cipher called ") + argv[3]);
    const auto module = aead::choose(argv[1], argv[2], *suite);
    if (!module) return complain(module.error().line);
    const std::size_t threads = std::stoul(argv[4]);
    if (threads < 1 || threads > 1024) return complain("1 to 1024 threads");
    std::printf("module %s %s\n", module->api->name, module->api->version);
    for (int i = 5; i < argc; ++i) {
        const std::size_t size = std::stoul(argv[i]);
        Bytes message(size);
        for (std::size_t at = 0; at < size; ++at) message[at] = static_cast<std::uint8_t>(at * 31 + 7);
        std::vector<Part> parts = parts_of(*module, *suite, message, threads);
        if (!std::all_of(parts.begin(), parts.end(), [](const Part& part) { return part.usable(); }))
            return complain(std::string("module '") + module->api->name + "' makes no context of " + argv[3]);
        const double us = measure(parts, rounds_of(size));
        if (us < 0) return complain("what was sealed of " + std::to_string(size) + " bytes does not open as it was");
        std::printf("%zu %zu %.4f\n", threads, size, us);
    }
    return 0;
}
