#include "command/launchers.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <span>
#include <sstream>
#include <string_view>

#include "command/elf.hpp"
#include "command/planting.hpp"
#include "command/shell.hpp"

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 3> kHydraNames = {"mpiexec.hydra", "mpiexec", "mpirun"};
constexpr std::array<const char*, 4> kMpichNames = {"mpiexec.hydra", "mpiexec.mpich", "mpiexec", "mpirun"};
constexpr std::array<const char*, 4> kOpenMpiNames = {"mpirun.openmpi", "mpiexec.openmpi", "mpirun", "mpiexec"};

struct Known {
    Mpi mpi;
    const char* name;
    const char* says;  // in the launcher's --version
    std::span<const char* const> launcher_names;
};

constexpr std::array<Known, 3> kKnown = {{
    {Mpi::intel, "Intel MPI", "Intel(R) MPI", kHydraNames},
    {Mpi::mpich, "MPICH", "HYDRA build details", kMpichNames},
    {Mpi::open_mpi, "Open MPI", "Open MPI|OpenRTE|PRRTE|OpenPMIx Reference", kOpenMpiNames},
}};

const Known& known(Mpi mpi) {
    return *std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& entry) { return entry.mpi == mpi; });
}

bool says_one_of(const std::string& text, std::string_view marks) {
    while (!marks.empty()) {
        const auto end = std::min(marks.find('|'), marks.size());
        if (text.find(marks.substr(0, end)) != std::string::npos) return true;
        marks.remove_prefix(std::min(end + 1, marks.size()));
    }
    return false;
}

/// The line of a --version that holds the number.
std::string version_line(const std::string& output) {
    std::istringstream lines(output);
    std::string first;
    for (std::string line; std::getline(lines, line);) {
        const auto start = line.find_first_not_of(" \t");
        if (start == std::string::npos) continue;
        line.erase(0, start);
        if (first.empty()) first = line;
        if (line.starts_with("Version:")) return "HYDRA " + line.substr(line.find_first_not_of(" \t", 8));
    }
    return first;
}

int major_version(const std::string& version) {
    const auto digit = version.find_last_of(' ') == std::string::npos ? 0 : version.find_last_of(' ') + 1;
    return std::atoi(version.c_str() + digit);
}

/// Folders in which the launcher of a library in `folder` may be: bin beside each of the nearest ancestors.
std::vector<fs::path> folders_near(const fs::path& folder) {
    constexpr int kLevels = 5;
    std::vector<fs::path> result;
    fs::path ancestor = folder;
    for (int level = 0; level < kLevels && ancestor != ancestor.root_path();
         ++level, ancestor = ancestor.parent_path()) {
        result.push_back(ancestor / "bin");
    }
    return result;
}

/// What may be a launcher near a library, or near the file that it is a link to.
std::vector<fs::path> launchers_near(const MpiLibrary& library) {
    std::vector<fs::path> launchers;
    std::error_code error;
    for (const auto& file : {library.file, fs::canonical(library.file, error)}) {
        for (const auto& folder : folders_near(file.parent_path())) {
            for (const char* launcher_name : known(library.mpi).launcher_names) {
                if (fs::exists(folder / launcher_name, error)) launchers.push_back(folder / launcher_name);
            }
        }
    }
    return launchers;
}

/// The folders that the user has named.
std::set<fs::path> folders_in_path(const config::Environment& environment) {
    std::set<fs::path> folders;
    std::istringstream path(environment("PATH").value_or(""));
    for (std::string folder; std::getline(path, folder, ':');) {
        // Without a slash at its end, which a path keeps.
        if (folder.starts_with('/')) folders.insert((fs::path(folder) / "-").lexically_normal().parent_path());
    }
    return folders;
}

/// Takes out those that somebody else may have put there: near /tmp/mpi/lib is /tmp/bin, which anybody can make.
/// Returns the first of them and why, for an error's line.
std::string take_planted_out(std::vector<fs::path>& launchers, const config::Environment& environment) {
    const auto chosen = folders_in_path(environment);
    std::string first;
    std::erase_if(launchers, [&](const fs::path& launcher) {
        const bool is_chosen = chosen.count(launcher.parent_path()) != 0;
        const std::string risk = is_chosen ? std::string() : planting_risk(launcher);
        if (first.empty() && !risk.empty()) first = " (" + launcher.string() + " is not run: " + risk + ")";
        return !risk.empty();
    });
    return first;
}

/// Intel MPI fills a node's cores whatever slots its name carries, so the number of ranks is said where all nodes have
/// the same.
int ranks_per_node(const Launch& launch) {
    if (launch.per_node > 0 || launch.hosts.empty()) return launch.per_node;
    const int slots = launch.hosts.front().slots;
    const bool same =
        std::all_of(launch.hosts.begin(), launch.hosts.end(), [&](const Host& host) { return host.slots == slots; });
    return same ? slots : 0;
}

std::string joined_hosts(const std::vector<Host>& hosts) {
    std::string text;
    for (const auto& host : hosts) text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.slots);
    return text;
}

using Line = std::vector<std::string>;

void add(Line& line, std::initializer_list<std::string> words) {
    line.insert(line.end(), words);
}

void hydra(Line& line, const Launcher& launcher, const Launch& launch) {
    const std::string starter = launcher.mpi == Mpi::intel ? "-bootstrap" : "-launcher";
    if (!launch.agent.empty()) add(line, {starter, "ssh", starter + "-exec", launch.agent});
    if (!launch.hosts.empty()) add(line, {"-hosts", joined_hosts(launch.hosts)});
    if (const int per_node = ranks_per_node(launch); per_node > 0) add(line, {"-ppn", std::to_string(per_node)});
    for (const auto& [variable, value] : launch.variables) {
        if (value) add(line, {"-genv", variable, *value});  // the others are passed on by Hydra itself
    }
}

void open_mpi_variables(Line& line, const Launch& launch) {
    for (const auto& [variable, value] : launch.variables) {
        add(line, {"-x", value ? variable + "=" + *value : variable});
    }
}

void open_mpi(Line& line, const Launcher& launcher, const Launch& launch) {
    // In a batch system's job it would start its daemons by that one's way, past our agent.
    if (!launch.agent.empty() && launcher.prrte)
        add(line, {"--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", launch.agent});
    if (!launch.agent.empty() && !launcher.prrte)
        add(line, {"--mca", "plm", "rsh", "--mca", "plm_rsh_agent", launch.agent});
    if (!launch.hosts.empty()) add(line, {"--host", joined_hosts(launch.hosts)});
    if (launch.per_node > 0) add(line, {"--map-by", fmt::format("ppr:{}:node", launch.per_node)});
    open_mpi_variables(line, launch);
}

/// Each context has variables of its own under Open MPI; Hydra's are for all.
void add_context(Line& line, const Launcher& launcher, const Launch& launch, const Context& context) {
    add(line, {":", "-n", std::to_string(context.ranks)});
    if (launcher.mpi == Mpi::open_mpi) open_mpi_variables(line, launch);
    append_words(line, context.options);
    line.insert(line.end(), context.program.begin(), context.program.end());
}

}  // namespace

const char* name(Mpi mpi) {
    return known(mpi).name;
}

std::optional<Mpi> library_kind(const fs::path& file) {
    const std::string base = file.filename().string();
    if (base.starts_with("libmpi.so.40")) return Mpi::open_mpi;
    const bool mpich_abi = base.starts_with("libmpi.so.12") || base.starts_with("libmpich.so.") ||
                           base.starts_with("libmpi_abi.so.") || base.starts_with("libmpi_ilp64.so.");
    if (!mpich_abi) return std::nullopt;
    if (file_contains(file, "Intel(R) MPI Library")) return Mpi::intel;
    // The standard ABI's library has the same name in every MPI.
    if (base.starts_with("libmpi_abi") && file_contains(file, "Open MPI v")) return Mpi::open_mpi;
    return Mpi::mpich;
}

const char* abi_of(const MpiLibrary& library) {
    if (library.file.filename().string().starts_with("libmpi_abi")) return "standard";
    return library.mpi == Mpi::open_mpi ? "openmpi" : "mpich";
}

std::optional<MpiLibrary> library_of(const fs::path& program, const config::Environment& environment) {
    for (const auto& object : loaded_objects(program, environment)) {
        if (auto mpi = library_kind(object)) return MpiLibrary{*mpi, object};
    }
    return std::nullopt;
}

Result<Launcher> identify_launcher(const fs::path& file) {
    const auto output = output_of({file.string(), "--version"});
    if (!output) return fail(ENOEXEC, "launcher " + file.string() + " cannot be run, or does not answer --version");
    for (const auto& entry : kKnown) {
        if (!says_one_of(*output, entry.says)) continue;
        std::string version = version_line(*output);
        const bool prrte =
            entry.mpi == Mpi::open_mpi && (major_version(version) >= 5 || version.find("OpenRTE") == std::string::npos);
        return Launcher{entry.mpi, prrte, file, std::move(version)};
    }
    return fail(EINVAL, "launcher " + file.string() +
                            " is none that cryptmpi run knows (MPICH's and Intel MPI's Hydra, "
                            "Open MPI's mpirun); use it with: LAUNCHER ... cryptmpi exec PROGRAM");
}

Result<Launcher> launcher_of(const MpiLibrary& library, const config::Environment& environment) {
    std::vector<fs::path> candidates = launchers_near(library);
    const std::string planted = take_planted_out(candidates, environment);
    for (const char* launcher_name : known(library.mpi).launcher_names) {
        if (auto file = find_in_path(launcher_name, environment)) candidates.push_back(*file);
    }
    std::set<fs::path> asked;
    for (const auto& candidate : candidates) {
        if (!asked.insert(candidate).second) continue;
        auto launcher = identify_launcher(candidate);
        if (launcher && launcher->mpi == library.mpi) return launcher;
    }
    return fail(ENOENT, std::string("no launcher of ") + name(library.mpi) + " found for " + library.file.string() +
                            ", neither beside it nor in PATH" + planted + "; name it with --mpi");
}

std::vector<Launcher> launchers_in_path(const config::Environment& environment) {
    std::vector<Launcher> found;
    std::set<fs::path> asked;
    std::istringstream path(environment("PATH").value_or(""));
    for (std::string folder; std::getline(path, folder, ':');) {
        for (const auto& entry : kKnown) {
            for (const char* launcher_name : entry.launcher_names) {
                std::error_code error;
                const auto file = fs::canonical(fs::path(folder) / launcher_name, error);
                if (error || !asked.insert(file).second) continue;
                if (auto launcher = identify_launcher(file)) found.push_back(std::move(*launcher));
            }
        }
    }
    return found;
}

std::optional<fs::path> library_beside(const Launcher& launcher) {
    std::vector<fs::path> candidates;
    std::error_code ignored;
    const fs::path prefix = launcher.file.parent_path().parent_path();
    for (const char* library : {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12"}) {
        for (const char* folder : {"lib", "lib64", "lib/release"}) candidates.push_back(prefix / folder / library);
        // A launcher in a system folder belongs to a library of the loader's cache.
        for (const auto& object : cached_objects(library)) candidates.push_back(object);
    }
    for (const auto& candidate : candidates) {
        if (fs::exists(candidate, ignored) && library_kind(candidate) == launcher.mpi)
            return fs::canonical(candidate, ignored);
    }
    return std::nullopt;
}

std::vector<std::string> command_line(const Launcher& launcher, const Launch& launch) {
    Line line = {launcher.file.string()};
    if (launch.ranks > 0) add(line, {"-n", std::to_string(launch.ranks)});
    if (launcher.mpi == Mpi::open_mpi) {
        open_mpi(line, launcher, launch);
    } else {
        hydra(line, launcher, launch);
    }
    append_words(line, launch.options);
    line.insert(line.end(), launch.command.begin(), launch.command.end());
    for (const auto& context : launch.more) add_context(line, launcher, launch, context);
    return line;
}

}  // namespace cryptmpi::command
