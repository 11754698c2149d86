#include "interpose/this_process.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "base/own_names.hpp"
#include "native.hpp"

namespace cryptmpi::interpose {
namespace {

/// The channel library in this process, if it is there: does it let nothing in but by sealed connections?
std::optional<bool> confined_by_channel() {
    auto* const ask = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "cryptmpi_channel_confines"));
    return ask == nullptr ? std::nullopt : std::optional(ask() != 0);
}

}  // namespace

comm::Host this_host() {
    const std::string name = host_name();
    return {native(),
            config::process_environment(),
            name,
            keys::Surroundings::of_this_process(name),
            confined_by_channel(),
            due_before_wait,
            STDERR_FILENO};
}

comm::Layer& detail::first_layer() {
    static auto& one = *new comm::Layer(this_host());
    known_layer.store(&one, std::memory_order_release);
    return one;
}

}  // namespace cryptmpi::interpose
