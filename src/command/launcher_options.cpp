#include "command/launcher_options.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <span>

namespace cryptmpi::command {
namespace {

using enum Meaning;

constexpr std::string_view kOfFile = "cryptmpi would not see what the file says; write it into the line";
constexpr std::string_view kProgramsOfFile =
    "starts programs that cryptmpi would not see; write them behind the first one: "
    "cryptmpi run -n 1 ./a : -n 2 ./b";
constexpr std::string_view kOtherDaemons =
    "takes daemons that somebody else has started, which are not sealed; leave it out";
constexpr std::string_view kDebugger =
    "starts a debugger in the job's place; attach one to a rank, or put it before the program "
    "(cryptmpi run ... gdb --args ./program)";
constexpr std::string_view kCopied =
    "would copy cryptmpi's command in the program's place; copy the program to the nodes";
constexpr std::string_view kPath = "is not asked for the program, which cryptmpi starts; write the program's path";

// mpiexec --help full of Open MPI 4.1, and all that Open MPI 5 takes. -n has its own place in a line. display-topo is
// left out: it has a value in Open MPI 5 only, so the line has to say where it ends.
constexpr LauncherOption kOpenMpi[] = {
    {"c", 1, ranks},
    {"n", 1, ranks},
    {"np", 1, ranks},
    {"H", 1, hosts},
    {"host", 1, hosts},
    {"add-host", 1, hosts},
    {"hostfile", 1, host_file},
    {"machinefile", 1, host_file},
    {"default-hostfile", 1, host_file},
    {"add-hostfile", 1, host_file},
    {"N", 1, places},
    {"npernode", 1, places},
    {"npersocket", 1, places},
    {"pernode", 0, places},
    {"ppr", 1, places},
    {"map-by", 1, places},
    {"mapby", 1, places},
    {"rf", 1, places},
    {"rankfile", 1, places},
    {"x", 1, variable},
    {"set-env", 1, variable},
    {"unset-env", 1, variable},
    {"append-env", 2, variable},
    {"prepend-env", 2, variable},
    {"wd", 1, directory},
    {"wdir", 1, directory},
    {"mca", 2, parameter},
    {"gmca", 2, parameter},
    {"omca", 2, parameter},
    {"gomca", 2, parameter},
    {"prtemca", 2, parameter},
    {"pmixmca", 2, parameter},
    {"gpmixmca", 2, parameter},
    {"h", 0, help},
    {"help", 0, help},
    {"V", 0, idle},
    {"version", 0, idle},
    {"do-not-launch", 0, idle},
    {"app", 1, refused, kProgramsOfFile},
    {"file", 1, refused, kProgramsOfFile},
    {"tune", 1, refused, kOfFile},
    {"am", 1, refused, kOfFile},
    {"amca", 1, refused, kOfFile},
    {"hnp", 1, refused, kOtherDaemons},
    {"dvm", 0, refused, kOtherDaemons},
    {"singleton", 1, refused, kOtherDaemons},
    {"system-server", 0, refused, kOtherDaemons},
    {"debug", 0, refused, kDebugger},
    {"debugger", 1, refused, kDebugger},
    {"tv", 0, refused, kDebugger},
    {"s", 0, refused, kCopied},
    {"preload-binary", 0, refused, kCopied},
    {"path", 1, refused, kPath},
    {"allow-run-as-root", 0},
    {"arch", 1},
    {"bind-to", 1},
    {"bind-to-core", 0},
    {"bind-to-socket", 0},
    {"bindto", 1},
    {"bycore", 0},
    {"bynode", 0},
    {"byslot", 0},
    {"cf", 1},
    {"cartofile", 1},
    {"continuous", 0},
    {"cpu-list", 1},
    {"cpu-set", 1},
    {"cpus-per-proc", 1},
    {"cpus-per-rank", 1},
    {"d", 0},
    {"debug-devel", 0},
    {"debug-daemons", 0},
    {"debug-daemons-file", 0},
    {"disable-recovery", 0},
    {"display", 1},
    {"display-allocation", 0},
    {"display-comm", 0},
    {"display-comm-finalize", 0},
    {"display-devel-allocation", 0},
    {"display-devel-map", 0},
    {"display-diffable-map", 0},
    {"display-map", 0},
    {"do-not-resolve", 0},
    {"enable-instant-on-support", 0},
    {"enable-recovery", 0},
    {"app-pmix-prefix", 1},
    {"forward-signals", 1},
    {"fwd-environment", 0},
    {"fwd-mpirun-port", 0},
    {"get-stack-traces", 0},
    {"gpu-support", 1},
    {"hetero-nodes", 0},
    {"index-argv-by-rank", 0},
    {"initial-errhandler", 1},
    {"keepalive", 1},
    {"launch-agent", 1},
    {"leave-session-attached", 0},
    {"memory-alloc-kinds", 1},
    {"max-restarts", 1},
    {"max-vm-size", 1},
    {"merge-stderr-to-stdout", 0},
    {"no-app-prefix", 0},
    {"no-aggregate-help", 0},
    {"nolocal", 0},
    {"nooversubscribe", 0},
    {"noprefix", 0},
    {"novm", 0},
    {"ompi-server", 1},
    {"output", 1},
    {"output-directory", 1},
    {"output-filename", 1},
    {"output-proctable", 0},
    {"oversubscribe", 0},
    {"p", 0},
    {"parsable", 0},
    {"parseable", 0},
    {"personality", 1},
    {"pmix-prefix", 1},
    {"prefix", 1},
    {"preload-files", 1},
    {"pset", 1},
    {"q", 0},
    {"quiet", 0},
    {"rank-by", 1},
    {"rankby", 1},
    {"report-bindings", 0},
    {"report-child-jobs-separately", 0},
    {"report-events", 1},
    {"report-pid", 1},
    {"report-state-on-timeout", 0},
    {"report-uri", 1},
    {"rtos", 1},
    {"runtime-options", 1},
    {"set-cwd-to-session-dir", 0},
    {"set-sid", 0},
    {"show-progress", 0},
    {"soft", 0},
    {"spawn-timeout", 1},
    {"stdin", 1},
    {"stop-in-app", 0},
    {"stop-in-init", 0},
    {"stop-on-exec", 0},
    {"stream-buffering", 1},
    {"tag-output", 0},
    {"timeout", 1},
    {"timestamp-output", 0},
    {"tmpdir", 1},
    {"use-hwthread-cpus", 0},
    {"use-regexp", 0},
    {"v", 0},
    {"verbose", 0},
    {"with-ft", 1},
    {"xml", 0},
    {"xml-file", 1},
    {"xterm", 1},
};

// mpiexec --help of MPICH 3.4, 4.0 and 5.0, and the synonyms that Hydra has beside. All of them are Intel MPI's, too.
constexpr LauncherOption kHydra[] = {
    {"n", 1, ranks},
    {"np", 1, ranks},
    {"host", 1, hosts},
    {"hosts", 1, hosts},
    {"hostlist", 1, hosts},
    {"machine", 1, hosts},
    {"machines", 1, hosts},
    {"machinelist", 1, hosts},
    {"f", 1, host_file},
    {"hostfile", 1, host_file},
    {"machinefile", 1, host_file},
    {"ppn", 1, places},
    {"rankmap", 1, places},
    {"rmk", 1, places},
    {"genv", 2, variable},
    {"env", 2, variable},
    {"genvlist", 1, variable_list},
    {"envlist", 1, variable_list},
    {"genvnone", 0, no_variables},
    {"envnone", 0, no_variables},
    {"wdir", 1, directory},
    {"launcher-exec", 1, remote_shell},
    {"bootstrap-exec", 1, remote_shell},
    {"launcher", 1, starter},
    {"bootstrap", 1, starter},
    {"h", 0, help},
    {"help", 0, help},
    {"info", 0, idle},
    {"version", 0, idle},
    {"configfile", 1, refused, kProgramsOfFile},
    {"path", 1, refused, kPath},
    {"genvall", 0},
    {"envall", 0},
    {"bind-to", 1},
    {"binding", 1},
    {"map-by", 1},
    {"membind", 1},
    {"topolib", 1},
    {"dac", 0},
    {"debug", 0},
    {"demux", 1},
    {"disable-auto-cleanup", 0},
    {"enable-auto-cleanup", 0},
    {"disable-hostname-propagation", 0},
    {"enable-hostname-propagation", 0},
    {"disable-x", 0},
    {"enable-x", 0},
    {"errfile", 1},
    {"errfile-pattern", 1},
    {"outfile", 1},
    {"outfile-pattern", 1},
    {"g", 1},
    {"gpus-per-proc", 1},
    {"gpu-subdevs-per-proc", 1},
    {"hybrid-hosts", 0},
    {"iface", 1},
    {"l", 0},
    {"localhost", 1},
    {"memory-alloc-kinds", 1},
    {"nameserver", 1},
    {"order-nodes", 1},
    {"output-from", 1},
    {"pmi-port", 0},
    {"prepend-pattern", 1},
    {"prepend-rank", 0},
    {"print-all-exitcodes", 0},
    {"profile", 0},
    {"skip-launch-node", 0},
    {"usize", 1},
    {"v", 0},
    {"verbose", 0},
};

// mpiexec.hydra --help of Intel MPI 2021, and what its manual has beside.
constexpr LauncherOption kIntel[] = {
    {"perhost", 1, places},
    {"grr", 1, places},
    {"rr", 0, places},
    {"hosts-group", 1, places},
    {"genvexcl", 1, variable},
    {"envexcl", 1, variable},
    {"gwdir", 1, directory},
    {"gpath", 1, refused, kPath},
    {"v", 0},
    {"tv", 0, refused, kDebugger},
    {"tva", 1, refused, kDebugger},
    {"gdb", 0, refused, kDebugger},
    {"gdba", 1, refused, kDebugger},
    {"gdb-args", 1, refused, kDebugger},
    {"idb", 0, refused, kDebugger},
    {"pmi-connect", 1, refused, kOtherDaemons},
    {"aps", 0},
    {"mps", 0},
    {"bootstrap-exec-args", 1},
    {"branch-count", 1},
    {"cpu-bind", 1},
    {"gtool", 1},
    {"gtoolfile", 1, refused, kOfFile},
    {"gumask", 1},
    {"ilp64", 0},
    {"umask", 1},
    {"nolocal", 0},
    {"ordered-output", 0},
    {"pmi-aggregate", 0},
    {"pmi-noaggregate", 0},
    {"prepend-timestamp", 0},
    {"print-rank-map", 0},
    {"prot", 0},
    {"s", 1},
    {"silent-abort", 0},
    {"tmpdir", 1},
    {"trace-collectives", 0},
    {"tune", 1},
    {"use-app-topology", 1},
};

using Table = std::span<const LauncherOption>;

bool same_letters(std::string_view one, std::string_view other) {
    const auto lower = [](char letter) { return std::tolower(static_cast<unsigned char>(letter)); };
    return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                      [&](char left, char right) { return lower(left) == lower(right); });
}

/// Hydra does not distinguish small letters from capitals.
bool is_called(Mpi mpi, std::string_view option, std::string_view name) {
    return mpi == Mpi::open_mpi ? option == name : same_letters(option, name);
}

std::array<Table, 2> tables(Mpi mpi) {
    if (mpi == Mpi::open_mpi) return {kOpenMpi, {}};
    return {mpi == Mpi::intel ? Table(kIntel) : Table(), kHydra};
}

}  // namespace

const LauncherOption* find_option(Mpi mpi, std::string_view name) {
    for (const auto table : tables(mpi)) {
        for (const auto& option : table) {
            if (is_called(mpi, option.name, name)) return &option;
        }
    }
    return nullptr;
}

std::string taken_for(Mpi mpi, std::string_view word) {
    if (mpi != Mpi::open_mpi || word.size() < 3 || word[1] == '-') return {};
    const auto first = word.substr(1, 1);
    return find_option(mpi, first) == nullptr ? std::string() : "-" + std::string(first);
}

std::string abbreviated(Mpi mpi, std::string_view name) {
    if (mpi != Mpi::open_mpi || name.empty()) return {};
    const Table options(kOpenMpi);
    const auto found = std::find_if(options.begin(), options.end(),
                                    [&](const LauncherOption& option) { return option.name.starts_with(name); });
    return found == options.end() ? std::string() : std::string(found->name);
}

const char* other_with_option(Mpi mpi, std::string_view option) {
    for (const Mpi other : {Mpi::open_mpi, Mpi::mpich, Mpi::intel}) {
        if (other != mpi && find_option(other, option) != nullptr) return name(other);
    }
    return nullptr;
}

}  // namespace cryptmpi::command
