// libc's list of its streams. A newer one may have it no more.
#pragma once

#include <cstdio>

extern "C" {
using StreamInList = FILE*;
[[gnu::weak]] void _IO_list_lock();
[[gnu::weak]] void _IO_list_unlock();
[[gnu::weak]] StreamInList _IO_iter_begin();
[[gnu::weak]] StreamInList _IO_iter_end();
[[gnu::weak]] StreamInList _IO_iter_next(StreamInList);
[[gnu::weak]] FILE* _IO_iter_file(StreamInList);
}

namespace cryptmpi::channel {

/// The standard ones at least, unless ours stand in their place.
template <class Action>
void each_libcs_stream(const Action& action) {
    if (_IO_list_lock == nullptr) {
        for (FILE* const stream : {stdin, stdout, stderr}) action(stream);
        return;
    }
    _IO_list_lock();
    for (auto at = _IO_iter_begin(); at != _IO_iter_end(); at = _IO_iter_next(at)) action(_IO_iter_file(at));
    _IO_list_unlock();
}

}  // namespace cryptmpi::channel
