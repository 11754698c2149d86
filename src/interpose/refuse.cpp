#include "interpose/refuse.hpp"

#include <string>

#include "comm/layer.hpp"

namespace cryptmpi::interpose {
namespace {

using comm::Layer;

void say(const std::string& procedure, const std::string& reason) {
    Layer::get().complain_of_refused(procedure, reason + "; to let it pass in clear, set allow = [\"" + procedure +
                                                    "\"] or CRYPTMPI_ALLOW=" + procedure);
}

}  // namespace

int refuse_to_comm(const char* procedure, const char* reason, MPI_Comm comm) {
    if (comm == MPI_COMM_NULL) return refuse_to_anyone(procedure, reason);
    say(procedure, reason);
    return comm::raise_on_comm(Layer::get(), comm, refused_code());
}

int refuse_to_win(const char* procedure, const char* reason, MPI_Win win) {
    if (win == MPI_WIN_NULL) return refuse_to_anyone(procedure, reason);
    say(procedure, reason);
    return comm::raise_on_win(Layer::get(), win, refused_code());
}

int refuse_to_file(const char* procedure, const char* reason, MPI_File file) {
    say(procedure, reason);
    return comm::raise_on_file(Layer::get(), file, refused_code());
}

int refuse_to_anyone(const char* procedure, const char* reason) {
    say(procedure, reason);
    return comm::raise_on_world(Layer::get(), refused_code());
}

int refused_code() {
    return Layer::get().refused_code();
}

}  // namespace cryptmpi::interpose
