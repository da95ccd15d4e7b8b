#include "memory/memory_room.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <filesystem>
#include <fstream>
#include <random>

namespace tilewire {
namespace {

// Fake kernel folders, gone after the test.
class MemoryRoomTest : public testing::Test {
 protected:
  MemoryRoomTest() { std::filesystem::create_directories(folder_); }
  ~MemoryRoomTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  MemoryRoom room() const { return memory_room((folder_ / "proc").string(), (folder_ / "cgroup").string()); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("tilewire_memory_room_" + std::to_string(std::random_device()()));
};

TEST_F(MemoryRoomTest, MissingOrOddFilesSetNoLimit) {
  EXPECT_GT(room().bytes, int64_t{1} << 60);
  write("proc/meminfo", "MemAvailable: lots\n");
  write("proc/self/cgroup", "\n:\n0::\nnonsense\n0::/a\n");
  write("cgroup/a/memory.max", "max\n");
  write("cgroup/a/memory.current", "5\n");
  EXPECT_GT(room().bytes, int64_t{1} << 60);
}

TEST_F(MemoryRoomTest, CountsMemoryThatIsAvailableAndFreeSwap) {
  write("proc/meminfo", "MemTotal: 900 kB\nMemAvailable:     100 kB\nSwapFree: 7 kB\n");
  EXPECT_EQ(room().bytes, 107 * 1024);
}

TEST_F(MemoryRoomTest, AParentGroupIsALimitToo) {
  write("proc/meminfo", "MemAvailable: 100000 kB\n");
  write("proc/self/cgroup", "0::/job/step\n");
  write("cgroup/job/step/memory.max", "max\n");
  write("cgroup/job/step/memory.current", "10\n");
  write("cgroup/job/memory.max", "5000\n");
  write("cgroup/job/memory.current", "4000\n");
  write("cgroup/job/memory.stat", "anon 3\ninactive_file 200\n");
  EXPECT_EQ(room().bytes, 1200);
  EXPECT_NE(room().limit.find("job/memory.max = 5000"), std::string::npos) << room().limit;
}

TEST_F(MemoryRoomTest, ReadsVersion1GroupsAlsoWhereThePathIsNotVisible) {
  write("proc/self/cgroup", "9:cpu:/x\n4:hugetlb,memory:/outer/x\n");
  write("cgroup/memory/memory.limit_in_bytes", "8000\n");
  write("cgroup/memory/memory.usage_in_bytes", "7000\n");
  write("cgroup/memory/memory.stat", "cache 9\ntotal_inactive_file 50\n");
  EXPECT_EQ(room().bytes, 1050);
}

TEST_F(MemoryRoomTest, AGroupOverItsLimitHasNoRoomRatherThanANegativeOne) {
  write("proc/self/cgroup", "0::/\n");
  write("cgroup/memory.max", "100\n");
  write("cgroup/memory.current", "300\n");
  EXPECT_EQ(room().bytes, 0);
}

TEST(MemoryRoom, ErrorNamesBytesAndLimit) {
  EXPECT_NO_THROW(check_memory_room(10, "rank 1, arena", {10, "a limit"}));
  try {
    check_memory_room(11, "rank 1, arena", {10, "a limit"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::resource);
    for (const char* part : {"11 more bytes", "10 can be had", "a limit", "rank 1, arena"}) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  }
}

TEST(MemoryRoom, ThisMachineHasSome) { EXPECT_GT(memory_room().bytes, 0); }

}  // namespace
}  // namespace tilewire
