#include "base/options_page.h"

#include "base/option_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace tilewire {
namespace {

TEST(OptionsPage, TheCommittedPageIsFresh) {
  std::ifstream file(TILEWIRE_OPTIONS_PAGE);
  ASSERT_TRUE(file) << TILEWIRE_OPTIONS_PAGE;
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), options_page()) << "run scripts/generate_options_page";
}

TEST(OptionsPage, HasARowForEveryOption) {
  for (const OptionInfo& option : option_table()) {
    EXPECT_NE(options_page().find("| `" + option.variable + "` |"), std::string::npos) << option.variable;
  }
}

}  // namespace
}  // namespace tilewire
