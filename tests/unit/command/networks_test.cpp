#include "command/networks.hpp"

#include "folder.hpp"

namespace cryptmpi::command {
namespace {

using Names = std::vector<std::string>;

class NetworksTest : public FolderTest {};

TEST_F(NetworksTest, NoneOnANodeOfTcp) {
    write("dev/null", "");
    EXPECT_EQ(networks_around_tcp(folder()), Names{});
}

TEST_F(NetworksTest, VerbsDevicesWithALink) {
    write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    write("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
    write("sys/class/infiniband/mlx5_2/node_type", "1: CA\n");
    EXPECT_EQ(networks_around_tcp(folder()), Names{});  // a container without the device files cannot use them
    write("dev/infiniband/uverbs0", "");
    EXPECT_EQ(networks_around_tcp(folder()), (Names{"RDMA device mlx5_0", "RDMA device mlx5_2"}));
}

TEST_F(NetworksTest, DeviceFileAlone) {
    write("dev/infiniband/rdma_cm", "");
    EXPECT_EQ(networks_around_tcp(folder()), Names{});
    write("dev/infiniband/uverbs3", "");
    EXPECT_EQ(networks_around_tcp(folder()), Names{"verbs device /dev/infiniband/uverbs3"});
}

TEST_F(NetworksTest, OtherMakers) {
    write("dev/hfi1_0", "");
    write("dev/cxi0", "");
    EXPECT_EQ(networks_around_tcp(folder()), (Names{"Omni-Path device hfi1_0", "Slingshot device cxi0"}));
}

}  // namespace
}  // namespace cryptmpi::command
