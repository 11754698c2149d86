// MPI_Init waits without end for ranks that MPI cannot reach, such as those under the channel layer when we are not:
// somebody must say so, and end this rank.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "comm/layer.hpp"

namespace cryptmpi::comm {

/// From before MPI_Init until after it.
class StartWatch {
public:
    explicit StartWatch(Layer& layer);
    ~StartWatch();
    StartWatch(const StartWatch&) = delete;
    StartWatch& operator=(const StartWatch&) = delete;

private:
    void watch();

    Layer& layer_;
    std::mutex lock_;
    std::condition_variable changed_;
    bool begun_ = false;
    std::thread thread_;
};

}  // namespace cryptmpi::comm
