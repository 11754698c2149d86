// The forms of an Ed25519 key and signature that libraries answer differently.
//
// RFC 8032 leaves room in what is verified, and libraries use it: OpenSSL takes points of small order, under which a
// signature of one text may be a signature of others, and libsodium does not. Whoever has a member key could so make a
// signature that one node takes and another refuses. What no honest signer makes is refused here, before a library is
// asked, so that it is the same with each.
#pragma once

#include <array>
#include <cstdint>

namespace cryptmpi::keys {

/// The key and the signature's R are points in the one encoding that RFC 8032 gives each, and of none of the eight
/// points of small order; the signature's S is below the group's order. Whether they are points of the curve at all is
/// the library's to say.
bool has_strict_form(const std::array<std::uint8_t, 32>& key, const std::array<std::uint8_t, 64>& signature);

}  // namespace cryptmpi::keys
