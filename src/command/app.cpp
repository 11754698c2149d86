// The command line as a whole, for the command and for its manual pages.
#include <CLI/CLI.hpp>

#include "command/subcommands.hpp"

namespace cryptmpi::command {

void add_everything(CLI::App& app, const Words& program, const LaunchLine& line, int& status) {
    app.name("cryptmpi");
    app.description("CryptMPI: unmodified MPI programs, encrypted and authenticated between nodes");
    app.set_version_flag("--version", "cryptmpi " CRYPTMPI_VERSION);
    app.require_subcommand(0, 1);  // with 1, an unknown one would be told that one is required
    add_keygen(app, status);
    add_key(app, status);
    add_receive_key(app, status);
    add_run(app, line, status);
    add_exec(app, program, status);
    add_doctor(app, status);
    add_coverage(app, status);
    add_report(app, status);
    add_attest(app, status);
    add_top(app, status);
    add_collect(app, status);
    add_python_commands(app, status);
    // Last, or each subcommand would have it.
    app.footer(
        "Examples:\n"
        "  cryptmpi run -n 4 --hosts a,b ./program args       with the launcher of the program's own MPI, and a fresh "
        "key\n"
        "  cryptmpi keygen                                    once: the key file, for launchers that you start "
        "yourself\n"
        "  cryptmpi keygen --rotate && cryptmpi key install a b  another key, while jobs run (docs/keys.md)\n"
        "  mpiexec -n 4 cryptmpi exec ./program args          inside a launcher line that you have\n"
        "  cryptmpi doctor                                    is this machine ready?\n"
        "  cryptmpi coverage                                  what becomes of each MPI procedure\n"
        "  cryptmpi run --report job.json -n 4 ./program && cryptmpi report job.json\n"
        "  cryptmpi top                                       what sealed jobs on this node do by now\n"
        "  cryptmpi tune --hosts a,b                          plans of large messages for this network\n"
        "  cryptmpi model papers                              the papers' figures, computed again\n"
        "Each subcommand has a --help. Settings: docs/settings.md.");
}

}  // namespace cryptmpi::command
