// Which connections are sealed, which stay native, and which roads between nodes are closed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "channel/address.hpp"
#include "config/settings.hpp"

namespace cryptmpi::channel {

/// `leave_out`: whoever connected has closed already, and the kernel does not say who it was.
enum class Verdict { seal, native, plaintext, leave_out };

class Policy {
public:
    Policy(const config::Settings& settings, const config::Environment& environment);

    /// The verdict on the socket's connection, which is there. `why` is filled for plaintext: what the report says.
    Verdict decide(int fd, const Address& peer, std::string& why, bool accepted = false) const;
    /// The verdict where the connection leaves the node.
    Verdict decide_outside(const Address& peer, std::string& why) const;
    /// Before the connection is there: whether its verdict may be another than decide_outside's.
    bool may_differ_inside(const Address& peer) const;

    /// The line for a socket whose family, type or protocol is none of those that are known to stay inside the node, to
    /// be sealed, or to be kept from others; nullopt if it may be.
    static std::optional<std::string> refuse_socket(int family, int type, int protocol);

private:
    const config::Settings& settings_;
    std::vector<Address> launcher_;  // where an unsealed launcher of this node waits for its ranks
};

}  // namespace cryptmpi::channel
