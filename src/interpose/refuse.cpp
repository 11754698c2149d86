#include "interpose/refuse.hpp"

#include <string>

#include "interpose/this_process.hpp"

namespace cryptmpi::interpose {
namespace {

void say(const std::string& procedure, const std::string& reason) {
    layer().complain_of_refused(procedure, reason + "; to let it pass in clear, set allow = [\"" + procedure +
                                               "\"] or CRYPTMPI_ALLOW=" + procedure);
}

}  // namespace

int refuse_to_comm(const char* procedure, const char* reason, MPI_Comm comm) {
    if (comm == MPI_COMM_NULL) return refuse_to_anyone(procedure, reason);
    say(procedure, reason);
    return comm::raise_on_comm(layer(), comm, refused_code());
}

int refuse_to_win(const char* procedure, const char* reason, MPI_Win win) {
    if (win == MPI_WIN_NULL) return refuse_to_anyone(procedure, reason);
    say(procedure, reason);
    return comm::raise_on_win(layer(), win, refused_code());
}

int refuse_to_file(const char* procedure, const char* reason, MPI_File file) {
    say(procedure, reason);
    return comm::raise_on_file(layer(), file, refused_code());
}

int refuse_to_anyone(const char* procedure, const char* reason) {
    say(procedure, reason);
    return comm::raise_on_world(layer(), refused_code());
}

int refused_code() {
    return layer().refused_code();
}

}  // namespace cryptmpi::interpose
