// Is a word in a list?
#pragma once

#include <algorithm>
#include <string_view>

namespace cryptmpi::command {

template <typename List>
bool one_of(const List& list, std::string_view word) {
    return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace cryptmpi::command
