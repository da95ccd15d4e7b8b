#include "base/ancestor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tilewire {
namespace {

// A folder of processes as the kernel shows them, with one line each.
class AncestorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "ancestors.XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void add(int id, const std::string& program, int parent, const std::string& started) {
    const std::filesystem::path process = folder_ / std::to_string(id);
    std::filesystem::create_directory(process);
    std::ofstream(process / "stat") << id << " (" << program << ") S " << parent
                                    << " 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 " << started << " 2883584 224\n";
  }
  std::string ancestor(int id) const { return ancestor_running("proxy", id, folder_.string()); }

  std::filesystem::path folder_;
};

TEST_F(AncestorTest, AllThatAProgramStartedHaveItsNameAlsoThroughAShellOfAnyName) {
  add(1, "init", 0, "1");
  add(50, "proxy", 1, "800");
  add(60, "python", 50, "900");
  add(61, "a ) S 1 (", 50, "901");
  add(70, "python", 61, "902");
  EXPECT_EQ(ancestor(60), "50-800");
  EXPECT_EQ(ancestor(70), "50-800");
}

TEST_F(AncestorTest, ANumberThatComesAgainIsAnotherProcess) {
  add(50, "proxy", 1, "800");
  add(60, "python", 50, "900");
  const std::string before = ancestor(60);
  add(50, "proxy", 1, "5000");
  EXPECT_NE(ancestor(60), before);
}

TEST_F(AncestorTest, WhereNoneIsSeenThereIsNoName) {
  add(1, "init", 0, "1");
  add(60, "proxy", 1, "900");    // itself is none of its ancestors
  add(80, "python", 79, "900");  // whose parent is out of sight
  add(90, "python", 90, "900");  // no tree at all
  std::ofstream(folder_ / "1" / "stat") << "1 (init";
  for (const int id : {1, 60, 80, 90, 4711}) EXPECT_EQ(ancestor(id), "") << id;
}

TEST(Ancestor, ThisMachineShowsItsProcessesInThatForm) {
  std::string parent;
  std::getline(std::ifstream("/proc/" + std::to_string(::getppid()) + "/comm"), parent);
  EXPECT_EQ(ancestor_running(parent, ::getpid()).rfind(std::to_string(::getppid()) + "-", 0), 0U);
}

}  // namespace
}  // namespace tilewire
