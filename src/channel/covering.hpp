// That what a process of the job starts is under us, too: which programs may be started, and what they find in their
// environment. Called before exec, maybe in a child of vfork: no locks but those of Process, and what is handed to exec
// is on the caller's stack.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "config/settings.hpp"

namespace cryptmpi::channel {

class ProcessReport;

class Covering {
public:
    /// Remembers what this process found at its start.
    Covering(const config::Settings& settings, const config::Environment& environment);

    /// May this file be started? Else errno is set, and where it is us who refuses, one line was printed. A program
    /// that only allow_programs lets pass is counted, and refused where the report cannot tell of it.
    bool may_start(ProcessReport& report, const std::string& file) const;
    /// Is it one of allow_programs?
    bool allows(const std::string& file) const;

    /// How many entries `fill` may make, and how many bytes of text.
    std::size_t most_entries(char* const* environment) const;
    std::size_t most_text(char* const* environment) const;
    /// Makes `list` of an environment: our libraries and the job's settings put back where the program has stripped
    /// them, others' preloaded libraries after ours. `more`: an entry besides, or null. Entries with the name of
    /// `without` are left out.
    void fill(char* const* environment, const char* without, const char* more, char** list, char* text) const;
    /// Does a program with this environment come under us as it is?
    bool is_whole(char* const* environment) const;

private:
    std::string why_not_loaded() const;
    void compose_preload(const char* given, char* text) const;

    const config::Settings& settings_;
    std::vector<std::string> libraries_;  // files; ours comes first
    std::vector<std::string> variables_;  // NAME=VALUE, of settings
    std::vector<std::string> places_;     // NAME=VALUE: where settings and key are, for who looks in another home
    std::vector<std::string> homes_;      // NAME=VALUE, that lead there without
};

}  // namespace cryptmpi::channel
