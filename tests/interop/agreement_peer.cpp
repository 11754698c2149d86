// One rank of the MPI layer for the interoperability test: its part of the agreement, then messages of its flows.
//
//   agreement_peer SUITE JOB_KEY JOB_ID NODE TERMS CONDUCT RANK RANKS RECORD_LIMIT KEY_EXCHANGE
//                  [MEMBER_KEY_FILE MEMBER_LIST]
//
// Messages of the agreement are lines: "> RANK BYTES" to a rank on stdout, "RANK BYTES" from one on stdin, the bytes in
// hexadecimal digits. It ends with "agreed" or "error LINE". Then, by what stdin asks for, on flows of MPI_COMM_WORLD,
// whose id is zeros (ID: of another communicator):
//
//   s PEER USE ID LANE NUMBER PLAINTEXT -> the sealed message;  o PEER USE ID LANE MESSAGE -> its number, a space and
//   its plaintext, or "error LINE";  USE: 0 messages, 1 collective, 2 to all.
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "aead/registry.hpp"
#include "hexadecimal.hpp"
#include "keys/agreement.hpp"
#include "keys/flow_secrets.hpp"
#include "seal/message.hpp"

namespace {

using namespace cryptmpi;
using test::Bytes;
using test::from_hex;
using test::must;
using test::to_hex;

class Lines final : public keys::Peers {
public:
    Result<void> send(int rank, std::span<const std::uint8_t> message) override {
        std::cout << "> " << rank << ' ' << to_hex(message.data(), message.size()) << std::endl;
        return {};
    }
    Result<std::size_t> receive_up_to(int rank, std::span<std::uint8_t> room) override {
        while (came_[rank].empty()) {
            std::string line;
            if (!std::getline(std::cin, line)) return fail(ETIMEDOUT, "rank " + std::to_string(rank) + " is silent");
            const auto space = line.find(' ');
            came_[std::stoi(line)].push_back(from_hex(line.substr(space + 1)));
        }
        const Bytes next = std::move(came_[rank].front());
        came_[rank].pop_front();
        if (next.size() > room.size()) return fail(EPROTO, "a message of another size");
        std::ranges::copy(next, room.begin());
        return next.size();
    }

private:
    std::map<int, std::deque<Bytes>> came_;
};

/// A rank's flows, each made when it is first used.
class Flows {
public:
    Flows(const seal::Crypto& crypto, int self, keys::Agreed& agreed) : crypto_(crypto), self_(self) {
        secrets_ = must(keys::FlowSecrets::make(*crypto.kex, self, {}, agreed));
    }

    seal::MessageSealer& sealer(int peer, int use, const Bytes& id) {
        auto& flow = sealers_[{use == kToAll ? 0 : peer, use, id}];
        if (!flow) flow = std::make_unique<seal::MessageSealer>(crypto_, secret(self_, peer, use, id)->data());
        return *flow;
    }
    seal::MessageOpener& opener(int peer, int use, const Bytes& id) {
        auto& flow = openers_[{peer, use, id}];
        if (!flow) {
            const auto order = use == 0 ? seal::Opening::any_order : seal::Opening::in_order;
            flow = std::make_unique<seal::MessageOpener>(crypto_, secret(peer, self_, use, id)->data(), order);
        }
        return *flow;
    }

private:
    static constexpr int kToAll = 2;
    using Name = std::tuple<int, int, Bytes>;

    std::unique_ptr<Secret<32>> secret(int sender, int receiver, int use, const Bytes& text) {
        keys::CommunicatorId id{};
        std::ranges::copy(text, id.begin());
        auto out = std::make_unique<Secret<32>>();
        if (use != kToAll) {
            must(secrets_->take(sender, receiver, static_cast<keys::Use>(use), id, *out));
            return out;
        }
        if (!group_) group_ = must(secrets_->of_all(id));
        must(group_->take(sender, *out));
        return out;
    }

    seal::Crypto crypto_;
    int self_;
    std::unique_ptr<keys::FlowSecrets> secrets_;
    std::unique_ptr<keys::GroupSecret> group_;
    std::map<Name, std::unique_ptr<seal::MessageSealer>> sealers_;
    std::map<Name, std::unique_ptr<seal::MessageOpener>> openers_;
};

void serve(Flows& flows, const std::string& line) {
    std::istringstream words(line);
    std::string what;
    std::string id;
    std::string bytes;
    int peer = 0;
    int use = 0;
    std::uint32_t lane = 0;
    std::uint64_t number = 0;
    words >> what >> peer >> use >> id >> lane;
    if (what == "s") {
        words >> number >> bytes;
        const Bytes plain = from_hex(bytes);
        Bytes wire(plain.size() + seal::kMessageOverhead);
        const iovec in{const_cast<std::uint8_t*>(plain.data()), plain.size()};
        must(flows.sealer(peer, use, from_hex(id)).seal(lane, number, {&in, 1}, plain.size(), wire.data()));
        std::cout << to_hex(wire.data(), wire.size()) << std::endl;
        return;
    }
    words >> bytes;
    const Bytes wire = from_hex(bytes);
    Bytes plain(wire.size() < seal::kMessageOverhead ? 0 : wire.size() - seal::kMessageOverhead);
    const iovec out{plain.data(), plain.size()};
    const auto header = flows.opener(peer, use, from_hex(id)).open(lane, wire.data(), wire.size(), {&out, 1});
    if (!header) {
        std::cout << "error " << header.error().line << std::endl;
        return;
    }
    std::cout << header->number << ' ' << to_hex(plain.data(), plain.size()) << std::endl;
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 11 && count != 13) {
        std::cerr << "agreement_peer SUITE JOB_KEY JOB_ID NODE TERMS CONDUCT RANK RANKS RECORD_LIMIT KEY_EXCHANGE "
                     "[MEMBER_KEY_FILE MEMBER_LIST]\n";
        return 2;
    }
    const std::string job_id = arguments[3];
    const int rank = std::atoi(arguments[7]);
    const int ranks = std::atoi(arguments[8]);
    const aead::Suite suite = aead::suite_by_name(arguments[1]).value();
    const auto openssl = must(aead::load(CRYPTMPI_MODULE_FOLDER, "openssl"));
    const auto module = must(aead::choose(CRYPTMPI_MODULE_FOLDER, openssl.offers(suite) ? "openssl" : "auto", suite));
    seal::Crypto crypto{module.api->aead, openssl.api->kex, suite};
    crypto.lowered.records = std::strtoull(arguments[9], nullptr, 10);
    keys::JobKey job_key;
    std::ranges::copy(from_hex(arguments[2]), job_key.data());
    keys::Local local{crypto, openssl.api->aead, &job_key, false};
    local.conduct = static_cast<std::uint8_t>(std::atoi(arguments[6]));
    std::unique_ptr<keys::Membership> members;
    if (count == 13) members = must(keys::Membership::read(*crypto.kex, arguments[11], arguments[12]));
    local.members = members.get();
    if (arguments[10] != std::string("x25519")) local.kem = must(aead::load_kem(CRYPTMPI_MODULE_FOLDER)).kem;
    keys::Identity self{};
    const iovec id{const_cast<char*>(job_id.data()), job_id.size()};
    if (crypto.kex->sha256(self.job, &id, 1) != CRYPTMPI_OK) return 1;
    keys::NodeId node{};
    std::ranges::copy(from_hex(arguments[4]), node.begin());
    keys::Terms terms{};
    std::ranges::copy(from_hex(arguments[5]), terms.begin());

    Lines lines;
    keys::Agreed agreed;
    must(keys::agree(local, rank, ranks, node, self, terms, lines, agreed));
    std::cout << "agreed" << std::endl;
    Flows flows(crypto, rank, agreed);
    for (std::string line; std::getline(std::cin, line);) serve(flows, line);
}
