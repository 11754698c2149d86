#include "command/typed_line.hpp"

#include <algorithm>
#include <array>

#include "command/shell.hpp"
#include "command/wrappers.hpp"

namespace cryptmpi::command {
namespace {

constexpr std::array kMpis = {Mpi::open_mpi, Mpi::mpich, Mpi::intel};
using Lines = std::array<LaunchLine, kMpis.size()>;

std::size_t index_of(Mpi mpi) {
    return static_cast<std::size_t>(std::find(kMpis.begin(), kMpis.end(), mpi) - kMpis.begin());
}

std::optional<std::string> launcher_named_in(const LaunchLine& line) {
    const auto at = std::find(line.own.begin(), line.own.end(), "--mpi");
    if (at == line.own.end() || at + 1 == line.own.end()) return std::nullopt;
    return *(at + 1);
}

/// The MPI whose launcher --mpi names, if it can be had: what is wrong with it is said later.
std::optional<Mpi> mpi_named(const Lines& lines, const config::Environment& environment) {
    for (const auto& line : lines) {
        const auto named = launcher_named_in(line);
        const auto file = named ? find_in_path(*named, environment) : std::nullopt;
        if (!file) continue;
        if (const auto launcher = identify_launcher(*file)) return launcher->mpi;
    }
    return std::nullopt;
}

/// The MPI of a program of which a reading says that it is the first one: best where both agree. Where no reading gets
/// to such a program: of one that is among the words.
std::optional<Mpi> mpi_of_program(const Lines& lines, const std::vector<std::string>& words,
                                  const config::Environment& environment) {
    std::optional<Mpi> any;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (lines[i].contexts.empty()) continue;
        const auto library = library_behind(lines[i].contexts.front(), environment);
        if (library && library->mpi == kMpis[i]) return library->mpi;
        if (library && !any) any = library->mpi;
    }
    for (auto word = words.begin(); !any && word != words.end(); ++word) {
        Context context;
        context.program = {*word};
        if (const auto library = library_behind(context, environment)) any = library->mpi;
    }
    return any;
}

/// Where no MPI is known: the reading that is right, or that goes furthest.
std::size_t best_of(const Lines& lines) {
    const auto worse = [](const LaunchLine& one, const LaunchLine& other) {
        if (one.error.has_value() != other.error.has_value()) return one.error.has_value();
        return one.error && one.read < other.read;
    };
    return static_cast<std::size_t>(std::max_element(lines.begin(), lines.end(), worse) - lines.begin());
}

}  // namespace

std::string place_of(const Context& context, const std::string& program) {
    if (program.starts_with('/') || program.find('/') == std::string::npos) return program;
    std::filesystem::path folder;
    for (const auto& option : context.options) {
        if (option.meaning() == Meaning::directory) folder = option.values.front();
    }
    return folder.empty() ? program : (folder / program).string();
}

std::optional<MpiLibrary> library_behind(const Context& context, const config::Environment& environment) {
    const auto file = find_in_path(place_of(context, program_behind(context.program)), environment);
    return file ? library_of(*file, environment) : std::nullopt;
}

LaunchLine read_typed_line(const std::vector<std::string>& words, const config::Environment& environment) {
    Lines lines;
    std::transform(kMpis.begin(), kMpis.end(), lines.begin(), [&](Mpi mpi) { return read_line(mpi, words); });
    auto mpi = mpi_named(lines, environment);
    if (!mpi) mpi = mpi_of_program(lines, words, environment);
    return std::move(lines[mpi ? index_of(*mpi) : best_of(lines)]);
}

}  // namespace cryptmpi::command
