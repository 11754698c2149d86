// Functions of UCP that are refused. UCX's own header is not included: one shape fits all, since a status and a pointer
// that stands for one are both returned in a register.
#include "fabric/ucx/around.hpp"

namespace {

constexpr long kUnsupported = -22;  // UCS_ERR_UNSUPPORTED

long refuse(const char* name, const char* reason) {
    cryptmpi::fabric::ucx::around().refuse(name, reason);
    return kUnsupported;
}

}  // namespace

#define REFUSED(name, reason)                               \
    extern "C" [[gnu::visibility("default")]] long name();  \
    extern "C" [[gnu::visibility("default")]] long name() { \
        return refuse(#name, reason);                       \
    }
#include "ucp_refused.inc"
#undef REFUSED
