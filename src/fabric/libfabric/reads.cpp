#include "fabric/libfabric/reads.hpp"

#include <rdma/fi_rma.h>

#include <array>
#include <cstring>

#include "base/endian.hpp"
#include "fabric/libfabric/objects.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

constexpr std::size_t kNumbers = 4;
constexpr std::size_t kQuestion = kNumbers * sizeof(std::uint64_t);
// How many messages of ours may wait in the provider.
constexpr std::uint64_t kMostInFlight = 16;

}  // namespace

std::int64_t Reads::ask(const Wish& wish) {
    if (endpoint_.peer_of(wish.from) == nullptr) return -FI_EINVAL;
    const std::size_t size = total(wish.into);
    if (size == 0) {
        if (wish.wanted) endpoint_.sent->ready.push_back({wish.context, FI_RMA | FI_READ, 0, nullptr, 0, 0});
        return 0;
    }
    if (size > endpoint_.message_size - kAnswerHeader) return -FI_EMSGSIZE;
    const auto code = endpoint_.expect_answer(wish, last_id_ + 1);
    if (code != 0) return code;
    questions_.push_back({wish.from, ++last_id_, wish.key, wish.address, size});
    go_on();
    return 0;
}

std::int64_t Reads::say(const Question& one) {
    const std::uint64_t numbers[kNumbers] = {one.id, one.key, one.address, one.size};
    std::array<std::uint8_t, kQuestion> bytes;
    for (std::size_t i = 0; i < kNumbers; ++i) store_little(numbers[i], bytes.data() + i * sizeof numbers[0]);
    const iovec part = {bytes.data(), bytes.size()};
    return endpoint_.send({Kind::active, {&part, 1}, one.peer, 0, kOurData, FI_REMOTE_CQ_DATA, nullptr, false});
}

void Reads::asked(const Peer* peer, std::span<const std::uint8_t> question) {
    if (question.size() != kQuestion) endpoint_.end("a question for memory has another length than any");
    const std::uint64_t to = endpoint_.address_of(peer);
    if (to == FI_ADDR_NOTAVAIL) endpoint_.end("a peer whose address is not known asks for memory");
    const auto number = [&](std::size_t place) { return load_little(question.data() + place * sizeof(std::uint64_t)); };
    answers_.push_back({to, number(0), number(1), number(2), number(3)});
    go_on();
}

/// Looks for the region when the answer is due, since the program may have closed it after the question came.
std::int64_t Reads::answer(const Question& one) {
    const Region* const region = endpoint_.domain->readable(one.key, one.address, one.size);
    std::array<std::uint8_t, kAnswerHeader> header = {};
    header[0] = region != nullptr ? 1 : 0;
    const iovec parts[] = {
        {header.data(), header.size()},
        region != nullptr ? iovec{region->memory + (one.address - region->begin), one.size} : iovec{nullptr, 0}};
    return endpoint_.send({Kind::active, parts, one.peer, answer_tag(one.id), 0, 0, nullptr, false});
}

template <class Say>
void Reads::go_on(std::deque<Question>& questions, Say say) {
    while (!questions.empty() && in_flight_ < kMostInFlight) {
        const auto code = say(questions.front());
        if (code == -FI_EAGAIN) return;
        if (code != 0)
            endpoint_.end("a read of a peer's memory fails: " + std::string(std::strerror(-static_cast<int>(code))));
        ++in_flight_;
        questions.pop_front();
    }
}

void Reads::go_on() {
    go_on(answers_, [this](const Question& one) { return answer(one); });
    go_on(questions_, [this](const Question& one) { return say(one); });
}

}  // namespace cryptmpi::fabric::libfabric
