// The lists of nodes and counts that Slurm compresses.
#include "command/node_list.hpp"

#include <gtest/gtest.h>

namespace cryptmpi::command {
namespace {

using Names = std::vector<std::string>;
using Counts = std::vector<int>;

TEST(NodeList, Expands) {
    EXPECT_EQ(*expand_node_list("x"), Names({"x"}));
    EXPECT_EQ(*expand_node_list("a,b.cluster.example"), Names({"a", "b.cluster.example"}));
    EXPECT_EQ(*expand_node_list("node[1-3,07-09],x"),
              Names({"node1", "node2", "node3", "node07", "node08", "node09", "x"}));
    EXPECT_EQ(*expand_node_list("n[5]"), Names({"n5"}));
    EXPECT_EQ(*expand_node_list("n[8-11]"), Names({"n8", "n9", "n10", "n11"}));
    EXPECT_EQ(*expand_node_list("n[098-101]"), Names({"n098", "n099", "n100", "n101"}));
    EXPECT_EQ(*expand_node_list("n[1-2]-ib,m[3,1]"), Names({"n1-ib", "n2-ib", "m3", "m1"}));
    EXPECT_EQ(*expand_node_list("r[1-2]n[1-2]"), Names({"r1n1", "r1n2", "r2n1", "r2n2"}));
    EXPECT_EQ(*expand_node_list("[1-2]"), Names({"1", "2"}));
}

TEST(NodeList, KeepsRepeatedNodes) {
    EXPECT_EQ(*expand_node_list("a,a"), Names({"a", "a"}));
}

TEST(NodeList, RefusesWhatIsNone) {
    for (const char* text : {"",       ",",       "a,",     ",a",     "a,,b",     "n[",    "n]",
                             "n[1",    "n1]",     "n[]",    "n[1,]",  "n[-]",     "n[1-]", "n[-1]",
                             "n[3-1]", "n[a]",    "n[1-b]", "n[[1]]", "n[1-2-3]", "n[ 1]", "n[99999999999999999999999]",
                             "-x",     "-x[1-2]", "a b",    "a\nb"})
        EXPECT_FALSE(expand_node_list(text)) << text;
    EXPECT_EQ(expand_node_list("n[3-1]").error().line, "the list of nodes \"n[3-1]\": \"3-1\" is no range of numbers");
}

TEST(NodeList, RefusesWhatWouldFillTheMemory) {
    for (const char* text :
         {"n[1-999999999999]", "n[0-18446744073709551615]", "n[1-9999]m[1-9999]",
          "n[1-9999]m[1-9999]o[1-9999]p[1-9999]q[1-9999]", "n[1-100000],m[1-100000]", "n[1-100000,1-100000]"})
        EXPECT_FALSE(expand_node_list(text)) << text;
    EXPECT_EQ(expand_node_list("n[1-131072]")->size(), kMostNodes);
}

TEST(CountList, Expands) {
    EXPECT_EQ(*expand_count_list("4"), Counts({4}));
    EXPECT_EQ(*expand_count_list("2(x3),1"), Counts({2, 2, 2, 1}));
    EXPECT_EQ(*expand_count_list("1,16(x2)"), Counts({1, 16, 16}));
    EXPECT_EQ(*expand_count_list("3(x1)"), Counts({3}));
}

TEST(CountList, RefusesWhatIsNone) {
    for (const char* text : {"", ",", "2,", "0", "-1", "x", "2(", "2(x", "2(x)", "2(x0)", "2(x-1)", "2(3)", "2(x3",
                             "2x3", "2(x3)4", " 2", "99999999999", "1(x9999999999)", "1(x131072),1"})
        EXPECT_FALSE(expand_count_list(text)) << text;
}

}  // namespace
}  // namespace cryptmpi::command
