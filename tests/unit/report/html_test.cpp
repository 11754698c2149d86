#include "report/html.hpp"

#include <gtest/gtest.h>

namespace cryptmpi::report {
namespace {

TEST(HtmlTest, NothingIsMarkup) {
    EXPECT_EQ(html("<a href=\"x\" title='y'>&amp;"), "&lt;a href=&quot;x&quot; title=&#39;y&#39;&gt;&amp;amp;");
    EXPECT_EQ(html("\xe0\x80\xbcscript"), "\ufffd\ufffd\ufffdscript") << "a long form of '<'";
}

}  // namespace
}  // namespace cryptmpi::report
