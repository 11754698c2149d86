#include "command/layer_choice.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "folder.hpp"

namespace cryptmpi::command {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;
using config::Layer;

const std::vector<std::string> kNone;
const std::vector<std::string> kVerbs = {"RDMA device mlx5_0"};

LayerChoice choice(std::optional<Mpi> mpi, const Variables& variables, const std::vector<std::string>& networks,
                   const std::vector<std::string>& arguments = {}) {
    Circumstances circumstances{mpi, {}, networks};
    circumstances.parameters.add_environment(config::Environment(variables));
    circumstances.parameters.add_arguments(arguments);
    return choose_layer(circumstances);
}

void expect(Layer layer, const LayerChoice& choice, const char* word) {
    EXPECT_EQ(choice.layer, layer) << choice.reason;
    EXPECT_NE(choice.reason.find(word), std::string::npos) << choice.reason << " lacks " << word;
    EXPECT_EQ(choice.reason.find('\n'), std::string::npos);
    const auto network = layer == Layer::channel  ? config::Network::tcp
                         : layer == Layer::fabric ? config::Network::fabric
                                                  : config::Network::any;
    EXPECT_EQ(choice.network, network);
}

TEST(ChooseLayer, LooksAtTheNodeWhereNothingIsSaid) {
    for (const std::optional<Mpi> mpi :
         {std::optional<Mpi>(), std::optional(Mpi::mpich), std::optional(Mpi::intel), std::optional(Mpi::open_mpi)}) {
        expect(Layer::channel, choice(mpi, {}, kNone), "no network but TCP's");
        expect(Layer::fabric, choice(mpi, {}, kVerbs), "mlx5_0");
    }
}

TEST(ChooseLayer, Ucx) {
    const auto with = [](const char* transports, const std::vector<std::string>& networks) {
        return choice(Mpi::mpich, {{"UCX_TLS", transports}}, networks);
    };
    expect(Layer::channel, with("tcp,self", kVerbs), "UCX_TLS=tcp,self");
    expect(Layer::channel, with("tcp,sm,self,cuda_copy", kVerbs), "UCX_TLS");
    expect(Layer::channel, with("^ib", kVerbs), "UCX_TLS=^ib");
    expect(Layer::channel, with("^rc,ud,dc", kVerbs), "UCX_TLS");
    expect(Layer::fabric, with("^ud", kVerbs), "mlx5_0");
    expect(Layer::fabric, with("all", kVerbs), "mlx5_0");
    expect(Layer::channel, with("all", kNone), "no network but TCP's");
    for (const char* other :
         {"rc", "tcp,rc_x", "\\rc_mlx5,self", "ud:aux,tcp", "dc", "ib,tcp", "ugni", "srd,tcp", "new_one"}) {
        // The nodes of the job may have what the one where it is started has not.
        expect(Layer::fabric, with(other, kNone), "UCX_TLS");
    }
    expect(Layer::channel, choice(Mpi::mpich, {{"UCX_NET_DEVICES", "eth0"}}, kVerbs), "UCX_NET_DEVICES=eth0");
    expect(Layer::fabric, choice(Mpi::mpich, {{"UCX_NET_DEVICES", "mlx5_0:1"}}, kNone), "UCX_NET_DEVICES");
    expect(Layer::channel, choice(Mpi::mpich, {{"UCX_NET_DEVICES", "mlx5_0:1"}, {"UCX_TLS", "tcp"}}, kVerbs),
           "UCX_TLS=tcp");
    expect(Layer::channel, choice(Mpi::mpich, {{"UCX_NET_DEVICES", "eth0"}, {"UCX_TLS", "rc,tcp"}}, kVerbs), "eth0");
}

TEST(ChooseLayer, Libfabric) {
    const auto with = [](const char* provider) { return choice(Mpi::intel, {{"FI_PROVIDER", provider}}, kVerbs); };
    for (const char* tcp : {"tcp", "sockets", "tcp;ofi_rxm", "shm,tcp"})
        expect(Layer::channel, with(tcp), "FI_PROVIDER");
    for (const char* other :
         {"verbs", "verbs;ofi_rxm", "tcp,verbs", "psm3", "efa", "cxi", "opx", "udp;ofi_rxd", "mlx"}) {
        expect(Layer::fabric, with(other), "FI_PROVIDER");
    }
    expect(Layer::fabric, with("^psm3"), "mlx5_0");
    expect(Layer::fabric, with(""), "mlx5_0");
}

TEST(ChooseLayer, IntelMpi) {
    const auto with = [](const Variables& variables) { return choice(Mpi::intel, variables, kVerbs); };
    expect(Layer::channel, with({{"I_MPI_OFI_PROVIDER", "tcp"}, {"FI_PROVIDER", "verbs"}}), "I_MPI_OFI_PROVIDER=tcp");
    expect(Layer::fabric, with({{"I_MPI_OFI_PROVIDER", "verbs"}, {"FI_PROVIDER", "tcp"}}), "I_MPI_OFI_PROVIDER");
    expect(Layer::channel, with({{"I_MPI_FABRICS", "shm:ofi"}, {"FI_PROVIDER", "tcp"}}), "FI_PROVIDER=tcp");
    expect(Layer::fabric, with({{"I_MPI_FABRICS", "shm:ofi"}}), "mlx5_0");
    expect(Layer::channel, with({{"I_MPI_FABRICS", "shm:tcp"}}), "I_MPI_FABRICS");
    expect(Layer::mpi, with({{"I_MPI_FABRICS", "shm:dapl"}, {"FI_PROVIDER", "tcp"}}), "I_MPI_FABRICS");
    expect(Layer::fabric, with({{"UCX_TLS", "tcp"}}), "mlx5_0");  // not Intel MPI's affair
}

TEST(ChooseLayer, MpichAsksItsNetmod) {
    const auto with = [](const Variables& variables) { return choice(Mpi::mpich, variables, kVerbs); };
    expect(Layer::channel, with({{"MPIR_CVAR_CH4_NETMOD", "ucx"}, {"UCX_TLS", "tcp"}, {"FI_PROVIDER", "verbs"}}),
           "UCX_TLS");
    expect(Layer::fabric, with({{"MPIR_CVAR_CH4_NETMOD", "ofi"}, {"UCX_TLS", "tcp"}}), "mlx5_0");
    expect(Layer::channel, with({{"MPIR_CVAR_CH4_NETMOD", "ofi"}, {"FI_PROVIDER", "tcp"}}), "FI_PROVIDER");
    expect(Layer::channel, with({{"MPIR_CVAR_OFI_USE_PROVIDER", "tcp"}}), "MPIR_CVAR_OFI_USE_PROVIDER");
    expect(Layer::channel, with({{"MPIR_CVAR_NEMESIS_NETMOD", "tcp"}}), "MPIR_CVAR_NEMESIS_NETMOD");
    expect(Layer::fabric, with({{"UCX_TLS", "tcp"}, {"FI_PROVIDER", "verbs"}}), "FI_PROVIDER=verbs");
}

TEST(ChooseLayer, OpenMpiAsksItsPml) {
    const auto with = [](const Variables& variables) { return choice(Mpi::open_mpi, variables, kVerbs); };
    const auto list = [&](const char* btl) { return with({{"OMPI_MCA_pml", "ob1"}, {"OMPI_MCA_btl", btl}}); };
    expect(Layer::channel, list("tcp,self,vader"), "OMPI_MCA_btl=tcp,self,vader");
    expect(Layer::mpi, list("tcp,openib,self"), "OMPI_MCA_btl");
    expect(Layer::fabric, list("^openib"), "mlx5_0");
    expect(Layer::fabric, list("self,vader"), "mlx5_0");
    expect(Layer::fabric, with({{"OMPI_MCA_btl", "tcp,self"}}), "mlx5_0");  // the pml may still be ucx
    expect(Layer::fabric, with({{"OMPI_MCA_pml", "^ucx"}, {"OMPI_MCA_btl", "tcp,self"}}), "mlx5_0");
    expect(Layer::fabric, with({{"OMPI_MCA_pml", "ob1"}}), "mlx5_0");
    expect(Layer::fabric, with({{"OMPI_MCA_pml", "ucx"}}), "mlx5_0");
    expect(Layer::channel, with({{"OMPI_MCA_pml", "ucx"}, {"UCX_TLS", "tcp,sm"}}), "UCX_TLS");
    expect(Layer::mpi, with({{"OMPI_MCA_pml", "cm"}, {"OMPI_MCA_mtl", "psm2"}}), "OMPI_MCA_mtl=psm2");
    expect(Layer::channel, with({{"OMPI_MCA_pml", "cm"}, {"OMPI_MCA_mtl", "ofi"}, {"FI_PROVIDER", "tcp"}}),
           "FI_PROVIDER");
    expect(Layer::fabric, with({{"OMPI_MCA_pml", "cm"}, {"OMPI_MCA_mtl", "^ofi"}}), "mlx5_0");
    expect(Layer::mpi, with({{"OMPI_MCA_pml", "yalla"}}), "OMPI_MCA_pml");
    expect(Layer::fabric, with({{"UCX_TLS", "tcp"}, {"FI_PROVIDER", "tcp"}}), "mlx5_0");
}

TEST(ChooseLayer, UnknownMpiTakesWhatIsSaidToAny) {
    expect(Layer::channel, choice({}, {{"UCX_TLS", "tcp"}}, kVerbs), "UCX_TLS");
    expect(Layer::channel, choice({}, {{"OMPI_MCA_pml", "ob1"}, {"OMPI_MCA_btl", "tcp,self"}}, kVerbs), "OMPI_MCA_btl");
    expect(Layer::fabric, choice({}, {{"UCX_TLS", "tcp"}, {"I_MPI_OFI_PROVIDER", "psm3"}}, kVerbs),
           "I_MPI_OFI_PROVIDER");
}

TEST(ChooseLayer, CommandLineBeatsEnvironment) {
    const Variables verbs = {{"OMPI_MCA_pml", "ucx"}, {"UCX_TLS", "rc"}};
    expect(Layer::fabric, choice(Mpi::open_mpi, verbs, kNone), "UCX_TLS=rc");
    expect(
        Layer::channel,
        choice(Mpi::open_mpi, verbs, kVerbs, {"--mca", "pml", "ob1", "--bind-to", "none", "-mca", "btl", "tcp,self"}),
        "-mca btl tcp,self");
    expect(Layer::channel, choice(Mpi::open_mpi, verbs, kVerbs, {"-x", "UCX_TLS=tcp", "-x", "HOME"}), "UCX_TLS=tcp");
    expect(Layer::channel, choice(Mpi::mpich, verbs, kVerbs, {"-genv", "UCX_TLS", "tcp"}), "UCX_TLS");
    expect(Layer::fabric, choice(Mpi::open_mpi, verbs, kVerbs, {"--mca"}), "UCX_TLS=rc");
}

class ParametersTest : public FolderTest {};

TEST_F(ParametersTest, FilesAreTheWeakest) {
    write("lib/libmpi.so.40", "");
    write("etc/openmpi-mca-params.conf", "# comment\npml = ob1\nbtl=tcp,self # not vader\n[section]\npml = cm\n");
    write("home/.openmpi/mca-params.conf", "btl = self,tcp\n");
    write("home/ucx.conf", "UCX_TLS=tcp\n[x]\nUCX_TLS=rc\n");
    const auto parameters = [&](Variables variables) {
        variables["HOME"] = (folder() / "home").string();
        return parameters_of(MpiLibrary{Mpi::open_mpi, folder() / "lib/libmpi.so.40"}, config::Environment(variables));
    };
    const auto files = parameters({});
    ASSERT_NE(files("OMPI_MCA_pml"), nullptr);
    EXPECT_EQ(files("OMPI_MCA_pml")->value, "ob1");
    EXPECT_EQ(files("OMPI_MCA_btl")->value, "self,tcp");
    EXPECT_EQ(files("OMPI_MCA_btl")->by, "btl=self,tcp in " + (folder() / "home/.openmpi/mca-params.conf").string());
    EXPECT_EQ(files("UCX_TLS")->value, "tcp");
    EXPECT_EQ(files("OMPI_MCA_mtl"), nullptr);
    EXPECT_EQ(parameters({{"OMPI_MCA_btl", "sm"}})("OMPI_MCA_btl")->by, "OMPI_MCA_btl=sm");
    write("ucx/ucx.conf", "UCX_NET_DEVICES = eth7\n");
    EXPECT_EQ(parameters({{"UCX_CONFIG_DIR", (folder() / "ucx").string()}})("UCX_NET_DEVICES")->value, "eth7");
}

}  // namespace
}  // namespace cryptmpi::command
