// Two members, one of which this process is, with toy_crypto's signatures.
#pragma once

#include "keys/membership.hpp"
#include "scratch.hpp"
#include "toy_crypto.hpp"

namespace cryptmpi::fuzz {

inline const keys::Membership& toy_members() {
    static const Scratch scratch;
    static const auto made = [] {
        const std::string alice(64, '2'), bob(64, '4');
        const auto key = scratch.write("member.key", "cryptmpi-member-key-1 " + alice + "\n");
        const auto list = scratch.write("members", "alice ed25519 " + alice + "\nbob ed25519 " + bob + "\n");
        return keys::Membership::read(*toy_crypto().kex, key, list);
    }();
    require(made.has_value());
    return **made;
}

}  // namespace cryptmpi::fuzz
