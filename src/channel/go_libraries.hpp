// Libraries written in Go make system calls of their own, which nobody seals: the report names those that are loaded.
#pragma once

namespace cryptmpi::channel {

class Covering;
class ProcessReport;

/// While this thread has locks of the report's: what it calls then may ask the loader for something, and would look.
class NoLook {
public:
    NoLook();
    ~NoLook();
    NoLook(const NoLook&) = delete;
    NoLook& operator=(const NoLook&) = delete;

private:
    bool before_;
};

/// Has the loader loaded something since the last look, and may this thread look? A lock of the loader's, no memory of
/// the heap.
bool is_something_loaded();

/// Counts each library of Go's once as not sealed; allowed where allow_programs names it, or the program.
void look_for_go(ProcessReport& report, const Covering& covering);

}  // namespace cryptmpi::channel
