// How fast a module seals and opens bytes on one core, and nothing else: no record, no socket, no MPI.
//
//     cryptmpi-bench-cipher FOLDER MODULE CIPHER SIZE...
//     cryptmpi-bench-cipher FOLDER
//
// MODULE may be "auto". Prints "module NAME VERSION", then a line for each size: bytes, microseconds to seal and to
// open them (medians), and the same in GB/s. With a folder alone it prints what there is to be measured, a line for
// each module: "module NAME VERSION: CIPHER CIPHER ...", or "unusable NAME: REASON".
#include <algorithm>
#include <cstdio>
#include <string>

#include "aead/registry.hpp"

using namespace cryptmpi;

namespace {

int complain(const std::string& line) {
    std::fprintf(stderr, "cryptmpi-bench-cipher: %s\n", line.c_str());
    return 1;
}

// About 10 ms for each size.
int rounds_of(std::size_t size) {
    constexpr std::size_t kBytes = std::size_t{64} << 20;
    return static_cast<int>(std::clamp<std::size_t>(kBytes / std::max<std::size_t>(size, 1), 7, 2000));
}

int list(const std::string& folder) {
    const aead::Inventory inventory = aead::inspect(folder);
    for (const aead::Module& module : inventory.usable) {
        std::printf("module %s %s:", module.api->name, module.api->version);
        for (const aead::Suite suite : aead::kAllSuites)
            if (module.offers(suite)) std::printf(" %s", std::string(aead::name(suite)).c_str());
        std::printf("\n");
    }
    for (const aead::Unusable& module : inventory.unusable)
        std::printf("unusable %s: %s\n", module.name.c_str(), module.reason.c_str());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2) return list(argv[1]);
    if (argc < 5) return complain("FOLDER MODULE CIPHER SIZE...");
    const auto suite = aead::suite_by_name(argv[3]);
    if (!suite) return complain(std::string("no cipher called ") + argv[3]);
    const auto module = aead::choose(argv[1], argv[2], *suite);
    if (!module) return complain(module.error().line);
    std::printf("module %s %s\n", module->api->name, module->api->version);
    for (int i = 4; i < argc; ++i) {
        const std::size_t size = std::stoul(argv[i]);
        const auto speed = aead::measure(*module, *suite, size, rounds_of(size));
        if (!speed) return complain(speed.error().line);
        const auto rate = [&](double seconds) { return static_cast<double>(size) / seconds / 1e9; };
        std::printf("%zu %.4f %.4f %.3f %.3f\n", size, speed->seal_s * 1e6, speed->open_s * 1e6, rate(speed->seal_s),
                    rate(speed->open_s));
    }
    return 0;
}
