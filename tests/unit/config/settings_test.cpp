#include "config/settings.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "config/internal_variables.hpp"
#include "config/loading.hpp"

namespace cryptmpi::config {
namespace {

namespace fs = std::filesystem;
using Variables = std::map<std::string, std::string, std::less<>>;

/// A home of its own for each test, with the settings file that the test writes.
class SettingsTest : public testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (fs::temp_directory_path() / "cryptmpi-settings-XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        home_ = pattern;
        fs::create_directories(home_ / ".config/cryptmpi");
    }
    void TearDown() override { fs::remove_all(home_); }

    fs::path file() const { return home_ / ".config/cryptmpi/config.toml"; }
    void write(const std::string& text) const { std::ofstream(file()) << text; }
    Result<Settings> load_with(Variables variables = {}) const {
        variables.emplace("HOME", home_.string());
        return load(Environment(std::move(variables)));
    }
    std::string error_with(Variables variables = {}) const {
        auto settings = load_with(std::move(variables));
        return settings ? "" : settings.error().line;
    }

    fs::path home_;
};

void expect_one_line_with(const std::string& line, std::initializer_list<const char*> pieces) {
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    for (const char* piece : pieces) EXPECT_NE(line.find(piece), std::string::npos) << line << " lacks " << piece;
}

TEST_F(SettingsTest, LettersOutsideStringsAreNoToml) {
    for (const char* letters :
         {"padding \u00e3 = 1", "\u00e3 = 1", "padding\u0101", "padding = \u0416", "\u3000padding = 1"}) {
        write(letters);
        expect_one_line_with(error_with(), {"config.toml:1", "not valid TOML"});
    }
    write("job_id = \"\u00e3\"  # \u00e3\n");
    const auto settings = load_with();
    ASSERT_TRUE(settings) << settings.error().line;
    EXPECT_EQ(settings->job_id, "\u00e3");
}

TEST_F(SettingsTest, WhatStandsInAFileBreaksNoLine) {
    write("\"a\\nb\\u001b[31m\\u007f\" = 1\n");
    expect_one_line_with(error_with(), {"config.toml:1", "unknown setting \"a\ufffdb\ufffd[31m\ufffd\""});
    expect_one_line_with(error_with({{"CRYPTMPI_LAYER", "x\ny\x1b"}}), {"unknown setting"});
    write("");
    expect_one_line_with(error_with({{"CRYPTMPI_LAYER", "x\ny\x1b"}}), {"CRYPTMPI_LAYER", "\"x\ufffdy\ufffd\""});
}

TEST_F(SettingsTest, OtherWaysOfKeyDistributionAreForTheMpiLayerOnly) {
    const auto settings = load_with();
    ASSERT_TRUE(settings);
    EXPECT_EQ(settings->key_distribution, KeyDistribution::agreement);
    EXPECT_FALSE(settings->passive_only());
    EXPECT_EQ(settings->interchange_key_file, home_ / ".config/cryptmpi/interchange.key");
    EXPECT_EQ(settings->interchange_keys, home_ / ".config/cryptmpi/interchange.keys");
    for (const auto way : {KeyDistribution::rsa_oaep, KeyDistribution::interchange}) {
        const std::string name(name_of(way));
        for (const char* layer : {"auto", "mpi"}) {
            const auto taken = load_with({{"CRYPTMPI_KEY_DISTRIBUTION", name}, {"CRYPTMPI_LAYER", layer}});
            ASSERT_TRUE(taken) << taken.error().line;
            EXPECT_EQ(taken->key_distribution, way);
            EXPECT_TRUE(taken->passive_only());
        }
        for (const char* layer : {"channel", "fabric"}) {
            expect_one_line_with(error_with({{"CRYPTMPI_KEY_DISTRIBUTION", name}, {"CRYPTMPI_LAYER", layer}}),
                                 {"CRYPTMPI_KEY_DISTRIBUTION", name.c_str(), "for the MPI layer only", layer});
        }
    }
    EXPECT_TRUE(load_with({{"CRYPTMPI_KEY_DISTRIBUTION", "agreement"}, {"CRYPTMPI_LAYER", "channel"}}));
    write("key_distribution = \"rsa\"\n");
    expect_one_line_with(error_with(), {"config.toml:1", "\"rsa\"", "agreement", "rsa-oaep, interchange", "passive"});
}

TEST_F(SettingsTest, MlKemIsForLayersWithAHandshakeAndForTheAgreement) {
    const auto settings = load_with();
    ASSERT_TRUE(settings);
    EXPECT_EQ(settings->key_exchange, KeyExchange::x25519);
    EXPECT_FALSE(settings->hybrid());
    for (const char* layer : {"auto", "channel", "mpi"}) {
        const auto taken = load_with({{"CRYPTMPI_KEY_EXCHANGE", "X25519-MLKEM768"}, {"CRYPTMPI_LAYER", layer}});
        ASSERT_TRUE(taken) << taken.error().line;
        EXPECT_EQ(taken->key_exchange, KeyExchange::x25519_mlkem768);
        EXPECT_TRUE(taken->hybrid());
    }
    expect_one_line_with(error_with({{"CRYPTMPI_KEY_EXCHANGE", "x25519-mlkem768"}, {"CRYPTMPI_LAYER", "fabric"}}),
                         {"CRYPTMPI_KEY_EXCHANGE", "for the channel and the MPI layer", "--layer mpi"});
    expect_one_line_with(error_with({{"CRYPTMPI_KEY_EXCHANGE", "x25519-mlkem768"},
                                     {"CRYPTMPI_LAYER", "mpi"},
                                     {"CRYPTMPI_KEY_DISTRIBUTION", "interchange"}}),
                         {"CRYPTMPI_KEY_EXCHANGE", "key_distribution = agreement", "interchange"});
    EXPECT_TRUE(load_with({{"CRYPTMPI_KEY_EXCHANGE", "x25519"}, {"CRYPTMPI_LAYER", "fabric"}}));
    write("key_exchange = \"mlkem768\"\n");
    expect_one_line_with(error_with(), {"config.toml:1", "\"mlkem768\"", "x25519, x25519-mlkem768"});
}

TEST_F(SettingsTest, DefaultsWithoutFile) {
    auto settings = load_with();
    ASSERT_TRUE(settings) << settings.error().line;
    EXPECT_TRUE(settings->enabled);
    EXPECT_EQ(settings->suite, aead::Suite::aes_256_gcm);
    EXPECT_EQ(settings->module, "auto");
    EXPECT_EQ(settings->threads, 0);
    EXPECT_EQ(settings->scope, Scope::automatic);
    EXPECT_EQ(settings->network, Network::automatic);
    EXPECT_TRUE(settings->seal_sockets);
    EXPECT_EQ(settings->key_on_network, KeyOnNetwork::warn);
    EXPECT_FALSE(settings->roads_open());
    EXPECT_FALSE(settings->loopback_sealed());
    EXPECT_EQ(settings->key_file, home_ / ".config/cryptmpi/job.key");
    EXPECT_TRUE(settings->report_file.empty());
    EXPECT_TRUE(settings->live);
    EXPECT_EQ(settings->handshake_timeout, std::chrono::seconds(600));
    EXPECT_EQ(settings->agreement_timeout, std::chrono::seconds(60));
    EXPECT_EQ(settings->silence_timeout, std::chrono::seconds(0));
    EXPECT_EQ(settings->abort_after, std::chrono::seconds(10));
    EXPECT_EQ(settings->rekey_after, std::chrono::hours(1));
    EXPECT_TRUE(settings->check_addresses);
    EXPECT_EQ(settings->job_id, "");
    EXPECT_EQ(settings->module_folder.filename(), "cryptmpi");
    EXPECT_EQ(settings->profile, home_ / ".config/cryptmpi/profile.json");
    EXPECT_FALSE(settings->profile_named) << "it may be missing";
}

TEST_F(SettingsTest, FileSetsEveryKey) {
    write(R"(enabled = false
cipher = "aes-128-gcm"
module = "openssl"
scope = "all"
network = "any"
seal_sockets = false
key_on_network = "refuse"
threads = 4
key_file = "keys/mine"
plaintext_peers = ["10.0.0.7", "[fd00::]/64:80"]
report_file = "~/job.json"
live = false
handshake_timeout_s = 2.5
agreement_timeout_s = 7
silence_timeout_s = 1.5
check_addresses = false
abort_after_s = 0
rekey_s = 60
job_id = "seven"
module_folder = "/opt/modules"
profile = "tuned.json"
)");
    auto settings = load_with();
    ASSERT_TRUE(settings) << settings.error().line;
    EXPECT_FALSE(settings->enabled);
    EXPECT_EQ(settings->suite, aead::Suite::aes_128_gcm);
    EXPECT_EQ(settings->module, "openssl");
    EXPECT_EQ(settings->scope, Scope::all);
    EXPECT_EQ(settings->network, Network::any);
    EXPECT_FALSE(settings->seal_sockets);
    EXPECT_EQ(settings->key_on_network, KeyOnNetwork::refuse);
    EXPECT_EQ(settings->threads, 4);
    EXPECT_EQ(settings->key_file, home_ / ".config/cryptmpi/keys/mine");
    EXPECT_EQ(settings->plaintext_peers.size(), 2U);
    EXPECT_EQ(settings->report_file, home_ / "job.json");
    EXPECT_FALSE(settings->live);
    EXPECT_EQ(settings->handshake_timeout, std::chrono::milliseconds(2500));
    EXPECT_EQ(settings->agreement_timeout, std::chrono::seconds(7));
    EXPECT_EQ(settings->silence_timeout, std::chrono::milliseconds(1500));
    EXPECT_FALSE(settings->check_addresses);
    EXPECT_EQ(settings->abort_after, std::chrono::milliseconds(0));
    EXPECT_EQ(settings->rekey_after, std::chrono::seconds(60));
    EXPECT_EQ(settings->job_id, "seven");
    EXPECT_EQ(settings->module_folder, "/opt/modules");
    EXPECT_EQ(settings->profile, home_ / ".config/cryptmpi/tuned.json");
    EXPECT_TRUE(settings->profile_named);
}

TEST_F(SettingsTest, ProfileMayBeNone) {
    write("profile = \"tuned.json\"\n");
    auto settings = load_with({{"CRYPTMPI_PROFILE", "none"}});
    ASSERT_TRUE(settings) << settings.error().line;
    EXPECT_TRUE(settings->profile.empty());
    EXPECT_TRUE(settings->profile_named);
    EXPECT_FALSE(load_with({{"CRYPTMPI_PROFILE", ""}}));
}

TEST_F(SettingsTest, PaddingHasASchemeAndALeastBucket) {
    EXPECT_FALSE(load_with()->padding.is_on());
    for (const auto& [given, name] : std::map<std::string, std::string>{{"none", "none"},
                                                                        {"padme", "padme"},
                                                                        {" Padme:256", "padme:256"},
                                                                        {"padme:257", "padme:272"},
                                                                        {"power-of-two", "power-of-two"},
                                                                        {"power-of-two:100", "power-of-two:128"},
                                                                        {"power-of-two:16384", "power-of-two:16384"}}) {
        const auto settings = load_with({{"CRYPTMPI_PADDING", given}});
        ASSERT_TRUE(settings) << settings.error().line;
        EXPECT_EQ(settings->padding.name(), name);
    }
    for (const char* wrong : {"", "yes", "64", "padme:", "padme:0", "padme:-1", "padme:16385", "padme:1x", "none:8",
                              "padme:99999999999999999999", "fixed:64"}) {
        const auto settings = load_with({{"CRYPTMPI_PADDING", wrong}});
        ASSERT_FALSE(settings) << wrong;
        EXPECT_NE(settings.error().line.find("allowed: none, padme, power-of-two"), std::string::npos);
    }
    write("padding = true\n");
    EXPECT_FALSE(load_with());
}

TEST_F(SettingsTest, PaddingIsRefusedWhereMessagesGoPastSealedSockets) {
    const auto refused = [&](const char* layer, const char* network, const char* sockets) {
        const auto settings = load_with({{"CRYPTMPI_PADDING", "padme"},
                                         {"CRYPTMPI_LAYER", layer},
                                         {"CRYPTMPI_NETWORK", network},
                                         {"CRYPTMPI_SEAL_SOCKETS", sockets}});
        return !settings && settings.error().line.find("would go past them, unpadded") != std::string::npos;
    };
    EXPECT_TRUE(refused("fabric", "auto", "true"));
    EXPECT_TRUE(refused("fabric", "fabric", "true"));
    EXPECT_TRUE(refused("mpi", "any", "true"));
    EXPECT_TRUE(refused("mpi", "tcp", "false"));
    EXPECT_FALSE(refused("mpi", "tcp", "true"));
    EXPECT_FALSE(refused("fabric", "tcp", "true"));
    EXPECT_FALSE(refused("channel", "tcp", "true"));
}

TEST_F(SettingsTest, KeysMayBeAllowedLessThanTheirSuites) {
    const auto as_usual = load_with();
    ASSERT_TRUE(as_usual);
    EXPECT_EQ(as_usual->key_records, ~std::uint64_t{0});
    const auto lowered = load_with({{"CRYPTMPI_INTERNAL_KEY_LIMITS", "8,1000"}, {"CRYPTMPI_REKEY_S", "0"}});
    ASSERT_TRUE(lowered) << lowered.error().line;
    EXPECT_EQ(lowered->key_records, 8U);
    EXPECT_EQ(lowered->key_bytes, 1000U);
    EXPECT_EQ(lowered->rekey_after, std::chrono::seconds(0));
    for (const char* wrong : {"", "8", "8,", ",8", "1,1000", "8,1000,", "8;1000", "-8,1000", "x,1000"}) {
        EXPECT_FALSE(load_with({{"CRYPTMPI_INTERNAL_KEY_LIMITS", wrong}})) << wrong;
    }
    EXPECT_FALSE(load_with({{"CRYPTMPI_REKEY_S", "-1"}}));
    EXPECT_FALSE(load_with({{"CRYPTMPI_REKEY_S", "86401"}}));
}

TEST_F(SettingsTest, VariableBeatsFile) {
    write("cipher = \"AES-128-GCM\"\nenabled = false\n");
    auto settings = load_with({{"CRYPTMPI_CIPHER", "AES-256-GCM"},
                               {"CRYPTMPI_ENABLED", "on"},
                               {"CRYPTMPI_PLAINTEXT_PEERS", "10.0.0.7, 10.1.0.0/16"},
                               {"CRYPTMPI_ABORT_AFTER_S", "3"},
                               {"CRYPTMPI_INTERNAL_ANYTHING", "x"}});
    ASSERT_TRUE(settings) << settings.error().line;
    EXPECT_TRUE(settings->enabled);
    EXPECT_EQ(settings->suite, aead::Suite::aes_256_gcm);
    EXPECT_EQ(settings->plaintext_peers.size(), 2U);
    EXPECT_EQ(settings->abort_after, std::chrono::seconds(3));
}

TEST_F(SettingsTest, WhatASealedProcessStartsIsSealed) {
    write("enabled = false\n");
    EXPECT_FALSE(load_with({})->enabled);
    EXPECT_TRUE(load_with({{kCoveredVariable, "yes"}})->enabled);
    EXPECT_TRUE(load_with({{kCoveredVariable, ""}, {"CRYPTMPI_ENABLED", "no"}})->enabled);
}

TEST_F(SettingsTest, WhatASealedProcessStartsReportsWhereThatDoes) {
    write("report_file = \"/elsewhere/report.json\"\n");
    EXPECT_EQ(load_with({})->report_file, "/elsewhere/report.json");
    EXPECT_EQ(load_with({{kReportFileVariable, "/job.json"}})->report_file, "/job.json");
    EXPECT_EQ(load_with({{kReportFileVariable, "/job.json"}, {"CRYPTMPI_REPORT_FILE", "/other.json"}})->report_file,
              "/job.json");
    EXPECT_EQ(load_with({{kReportFileVariable, ""}})->report_file, "/elsewhere/report.json");
}

TEST_F(SettingsTest, ThreadsAreANumberOrLeftToUs) {
    for (const auto& [text, threads] : std::map<std::string, int>{{"auto", 0}, {"0", 0}, {"1", 1}, {" 64 ", 64}}) {
        const auto settings = load_with({{"CRYPTMPI_THREADS", text}});
        ASSERT_TRUE(settings) << text;
        EXPECT_EQ(settings->threads, threads) << text;
    }
    for (const char* text : {"65", "-1", "2.5", "many", "", "4 of 8"}) {
        expect_one_line_with(error_with({{"CRYPTMPI_THREADS", text}}), {"CRYPTMPI_THREADS", "auto, 1 to 64"});
    }
    write("threads = \"auto\"\n");
    EXPECT_EQ(load_with()->threads, 0);
    for (const char* value : {"2.5", "-1", "65", "true", "\"4\"", "[\"4\"]"}) {
        write("\nthreads = " + std::string(value) + "\n");
        expect_one_line_with(error_with(), {"config.toml:2: threads: ", "auto, 1 to 64"});
    }
}

TEST_F(SettingsTest, ALegacyCipherTakesTwoSettings) {
    EXPECT_EQ(load_with({})->suite, aead::Suite::aes_256_gcm);
    write("allow_legacy_cipher = true\n");
    EXPECT_EQ(load_with({})->suite, aead::Suite::aes_256_gcm);  // allowed is not chosen
    write("\ncipher = \"3DES-CBC-HMAC-SHA-256\"\n");
    expect_one_line_with(error_with(), {"config.toml:2: cipher: 3DES-CBC-HMAC-SHA-256 is a legacy cipher",
                                        "name AES-256-GCM, or set allow_legacy_cipher = true"});
    expect_one_line_with(error_with({{"CRYPTMPI_ALLOW_LEGACY_CIPHER", "off"}}), {"config.toml:2: cipher: "});
    const auto both = load_with({{"CRYPTMPI_ALLOW_LEGACY_CIPHER", "on"}});
    ASSERT_TRUE(both) << both.error().line;
    EXPECT_EQ(both->suite, aead::Suite::legacy_3des);
    write("");
    expect_one_line_with(error_with({{"CRYPTMPI_CIPHER", "3des-cbc-hmac-sha-256"}}),
                         {"environment variable CRYPTMPI_CIPHER: 3DES-CBC-HMAC-SHA-256 is a legacy cipher"});
}

TEST_F(SettingsTest, OneProcessOfAJobWarnsOfALegacyCipher) {
    Settings settings;
    EXPECT_EQ(cipher_warning(settings, {0, 4, "rank"}), "");
    settings.suite = aead::Suite::legacy_3des;
    expect_one_line_with(cipher_warning(settings, {0, 4, "rank"}),
                         {"warning: this job uses the legacy cipher 3DES-CBC-HMAC-SHA-256", "AES-256-GCM"});
    EXPECT_EQ(cipher_warning(settings, {1, 4, "rank"}), "");
    EXPECT_EQ(cipher_warning(settings, {{}, {}, "launcher"}), "");
    EXPECT_NE(cipher_warning(settings, {{}, {}, "process"}), "");
}

TEST_F(SettingsTest, MistakesInTheFileAreOneLineWithPlace) {
    write("enabled = true\ncypher = \"AES-256-GCM\"\n");
    expect_one_line_with(error_with(), {"config.toml:2: ", "\"cypher\"", "did you mean \"cipher\"", "plaintext_peers"});
    write("cipher = \"DES\"\n");
    expect_one_line_with(error_with(), {"config.toml:1: cipher: ", "\"DES\"",
                                        "AES-128-GCM, AES-256-GCM, AEGIS-128L, AEGIS-128X2, AEGIS-128X4, AEGIS-256, "
                                        "AEGIS-256X2, AEGIS-256X4, 3DES-CBC-HMAC-SHA-256"});
    write("cipher = \"AEGIS-128X\"\n");  // of which kind it is must be said
    expect_one_line_with(error_with(), {"\"AEGIS-128X\"", "AEGIS-128X2, AEGIS-128X4"});
    write("allow_legacy_cipher = 1\n");
    expect_one_line_with(error_with(), {"config.toml:1: allow_legacy_cipher: ", "true, false"});
    write("enabled = \"maybe\"\n");
    expect_one_line_with(error_with(), {"config.toml:1: enabled: ", "true, false"});
    write("scope = 3\n");
    expect_one_line_with(error_with(), {"config.toml:1: scope: 3", "auto, between-nodes, all"});
    write("network = \"udp\"\n");
    expect_one_line_with(error_with(), {"config.toml:1: network: ", "auto, tcp, fabric, any"});
    write("key_on_network = \"no\"\n");
    expect_one_line_with(error_with(), {"config.toml:1: key_on_network: ", "warn, refuse, allow"});
    write("module = \"../evil\"\n");
    expect_one_line_with(error_with(), {"config.toml:1: module: "});
    write("handshake_timeout_s = 0\n");
    expect_one_line_with(error_with(), {"config.toml:1: handshake_timeout_s: "});
    write("plaintext_peers = [\"10.0.0.0/33\"]\n");
    expect_one_line_with(error_with(), {"config.toml:1: plaintext_peers: \"10.0.0.0/33\"", "10.0.0.0/24"});
    for (const char* name : {"PMPI_Put", "mpi_put", "MPI", "put"}) {
        write("\nallow = [\"" + std::string(name) + "\"]\n");
        expect_one_line_with(error_with(), {"config.toml:2: allow: ", name, "MPI_Put"});
    }
    write("plaintext_peers = [1]\n");
    expect_one_line_with(error_with(), {"config.toml:1: plaintext_peers: "});
    write("\nenabled = \n");
    expect_one_line_with(error_with(), {"config.toml:2: not valid TOML"});
}

TEST_F(SettingsTest, MistakesInVariablesAreOneLine) {
    expect_one_line_with(error_with({{"CRYPTMPI_CYPHER", "x"}}),
                         {"CRYPTMPI_CYPHER", "did you mean \"CRYPTMPI_CIPHER\""});
    expect_one_line_with(error_with({{"CRYPTMPI_ENABLED", "maybe"}}),
                         {"environment variable CRYPTMPI_ENABLED", "true, false"});
    expect_one_line_with(error_with({{"CRYPTMPI_KEY_FILE", ""}}), {"CRYPTMPI_KEY_FILE: is empty"});
    expect_one_line_with(error_with({{"CRYPTMPI_ABORT_AFTER_S", "soon"}}), {"CRYPTMPI_ABORT_AFTER_S", "seconds"});
}

TEST_F(SettingsTest, AFileThatEverybodyMayWriteIsRefused) {
    write("enabled = false\n");
    EXPECT_EQ(error_with(), "");
    fs::permissions(file(), fs::perms::others_write, fs::perm_options::add);
    expect_one_line_with(error_with(), {"config.toml", "chmod o-w"});
}

TEST_F(SettingsTest, NamedFileMustExist) {
    expect_one_line_with(error_with({{"CRYPTMPI_CONFIG", "/nowhere/config.toml"}}),
                         {"/nowhere/config.toml", "CRYPTMPI_CONFIG"});
}

TEST_F(SettingsTest, WhatIsGivenReadsTheSameAsVariables) {
    write(
        "cipher = \"AES-128-GCM\"\nallow = [\"MPI_Put\", \"MPI_Get\"]\nplaintext_peers = []\nabort_after_s = 2.5\n"
        "threads = 3\ncheck_addresses = false\nkey_file = \"~/a.key\"\nmodule_folder = \"modules\"\n"
        "profile = \"none\"\nallow_programs = [\"/a b\"]\nscope = \" all \"\n");
    const auto given = load_with({{"CRYPTMPI_SCOPE", "between-nodes"}, {"CRYPTMPI_PROFILE", "fast.json"}}).value();
    Variables variables{{kSettingsGivenVariable, "1"}, {"HOME", "/elsewhere"}};
    for (const auto& one : given.given) {
        ASSERT_TRUE(one.value) << one.where;
        EXPECT_TRUE(variables.emplace(one.variable, *one.value).second) << one.variable;
    }
    const auto settings = load(Environment(variables)).value();
    EXPECT_EQ(settings.suite, aead::Suite::aes_128_gcm);
    EXPECT_EQ(settings.allow, (std::vector<std::string>{"MPI_Put", "MPI_Get"}));
    EXPECT_TRUE(settings.plaintext_peers.empty());
    EXPECT_EQ(settings.abort_after, std::chrono::milliseconds(2500));
    EXPECT_EQ(settings.threads, 3);
    EXPECT_FALSE(settings.check_addresses);
    EXPECT_EQ(settings.key_file, "/elsewhere/a.key");
    EXPECT_EQ(settings.module_folder, file().parent_path() / "modules");
    EXPECT_EQ(settings.profile, fs::current_path() / "fast.json");
    EXPECT_EQ(settings.allow_programs, std::vector<fs::path>{"/a b"});
    EXPECT_EQ(settings.scope, Scope::between_nodes);
}

TEST_F(SettingsTest, AListThatNoVariableCanSayIsNotCutInPieces) {
    for (const char* path : {"/a,/b", "/a ", "/a\\u0000b"}) {
        write(std::string("allow_programs = [\"") + path + "\"]\n");
        const auto settings = load_with();
        ASSERT_TRUE(settings) << settings.error().line;
        ASSERT_EQ(settings->given.size(), 1U);
        EXPECT_FALSE(settings->given.front().value) << path;
        expect_one_line_with(settings->given.front().where, {"config.toml:1: allow_programs"});
    }
}

TEST_F(SettingsTest, AFileIsNotReadWhereAllIsGiven) {
    write("enabled = false\n");
    EXPECT_TRUE(load_with({{kSettingsGivenVariable, "1"}}).value().enabled);
    EXPECT_FALSE(load_with({{kSettingsGivenVariable, "1"}, {"CRYPTMPI_CONFIG", file().string()}}).value().enabled);
}

TEST_F(SettingsTest, JobIdFromTheLauncher) {
    const auto job = [&](Variables variables) { return load_with(std::move(variables)).value().job_id; };
    EXPECT_EQ(job({{"PMIX_NAMESPACE", "prterun-node-42@1"}}), "prterun-node-42");
    EXPECT_EQ(job({{"PMIX_NAMESPACE", "prterun-node-42@2"}}), "prterun-node-42");
    EXPECT_EQ(job({{"PMIX_NAMESPACE", std::to_string((7U << 16U) + 1)}}), "7");
    EXPECT_EQ(job({{"PMIX_NAMESPACE", std::to_string((7U << 16U) + 2)}}), "7");
    EXPECT_EQ(job({{"I_MPI_HYDRA_UUID", "abc"}}), "abc");
    EXPECT_EQ(job({{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "0"}}), "12.0");
    EXPECT_EQ(job({{"SLURM_JOB_ID", "12"}}), "");  // a batch script: its steps have ids of their own
    EXPECT_EQ(job({{"PMIX_NAMESPACE", "slurm.pmix.12.0"}, {"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "0"}}),
              "slurm.pmix.12.0");
    EXPECT_EQ(job({{"PMIX_NAMESPACE", "x"}, {"CRYPTMPI_JOB_ID", "mine"}}), "mine");
}

TEST_F(SettingsTest, JobIdFromOtherBatchSystems) {
    const auto job = [&](Variables variables) { return load_with(std::move(variables)).value().job_id; };
    EXPECT_EQ(job({{"PBS_JOBID", "123.server"}}), "123.server");
    EXPECT_EQ(job({{"PBS_JOBID", "123[4].server"}}), "123[4].server");
    EXPECT_EQ(job({{"LSB_JOBID", "77"}}), "77");
    EXPECT_EQ(job({{"LSB_JOBID", "77"}, {"LSB_JOBINDEX", "0"}}), "77");
    EXPECT_EQ(job({{"LSB_JOBID", "77"}, {"LSB_JOBINDEX", "3"}}), "77[3]");
    EXPECT_EQ(job({{"FLUX_JOB_ID", "f23M"}, {"PBS_JOBID", "123.server"}}), "f23M");  // Flux within PBS's job
    EXPECT_EQ(job({{"I_MPI_HYDRA_UUID", "abc"}, {"PBS_JOBID", "123.server"}}), "abc");
    EXPECT_EQ(job({{"PBS_JOBID", "123.server"}, {"CRYPTMPI_JOB_ID", "mine"}}), "mine");
}

TEST_F(SettingsTest, AllowedProgramsHaveWholePaths) {
    write("allow_programs = [\"/sbin/ldconfig\", \"/bin/busybox\"]\n");
    EXPECT_EQ(load_with({})->allow_programs, (std::vector<fs::path>{"/sbin/ldconfig", "/bin/busybox"}));
    write("allow_programs = [\"ldconfig\"]\n");
    expect_one_line_with(error_with(), {"config.toml:1: allow_programs: ", "\"ldconfig\"", "/sbin/ldconfig"});
}

}  // namespace
}  // namespace cryptmpi::config
