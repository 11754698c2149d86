#include "interpose/refuse.hpp"

#include <string>

#include "comm/layer.hpp"
#include "native.hpp"

namespace cryptmpi::interpose {
namespace {

void say(const std::string& procedure, const std::string& reason) {
    comm::Layer::get().complain_of_refused(procedure, reason + "; to let it pass in clear, set allow = [\"" +
                                                          procedure + "\"] or CRYPTMPI_ALLOW=" + procedure);
}

bool world_exists() {
    int begun = 0;
    int ended = 0;
    native().Initialized(&begun);
    native().Finalized(&ended);
    return begun != 0 && ended == 0;
}

}  // namespace

int refuse_to_comm(const char* procedure, const char* reason, MPI_Comm comm) {
    if (comm == MPI_COMM_NULL) return refuse_to_anyone(procedure, reason);
    say(procedure, reason);
    native().Comm_call_errhandler(comm, kRefusedCode);
    return kRefusedCode;
}

int refuse_to_win(const char* procedure, const char* reason, MPI_Win win) {
    if (win == MPI_WIN_NULL) return refuse_to_anyone(procedure, reason);
    say(procedure, reason);
    native().Win_call_errhandler(win, kRefusedCode);
    return kRefusedCode;
}

int refuse_to_file(const char* procedure, const char* reason, MPI_File file) {
    say(procedure, reason);
    native().File_call_errhandler(file, kRefusedCode);
    return kRefusedCode;
}

int refuse_to_anyone(const char* procedure, const char* reason) {
    say(procedure, reason);
    if (world_exists()) native().Comm_call_errhandler(MPI_COMM_WORLD, kRefusedCode);
    return kRefusedCode;
}

}  // namespace cryptmpi::interpose
