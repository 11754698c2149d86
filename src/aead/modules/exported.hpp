// What the loader of modules looks for in a module whose functions are called create, destroy, seal, open and start.
#pragma once

#include <cryptmpi/module.h>

#define CRYPTMPI_TEXT_OF(number) #number
/// The number that a library's header says of itself, as text.
#define CRYPTMPI_TEXT(number) CRYPTMPI_TEXT_OF(number)

/// Stands at the end of the module's file. `of_library`: the text where start() may write the library's version.
#define CRYPTMPI_EXPORT_CIPHERS(of_module, of_library, of_suites) \
    CRYPTMPI_EXPORT_MODULE(of_module, of_library, of_suites, nullptr)

/// The same for a module that has key agreement, too.
#define CRYPTMPI_EXPORT_MODULE(of_module, of_library, of_suites, of_agreement)                  \
    namespace {                                                                                 \
    constexpr cryptmpi_aead kAead = {                                                           \
        .suites = of_suites, .create = create, .destroy = destroy, .seal = seal, .open = open}; \
    }                                                                                           \
    extern "C" {                                                                                \
    extern __attribute__((visibility("default"))) const struct cryptmpi_module cryptmpi_module; \
    const struct cryptmpi_module cryptmpi_module = {.abi = CRYPTMPI_MODULE_ABI,                 \
                                                    .name = of_module,                          \
                                                    .version = of_library,                      \
                                                    .aead = &kAead,                             \
                                                    .kex = of_agreement,                        \
                                                    .start = start};                            \
    }                                                                                           \
    static_assert(true) /* takes the semicolon */
