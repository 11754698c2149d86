#include "command/munge.hpp"

#include <dlfcn.h>
#include <fmt/core.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/secret.hpp"

namespace cryptmpi::command {
namespace {

// What munge.h of libmunge.so.2 declares, in its numbers.
constexpr const char* kLibrary = "libmunge.so.2";
constexpr int kOptionCipher = 0;
constexpr int kOptionMac = 1;
constexpr int kOptionUidRestriction = 9;
constexpr int kCipherAes128 = 4;
constexpr int kCipherAes256 = 5;
constexpr int kMacSha256 = 5;
constexpr int kMacSha512 = 6;

struct Context;

struct Library {
    Context* (*create)();
    void (*destroy)(Context*);
    int (*get)(Context*, int, ...);
    int (*set)(Context*, int, ...);
    int (*encode)(char**, Context*, const void*, int);
    int (*decode)(const char*, Context*, void**, int*, uid_t*, gid_t*);
    const char* (*text)(int);
};

template <class Function>
bool find(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    return function != nullptr;
}

Result<Library> load() {
    void* const handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return fail(ELIBACC, std::string("MUNGE's library is not there: ") + dlerror());
    Library library{};
    const bool whole = find(handle, "munge_ctx_create", library.create) &&
                       find(handle, "munge_ctx_destroy", library.destroy) &&
                       find(handle, "munge_ctx_get", library.get) && find(handle, "munge_ctx_set", library.set) &&
                       find(handle, "munge_encode", library.encode) && find(handle, "munge_decode", library.decode) &&
                       find(handle, "munge_strerror", library.text);
    if (!whole) return fail(ELIBBAD, std::string(kLibrary) + " lacks functions of MUNGE");
    return library;
}

struct Destroy {
    void (*destroy)(Context*);
    void operator()(Context* context) const { destroy(context); }
};
using OwnContext = std::unique_ptr<Context, Destroy>;

Result<void> check(const Library& library, int error, const char* doing) {
    if (error == 0) return {};
    return fail(EACCES, std::string("MUNGE ") + doing + ": " + library.text(error));
}

}  // namespace

Result<std::string> munge_wrap(std::span<const std::uint8_t> secret) {
    const auto library = load();
    if (!library) return tl::unexpected<Error>(library.error());
    const OwnContext context(library->create(), Destroy{library->destroy});
    if (!context) return fail(ENOMEM, "MUNGE: out of memory");
    // The daemon's own choice may be no encryption.
    int error = library->set(context.get(), kOptionCipher, kCipherAes256);
    if (error == 0) error = library->set(context.get(), kOptionMac, kMacSha256);
    if (error == 0) error = library->set(context.get(), kOptionUidRestriction, geteuid());
    char* text = nullptr;
    if (error == 0) error = library->encode(&text, context.get(), secret.data(), static_cast<int>(secret.size()));
    const std::unique_ptr<char, decltype(&std::free)> owned(text, &std::free);
    if (auto checked = check(*library, error, "does not wrap the key"); !checked)
        return tl::unexpected<Error>(checked.error());
    return std::string(text);
}

Result<void> munge_unwrap(const std::string& credential, std::span<std::uint8_t> secret) {
    const auto library = load();
    if (!library) return tl::unexpected<Error>(library.error());
    const OwnContext context(library->create(), Destroy{library->destroy});
    if (!context) return fail(ENOMEM, "MUNGE: out of memory");
    void* content = nullptr;
    int size = 0;
    uid_t user = static_cast<uid_t>(-1);
    gid_t group = 0;
    const int error = library->decode(credential.c_str(), context.get(), &content, &size, &user, &group);
    // A credential that is too old or was unwrapped before comes with its content.
    const auto length = static_cast<std::size_t>(size > 0 ? size : 0);
    const bool fits = content != nullptr && length == secret.size();
    if (error == 0 && fits) std::memcpy(secret.data(), content, length);
    if (content != nullptr) wipe(content, length);
    std::free(content);
    if (auto checked = check(*library, error, "does not unwrap it"); !checked) return checked;
    int cipher = 0;
    int mac = 0;
    const bool known =
        library->get(context.get(), kOptionCipher, &cipher) == 0 && library->get(context.get(), kOptionMac, &mac) == 0;
    if (user != geteuid()) return fail(EACCES, fmt::format("MUNGE says that user {} has sent it", user));
    if (!known || cipher < kCipherAes128 || cipher > kCipherAes256 || mac < kMacSha256 || mac > kMacSha512)
        return fail(EACCES, "MUNGE's credential is not under AES and SHA-2");
    if (!fits) return fail(EBADMSG, "MUNGE's credential holds no key's line");
    return {};
}

}  // namespace cryptmpi::command
