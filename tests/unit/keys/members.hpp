// Members with key files of their own, and one list of them all, for tests.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "keys/membership.hpp"
#include "seal/support.hpp"

namespace cryptmpi::test {

class MemberFolder {
public:
    MemberFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "members.XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
    }
    ~MemberFolder() { std::filesystem::remove_all(folder_); }
    MemberFolder(const MemberFolder&) = delete;
    MemberFolder& operator=(const MemberFolder&) = delete;

    std::filesystem::path key_file(const std::string& name) const { return folder_ / name; }
    std::filesystem::path list_file() const { return folder_ / "list"; }

    /// Makes the key, and enters it into the list.
    keys::MemberPublicKey make(const std::string& name) {
        const auto key = keys::MemberKey::make(*crypto().kex, key_file(name));
        if (!key) throw std::runtime_error(key.error().line);
        lines_[name] = keys::line_of({name, key->public_key()});
        write_list();
        return key->public_key();
    }
    void revoke(const std::string& name) {
        lines_.erase(name);
        write_list();
    }
    std::unique_ptr<keys::Membership> of(const std::string& name, const cryptmpi_kex& kex = *crypto().kex) const {
        auto read = keys::Membership::read(kex, key_file(name), list_file());
        if (!read) throw std::runtime_error(read.error().line);
        return std::move(*read);
    }

private:
    void write_list() const {
        std::ofstream stream(list_file());
        for (const auto& [name, line] : lines_) stream << line << '\n';
    }

    std::filesystem::path folder_;
    std::map<std::string, std::string> lines_;
};

}  // namespace cryptmpi::test
