#include "comm/errors.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/exit_status.hpp"
#include "base/last_words.hpp"

namespace cryptmpi::comm {
namespace {

bool world_exists(const Native& mpi) {
    int begun = 0;
    int ended = 0;
    mpi.Initialized(&begun);
    mpi.Finalized(&ended);
    return begun != 0 && ended == 0;
}

bool is_fatal(MPI_Errhandler handler) {
    bool fatal = handler == MPI_ERRORS_ARE_FATAL;
#ifdef MPI_ERRORS_ABORT
    fatal = fatal || handler == MPI_ERRORS_ABORT;
#endif
    return fatal;
}

/// `get` asks MPI for the handler.
template <class Get>
bool ends_the_job(const Native& mpi, Get get) {
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    if (get(&handler) != MPI_SUCCESS) return false;
    const bool fatal = is_fatal(handler);
    mpi.Errhandler_free(&handler);  // a reference of our own
    return fatal;
}

std::string text_of(const Native& mpi, int code) {
    std::array<char, MPI_MAX_ERROR_STRING + 1> text = {};
    int length = 0;
    if (mpi.Error_string(code, text.data(), &length) != MPI_SUCCESS) return fmt::format("error {}", code);
    return text.data();
}

[[noreturn]] void end_all(const Voice& voice, MPI_Comm comm, int code) {
    if (!voice.has_complained_of(code)) voice.say("the job ends: " + text_of(voice.mpi, code));
    let_be_read(voice.messages());
    const MPI_Comm everybody = world_exists(voice.mpi) ? MPI_COMM_WORLD : comm;
    if (everybody != MPI_COMM_NULL) voice.mpi.Abort(everybody, kExitRefused);
    _exit(kExitRefused);
}

/// `cause`: the error that the job ends with, where that is not all that `code` says.
int raise_on_comm(const Voice& voice, MPI_Comm comm, int code, int cause) {
    const auto& mpi = voice.mpi;
    if (ends_the_job(mpi, [&](MPI_Errhandler* handler) { return mpi.Comm_get_errhandler(comm, handler); })) {
        end_all(voice, comm, cause);
    }
    mpi.Comm_call_errhandler(comm, code);
    return code;
}

}  // namespace

bool hides_told_errors(const Native& mpi, MPI_Comm comm) {
#ifdef OPEN_MPI
    (void)mpi;
    (void)comm;
    return false;
#else
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    if (mpi.Comm_get_errhandler(comm, &handler) != MPI_SUCCESS) return false;
    const bool is_the_programs = !is_fatal(handler) && handler != MPI_ERRORS_RETURN;
    mpi.Errhandler_free(&handler);
    return is_the_programs;
#endif
}

int raise_on_comm(const Voice& voice, MPI_Comm comm, int code) {
    return raise_on_comm(voice, comm, code, code);
}

int raise_class_on_comm(const Voice& voice, MPI_Comm comm, int code) {
    int error_class = code;
    voice.mpi.Error_class(code, &error_class);
    return raise_on_comm(voice, comm, error_class);
}

int raise_in_status(const Voice& voice, MPI_Comm comm, int first) {
#ifdef OPEN_MPI
    raise_on_comm(voice, comm, first);  // Open MPI's handlers are told of the request's own error
    return MPI_ERR_IN_STATUS;
#else
    return raise_on_comm(voice, comm, MPI_ERR_IN_STATUS, first);
#endif
}

int raise_on_win(const Voice& voice, MPI_Win win, int code) {
    const auto& mpi = voice.mpi;
    if (ends_the_job(mpi, [&](MPI_Errhandler* handler) { return mpi.Win_get_errhandler(win, handler); })) {
        end_all(voice, MPI_COMM_NULL, code);
    }
    mpi.Win_call_errhandler(win, code);
    return code;
}

int raise_on_file(const Voice& voice, MPI_File file, int code) {
    const auto& mpi = voice.mpi;
    if (ends_the_job(mpi, [&](MPI_Errhandler* handler) { return mpi.File_get_errhandler(file, handler); })) {
        end_all(voice, MPI_COMM_NULL, code);
    }
    mpi.File_call_errhandler(file, code);
    return code;
}

int raise_on_world(const Voice& voice, int code) {
    return world_exists(voice.mpi) ? raise_on_comm(voice, MPI_COMM_WORLD, code) : code;
}

}  // namespace cryptmpi::comm
