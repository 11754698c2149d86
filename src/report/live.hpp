// What a process does, where cryptmpi top sees it while it runs: a page of memory that the process counts in, and that
// others on its node may read (live_reader.hpp).
//
// The page is a file in memory (tmpfs) that the process maps. So publishing costs nothing when something is counted,
// and needs no thread, no clock and no descriptor. Texts change rarely, under a sequence number that is odd meanwhile;
// counts are single words that each are whole at any time.
//
// The file is this user's alone (0600) in a folder that is this user's alone (0700, nobody's link). Where there can be
// none, the process runs as it would, and counts in memory of its own. Nothing of ours ever reads a page to decide
// anything but what to show.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.hpp"
#include "base/traffic.hpp"
#include "report/part.hpp"
#include "report/sizes.hpp"

namespace cryptmpi::report {

inline constexpr std::uint64_t kLiveMagic = 0x306576694c79617f;  // no text
inline constexpr std::uint32_t kLiveVersion = 1;
inline constexpr std::size_t kTrafficPlaces = 8;

/// Ends with a zero, unless it fills its room; what does not fit is cut off.
template <std::size_t Room>
using LiveText = std::array<char, Room>;

struct LiveTexts {
    LiveText<96> job_id;
    LiveText<16> layer;
    LiveText<16> library;
    LiveText<16> role;
    LiveText<64> node;
    LiveText<64> group;
    LiveText<32> suite;
    LiveText<48> module;
    LiveText<192> mpi;
    LiveText<256> program;
};

/// Of messages, which a layer counts once, for its part of the report and for who looks.
struct LiveSizes {
    Sizes sent;
    Sizes received;
};

/// As it lies in memory: of the same build or another one, of this machine.
struct LivePage {
    // Written before anybody sees it, and never again.
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t size;
    std::uint64_t pid_namespace;  // what `pid` is a number in
    std::uint64_t started;        // when the process was, by its line of /proc: another one may get its number
    std::int64_t began;           // seconds since 1970
    std::int32_t pid;

    // Under `sequence`.
    std::int32_t rank;
    std::int32_t ranks;
    std::uint32_t reserved;
    std::atomic<std::uint64_t> sequence;
    LiveTexts texts;

    // Each by itself, as in a part.
    std::atomic<std::uint64_t> native_connections;
    std::atomic<std::uint64_t> unsealed_connections;  // by a setting, or of what somebody else started
    std::atomic<std::uint64_t> failed_opens;
    std::atomic<std::uint64_t> refused_handshakes;
    std::atomic<std::uint64_t> refused_roads;
    std::atomic<std::uint64_t> errors;
    std::array<Traffic, kTrafficPlaces> traffic;  // their sums count, and with them
    LiveSizes sizes;                              // what they sum up to
};
static_assert(std::is_standard_layout_v<LivePage> && std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(LivePage) <= 4096);

/// Where a user's pages lie: $XDG_RUNTIME_DIR/cryptmpi, where that folder is, else /dev/shm/cryptmpi-UID.
std::vector<std::filesystem::path> live_folders(const char* runtime_folder, uid_t user);
/// This user's.
std::vector<std::filesystem::path> own_live_folders();
/// $XDG_RUNTIME_DIR of this process; null: it has none.
const char* own_runtime_folder();

/// A descriptor of such a folder, if it is a folder in memory, and `user`'s alone; -1 with errno.
enum class Make { no, yes };
int open_live_folder(const std::filesystem::path& folder, uid_t user, Make make);

/// What tells this process from others, to whom reads its page.
std::uint64_t own_pid_namespace();
/// What this process's user is a number in; 0: not known.
std::uint64_t own_user_namespace();
/// When a process started, in the clock of its line of /proc; nullopt: there is none, or it has ended.
std::optional<std::uint64_t> start_of(pid_t pid);

/// This process's page.
class Live {
public:
    Live();
    Live(const Live&) = delete;
    Live& operator=(const Live&) = delete;

    /// Where to count, as long as the process runs, published or not. Of places for one thread there are few: when all
    /// are taken, the answer is one for several.
    TrafficCounter counter(TrafficCounter::Threads threads);
    /// For one thread at a time, as long as the process runs.
    LiveSizes& sizes() { return page_->sizes; }
    /// It will not be used any more; what was counted stays.
    void give_back(const TrafficCounter& counter);

    /// Lets others see it, with what `part` says. Once: later calls do nothing. Error: why nobody sees it.
    Result<void> publish(const std::vector<std::filesystem::path>& folders, const Part& part);
    /// What the part counts by now, but for its traffic. Not in a child of a fork, whose parent's page this is.
    void tell(const Part& part, std::uint64_t unsealed_connections);
    /// Its texts have changed.
    void describe(const Part& part);
    /// Nobody sees it any more.
    void withdraw();

    /// In a child of a fork: its parent's page is its parent's.
    void after_fork_in_child();

    /// Of the program that this process ran before an exec, if it left any.
    static void remove_leftovers(const std::vector<std::filesystem::path>& folders);

private:
    Result<void> publish_in(const std::filesystem::path& folder, const Part& part);
    void write_texts(const Part& part);

    std::mutex lock_;
    LivePage* page_ = nullptr;  // never moves
    bool published_ = false;    // or it cannot be
    bool is_shared_ = false;    // the page lies in a file
    pid_t owner_;
    std::string file_;  // empty: there is none
    std::array<bool, kTrafficPlaces> taken_ = {};
};

}  // namespace cryptmpi::report
