#include "config/choices.hpp"

#include <algorithm>
#include <cstddef>

namespace cryptmpi::config {
namespace {

template <class Value, std::size_t kCount>
std::string_view word_of(const std::array<Choice<Value>, kCount>& choices, Value value) {
    const auto* found =
        std::find_if(choices.begin(), choices.end(), [&](const auto& one) { return one.value == value; });
    return found == choices.end() ? std::string_view{} : found->word;
}

}  // namespace

std::string_view name_of(Layer layer) {
    return word_of(kLayers, layer);
}

std::string_view name_of(Network network) {
    return word_of(kNetworks, network);
}

std::string_view name_of(KeyDistribution way) {
    return word_of(kKeyDistributions, way);
}

std::string_view name_of(KeyExchange exchange) {
    return word_of(kKeyExchanges, exchange);
}

}  // namespace cryptmpi::config
