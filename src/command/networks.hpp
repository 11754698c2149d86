// Which networks of this node carry messages around TCP.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace cryptmpi::command {

/// "RDMA device mlx5_0", "Slingshot device cxi0", ...: those that a process of this node can open and that
/// have a link. `root` is "/" but for tests.
std::vector<std::string> networks_around_tcp(const std::filesystem::path& root = "/");

}  // namespace cryptmpi::command
