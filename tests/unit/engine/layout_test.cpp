// Parts of packed bytes, copied out of memory and into it, against a list of where each byte is.
#include "engine/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace cryptmpi::engine {
namespace {

using Element = Layout::Element;
using Places = std::vector<std::ptrdiff_t>;  // of each packed byte, from an element's address

/// A layout, and what it is to describe.
class Described {
public:
    struct Kind {
        const Element* element;
        Places places;
    };

    Kind bytes(std::size_t size) {
        Kind made{&layout.make_stretch(size), {}};
        for (std::size_t i = 0; i < size; ++i) made.places.push_back(static_cast<std::ptrdiff_t>(i));
        return made;
    }
    struct Row {
        Kind each;
        std::size_t count;
        std::ptrdiff_t place;
    };
    Kind rows(const std::vector<Row>& all, std::ptrdiff_t extent) {
        Element& element = layout.make(extent);
        Places places;
        for (const Row& row : all) {
            element.append(*row.each.element, row.count, row.place);
            for (std::size_t i = 0; i < row.count; ++i) {
                for (const std::ptrdiff_t place : row.each.places) {
                    places.push_back(row.place + static_cast<std::ptrdiff_t>(i) * row.each.element->extent() + place);
                }
            }
        }
        element.finish();
        EXPECT_EQ(element.size(), places.size());
        return {&element, places};
    }

    Layout layout;
};

/// Memory around everything that a kind has, and its address.
struct Memory {
    explicit Memory(const Places& places) {
        if (places.empty()) return;
        lowest = *std::min_element(places.begin(), places.end());
        bytes.resize(static_cast<std::size_t>(*std::max_element(places.begin(), places.end()) - lowest) + 1);
        for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 131 + i / 256 + 1);
    }
    std::uint8_t& at(std::ptrdiff_t place) { return bytes[static_cast<std::size_t>(place - lowest)]; }
    /// No pointer: it may be outside.
    void* address() const {
        return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(bytes.data()) -
                                       static_cast<std::uintptr_t>(lowest));
    }

    std::vector<std::uint8_t> bytes;
    std::ptrdiff_t lowest = 0;
};

void expect_part(Layout& layout, const Described::Kind& kind, std::size_t offset, std::size_t size) {
    SCOPED_TRACE(std::to_string(size) + " from " + std::to_string(offset) + " of " +
                 std::to_string(kind.places.size()));
    Memory memory(kind.places);
    layout.describe(*kind.element, memory.address());
    ASSERT_EQ(layout.size(), kind.places.size());

    std::vector<std::uint8_t> packed(size);
    layout.pack(offset, size, packed.data());
    std::vector<std::uint8_t> expected;
    for (std::size_t i = offset; i < offset + size; ++i) expected.push_back(memory.at(kind.places[i]));
    EXPECT_EQ(packed, expected);

    Memory other(kind.places);
    for (std::size_t i = 0; i < size; ++i) {
        packed[i] = static_cast<std::uint8_t>(~packed[i] + i);
        other.at(kind.places[offset + i]) = packed[i];
    }
    layout.unpack(offset, size, packed.data());
    EXPECT_EQ(memory.bytes, other.bytes);

    for (std::size_t i = 0; i < size; ++i) other.at(kind.places[offset + i]) = 0;
    layout.wipe(offset, size);
    EXPECT_EQ(memory.bytes, other.bytes);
}

void expect_all_parts(Layout& layout, const Described::Kind& kind) {
    for (std::size_t offset = 0; offset <= kind.places.size(); ++offset) {
        for (std::size_t size = 0; offset + size <= kind.places.size(); ++size) expect_part(layout, kind, offset, size);
    }
}

TEST(Layout, CopiesWhatLiesTogether) {
    Described described;
    const auto kind = described.rows({{described.bytes(3), 2, 0}, {described.bytes(5), 1, 6}}, 11);
    EXPECT_TRUE(kind.element->is_dense());
    expect_all_parts(described.layout, kind);
}

TEST(Layout, KnowsWhatIsAStretch) {
    std::uint8_t memory[100];
    Described described;
    const auto address_of = [&](const Described::Kind& kind) {
        described.layout.describe(*kind.element, memory);
        return described.layout.stretch();
    };
    const auto bytes = described.bytes(10);
    EXPECT_EQ(address_of(bytes), memory);
    EXPECT_EQ(address_of(described.rows({{bytes, 3, 5}, {bytes, 1, 35}}, 100)), memory + 5);
    EXPECT_EQ(address_of(described.rows({{bytes, 3, 5}, {bytes, 1, 36}}, 100)), nullptr);
    EXPECT_EQ(address_of(described.rows({{described.rows({{bytes, 1, 0}}, 11), 2, 0}}, 100)), nullptr);
}

TEST(Layout, CopiesBlocksForwardsAndBackwards) {
    for (const std::ptrdiff_t stride : {7, 5, -5, -9}) {
        for (const std::size_t size : {1, 3, 4, 5}) {
            Described described;
            const auto block = described.rows({{described.bytes(size), 1, 0}}, stride);
            expect_all_parts(described.layout, described.rows({{block, 6, 0}}, 0));
        }
    }
}

TEST(Layout, CopiesShortBlocks) {
    for (const std::size_t size : {4, 8, 16}) {
        Described described;
        const auto block = described.rows({{described.bytes(size), 1, 0}}, 20);
        expect_all_parts(described.layout, described.rows({{block, 3, 5}}, 0));
    }
}

TEST(Layout, LeavesOutWhatIsEmpty) {
    Described described;
    const auto nothing = described.rows({}, 8);
    const auto kind = described.rows(
        {{nothing, 5, 100}, {described.bytes(4), 0, 50}, {described.bytes(4), 2, 16}, {described.bytes(0), 3, 0}}, 40);
    expect_all_parts(described.layout, kind);
    Memory memory(kind.places);
    described.layout.describe(*nothing.element, memory.address());
    EXPECT_EQ(described.layout.size(), 0U);
    described.layout.pack(0, 0, nullptr);
}

TEST(Layout, CopiesKindsBesideEachOther) {
    Described described;
    const auto spread = described.rows({{described.bytes(2), 1, 0}}, 3);
    const auto other = described.rows({{described.bytes(1), 1, 2}, {described.bytes(1), 1, 0}}, 3);
    expect_all_parts(described.layout, described.rows({{spread, 2, 0},
                                                       {spread, 1, 6},  // goes on where the last one ended
                                                       {spread, 1, 10},
                                                       {other, 2, 20},
                                                       {described.bytes(3), 1, 30},
                                                       {described.bytes(1), 2, 33},
                                                       {spread, 2, 40}},
                                                      50));
}

class Random {
public:
    explicit Random(unsigned seed) : engine_(seed) {}
    std::size_t below(std::size_t limit) { return engine_() % limit; }

private:
    std::mt19937 engine_;
};

/// Some kind of others, `deep` times. Each byte has a place of its own, so that what is copied in can be told.
Described::Kind draw(Described& described, Random& random, int deep) {
    if (deep == 0) return described.bytes(1 + random.below(9));
    std::vector<Described::Row> rows;
    std::ptrdiff_t end = static_cast<std::ptrdiff_t>(random.below(40)) - 20;
    Described::Kind each = draw(described, random, deep - 1);
    for (std::size_t left = 1 + random.below(4); left != 0; --left) {
        if (random.below(3) == 0) each = draw(described, random, deep - 1);
        const std::size_t count = random.below(4);
        const auto [low, high] = std::minmax_element(each.places.begin(), each.places.end());
        const std::ptrdiff_t extent = each.element->extent();
        const std::ptrdiff_t last = (static_cast<std::ptrdiff_t>(count) - 1) * extent;
        if (count == 0 || each.places.empty()) continue;
        const std::ptrdiff_t place = end - *low - std::min<std::ptrdiff_t>(0, last);
        end = place + *high + std::max<std::ptrdiff_t>(0, last) + 1 + static_cast<std::ptrdiff_t>(random.below(3));
        rows.push_back({each, count, place});
    }
    if (random.below(2) == 0) std::reverse(rows.begin(), rows.end());
    const Places places = described.rows(rows, 0).places;
    if (places.empty()) return described.rows(rows, 0);
    const auto [low, high] = std::minmax_element(places.begin(), places.end());
    const std::ptrdiff_t span = *high - *low + 1 + static_cast<std::ptrdiff_t>(random.below(3));
    return described.rows(rows, random.below(3) == 0 ? -span : span);
}

TEST(Layout, CopiesAnyPartOfAnyNest) {
    for (unsigned seed = 0; seed < 300; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Random random(seed);
        Described described;
        const auto kind = described.rows({{draw(described, random, 1 + static_cast<int>(random.below(4))), 3, 0}}, 0);
        for (int i = 0; i < 20; ++i) {
            const std::size_t offset = random.below(kind.places.size() + 1);
            expect_part(described.layout, kind, offset, random.below(kind.places.size() - offset + 1));
        }
        if (HasFailure()) return;
    }
}

}  // namespace
}  // namespace cryptmpi::engine
