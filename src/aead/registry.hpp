// Finds, loads and chooses crypto modules.
#pragma once

#include <cryptmpi/module.h>

#include <string>
#include <vector>

#include "aead/suite.hpp"
#include "base/result.hpp"

namespace cryptmpi::aead {

/// A loaded module; it stays loaded until the process ends.
struct Module {
    const cryptmpi_module* api = nullptr;
    std::string path;
    const cryptmpi_rsa* rsa = nullptr;  // null where it has none
    const cryptmpi_kem* kem = nullptr;  // the same; its library may lack it (load_kem)

    bool offers(Suite suite) const { return (api->aead->suites >> static_cast<unsigned>(suite) & 1U) != 0; }
    /// "libsodium 1.0.18", as reports name it.
    std::string full_name() const { return std::string(api->name) + " " + api->version; }
};

/// A module that is installed but cannot be used here, and why.
struct Unusable {
    std::string name;
    std::string reason;
};

/// Names of the modules in `folder`, sorted ("ipsec-mb", "openssl").
std::vector<std::string> installed(const std::string& folder);

/// Every installed module, loaded or with the reason why it cannot be.
struct Inventory {
    std::vector<Module> usable;
    std::vector<Unusable> unusable;
};
Inventory inspect(const std::string& folder);

/// Loads `cryptmpi-module-NAME.so` from `folder` (local binding). Errors: no such module (lists those there are), bad
/// ABI, CPU.
Result<Module> load(const std::string& folder, const std::string& name);

/// The module for `suite`: the one named, or for "auto" the one that does it fastest on this CPU, measured once at a
/// few record sizes (well under 5 ms in all); it does not load our own modules that cannot win, unless no other is
/// usable. Errors: unknown module, module without that suite.
Result<Module> choose(const std::string& folder, const std::string& name, Suite suite);

/// The module of handshakes and signatures by the setting `module`, which is "auto" or a name: it has the key-agreement
/// primitives, and AES-256-GCM, which seals hellos. One that is named and has the primitives is taken or refused, and
/// one that cannot be loaded is refused, since nobody knows what it has. Where it is a cipher's alone, and by "auto",
/// it is libsodium, which loads in a tenth of openssl's time; else openssl; else any. Errors: as load; the named one
/// lacks AES-256-GCM; none does, with each one's reason.
Result<Module> load_kex(const std::string& folder, const std::string& setting);

/// The module whose SHA-256 is quickest with many bytes, whatever makes the handshakes: openssl; else any. Errors: none
/// has it, with each one's reason.
Result<Module> load_sha256(const std::string& folder);

/// The module that offers RSA-OAEP: openssl, or another that does. Errors: none does, with each one's reason.
Result<Module> load_rsa(const std::string& folder);

/// The module that offers ML-KEM-768: openssl, if its library has it, else the first of the others. Errors: none has,
/// with each one's reason.
Result<Module> load_kem(const std::string& folder);

/// Seconds that `module` needs to seal and open `size` bytes once (median of `rounds`).
struct Speed {
    double seal_s;
    double open_s;
};
Result<Speed> measure(const Module& module, Suite suite, std::size_t size, int rounds);

}  // namespace cryptmpi::aead
