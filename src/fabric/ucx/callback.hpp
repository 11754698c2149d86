// Is this thread in a callback of UCX's? UCX has a lock there that other threads wait for.
#pragma once

namespace cryptmpi::fabric::ucx {

/// It is, as long as this lives.
class InCallback {
public:
    InCallback() { ++depth_; }
    ~InCallback() { --depth_; }
    InCallback(const InCallback&) = delete;
    InCallback& operator=(const InCallback&) = delete;

    static bool is_there() { return depth_ != 0; }

private:
    static inline thread_local int depth_ = 0;
};

}  // namespace cryptmpi::fabric::ucx
