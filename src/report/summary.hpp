// A job's report in words, for people who have never seen one: first the verdict, then what alarms, then what was to be
// expected, then who, when, where and how much.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "report/verdict.hpp"

namespace cryptmpi::report {

struct Fact {
    std::string label;
    std::string value;
};

/// What somebody adds to a report: facts under a title of their own.
struct Section {
    std::string title;
    std::vector<Fact> facts;
};

struct Summary {
    Verdict verdict;
    bool verified = false;              // somebody who has the key looked at the signatures
    std::string meaning;                // what the verdict says, to somebody who has not read our pages
    std::vector<std::string> alarms;    // what nobody has allowed, and what must not happen
    std::vector<std::string> expected;  // exceptions that a setting, or how the job was started, brings with it
    std::vector<std::string> closed;    // roads that were tried, and closed: nothing went there
    std::vector<Fact> job;
    std::vector<Fact> traffic;
    std::vector<Fact> nodes;
    std::string title = "report of a job";
    std::vector<Section> added = {};
    std::string who_vouches = {};  // for what a page says; empty: nobody
};

/// `verified`: the signatures were looked at, whatever came of it. Of what was not, nothing looks good.
Summary summary_of(const nlohmann::ordered_json& job, const Verdict& verdict, bool verified);

/// For a terminal. Whatever the report's parts say, nothing in it is a control character.
std::string text_of(const Summary& summary);
/// In the text format of Prometheus, which its node_exporter reads from a file.
std::string metrics_of(const nlohmann::ordered_json& job, const Summary& summary);
/// One page in HTML, without scripts and with nothing to fetch. Whatever the parts say, nothing of it is markup.
std::string html_of(const Summary& summary);

}  // namespace cryptmpi::report
