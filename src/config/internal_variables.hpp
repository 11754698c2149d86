// The environment variables by which our own processes and libraries tell each other something. They are nobody else's:
// docs/settings.md does not have them, and a setting that is made in one says nothing to a user.
#pragma once

namespace cryptmpi::config {

/// Set in a job of cryptmpi run, whose settings are all in variables: a node's own settings file says nothing there.
inline constexpr const char* kSettingsGivenVariable = "CRYPTMPI_INTERNAL_SETTINGS_GIVEN";
/// A sealed process has started this one, which then is sealed whatever `enabled` says: a job is not switched off by
/// one of its processes for those that it starts.
inline constexpr const char* kCoveredVariable = "CRYPTMPI_INTERNAL_COVERED";
/// In a job of cryptmpi run that has no key of its own: the id of the key in the key file that it began with, which all
/// its processes use, whatever is put first in the file while it runs.
inline constexpr const char* kKeyIdVariable = "CRYPTMPI_INTERNAL_KEY_ID";
/// In a job that has a fresh key: the user's own key file, with which the report is signed.
inline constexpr const char* kLastingKeyVariable = "CRYPTMPI_INTERNAL_LASTING_KEY";
/// "RECORDS,BYTES": lower limits of every key than its suite's. The same on all processes of a job.
inline constexpr const char* kKeyLimitsVariable = "CRYPTMPI_INTERNAL_KEY_LIMITS";
/// How a process knows whether it sees the report's folder that cryptmpi run made: by random bytes in a file there,
/// which cryptmpi run tells everybody in this variable.
inline constexpr const char* kReportTokenVariable = "CRYPTMPI_INTERNAL_REPORT_TOKEN";
/// The random bytes of the report's folder as cryptmpi exec has found it, in a job that was started by hand: who takes
/// the folder away while the job runs takes what it had of the job, and is found out by them.
inline constexpr const char* kFolderTokenVariable = "CRYPTMPI_INTERNAL_FOLDER_TOKEN";
/// Which folder that is, as the first process of the job on a node has looked at it (config::seen_folder): an overlay
/// or a copy shows the same random bytes, and takes what is written to where nobody reads it.
inline constexpr const char* kSeenFolderVariable = "CRYPTMPI_INTERNAL_SEEN_FOLDER";
/// Where the job's parts go, whatever `report_file` says: a process of a job cannot lead those that it starts to
/// another report, in which nobody looks for what they left in clear.
inline constexpr const char* kReportFileVariable = "CRYPTMPI_INTERNAL_REPORT_FILE";
/// Which layer, and why it was chosen: for the report.
inline constexpr const char* kReasonVariable = "CRYPTMPI_INTERNAL_LAYER_REASON";
/// "launcher" in a launcher's own processes; cryptmpi exec takes it from its ranks.
inline constexpr const char* kRoleVariable = "CRYPTMPI_INTERNAL_ROLE";
/// The launcher was started by cryptmpi run, so its connections are sealed, too.
inline constexpr const char* kSealedLauncherVariable = "CRYPTMPI_INTERNAL_SEALED_LAUNCHER";
/// The remote shell that the launcher's agent calls.
inline constexpr const char* kAgentShellVariable = "CRYPTMPI_INTERNAL_AGENT_RSH";
/// Which launch the place of a rank is of (config::launch_of_place), as the first cryptmpi exec there has found it: the
/// ranks of a launcher that is started in such a place are none of the job's own.
inline constexpr const char* kPlaceVariable = "CRYPTMPI_INTERNAL_PLACE";
/// The descriptor of the memory in which sealed connections outlive an exec, and their places there.
inline constexpr const char* kArenaVariable = "CRYPTMPI_INTERNAL_ARENA";
/// A line is said once a job, not by each of its processes.
inline constexpr const char* kWarnedOfCipherVariable = "CRYPTMPI_INTERNAL_WARNED_OF_CIPHER";
inline constexpr const char* kWarnedOfLauncherVariable = "CRYPTMPI_INTERNAL_WARNED_OF_LAUNCHER";

}  // namespace cryptmpi::config
