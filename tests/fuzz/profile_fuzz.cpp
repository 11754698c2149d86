// An arbitrary profile: what is taken has plans by which every message has as many segments as the protocol allows.
#include <string_view>

#include "engine/profile.hpp"
#include "scratch.hpp"

using namespace cryptmpi;
using engine::Plan;

namespace {

void check(const Plan& plan, std::size_t length, std::size_t threads, std::size_t sends) {
    const auto sizes = plan.segments_of(length, threads, sends);
    fuzz::require(sizes.first != 0 && sizes.others != 0);
    const std::size_t rest = length > sizes.first ? length - sizes.first : 0;
    const std::size_t count = 1 + (rest + sizes.others - 1) / sizes.others;
    fuzz::require(count <= Plan::kMostSegments);
    const std::size_t in_flight = plan.in_flight_of(sizes.others);
    fuzz::require(in_flight >= 1 && in_flight <= plan.most_in_flight);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto profile = engine::read_profile({reinterpret_cast<const char*>(data), size});
    if (!profile) {
        fuzz::require_one_line(profile.error().line);
        return 0;
    }
    for (const std::size_t length :
         {std::size_t{65537}, std::size_t{262145}, std::size_t{1} << 20, std::size_t{1} << 31, std::size_t{1} << 36}) {
        if (!profile->plans.in_segments(length)) continue;
        const Plan& plan = profile->plans.of(length);
        for (const std::size_t threads : {1U, 2U, 64U}) {
            for (const std::size_t sends : {0U, 8U, 100U}) check(plan, length, threads, sends);
        }
    }
    return 0;
}
