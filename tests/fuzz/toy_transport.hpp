// What a rank brings to key distribution, with toy_crypto's RSA: the node, and the list of nodes, are always the same.
#pragma once

#include "keys/key_transport.hpp"
#include "scratch.hpp"
#include "toy_crypto.hpp"

namespace cryptmpi::fuzz {

inline keys::TransportLocal toy_transport(keys::Transport way) {
    static const Scratch scratch;
    static const auto key_file = scratch.write("interchange.key", "k");
    static const auto list = [] {
        std::string text;
        for (const char* node : {"node0", "node1"}) {
            text += std::string(node) + " rsa-3072 ";
            for (int i = 0; i < 384; ++i) text += "81";
            text += "\n";
        }
        return scratch.write("interchange.keys", text);
    }();
    keys::TransportLocal local;
    local.way = way;
    local.kex = toy_crypto().kex;
    local.rsa = toy_rsa();
    local.job.fill(0x4a);
    if (way == keys::Transport::interchange) {
        local.node = "node0";
        local.key_file = key_file;
        local.list = list;
    }
    return local;
}

}  // namespace cryptmpi::fuzz
