// Parts of processes that do not see the report's folder, as on a node without the launcher's disk or in a container:
// they wait in a folder in this node's memory until cryptmpi run fetches them.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.hpp"

namespace cryptmpi::report {

/// Would this report's parts wait in such a folder?
bool is_waiting_place(const std::filesystem::path& report_file);

/// Opens a folder for parts that wait: this user's, for this user alone, and where nobody else can take it away. The
/// caller closes it. Error: there is none, or somebody else has put his there.
Result<int> open_waiting_folder(const std::filesystem::path& folder);
/// The same, made where it is missing.
Result<int> make_waiting_folder(const std::filesystem::path& folder);

/// Marks the folder of a job on this node, before any process of it runs here: what waits there is fetched. No other
/// folder has the mark, as that of a container whose memory is its own, nor a copy.
Result<void> mark_waiting_folder(const std::string& token);
/// Whoever finds no mark has come too late, or sees another memory than the node's.
Result<void> check_mark(const std::string& token);
/// From now on nothing goes in clear that only a part in this folder would tell of.
void take_mark(const std::string& token);

void remove_waiting(const std::string& token);

}  // namespace cryptmpi::report
