// A job's report made of its processes' parts: sums, lists for each rank and each node, and what is missing or
// contradicts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace cryptmpi::report {

/// What the side that started a job knows of it, whatever the parts say.
struct Started {
    std::string job_id;          // empty: not known
    int ranks = -1;              // -1: not known
    int status = 0;              // the launcher's, once it has ended
    std::string unfetched = {};  // which nodes' parts could not be had, and why
    std::string token = {};      // in each part of a job that cryptmpi run started; empty: it did not
};

/// Of parts that are believed. `problems`: what is wrong with others.
nlohmann::ordered_json merged(std::vector<nlohmann::ordered_json> parts, std::vector<std::string> problems,
                              const Started& started);

}  // namespace cryptmpi::report
