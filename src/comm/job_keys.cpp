#include "comm/job_keys.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/pieces.hpp"
#include "comm/agreement_peers.hpp"
#include "keys/key_transport.hpp"

namespace cryptmpi::comm {
namespace {

auto no_keys() {
    return fail(EPIPE, "a message outlived the job's keys");
}

}  // namespace

Result<void> JobKeys::load(std::uint8_t conduct, report::Part& part) {
    auto module = aead::choose(settings_.module_folder, settings_.module, settings_.suite);
    if (!module) return tl::unexpected(module.error());
    auto kex = aead::load_kex(settings_.module_folder, settings_.module);
    if (!kex) return tl::unexpected(kex.error());
    auto ring = keys::KeyRing::read(*kex->api->kex, settings_.key_file, settings_.key_readers(), settings_.key_id);
    if (!ring) return tl::unexpected(ring.error());
    ring_ = std::move(*ring);
    if (settings_.passive_only()) {
        auto rsa = aead::load_rsa(settings_.module_folder);
        if (!rsa) return fail(rsa.error().code, settings_.key_distribution_where + ": " + rsa.error().line);
        rsa_ = rsa->rsa;
    }
    local_.crypto = {module->api->aead, kex->api->kex, settings_.suite};
    local_.crypto.lowered = {settings_.key_records, settings_.key_bytes};
    local_.crypto.age.most = settings_.rekey_after;
    local_.hello_aead = kex->api->aead;
    local_.job_key = &ring_->own();
    local_.ring = ring_.get();
    local_.check_addresses = false;  // MPI's ranks have none
    local_.conduct = conduct;
    part.module = module->full_name();
    part.handshake_module = kex->full_name();
    if (settings_.require_members) {
        auto members = keys::Membership::read(*kex->api->kex, settings_.member_key_file, settings_.member_list);
        if (!members) return tl::unexpected(members.error());
        members_ = std::move(*members);
        local_.members = members_.get();
        part.member = members_->own_name();
    }
    if (settings_.hybrid()) {
        auto kem = aead::load_kem(settings_.module_folder);
        if (!kem) return fail(kem.error().code, settings_.key_exchange_where + ": " + kem.error().line);
        local_.kem = kem->kem;
        part.kem_module = kem->full_name();
    }
    auto report_key = keys::ReportKey::derive(*local_.crypto.kex, ring_->own());
    if (!report_key) return tl::unexpected(report_key.error());
    report_key_ = std::move(*report_key);
    return {};
}

Result<std::unique_ptr<keys::JobKey>> JobKeys::transported_key(const Rank& self, const keys::Identity& identity,
                                                               keys::Peers& peers) const {
    keys::TransportLocal local;
    local.way = settings_.key_distribution == config::KeyDistribution::rsa_oaep ? keys::Transport::rsa_oaep
                                                                                : keys::Transport::interchange;
    local.kex = local_.crypto.kex;
    local.rsa = rsa_;
    local.suite = settings_.suite;
    std::copy(std::begin(identity.job), std::end(identity.job), local.job.begin());
    local.node = self.host;
    local.key_file = settings_.interchange_key_file;
    local.readers = settings_.key_readers();
    local.list = settings_.interchange_keys;
    return keys::transport_key(local, self.rank, self.ranks, peers);
}

/// Under the job key, or under one that the ranks first give each other in the papers' transport.
Result<void> JobKeys::agree_under_keys(const Rank& self, const keys::Identity& identity, keys::Peers& peers,
                                       keys::Agreed& agreed) {
    auto token = keys::NodeToken::find(*local_.crypto.kex, ring_->own(), settings_.job_id);
    if (!token) return tl::unexpected(token.error());
    if (!token->alone().empty()) self.say(token->alone());
    const auto node = keys::node_id(*local_.crypto.kex, self.surroundings, token->bytes());
    if (!node) return tl::unexpected(node.error());
    const auto agree = [&] {
        return keys::agree(local_, self.rank, self.ranks, *node, identity, self.terms, peers, agreed);
    };
    if (!settings_.passive_only()) return agree();
    auto transported = transported_key(self, identity, peers);
    if (!transported) return tl::unexpected(transported.error());
    local_.job_key = transported->get();
    local_.ring = nullptr;  // what the job key's file has says nothing here
    auto done = agree();
    local_.job_key = nullptr;
    if (done || done.error().code != EKEYREJECTED) return done;
    return fail(EKEYREJECTED,
                "key_distribution: another key was wrapped for another rank, so somebody altered one on its way: " +
                    done.error().line);
}

Result<JobKeys::Table> JobKeys::agree(const Rank& self) {
    keys::Identity identity{};
    const iovec job = piece(settings_.job_id.data(), settings_.job_id.size());
    if (local_.crypto.kex->sha256(identity.job, &job, 1) != CRYPTMPI_OK) return fail(EIO, "SHA-256 failed");
    std::strncpy(identity.node, self.host.c_str(), sizeof identity.node - 1);
    const auto pid = static_cast<std::uint32_t>(getpid());
    for (int i = 0; i < 4; ++i) identity.process[i] = static_cast<std::uint8_t>(pid >> (8 * i));
    AgreementPeers peers(self.mpi, self.rank, {settings_.agreement_timeout, settings_.handshake_timeout}, self.say);
    keys::Agreed agreed;
    if (auto done = agree_under_keys(self, identity, peers, agreed); !done) return tl::unexpected(done.error());
    std::vector<int> everyone(agreed.nodes.size());
    std::iota(everyone.begin(), everyone.end(), 0);
    auto world = derive_id({}, "world", 0, everyone);
    if (!world) return tl::unexpected(world.error());
    world_id_ = *world;
    auto secrets = keys::FlowSecrets::make(*local_.crypto.kex, self.rank, world_id_, agreed);
    if (!secrets) return tl::unexpected(secrets.error());
    flow_secrets_ = std::move(*secrets);
    drop_files_keys();
    return Table{std::move(agreed.nodes), agreed.terms, std::move(agreed.members)};
}

void JobKeys::drop_files_keys() {
    local_.job_key = nullptr;
    local_.ring = nullptr;
    local_.members = nullptr;
    members_.reset();
    ring_.reset();
}

// protocol: M6
Result<CommunicatorId> JobKeys::derive_id(const CommunicatorId& parent, std::string_view how, std::uint64_t call,
                                          const std::vector<int>& members) const {
    CommunicatorId id{};
    const std::uint64_t sizes[] = {how.size(), call, members.size()};
    const iovec in[] = {piece(parent.data(), parent.size()), piece(sizes, sizeof sizes), piece(how.data(), how.size()),
                        piece(members.data(), members.size() * sizeof(int))};
    if (local_.crypto.kex->sha256(id.data(), in, std::size(in)) != CRYPTMPI_OK) return fail(EIO, "SHA-256 failed");
    return id;
}

Result<void> JobKeys::flow_secret(int sender, int receiver, keys::Use use, const CommunicatorId& id,
                                  Secret<32>& out) const {
    if (!flow_secrets_) return no_keys();
    return flow_secrets_->take(sender, receiver, use, id, out);
}

Result<std::unique_ptr<keys::GroupSecret>> JobKeys::group_of_all(const CommunicatorId& id) const {
    if (!flow_secrets_) return no_keys();
    return flow_secrets_->of_all(id);
}

void JobKeys::wipe() {
    report_key_ = {};
    flow_secrets_.reset();
}

}  // namespace cryptmpi::comm
