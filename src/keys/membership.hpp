// What a process needs where members are required: its own member key, and the list of those that it takes.
#pragma once

#include <cryptmpi/module.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "keys/member_key.hpp"

namespace cryptmpi::keys {

/// Used by any number of threads: nothing in it changes.
class Membership {
public:
    /// Errors: of either file; the list has not this process's own member, whom every peer with this list would refuse.
    static Result<std::unique_ptr<Membership>> read(const cryptmpi_kex& kex, const std::filesystem::path& key_file,
                                                    const std::filesystem::path& list_file);

    const MemberKey& own() const { return own_; }
    const std::string& own_name() const { return own_name_; }

    /// The name of the member with this key, by the list as its file is now: whoever was taken out is refused by the
    /// next handshake. Error: of the file; it has no such member, and the line that it
    /// lacks.
    Result<std::string> name_of(const MemberPublicKey& key) const;

private:
    Membership(MemberKey own, std::filesystem::path list_file)
        : own_(std::move(own)), list_file_(std::move(list_file)) {}

    MemberKey own_;
    std::string own_name_;
    std::filesystem::path list_file_;
};

}  // namespace cryptmpi::keys
