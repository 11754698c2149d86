// The preloaded dispatcher under a program, an MPI library and a layer that are as small as can be.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace {

const std::string kFolder = FAKE_FOLDER;

struct Outcome {
    int status;
    std::string output;
};

/// Runs a fake program under the dispatcher, with the MPI library of `variant`; `more` goes into its environment.
Outcome run(const std::string& program, const std::string& variant = "plain", const std::string& more = "") {
    const std::string line = "env LD_LIBRARY_PATH=" + kFolder + "/" + variant + " LD_PRELOAD=" + kFolder +
                             "/libcryptmpi-mpi.so " + more + " " + kFolder + "/" + program + " 2>&1";
    FILE* pipe = popen(line.c_str(), "r");
    std::string output;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

TEST(Dispatch, PassesEveryArgumentAndResult) {
    const auto outcome = run("fake_program arguments");
    EXPECT_EQ(outcome.output,
              "sealed Send\nnative Send first 1 -2 3 4 -5 6 7.5\n"
              "sealed Send\nnative Send second 1 -2 3 4 -5 6 7.5\n"
              "Wtime 4.5 version 5\n");
    EXPECT_EQ(outcome.status, 0);
}

TEST(Dispatch, LeavesMpisCallsOfItselfAlone) {
    EXPECT_EQ(run("fake_program inner").output, "native Send inner 0 0 0 0 0 0 0.0\n");
}

TEST(Dispatch, CatchesWhatACallbackCalls) {
    EXPECT_EQ(run("fake_program callback").output, "sealed Barrier\nnative Barrier\n");
}

TEST(Dispatch, WeakReferenceToWhatMpiLacksIsNull) {
    EXPECT_EQ(run("fake_program weak").output, "Buffer_flush missing\n");
}

TEST(Dispatch, CallOfWhatMpiLacksEndsTheProgram) {
    const auto outcome = run("fake_program missing");
    EXPECT_NE(outcome.status, 0);
    EXPECT_TRUE(outcome.output.starts_with("MPI_Initialized is not in " + kFolder + "/plain/libfake_mpi.so"))
        << outcome.output;
}

TEST(Dispatch, RefusesWhatTheTableDoesNotKnow) {
    EXPECT_EQ(run("fake_program unknown").output, "refused MPI_Newcast\nNewcast 44\n");
    EXPECT_EQ(run("fake_program unknown", "plain", "FAKE_ALLOW=MPI_Newcast").output, "native Newcast\nNewcast 0\n");
}

TEST(Dispatch, AnswersLookupsAsMpiWould) {
    EXPECT_EQ(run("fake_program lookups").output,
              "handle MPI_Send: found\nsealed Send\nnative Send handle 1 2 3 4 5 6 7.0\n"
              "handle MPI_Buffer_flush: missing\n"
              "handle MPI_Newcast: found\nrefused MPI_Newcast\nNewcast 44\n"
              "default MPI_Send: found\nsealed Send\nnative Send default 1 2 3 4 5 6 7.0\n"
              "default MPI_Buffer_flush: missing\n"
              "default puts: found\nnext puts: found\n"
              "default no_such_function: missing\n");
}

TEST(Dispatch, FindsALibraryThatIsLoadedForOneModule) {
    EXPECT_EQ(run("fake_loader").output, "nothing before\nsealed Send\nnative Send loaded 1 2 3 4 5 6 7.0\n");
}

TEST(Dispatch, RefusesTwoMpiLibraries) {
    const std::string other = kFolder + "/other/libfake_other.so";
    const auto outcome =
        run("fake_program arguments", "plain", "LD_PRELOAD=" + kFolder + "/libcryptmpi-mpi.so:" + other);
    EXPECT_EQ(outcome.status, 125);
    EXPECT_TRUE(outcome.output.starts_with("cryptmpi: two MPI libraries in one process: ")) << outcome.output;
}

TEST(Dispatch, RefusesFortranInsideTheLibrary) {
    const auto outcome = run("fake_program arguments", "fortran");
    EXPECT_EQ(outcome.status, 125);
    EXPECT_NE(outcome.output.find("has the Fortran procedures in the same file"), std::string::npos) << outcome.output;
}

TEST(Dispatch, RefusesWithoutTheLayerOfTheAbi) {
    const auto outcome = run("fake_program arguments", "openmpi");
    EXPECT_EQ(outcome.status, 125);
    EXPECT_NE(outcome.output.find("cryptmpi-mpi-openmpi.so: cannot open"), std::string::npos) << outcome.output;
}

}  // namespace
