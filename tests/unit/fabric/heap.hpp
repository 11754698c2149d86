// Is memory a part of the heap, which the program has, too?
#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace cryptmpi::test {

inline bool is_in_heap(const void* at) {
    const auto place = reinterpret_cast<std::uintptr_t>(at);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        unsigned long begin = 0, end = 0;
        if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2 || place < begin || place >= end) continue;
        return line.ends_with("[heap]");
    }
    return false;
}

}  // namespace cryptmpi::test
