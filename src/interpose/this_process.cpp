#include "interpose/this_process.hpp"

#include <unistd.h>

#include <string>

#include "base/confined.hpp"
#include "base/own_names.hpp"
#include "interpose/resolve.hpp"

namespace cryptmpi::interpose {

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
