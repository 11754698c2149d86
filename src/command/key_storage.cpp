#include "command/key_storage.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "command/shell.hpp"

namespace cryptmpi::command {
namespace {

struct FileSystem {
    std::uint32_t magic;
    const char* name;
};
// Numbers, because Linux's headers have only some of them.
constexpr std::array<FileSystem, 15> kNetworks = {{{0x6969, "NFS"},
                                                   {0xff534d42, "CIFS"},
                                                   {0xfe534d42, "SMB2"},
                                                   {0x517b, "SMB"},
                                                   {0x01021997, "9p"},
                                                   {0x0bd00bd0, "Lustre"},
                                                   {0x47504653, "GPFS"},
                                                   {0x19830326, "BeeGFS"},
                                                   {0x5346414f, "AFS"},
                                                   {0x6b414653, "AFS"},
                                                   {0x00c36400, "Ceph"},
                                                   {0x65735546, "FUSE"},
                                                   {0x20030528, "OrangeFS"},
                                                   {0x73757245, "Coda"},
                                                   {0xaad7aaea, "PanFS"}}};

// Of a mount's line in mountinfo: its file system encrypts what it sends.
constexpr std::array<std::string_view, 6> kEncrypted = {"sec=krb5p", "xprtsec=tls",    "xprtsec=mtls",
                                                        "seal",      "ms_mode=secure", "fuse.sshfs"};

/// The words that describe the mount of a device in /proc/self/mountinfo: its type and its options.
std::vector<std::string> mount_words(dev_t device) {
    const std::string wanted = fmt::format("{}:{}", major(device), minor(device));
    std::ifstream mounts("/proc/self/mountinfo");
    for (std::string line; std::getline(mounts, line);) {
        std::istringstream fields(line);
        std::string number;
        std::string parent;
        std::string found;
        fields >> number >> parent >> found;
        if (found != wanted) continue;
        std::replace(line.begin(), line.end(), ',', ' ');
        std::istringstream all(line);
        std::vector<std::string> words;
        for (std::string word; all >> word;) words.push_back(std::move(word));
        return words;
    }
    return {};
}

bool is_encrypted(dev_t device) {
    const auto words = mount_words(device);
    return std::any_of(words.begin(), words.end(), [](const std::string& word) {
        return std::find(kEncrypted.begin(), kEncrypted.end(), word) != kEncrypted.end();
    });
}

}  // namespace

std::string clear_network_of(const std::filesystem::path& file) {
    const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return "";
    struct statfs system = {};
    struct stat status = {};
    const bool known = fstatfs(fd, &system) == 0 && fstat(fd, &status) == 0;
    close(fd);
    const auto magic = static_cast<std::uint32_t>(system.f_type);
    const auto* network = std::find_if(kNetworks.begin(), kNetworks.end(),
                                       [magic](const FileSystem& candidate) { return candidate.magic == magic; });
    return known && network != kNetworks.end() && !is_encrypted(status.st_dev) ? network->name : "";
}

Result<void> check_key_storage(const config::Settings& settings, KeyUse use, bool speak) {
    const bool refuse = settings.key_on_network == config::KeyOnNetwork::refuse;
    if (settings.key_on_network == config::KeyOnNetwork::allow || (!refuse && !speak)) return {};
    const std::string network = clear_network_of(settings.key_file);
    if (network.empty()) return {};
    const std::string place = "key file " + settings.key_file.string() + " is on a network file system (" + network +
                              "), which may have carried it in clear: ";
    const std::string line =
        use == KeyUse::protects_jobs
            ? "job " + place + "keep it on each node's own disk, or mount that one encrypted (NFS: sec=krb5p)"
            : "report " + place +
                  "whoever read it there can forge reports of your jobs, but not read this job, which has a fresh key; "
                  "name a key_file on this node's own disk with job_key = \"fresh\", or mount that one encrypted "
                  "(NFS: sec=krb5p)";
    if (refuse) return fail(EPERM, line + " (key_on_network = \"refuse\")");
    complain("warning: " + line + "; key_on_network = \"allow\" says that it is safe", 0);
    return {};
}

}  // namespace cryptmpi::command
