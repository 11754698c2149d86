// Reads what the dynamic loader would read of an ELF file, without running it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "config/settings.hpp"

namespace cryptmpi::command {

struct ElfFile {
    std::uint16_t machine = 0;  // EM_X86_64, ...
    bool is_64_bit = true;
    std::vector<std::string> needed;  // DT_NEEDED
    std::string rpath, runpath;       // colon-separated, as written
};

/// Only the header is read of files for another word size or byte order. Errors: unreadable, not ELF (ENOEXEC), cut
/// off.
Result<ElfFile> read_elf(const std::filesystem::path& file);

/// The functions that a shared object exports. Errors: as read_elf; an object without a table of sections (ENOEXEC).
Result<std::vector<std::string>> exported_functions(const std::filesystem::path& file);

/// The machine number of this very executable.
std::uint16_t own_machine();

/// Every shared object that the loader would load for `program`, itself left out: breadth first, as the loader does it.
/// What cannot be found is left out.
std::vector<std::filesystem::path> loaded_objects(const std::filesystem::path& program,
                                                  const config::Environment& environment);

/// Shared objects in the loader's cache whose name starts with `prefix`.
std::vector<std::filesystem::path> cached_objects(std::string_view prefix);

/// The file's bytes hold `text` somewhere.
bool file_contains(const std::filesystem::path& file, std::string_view text);

}  // namespace cryptmpi::command
