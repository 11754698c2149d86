// What the door's functions have in common.
#pragma once

#include <memory>

#include "fabric/ucx/around.hpp"
#include "fabric/ucx/callback.hpp"
#include "fabric/ucx/ends.hpp"
#include "fabric/ucx/real.hpp"
#include "fabric/ucx/sending.hpp"

#define ENTRY extern "C" [[gnu::visibility("default")]]

namespace cryptmpi::fabric::ucx {

/// End the job where the handle was not made under us.
Worker& worker_of(ucp_worker_h handle);
Endpoint endpoint_of(ucp_ep_h handle);

/// False, with a line: it is refused.
bool is_in_host_memory(const ucp_request_param_t& given);
/// What it is not known of, it says in a line.
std::unique_ptr<Data> data_of(const void* at, std::size_t count, const ucp_request_param_t& given, Data::Use use);

/// The parameters of our own call for that of the program: on bytes, with a callback of ours (the caller sets it),
/// which gets the operation as its user_data.
ucp_request_param_t parameters_of(const ucp_request_param_t& given, Operation& operation);
/// Calls UCX, and keeps the operation for the callback where it goes on; else `at_once` gets the answer first.
template <class Call, class AtOnce>
ucs_status_ptr_t start(std::unique_ptr<Operation> operation, const Call& call, const AtOnce& at_once) {
    Worker& worker = *operation->worker;
    bool over = false;
    operation->over = &over;
    ucs_status_ptr_t answer = call();
    if (!UCS_PTR_IS_PTR(answer)) return at_once(answer);
    Operation* const goes_on = operation.release();
    if (worker.several_threads) {
        // Another thread may have completed it while this one was here.
        Ends::get().begin(answer, *goes_on, over);
        return answer;
    }
    if (over) return answer;
    goes_on->over = nullptr;
    goes_on->request = answer;
    worker.add(*goes_on);
    return answer;
}
/// In a callback of ours. A receive with several threads is under way until it has been opened.
std::unique_ptr<Operation> completed(void* operation, const void* request);

/// Numbers are given in the order in which UCX gets the calls. Not taken in a callback: UCX has a lock there that other
/// threads wait for.
class InOrder {
public:
    explicit InOrder(Worker& worker) {
        if (worker.several_threads && !InCallback::is_there()) guard_ = std::unique_lock(worker.order);
    }

    using Callback = InCallback;

private:
    std::unique_lock<std::mutex> guard_;
};

void call_back_sent(Operation& operation, void* request, ucs_status_t status);

}  // namespace cryptmpi::fabric::ucx
