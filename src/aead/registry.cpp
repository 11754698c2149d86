#include "aead/registry.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>

#include "base/joined.hpp"

namespace cryptmpi::aead {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "cryptmpi-module-";
constexpr std::string_view kSuffix = ".so";

// A module's libraries see their own symbols first, so that one that clashes with the program's is harmless. The
// sanitizers replace malloc for everybody and refuse to run beside it.
#ifdef CRYPTMPI_SANITIZED
constexpr int kBinding = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int kBinding = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

// In these an error's line is the bare reason; the callers say which module it is about.

bool complete(const cryptmpi_module& api) {
    const cryptmpi_aead* aead = api.aead;
    const cryptmpi_kex* kex = api.kex;
    return api.name != nullptr && api.version != nullptr && api.start != nullptr && aead != nullptr &&
           aead->create != nullptr && aead->destroy != nullptr && aead->seal != nullptr && aead->open != nullptr &&
           (kex == nullptr ||
            (kex->random != nullptr && kex->x25519_public != nullptr && kex->x25519_shared != nullptr &&
             kex->ed25519_public != nullptr && kex->ed25519_sign != nullptr && kex->ed25519_verify != nullptr &&
             kex->sha256 != nullptr && kex->hmac_sha256 != nullptr));
}

bool complete(const cryptmpi_rsa& rsa) {
    return rsa.generate != nullptr && rsa.read != nullptr && rsa.write != nullptr && rsa.destroy != nullptr &&
           rsa.modulus != nullptr && rsa.wrap != nullptr && rsa.unwrap != nullptr;
}

bool complete(const cryptmpi_kem& kem) {
    return kem.start != nullptr && kem.public_key != nullptr && kem.encapsulate != nullptr &&
           kem.decapsulate != nullptr;
}

Result<Module> load_file(const std::string& path, const std::string& name) {
    void* handle = dlopen(path.c_str(), kBinding);
    if (handle == nullptr) {
        const char* why = dlerror();
        return fail(ELIBACC, why != nullptr ? why : "dlopen failed");
    }
    const auto* api = static_cast<const cryptmpi_module*>(dlsym(handle, "cryptmpi_module"));
    if (api == nullptr) return fail(ELIBBAD, "it exports no symbol cryptmpi_module");
    if (api->abi != CRYPTMPI_MODULE_ABI)
        return fail(ELIBBAD, fmt::format("it speaks module ABI {}, this CryptMPI {}: rebuild it", api->abi,
                                         CRYPTMPI_MODULE_ABI));
    if (!complete(*api)) return fail(ELIBBAD, "its table of functions is incomplete");
    if (name != api->name) return fail(ELIBBAD, std::string("it calls itself '") + api->name + "': rename the file");
    if (const char* why = api->start()) return fail(ENOTSUP, why);
    const auto* rsa = static_cast<const cryptmpi_rsa*>(dlsym(handle, "cryptmpi_rsa"));
    if (rsa != nullptr && !complete(*rsa)) return fail(ELIBBAD, "its table of RSA functions is incomplete");
    const auto* kem = static_cast<const cryptmpi_kem*>(dlsym(handle, "cryptmpi_kem"));
    if (kem != nullptr && !complete(*kem)) return fail(ELIBBAD, "its table of ML-KEM functions is incomplete");
    return Module{api, path, rsa, kem};
}

// What became of each file, so that a process loads and starts a module once, and one that failed is not started again.
// Never destroyed: connections are closed with a sealed record after the destructors of static objects have run.
struct Loaded {
    std::mutex lock;
    std::map<std::string, Result<Module>> by_path;
};
Loaded& loaded() {
    static auto* const kept = new Loaded;
    return *kept;
}

Result<Module> load_once(const std::string& folder, const std::string& name) {
    std::string path = folder + "/" + std::string(kPrefix) + name + std::string(kSuffix);
    std::error_code unresolved;  // then dlopen says what is wrong with the path
    if (const fs::path real = fs::canonical(path, unresolved); !unresolved) path = real.string();

    Loaded& all = loaded();
    const std::lock_guard guard(all.lock);
    auto found = all.by_path.find(path);
    if (found == all.by_path.end()) found = all.by_path.emplace(path, load_file(path, name)).first;
    return found->second;
}

std::vector<std::string> offered_by(const Module& module) {
    std::vector<std::string> names;
    for (const Suite suite : kAllSuites)
        if (module.offers(suite)) names.emplace_back(name(suite));
    if (names.empty()) names.emplace_back("nothing");
    return names;
}

std::string reasons(const std::vector<Unusable>& modules) {
    std::string text;
    for (const Unusable& module : modules) text += "; " + module.name + ": " + module.reason;
    return text;
}

tl::unexpected<Error> nothing_installed(const std::string& folder) {
    return fail(ENOENT, "no crypto module (" + std::string(kPrefix) + "NAME" + std::string(kSuffix) + ") in '" +
                            folder + "': install CryptMPI completely, or set module_folder");
}

// The sizes that "auto" looks at: a small message, and a record of a long stream.
struct Trial {
    std::size_t size;
    int rounds;
};
constexpr Trial kTrials[] = {{64, 7}, {16384, 7}};

// "auto" chooses at the start of every process, where loading all modules would take milliseconds. So it passes over
// those of our own of which it is known that they cannot win.
constexpr std::string_view kQuickest = "ipsec-mb";                  // where it can be used
constexpr std::string_view kNextToIt[] = {"boringssl", "openssl"};  // small messages take them more than twice as long
constexpr std::string_view kNeverQuickest[] = {"cryptopp", "libsodium", "mbedtls"};  // OpenSSL is quicker in all
constexpr std::string_view kWithoutAesGcm[] = {"aegis", "legacy", "mlkem-native"};
constexpr std::string_view kWithoutAegis[] = {"boringssl", "cryptopp",     "ipsec-mb", "libsodium",
                                              "mbedtls",   "mlkem-native", "openssl"};

template <std::size_t kCount>
bool is_one_of(const std::string& name, const std::string_view (&names)[kCount]) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// The modules that offer `suite`; those that cannot be used are added to `unusable`.
std::vector<Module> that_offer(Suite suite, const std::string& folder, const std::vector<std::string>& names,
                               std::vector<Unusable>& unusable) {
    std::vector<Module> modules;
    for (const std::string& name : names) {
        auto module = load_once(folder, name);
        if (!module)
            unusable.push_back({name, module.error().line});
        else if (module->offers(suite))
            modules.push_back(std::move(*module));
    }
    return modules;
}

/// Those that may do `suite` fastest; if none of these can be used, the others.
std::vector<Module> candidates(Suite suite, const std::string& folder, std::vector<Unusable>& unusable) {
    const bool aes_gcm = suite == Suite::aes_128_gcm || suite == Suite::aes_256_gcm;
    std::vector<std::string> first = installed(folder);
    const bool quickest = aes_gcm && std::find(first.begin(), first.end(), kQuickest) != first.end() &&
                          load_once(folder, std::string(kQuickest)).has_value();
    const auto may_win = [&](const std::string& name) {
        if (!aes_gcm) return !is_one_of(name, kWithoutAegis);
        return !is_one_of(name, kNeverQuickest) && !is_one_of(name, kWithoutAesGcm) &&
               !(quickest && is_one_of(name, kNextToIt));
    };
    const auto later = std::stable_partition(first.begin(), first.end(), may_win);
    const std::vector<std::string> others(later, first.end());
    first.erase(later, first.end());
    std::vector<Module> modules = that_offer(suite, folder, first, unusable);
    return modules.empty() ? that_offer(suite, folder, others, unusable) : modules;
}

Result<Module> fastest(const std::vector<Module>& modules, Suite suite) {
    std::vector<double> cost(modules.size(), 0.0);
    for (const Trial& trial : kTrials) {
        std::vector<double> seconds(modules.size(), std::numeric_limits<double>::infinity());
        for (std::size_t i = 0; i < modules.size(); ++i)
            if (const auto speed = measure(modules[i], suite, trial.size, trial.rounds))
                seconds[i] = speed->seal_s + speed->open_s;
        // Relative to the best, so that small and large sizes count alike.
        const double best = *std::min_element(seconds.begin(), seconds.end());
        for (std::size_t i = 0; i < modules.size(); ++i) cost[i] += seconds[i] / best;
    }
    return modules[static_cast<std::size_t>(std::min_element(cost.begin(), cost.end()) - cost.begin())];
}

}  // namespace

std::vector<std::string> installed(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code unreadable;  // a folder that cannot be read holds no modules
    for (fs::directory_iterator entry(folder, unreadable), end; !unreadable && entry != end;
         entry.increment(unreadable)) {
        const std::string file = entry->path().filename().string();
        if (file.size() > kPrefix.size() + kSuffix.size() && file.starts_with(kPrefix) && file.ends_with(kSuffix))
            names.push_back(file.substr(kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size()));
    }
    std::sort(names.begin(), names.end());
    return names;
}

Inventory inspect(const std::string& folder) {
    Inventory inventory;
    for (const std::string& name : installed(folder)) {
        if (auto module = load_once(folder, name))
            inventory.usable.push_back(std::move(*module));
        else
            inventory.unusable.push_back({name, module.error().line});
    }
    return inventory;
}

Result<Module> load(const std::string& folder, const std::string& name) {
    const std::vector<std::string> names = installed(folder);
    if (names.empty()) return nothing_installed(folder);
    if (!std::binary_search(names.begin(), names.end(), name))
        return fail(ENOENT, "unknown module '" + name + "' (module=...): installed are " + joined(names));
    auto module = load_once(folder, name);
    if (!module)
        return fail(module.error().code, "module '" + name + "' cannot be used here: " + module.error().line +
                                             " (module=auto takes one that can)");
    return module;
}

Result<Module> choose(const std::string& folder, const std::string& name, Suite suite) {
    const std::string suite_name(aead::name(suite));
    if (name != "auto") {
        auto module = load(folder, name);
        if (module && !module->offers(suite))
            return fail(ENOTSUP, "module '" + name + "' does not offer " + suite_name + " here, only " +
                                     joined(offered_by(*module)) + ": set another cipher or module=auto");
        return module;
    }
    if (installed(folder).empty()) return nothing_installed(folder);
    std::vector<Unusable> unusable;
    const std::vector<Module> modules = candidates(suite, folder, unusable);
    if (modules.empty())
        return fail(ENOTSUP, "no usable module in '" + folder + "' offers " + suite_name + reasons(unusable));
    if (modules.size() == 1) return modules.front();
    return fastest(modules, suite);
}

namespace {

/// `first` in their order, before the others: where one of them has what is sought, the others need not be loaded.
std::vector<std::string> installed_in_order(const std::string& folder, std::vector<std::string_view> first) {
    std::vector<std::string> names = installed(folder);
    for (auto one = first.rbegin(); one != first.rend(); ++one)
        std::stable_partition(names.begin(), names.end(), [&](const std::string& name) { return name == *one; });
    return names;
}

/// The first of the modules in `order` that has `what`. `offers` says whether one does; its error is why a library does
/// not have it where it might.
template <class Offers>
Result<Module> first_with(const std::string& folder, const std::vector<std::string>& order, const std::string& what,
                          Offers offers) {
    std::vector<Unusable> unusable;
    for (const std::string& name : order) {
        auto module = load_once(folder, name);
        const auto has = module ? Result<bool>(offers(*module)) : tl::unexpected<Error>(module.error());
        if (!has)
            unusable.push_back({name, has.error().line});
        else if (*has)
            return module;
    }
    if (order.empty()) return nothing_installed(folder);
    return fail(ENOTSUP, "no usable module in '" + folder + "' offers " + what + reasons(unusable));
}

/// Hellos are sealed with AES-256-GCM.
bool makes_handshakes(const Module& module) {
    return module.api->kex != nullptr && module.offers(Suite::aes_256_gcm);
}

}  // namespace

Result<Module> load_kex(const std::string& folder, const std::string& setting) {
    if (setting != "auto") {
        auto named = load(folder, setting);
        if (!named || makes_handshakes(*named)) return named;
        if (named->api->kex != nullptr)
            return fail(ENOTSUP, "module '" + setting +
                                     "' has key agreement, but not the AES-256-GCM that handshakes are sealed with: "
                                     "set module=auto, or name one that has both (openssl)");
    }
    return first_with(folder, installed_in_order(folder, {"libsodium", "openssl"}),
                      "key agreement and AES-256-GCM (the module openssl does)", makes_handshakes);
}

Result<Module> load_sha256(const std::string& folder) {
    return first_with(folder, installed_in_order(folder, {"openssl"}), "SHA-256 (the module openssl does)",
                      [](const Module& module) { return module.api->kex != nullptr; });
}

Result<Module> load_rsa(const std::string& folder) {
    return first_with(folder, installed_in_order(folder, {"openssl"}), "RSA-OAEP (the module openssl does)",
                      [](const Module& module) { return module.rsa != nullptr; });
}

Result<Module> load_kem(const std::string& folder) {
    return first_with(folder, installed_in_order(folder, {"openssl"}),
                      "ML-KEM-768 (the module mlkem-native does, and openssl with OpenSSL 3.5 or later: install "
                      "CryptMPI completely, or set key_exchange = x25519)",
                      [](const Module& module) -> Result<bool> {
                          if (module.kem == nullptr) return false;
                          if (const char* const why = module.kem->start()) return fail(ENOTSUP, why);
                          return true;
                      });
}

Result<Speed> measure(const Module& module, Suite suite, std::size_t size, int rounds) {
    using Clock = std::chrono::steady_clock;
    const cryptmpi_aead& aead = *module.api->aead;
    const auto broken = [&] {
        return fail(
            EIO, fmt::format("module '{}' cannot seal and open {} bytes with {}", module.api->name, size, name(suite)));
    };
    const std::uint8_t key[32] = {};
    const std::unique_ptr<void, void (*)(void*)> context(aead.create(static_cast<int>(suite), key), aead.destroy);
    if (!context) return broken();

    // A round of small messages does several, or it would time the clock.
    const int repeats = static_cast<int>(std::clamp<std::size_t>(4096 / std::max<std::size_t>(size, 1), 1, 16));
    std::vector<std::uint8_t> plain(size + 1), sealed(size + 1);  // + 1: never a null pointer
    const iovec piece{plain.data(), size};
    std::uint8_t nonce[CRYPTMPI_MAX_NONCE_SIZE] = {};
    std::uint8_t tag[CRYPTMPI_TAG_SIZE];
    const auto per_call = [&](Clock::time_point from, Clock::time_point to) {
        return std::chrono::duration<double>(to - from).count() / repeats;
    };
    std::vector<double> seal_s, open_s;
    for (int round = -1; round < std::max(rounds, 1); ++round) {  // round -1 warms up
        bool ok = true;
        const auto start = Clock::now();
        for (int i = 0; i < repeats; ++i)
            ok &= aead.seal(context.get(), nonce, nullptr, 0, &piece, 1, sealed.data(), tag) == CRYPTMPI_OK;
        const auto middle = Clock::now();
        for (int i = 0; i < repeats; ++i)
            ok &= aead.open(context.get(), nonce, nullptr, 0, sealed.data(), size, &piece, 1, tag) == CRYPTMPI_OK;
        const auto end = Clock::now();
        if (!ok) return broken();
        if (round < 0) continue;
        seal_s.push_back(per_call(start, middle));
        open_s.push_back(per_call(middle, end));
    }
    const auto median = [](std::vector<double>& values) {
        const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
        std::nth_element(values.begin(), half, values.end());
        return *half;
    };
    return Speed{median(seal_s), median(open_s)};
}

}  // namespace cryptmpi::aead
