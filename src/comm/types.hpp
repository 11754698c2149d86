// Datatypes as sealing needs them: how many bytes they have, and whether these lie without gaps.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "comm/native.hpp"
#include "comm/voice.hpp"

namespace cryptmpi::comm {

/// What MPI says of a datatype.
struct Shape {
    std::size_t size = 0;  // bytes of data in one element
    MPI_Aint extent = 0;   // bytes from one element to the next
    bool gapless = false;  // packed elements are what is in memory, from their address on; false where nobody looked
};

/// How a datatype was made: what Type_get_contents has of it.
struct Envelope {
    MPI_Count integers = 0;
    MPI_Count addresses = 0;
    MPI_Count counts = 0;  // large ones, of types that were made with them
    MPI_Count types = 0;
    int combiner = MPI_COMBINER_NAMED;

    /// MPI's own; not to be freed.
    bool is_predefined() const;
    /// Made of other types, by a constructor that we know.
    bool is_derived() const;
};
/// Returns MPI's error code.
int get_envelope(const Native& mpi, MPI_Datatype type, Envelope& envelope);

/// The shapes of the datatypes that are in use, so that MPI is not asked again for each message.
class Types {
public:
    /// `quiet`: whose errors the program does not hear of.
    Types(const Voice& voice, const MPI_Comm& quiet) : mpi(voice.mpi), voice_(voice), quiet_(quiet) {}
    Types(const Types&) = delete;
    Types& operator=(const Types&) = delete;

    const Native& mpi;

    /// From now on, several threads ask.
    void share() { shared_ = true; }

    /// Returns MPI's error code for a datatype that no message can have, as one that is not committed; the error
    /// handler of `comm` has then been called.
    int find(MPI_Datatype type, MPI_Comm comm, Shape& shape) {
        if (shared_) return look_up(type, comm, shape);
        const Recent& recent = recent_[place(type)];
        if (recent.shape == nullptr || recent.type != type) [[unlikely]] {
            return look_up(type, comm, shape);
        }
        shape = *recent.shape;
        return MPI_SUCCESS;
    }

    /// The user frees it, and another datatype may get its handle.
    void forget(MPI_Datatype type);

private:
    static constexpr unsigned kPlacesLog = 4;
    static std::size_t place(MPI_Datatype type) {
        constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
        return static_cast<std::size_t>((std::uint64_t)type * kGolden >> (64 - kPlacesLog));  // an int, or a pointer
    }
    int look_up(MPI_Datatype type, MPI_Comm comm, Shape& shape);
    int ask(MPI_Datatype type, MPI_Comm comm, Shape& shape) const;

    struct Recent {
        MPI_Datatype type;
        const Shape* shape = nullptr;
    };
    std::array<Recent, std::size_t{1} << kPlacesLog> recent_;
    std::unordered_map<MPI_Datatype, Shape> known_;
    const Voice& voice_;
    const MPI_Comm& quiet_;
    bool shared_ = false;
    std::mutex lock_;
};

}  // namespace cryptmpi::comm
