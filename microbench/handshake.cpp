// What it costs to come to a secret: the handshake of a connection, and the agreement of the MPI layer's ranks, by each
// key exchange, where members are required and where they are not.
//
//     cryptmpi-bench-handshake FOLDER [RANKS...]
//
// FOLDER has the modules. Prints, of a connection, the bytes of both hellos and the microseconds that each end computes
// (the best of many, since whatever disturbs one makes it longer); then, for each number of ranks, what the agreement
// takes: messages that follow each other on the longest path, bytes of all ranks and of rank 0, microseconds that a
// rank computes on the average. Nothing is on a network: ranks are threads.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "aead/registry.hpp"
#include "keys/agreement.hpp"
#include "keys/membership.hpp"
#include "keys/network.hpp"

using namespace cryptmpi;

namespace {

constexpr int kRuns = 1000;

[[noreturn]] void give_up(const std::string& line) {
    std::fprintf(stderr, "cryptmpi-bench-handshake: %s\n", line.c_str());
    std::exit(1);
}

template <class Value>
Value must(Result<Value> result) {
    if (!result) give_up(result.error().line);
    if constexpr (!std::is_void_v<Value>) return std::move(*result);
}

double now_us() {
    using Clock = std::chrono::steady_clock;
    return std::chrono::duration<double, std::micro>(Clock::now().time_since_epoch()).count();
}

/// Of all threads of this process.
double computed_us() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

/// One member, whom its own list has, in a folder that goes with it.
class OneMember {
public:
    explicit OneMember(const cryptmpi_kex& kex) {
        std::string name = (std::filesystem::temp_directory_path() / "bench-member.XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) give_up("no temporary folder");
        folder_ = name;
        const auto key = must(keys::MemberKey::make(kex, folder_ / "key"));
        std::ofstream(folder_ / "list") << keys::line_of({"bench", key.public_key()}) << '\n';
        members_ = must(keys::Membership::read(kex, folder_ / "key", folder_ / "list"));
    }
    ~OneMember() { std::filesystem::remove_all(folder_); }
    OneMember(const OneMember&) = delete;
    OneMember& operator=(const OneMember&) = delete;

    const keys::Membership* membership() const { return members_.get(); }

private:
    std::filesystem::path folder_;
    std::unique_ptr<keys::Membership> members_;
};

const char* name_of_exchange(const keys::Local& local) {
    return local.kem != nullptr ? "x25519-mlkem768" : "x25519";
}

void time_connection(const keys::Local& local) {
    double initiator_us = 1e12;
    double responder_us = 1e12;
    std::vector<std::uint8_t> first(local.hello_size(keys::Role::initiator));
    std::vector<std::uint8_t> second(local.hello_size(keys::Role::responder));
    for (int run = 0; run < kRuns; ++run) {
        keys::HandshakeState one{}, other{};
        seal::DirectionState sends{}, receives{};
        std::array<double, 5> at{};
        at[0] = now_us();
        must(keys::start(local, keys::Role::initiator, {}, one));
        must(keys::write_hello(local, one, first));
        at[1] = now_us();
        must(keys::start(local, keys::Role::responder, {}, other));
        must(keys::read_hello(local, other, first));
        at[2] = now_us();
        must(keys::write_hello(local, other, second));
        must(keys::finish(local, other, sends, receives));
        at[3] = now_us();
        must(keys::read_hello(local, one, second));
        must(keys::finish(local, one, sends, receives));
        at[4] = now_us();
        initiator_us = std::min(initiator_us, at[1] - at[0] + at[4] - at[3]);
        responder_us = std::min(responder_us, at[3] - at[1]);
    }
    std::printf("connection key_exchange=%s members=%s bytes=%zu initiator_us=%.0f responder_us=%.0f\n",
                name_of_exchange(local), local.members != nullptr ? "yes" : "no", first.size() + second.size(),
                initiator_us, responder_us);
}

void time_agreement(const keys::Local& local, int ranks) {
    test::Network network(ranks);
    const double before_us = computed_us();
    network.run([&](int rank) -> test::Network::Member {
        return [&, rank](keys::Peers& peers) {
            keys::Agreed agreed;
            must(keys::agree(local, rank, ranks, {}, {}, {}, peers, agreed));
        };
    });
    const double took_us = computed_us() - before_us;
    std::size_t bytes = 0;
    std::size_t of_root = 0;
    for (const auto& message : network.sent()) {
        bytes += message.bytes.size();
        if (message.from == 0 || message.to == 0) of_root += message.bytes.size();
    }
    std::printf("agreement key_exchange=%s members=%s ranks=%d path=%d bytes=%zu root_bytes=%zu rank_us=%.0f\n",
                name_of_exchange(local), local.members != nullptr ? "yes" : "no", ranks, network.longest_path(), bytes,
                of_root, took_us / ranks);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) give_up("FOLDER [RANKS...]");
    const auto module = must(aead::choose(argv[1], "auto", aead::Suite::aes_256_gcm));
    const auto kex = must(aead::load_kex(argv[1], "auto"));
    keys::JobKey job_key;
    if (kex.api->kex->random(job_key.data(), keys::kJobKeySize) != CRYPTMPI_OK) give_up("no random bytes");
    const OneMember member(*kex.api->kex);
    keys::Local local{{module.api->aead, kex.api->kex, aead::Suite::aes_256_gcm}, kex.api->aead, &job_key};
    local.check_addresses = false;
    const auto kem = must(aead::load_kem(argv[1]));
    for (const auto* kem_or_none : {static_cast<const cryptmpi_kem*>(nullptr), kem.kem}) {
        for (const auto* membership : {static_cast<const keys::Membership*>(nullptr), member.membership()}) {
            local.kem = kem_or_none;
            local.members = membership;
            time_connection(local);
            for (int at = 2; at < argc; ++at) time_agreement(local, std::atoi(argv[at]));
        }
    }
    return 0;
}
