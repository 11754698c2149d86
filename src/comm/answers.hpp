// What MPI has said of arguments that a program may give it, so that it is asked once.
#pragma once

#include <mpi.h>

#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "comm/native.hpp"

namespace cryptmpi::comm {

/// A call with the mistake in question, among this rank alone, whose errors are for us: with `count` numbers, one or
/// two, at each address.
using Question = int (*)(const Native& mpi, int* numbers, int* others, int count, MPI_Comm alone);

struct Answers {
    std::mutex lock;
    std::set<std::pair<MPI_Datatype, MPI_Op>> combined;    // elements of the type are combined by the operation
    std::map<std::pair<Question, int>, int> of_questions;  // the class of MPI's error, by the count
};

}  // namespace cryptmpi::comm
