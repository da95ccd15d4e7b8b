#include "schedule/simulator/word_table.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tilewire {
namespace {

TEST(WordTable, AWordThatWasNotUsedIsAtRestAndTakesNoMemory) {
  WordTable table(int64_t{1} << 26);
  EXPECT_EQ(table.seen((int64_t{1} << 26) - 1).posted, 0);
  EXPECT_EQ(table.words_held(), 0);
}

TEST(WordTable, MemoryFollowsTheWordsThatAreUsed) {
  WordTable table(1 << 24);
  for (int64_t source = 0; source < 100; ++source) table.at(source * 4096).posted = 1;
  EXPECT_LE(table.words_held(), 100 * 64);
  for (int64_t source = 0; source < 100; ++source) table.at(source * 4096 + 1).posted = 1;
  EXPECT_LE(table.words_held(), 100 * 64);
}

TEST(WordTable, WordsKeepTheirStatesAndAreVisitedInTheirOrder) {
  WordTable table(1000);
  const std::vector<int64_t> used = {999, 0, 63, 64, 500};
  for (const int64_t w : used) table.at(w).reached = static_cast<uint16_t>(w + 1);
  for (const int64_t w : used) EXPECT_EQ(table.seen(w).reached, w + 1);
  EXPECT_EQ(table.seen(1).reached, 0);
  std::vector<std::pair<int64_t, int>> visited;
  table.for_each([&](int64_t word, const WordState& w) {
    if (w.reached != 0) visited.emplace_back(word, w.reached);
  });
  EXPECT_EQ(visited, (std::vector<std::pair<int64_t, int>>{{0, 1}, {63, 64}, {64, 65}, {500, 501}, {999, 1000}}));
}

}  // namespace
}  // namespace tilewire
