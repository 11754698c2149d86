// One end of a connection for the interoperability test. Lines of hexadecimal digits: the peer's on stdin, ours on
// stdout.
//
//   protocol_peer initiator|responder SUITE JOB_KEY IDENTITY RECORD_LIMIT KEY_EXCHANGE [MEMBER_KEY_FILE MEMBER_LIST]
//
// After the handshake:  s PLAINTEXT -> the sealed record or records;  c -> a confirm record;  x -> a close record;
// o RECORD -> its type, a space and its plaintext.
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "aead/registry.hpp"
#include "hexadecimal.hpp"
#include "keys/handshake.hpp"

namespace {

using namespace cryptmpi;
using test::Bytes;
using test::from_hex;
using test::must;
using test::to_hex;

void say(const std::uint8_t* at, std::size_t size) {
    std::cout << to_hex(at, size) << std::endl;
}

void say_hello(const keys::Local& local, keys::HandshakeState& state) {
    Bytes hello(local.hello_size(state.role));
    must(keys::write_hello(local, state, hello));
    say(hello.data(), hello.size());
}

void hear_hello(const keys::Local& local, keys::HandshakeState& state) {
    std::string line;
    std::getline(std::cin, line);
    Bytes hello = from_hex(line);
    must(keys::read_hello(local, state, hello));
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 7 && count != 9) {
        std::cerr << "protocol_peer initiator|responder SUITE JOB_KEY IDENTITY RECORD_LIMIT KEY_EXCHANGE "
                     "[MEMBER_KEY_FILE MEMBER_LIST]\n";
        return 2;
    }
    const aead::Suite suite = aead::suite_by_name(arguments[2]).value();
    const auto openssl = must(aead::load(CRYPTMPI_MODULE_FOLDER, "openssl"));
    const auto module = must(aead::choose(CRYPTMPI_MODULE_FOLDER, openssl.offers(suite) ? "openssl" : "auto", suite));
    const seal::Crypto crypto{module.api->aead, openssl.api->kex, suite};
    keys::JobKey job_key;
    std::memcpy(job_key.data(), from_hex(arguments[3]).data(), keys::kJobKeySize);
    keys::Identity self;
    std::memcpy(&self, from_hex(arguments[4]).data(), keys::kIdentitySize);
    keys::Local local{crypto, openssl.api->aead, &job_key, true};
    std::unique_ptr<keys::Membership> members;
    if (count == 9) members = must(keys::Membership::read(*crypto.kex, arguments[7], arguments[8]));
    local.members = members.get();
    if (arguments[6] != std::string("x25519")) local.kem = must(aead::load_kem(CRYPTMPI_MODULE_FOLDER)).kem;
    const bool initiator = std::string(arguments[1]) == "initiator";

    keys::HandshakeState state{};
    must(keys::start(local, initiator ? keys::Role::initiator : keys::Role::responder, self, state));
    if (initiator) {
        say_hello(local, state);
        hear_hello(local, state);
    } else {
        hear_hello(local, state);
        say_hello(local, state);
    }
    seal::DirectionState send{};
    seal::DirectionState receive{};
    must(keys::finish(local, state, send, receive));
    const seal::Limits limits{std::strtoull(arguments[5], nullptr, 10), seal::limits_of(crypto).bytes};
    seal::StreamSealer sealer(crypto, send, limits);
    seal::StreamOpener opener(crypto, receive, limits);

    for (std::string line; std::getline(std::cin, line);) {
        Bytes bytes = from_hex(line.size() > 2 ? line.substr(2) : "");
        if (line[0] == 'o') {
            Bytes plain(bytes.size() - seal::kRecordOverhead);
            const iovec out = {plain.data(), plain.size()};
            const auto type = must(opener.open(bytes.data(), {&out, 1}));
            std::cout << static_cast<int>(type) << ' ' << to_hex(plain.data(), plain.size()) << std::endl;
            continue;
        }
        Bytes wire(bytes.size() + 2 * seal::kRecordOverhead);
        const iovec in = {bytes.data(), bytes.size()};
        const std::size_t size =
            line[0] == 's' ? must(sealer.seal({&in, 1}, bytes.size(), wire.data()))
                           : must(sealer.seal_control(
                                 line[0] == 'c' ? seal::RecordType::confirm : seal::RecordType::close, wire.data()));
        say(wire.data(), size);
    }
}
