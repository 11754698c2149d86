#include "keys/membership.hpp"

#include <cerrno>
#include <utility>

namespace cryptmpi::keys {

Result<std::unique_ptr<Membership>> Membership::read(const cryptmpi_kex& kex, const std::filesystem::path& key_file,
                                                     const std::filesystem::path& list_file) {
    auto own = MemberKey::read(kex, key_file);
    if (!own) return fail(own.error().code, "require_members is on: " + own.error().line);
    std::unique_ptr<Membership> made(new Membership(std::move(*own), list_file));
    auto name = made->name_of(made->own_.public_key());
    if (!name)
        return fail(name.error().code, "require_members is on: the member key " + key_file.string() +
                                           " is of nobody here: " + name.error().line);
    made->own_name_ = std::move(*name);
    return made;
}

// protocol: H17
Result<std::string> Membership::name_of(const MemberPublicKey& key) const {
    const auto list = MemberList::read(list_file_);
    if (!list) return tl::unexpected<Error>(list.error());
    const Member* member = list->find(key);
    if (member == nullptr)
        return fail(EACCES, "member list " + list_file_.string() + " has no line \"" + line_of({"NAME", key}) + "\"");
    return member->name;
}

}  // namespace cryptmpi::keys
