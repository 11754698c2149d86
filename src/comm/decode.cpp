#include "comm/decode.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include "comm/types.hpp"

namespace cryptmpi::comm {
namespace {

using engine::Layout;
using Element = Layout::Element;

constexpr int kDeepest = 64;             // types in types, and dimensions
constexpr std::size_t kShareOfSize = 4;  // a description may take up that part of the bytes that it describes

/// What a constructor of types was called with.
class Contents {
public:
    Contents(const Native& mpi, MPI_Datatype type, const Envelope& envelope)
        : mpi_(mpi),
          integers_(static_cast<std::size_t>(envelope.integers)),
          addresses_(static_cast<std::size_t>(envelope.addresses)),
          counts_(static_cast<std::size_t>(envelope.counts)),
          types_(static_cast<std::size_t>(envelope.types), MPI_DATATYPE_NULL) {
        is_there_ = ask(type, envelope) == MPI_SUCCESS;
    }
    Contents(const Contents&) = delete;
    Contents& operator=(const Contents&) = delete;
    ~Contents() {
        for (MPI_Datatype& type : types_) free(type);
    }

    bool is_there() const { return is_there_; }
    bool has_large_counts() const { return !counts_.empty(); }
    /// In the constructor's order, but of large subarrays. Places are addresses only for some; large counts are both.
    MPI_Count number(std::size_t i) const {
        if (i < integers_.size()) return integers_[i];
        i -= integers_.size();
        return i < addresses_.size() ? addresses_[i] : counts_[i - addresses_.size()];
    }
    MPI_Datatype type(std::size_t i) const { return i < types_.size() ? types_[i] : MPI_DATATYPE_NULL; }

private:
    int ask(MPI_Datatype type, const Envelope& envelope) {
        if (has_large_counts()) {
            return mpi_.Type_get_contents_c(type, envelope.integers, envelope.addresses, envelope.counts,
                                            envelope.types, integers_.data(), addresses_.data(), counts_.data(),
                                            types_.data());
        }
        return mpi_.Type_get_contents(type, static_cast<int>(envelope.integers), static_cast<int>(envelope.addresses),
                                      static_cast<int>(envelope.types), integers_.data(), addresses_.data(),
                                      types_.data());
    }
    /// MPI gave us handles of our own for the types that are not its own.
    void free(MPI_Datatype& type) const {
        Envelope envelope;
        if (type != MPI_DATATYPE_NULL && get_envelope(mpi_, type, envelope) == MPI_SUCCESS && envelope.is_derived()) {
            mpi_.Type_free(&type);
        }
    }

    const Native& mpi_;
    std::vector<int> integers_;
    std::vector<MPI_Aint> addresses_;
    std::vector<MPI_Count> counts_;
    std::vector<MPI_Datatype> types_;
    bool is_there_ = false;
};

std::size_t as_size(MPI_Count number) {
    return static_cast<std::size_t>(number);
}

/// As many bytes as `count` times `extent`.
std::ptrdiff_t distance(MPI_Count count, std::ptrdiff_t extent) {
    return static_cast<std::ptrdiff_t>(as_size(count) * static_cast<std::size_t>(extent));
}

/// Each function returns null for what it cannot describe.
class Decoder {
public:
    /// The description may take up so many bytes.
    Decoder(const Native& mpi, Layout& layout, std::size_t room) : mpi_(mpi), layout_(layout), room_(room) {}

    const Element* decode(MPI_Datatype type, int depth) {
        Envelope envelope;
        MPI_Aint lower = 0;
        MPI_Aint extent = 0;
        MPI_Count size = 0;
        if (type == MPI_DATATYPE_NULL || get_envelope(mpi_, type, envelope) != MPI_SUCCESS ||
            mpi_.Type_size_x(type, &size) != MPI_SUCCESS ||
            mpi_.Type_get_extent(type, &lower, &extent) != MPI_SUCCESS) {
            return nullptr;
        }
        if (envelope.is_predefined()) {
            return lower == 0 && extent == size ? &layout_.make_stretch(as_size(size)) : nullptr;
        }
        if (!envelope.is_derived() || depth == kDeepest || !take_room(envelope)) return nullptr;
        const Contents contents(mpi_, type, envelope);
        if (!contents.is_there()) return nullptr;
        Element& element = layout_.make(extent);
        if (!describe(element, envelope.combiner, contents, depth)) return nullptr;
        element.finish();
        return element.size() == as_size(size) ? &element : nullptr;
    }

private:
    bool take_room(const Envelope& envelope) {
        const bool has_lengths =
            envelope.combiner == MPI_COMBINER_INDEXED || envelope.combiner == MPI_COMBINER_HINDEXED;
        const std::size_t numbers = as_size(envelope.integers + envelope.addresses + envelope.counts);
        const std::size_t rows = numbers / (has_lengths ? 2 : 1);
        const std::size_t taken = rows * sizeof(Element::Row) + as_size(envelope.types) * sizeof(Element);
        if (taken > room_) return false;
        room_ -= taken;
        return true;
    }

    bool describe(Element& element, int combiner, const Contents& contents, int depth) {
        if (combiner == MPI_COMBINER_STRUCT) return describe_struct(element, contents, depth);
        const Element* const old = decode(contents.type(0), depth + 1);
        if (old == nullptr) return false;
        const auto number = [&](std::size_t i) { return contents.number(i); };
        switch (combiner) {
            case MPI_COMBINER_DUP:
            case MPI_COMBINER_RESIZED:
                element.append(*old, 1, 0);
                return true;
            case MPI_COMBINER_CONTIGUOUS:
                element.append(*old, as_size(number(0)), 0);
                return true;
            case MPI_COMBINER_VECTOR:
                describe_vector(element, *old, number(0), number(1), distance(number(2), old->extent()));
                return true;
            case MPI_COMBINER_HVECTOR:
                describe_vector(element, *old, number(0), number(1), number(2));
                return true;
            case MPI_COMBINER_INDEXED:
                describe_blocks(element, *old, contents, Lengths::varied, old->extent());
                return true;
            case MPI_COMBINER_HINDEXED:
                describe_blocks(element, *old, contents, Lengths::varied, 1);
                return true;
            case MPI_COMBINER_INDEXED_BLOCK:
                describe_blocks(element, *old, contents, Lengths::same, old->extent());
                return true;
            case MPI_COMBINER_HINDEXED_BLOCK:
                describe_blocks(element, *old, contents, Lengths::same, 1);
                return true;
            case MPI_COMBINER_SUBARRAY:
                return describe_subarray(element, *old, contents);
            default:
                return false;
        }
    }

    /// `count` of the old elements, as an element of its own.
    const Element& make_row(const Element& old, MPI_Count count, std::ptrdiff_t extent) {
        Element& row = layout_.make(extent);
        row.append(old, as_size(count), 0);
        row.finish();
        return row;
    }

    void describe_vector(Element& element, const Element& old, MPI_Count count, MPI_Count length,
                         std::ptrdiff_t stride) {
        element.append(make_row(old, length, stride), as_size(count), 0);
    }

    enum class Lengths : std::uint8_t { same, varied };

    /// Contents: count, one length or one for each block, places in `unit` bytes.
    static void describe_blocks(Element& element, const Element& old, const Contents& contents, Lengths lengths,
                                std::ptrdiff_t unit) {
        const bool varied = lengths == Lengths::varied;
        const std::size_t count = as_size(contents.number(0));
        const std::size_t places = varied ? 1 + count : 2;
        element.expect(count);
        for (std::size_t i = 0; i < count; ++i) {
            const MPI_Count length = contents.number(varied ? 1 + i : 1);
            element.append(old, as_size(length), distance(contents.number(places + i), unit));
        }
    }

    /// Contents: count, lengths, places.
    bool describe_struct(Element& element, const Contents& contents, int depth) {
        const std::size_t count = as_size(contents.number(0));
        for (std::size_t i = 0; i < count; ++i) {
            const Element* const old = decode(contents.type(i), depth + 1);
            if (old == nullptr) return false;
            element.append(*old, as_size(contents.number(1 + i)), contents.number(1 + count + i));
        }
        return true;
    }

    /// Contents: dimensions, their sizes, those of the part, where it begins, the order. Where counts are large, the
    /// order follows the number of dimensions.
    bool describe_subarray(Element& element, const Element& old, const Contents& contents) {
        const std::size_t dimensions = as_size(contents.number(0));
        if (dimensions > kDeepest) return false;
        const std::size_t sizes = contents.has_large_counts() ? 2 : 1;
        const MPI_Count order = contents.number(contents.has_large_counts() ? 1 : 1 + 3 * dimensions);
        const Element* part = &old;
        std::ptrdiff_t extent = old.extent();
        std::ptrdiff_t place = 0;
        for (std::size_t i = 0; i < dimensions; ++i) {  // the one whose elements are next to each other first
            const std::size_t d = sizes + (order == MPI_ORDER_C ? dimensions - 1 - i : i);
            place += distance(contents.number(d + 2 * dimensions), extent);
            extent = distance(contents.number(d), extent);
            part = &make_row(*part, contents.number(d + dimensions), extent);
        }
        element.append(*part, 1, place);
        return true;
    }

    const Native& mpi_;
    Layout& layout_;
    std::size_t room_;
};

}  // namespace

std::unique_ptr<const Layout> decode_layout(const Native& mpi, const void* at, MPI_Count count, MPI_Datatype type,
                                            std::size_t size) {
    auto layout = std::make_unique<Layout>();
    const Element* const each = Decoder(mpi, *layout, size / kShareOfSize).decode(type, 0);
    if (each == nullptr) return nullptr;
    Element& whole = layout->make(0);
    whole.append(*each, as_size(count), 0);
    layout->describe(whole, at);
    return whole.size() == size ? std::move(layout) : nullptr;
}

}  // namespace cryptmpi::comm
