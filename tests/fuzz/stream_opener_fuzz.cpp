// A stream of arbitrary bytes, cut into records as a reader does, with limits that are soon reached.
#include <cstdlib>
#include <vector>

#include "seal/stream.hpp"
#include "toy_crypto.hpp"

using namespace cryptmpi;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    seal::DirectionState state{};
    const seal::Limits limits{6, 300};
    seal::StreamOpener opener(fuzz::toy_crypto(), state, limits);
    std::uint64_t opened_bytes = 0;
    while (size >= seal::kHeaderSize) {
        const auto header = seal::parse_header(data);
        if (!header || size < seal::kRecordOverhead + header->size) {
            break;
        }
        const std::size_t record = seal::kRecordOverhead + header->size;
        // Exactly as large as the record, so that a read past it is seen.
        const std::vector<std::uint8_t> whole(data, data + record);
        std::vector<std::uint8_t> plain(header->size, 0xee);
        const std::size_t cut = plain.size() / 3;
        const iovec out[] = {{plain.data(), cut}, {plain.data() + cut, plain.size() - cut}};
        const bool over = state.failed != 0 || state.closed != 0;
        const bool is_padded = header->type == seal::RecordType::padded;
        Result<seal::RecordType> type = header->type;
        if (is_padded) {
            const auto opened = opener.open_padded(whole.data(), plain);
            if (!opened) {
                type = tl::unexpected<Error>(opened.error());
            } else if (*opened == 0 || *opened > plain.size() - seal::kLengthSize) {
                std::abort();
            }
        } else {
            type = opener.open(whole.data(), out);
        }
        if (type && (over || *type != header->type)) {
            std::abort();
        }
        if (!type) {
            for (const std::uint8_t byte : plain) {
                if (byte != 0 || state.failed == 0) {
                    std::abort();
                }
            }
        }
        opened_bytes += type ? header->size : 0;
        // A padded record opens before it is refused for what is in it.
        if (is_padded && !type) break;
        if (state.counter > limits.records || state.bytes > limits.bytes || opener.counters().bytes != opened_bytes) {
            std::abort();
        }
        data += record;
        size -= record;
    }
    return 0;
}
