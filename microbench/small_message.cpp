// Where the nanoseconds of a small message go: the parts of ours that need no MPI, each by itself.
//
//     cryptmpi-bench-message FOLDER MODULE CIPHER SIZE
//
// MODULE may be "auto". Prints "module NAME VERSION", then lines "PART NANOSECONDS" for one message of SIZE bytes that
// is sealed once and opened once: the best of many short runs, since whatever disturbs one makes it longer.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "aead/registry.hpp"
#include "engine/buffer_pool.hpp"
#include "report/sizes.hpp"
#include "seal/arrivals.hpp"
#include "seal/message.hpp"

using namespace cryptmpi;

namespace {

constexpr int kRuns = 400;
constexpr int kCalls = 500;  // of one run
constexpr std::uint32_t kLane = 7;

int complain(const std::string& line) {
    std::fprintf(stderr, "cryptmpi-bench-message: %s\n", line.c_str());
    return 1;
}

/// Nanoseconds of one call of `work`, which takes the number of the call and says whether it did its work; negative if
/// one did not.
template <class Work>
double best_of(Work work) {
    using Clock = std::chrono::steady_clock;
    double best = 1e9;
    std::uint64_t number = 0;
    bool good = true;
    for (int run = 0; run < kRuns; ++run) {
        const auto began = Clock::now();
        for (int call = 0; call < kCalls; ++call) good = work(number++) && good;
        const double took = std::chrono::duration<double, std::nano>(Clock::now() - began).count();
        best = std::min(best, took / kCalls);
    }
    return good ? best : -1;
}

/// The bare cipher, with the associated data of a message.
double time_cipher(const cryptmpi_aead& aead, aead::Suite suite, std::size_t size) {
    const std::uint8_t key[32] = {1};
    const std::uint8_t nonce[CRYPTMPI_MAX_NONCE_SIZE] = {2};
    const std::uint8_t header[seal::kMessageHeaderSize] = {3};
    std::uint8_t tag[CRYPTMPI_TAG_SIZE];
    std::vector<std::uint8_t> plain(size + 1);
    std::vector<std::uint8_t> sealed(size + 1);
    const iovec piece{plain.data(), size};
    void* context = aead.create(static_cast<int>(suite), key);
    if (context == nullptr) return -1;
    // The same nonce again and again: it is the same plaintext, and nothing is sent.
    const double took = best_of([&](std::uint64_t) {
        return aead.seal(context, nonce, header, sizeof header, &piece, 1, sealed.data(), tag) == CRYPTMPI_OK &&
               aead.open(context, nonce, header, sizeof header, sealed.data(), size, &piece, 1, tag) == CRYPTMPI_OK;
    });
    aead.destroy(context);
    return took;
}

/// The same with all that makes it a message: number, nonce, header, limits of the key.
double time_message(const seal::Crypto& crypto, std::size_t size) {
    const std::uint8_t secret[seal::kSecretSize] = {4};
    seal::MessageSealer sealer(crypto, secret);
    seal::MessageOpener opener(crypto, secret);
    std::vector<std::uint8_t> plain(size + 1);
    std::vector<std::uint8_t> wire(size + seal::kMessageOverhead);
    const iovec piece{plain.data(), size};
    return best_of([&](std::uint64_t number) {
        return sealer.seal(kLane, number, {&piece, 1}, size, wire.data()) &&
               opener.open(kLane, wire.data(), wire.size(), {&piece, 1});
    });
}

double time_order_check() {
    seal::Arrivals arrivals;
    return best_of([&](std::uint64_t number) {
        if (!arrivals.follows(number, number + 1)) return false;
        arrivals.follow(number + 1);
        return true;
    });
}

double time_buffers(std::size_t size) {
    engine::BufferPool pool(std::size_t{1} << 20);
    return best_of([&](std::uint64_t) {
        const auto sent = pool.take(size + seal::kMessageOverhead);
        const auto received = pool.take(size + seal::kMessageOverhead);
        return sent.data() != received.data();
    });
}

double time_counting(std::size_t size) {
    report::Sizes sent;
    report::Sizes received;
    return best_of([&](std::uint64_t number) {
        sent.count(size + (number & 1));
        received.count(size + (number & 1));
        return sent.classes()[0].messages + received.classes()[0].messages <= 2 * number + 2;
    });
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) return complain("FOLDER MODULE CIPHER SIZE");
    const auto suite = aead::suite_by_name(argv[3]);
    if (!suite) return complain(std::string("no cipher called ") + argv[3]);
    const auto module = aead::choose(argv[1], argv[2], *suite);
    if (!module) return complain(module.error().line);
    const auto kex = aead::load_kex(argv[1], "auto");
    if (!kex) return complain(kex.error().line);
    const std::size_t size = std::stoul(argv[4]);
    std::printf("module %s %s\n", module->api->name, module->api->version);
    const double cipher = time_cipher(*module->api->aead, *suite, size);
    const double message = time_message({module->api->aead, kex->api->kex, *suite}, size);
    if (cipher < 0 || message < 0) return complain(std::string("module '") + module->api->name + "' failed");
    std::printf("cipher %.1f\n", cipher);
    std::printf("message %.1f\n", message - cipher);
    std::printf("order %.1f\n", time_order_check());
    std::printf("buffers %.1f\n", time_buffers(size));
    std::printf("counting %.1f\n", time_counting(size));
    return 0;
}
