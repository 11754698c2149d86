// The name that somebody who misspelt one most likely meant.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace cryptmpi {

/// Letters to be put in, left out or replaced.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i + 1;
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
        }
    }
    return row.back();
}

/// `names` has at least one.
inline std::string nearest(std::string_view wrong, const std::vector<std::string>& names) {
    return *std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
        return edit_distance(wrong, a) < edit_distance(wrong, b);
    });
}

}  // namespace cryptmpi
