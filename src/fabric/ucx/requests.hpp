// Requests of ours, for operations that UCX knows nothing of. The program sees memory of the size that it asked of its
// context, as from UCX.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace cryptmpi::fabric::ucx {

/// What the program asked of its context for each request's memory.
struct RequestKind {
    std::size_t size = 0;
    ucp_request_init_callback_t init = nullptr;
    ucp_request_cleanup_callback_t cleanup = nullptr;

    static RequestKind of(const ucp_params_t& params);
};

class Request {
public:
    union Callback {
        ucp_send_nbx_callback_t nbx;
        ucp_send_callback_t nb;
    };

    explicit Request(const RequestKind& kind) : kind_(kind) {}
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;
    ~Request();

    void call_back(ucp_send_callback_t callback) {
        callback_.nb = callback;
        is_nb_ = true;
    }
    void call_back(ucp_send_nbx_callback_t callback, void* user_data) {
        callback_.nbx = callback;
        user_data_ = user_data;
    }

    /// How many parts of its operation have not ended; of Remote, under its lock.
    std::size_t parts = 0;

private:
    friend class Requests;
    void tell(ucs_status_t status) const;
    RequestKind kind_;
    void* memory_ = nullptr;
    ucs_status_t status_ = UCS_INPROGRESS;
    Callback callback_ = {nullptr};
    void* user_data_ = nullptr;
    bool is_nb_ = false;
    bool is_freed_ = false;  // by the program, before it has ended
};

/// Those that the program has. Used by several threads.
class Requests {
public:
    static Requests& get();

    /// Null: its operation has ended already, so that the program is told at once and not called back.
    void* hand_out(const std::shared_ptr<Request>& request);
    /// Whether or not it has ended; where it has, the program is called back now.
    void* hand_out_always(const std::shared_ptr<Request>& request);
    /// The operation is over; calls back.
    void end(const std::shared_ptr<Request>& request, ucs_status_t status);

    bool has(const void* memory) const { return count_.load() != 0 && find(memory) != nullptr; }
    ucs_status_t status_of(const void* memory) const;
    /// `but_call_back`: as ucp_request_release does, where its operation has not ended.
    void free(const void* memory, bool but_call_back);

private:
    std::shared_ptr<Request> find(const void* memory) const;
    void* give_memory(const std::shared_ptr<Request>& request);

    mutable std::mutex lock_;
    std::atomic<std::size_t> count_{0};
    std::unordered_map<const void*, std::shared_ptr<Request>> all_;
};

}  // namespace cryptmpi::fabric::ucx
