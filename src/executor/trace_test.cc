#include "executor/trace.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <tilewire/error.h>

namespace tilewire {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

TraceEvent event_at(int64_t begin_ns, int64_t wait_ns, int64_t end_ns) {
  TraceEvent event;
  event.name = "tile";
  event.work = 3;
  event.source = 1;
  event.t_begin_ns = begin_ns;
  event.t_wait_ns = wait_ns;
  event.t_end_ns = end_ns;
  return event;
}

// A folder that goes with the test.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tilewire_trace_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  size_t files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(path_), {})); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(TraceLog, IsOffWithoutCapacity) {
  TraceLog log(Rank{0}, 0);
  EXPECT_EQ(log.ring("compute", 0), nullptr);
  EXPECT_TRUE(log.collect().empty());
}

TEST(TraceLog, RingOfARoleIsTheSameInEveryCall) {
  TraceLog log(Rank{2}, 100);
  TraceRing* ring = log.ring("compute", 1);
  EXPECT_EQ(log.ring("compute", 1), ring);
  EXPECT_NE(log.ring("compute", 0), ring);
  EXPECT_NE(log.ring("push", 1), ring);
  ring->add(event_at(10, 2, 20));
  const std::vector<TraceEvent> events = log.collect();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].rank, 2);
  EXPECT_STREQ(events[0].role, "compute");
  EXPECT_EQ(events[0].worker, 1);
  EXPECT_EQ(events[0].work, 3);
}

TEST(TraceLog, CollectsAllRolesInOrderOfTime) {
  TraceLog log(Rank{0}, 100);
  log.ring("compute", 0)->add(event_at(30, 0, 40));
  log.ring("push", 0)->add(event_at(35, 20, 50));  // began to wait at 15
  log.ring("send", 0)->add(event_at(20, 0, 21));
  const std::vector<TraceEvent> events = log.collect();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_STREQ(events[0].role, "push");
  EXPECT_STREQ(events[1].role, "send");
  EXPECT_STREQ(events[2].role, "compute");
}

TEST(TraceLog, FullLogKeepsTheFirstEventsAndCountsTheRest) {
  TraceLog log(Rank{0}, 1000);
  for (int64_t i = 0; i < 1500; ++i) log.ring("compute", static_cast<int32_t>(i % 2))->add(event_at(i, 0, i + 1));
  const std::vector<TraceEvent> events = log.collect();
  EXPECT_EQ(events.size(), 1000u);
  EXPECT_EQ(log.counts().dropped, 500);
  for (size_t i = 0; i < 900; ++i) ASSERT_EQ(events[i].t_begin_ns, static_cast<int64_t>(i));
  log.clear();
  EXPECT_TRUE(log.collect().empty());
  EXPECT_EQ(log.counts().dropped, 0);
  for (int64_t i = 0; i < 1000; ++i) log.ring("push", 0)->add(event_at(i, 0, i + 1));
  EXPECT_EQ(log.collect().size(), 1000u);
  EXPECT_EQ(log.counts().dropped, 0);
}

TEST(TraceLog, RolesRecordAtTheSameTime) {
  TraceLog log(Rank{0}, 4000);
  std::vector<std::thread> threads;
  for (int32_t worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&log, worker] {
      TraceRing* ring = log.ring("compute", worker);
      for (int64_t i = 0; i < 1500; ++i) ring->add(event_at(i, 0, i + 1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(log.collect().size(), 4000u);
  EXPECT_EQ(log.counts().dropped, 2000);
}

TEST(TraceClock, NeverGoesBack) {
  const int64_t first = trace_clock_ns();
  EXPECT_GT(first, 0);
  EXPECT_GE(trace_clock_ns(), first);
}

TEST(TraceJson, HasAProcessARankATrackARoleAndWaitsBesideWork) {
  TraceLog left(Rank{0}, 10);
  TraceLog right(Rank{5}, 10);
  TraceEvent sent = event_at(9'000'000'002'000, 1'500, 9'000'000'003'250);
  sent.name = "chunk";
  sent.bytes = 4096;
  sent.link = TraceLink::network;
  left.ring("send", 1)->add(sent);
  left.ring("compute", 0)->add(event_at(9'000'000'002'500, 0, 9'000'000'002'600));
  right.ring("compute", 0)->add(event_at(9'000'000'001'500, 0, 9'000'000'002'000));
  std::vector<TraceEvent> events = left.collect();
  for (const TraceEvent& event : right.collect()) events.push_back(event);

  const Json json = Json::parse(trace_json(events, {.dropped = 7, .run = "f00d", .world_size = 6}));
  EXPECT_EQ(json["otherData"]["dropped"], 7);
  EXPECT_EQ(json["otherData"]["run"], "f00d");
  EXPECT_EQ(json["otherData"]["world_size"], 6);
  std::set<std::string> names;
  Json work, wait;
  std::set<std::pair<int, int>> tracks;
  for (const Json& e : json["traceEvents"]) {
    if (e["ph"] == "M" && e["name"] != "process_sort_index") names.insert(e["args"]["name"].get<std::string>());
    if (e["ph"] == "X") tracks.emplace(e["pid"].get<int>(), e["tid"].get<int>());
    if (e["name"] == "chunk 3") work = e;
    if (e["name"] == "wait") wait = e;
  }
  EXPECT_EQ(names, (std::set<std::string>{"rank 0", "rank 5", "compute 0", "send 1"}));
  EXPECT_EQ(tracks.size(), 3u);
  EXPECT_EQ(work["pid"], 0);
  EXPECT_EQ(work["ts"], 1.5);
  EXPECT_EQ(work["dur"], 1.25);
  EXPECT_EQ(work["args"]["bytes"], 4096);
  EXPECT_EQ(work["args"]["link"], "network");
  EXPECT_EQ(work["args"]["source rank"], 1);
  EXPECT_EQ(wait["ts"], 0.0);
  EXPECT_EQ(wait["dur"], 1.5);
  EXPECT_EQ(wait["tid"], work["tid"]);
}

TEST(TraceJson, OfNoEventsIsValid) {
  const Json json = Json::parse(trace_json({}));
  EXPECT_TRUE(json["traceEvents"].is_array());
  EXPECT_TRUE(json["traceEvents"].empty());
}

TEST(WriteTrace, ReplacesTheFileAndLeavesNoOther) {
  const Folder folder;
  const std::string path = folder.file("trace.json");
  std::ofstream(path) << "old";
  write_trace(path, std::vector<TraceEvent>{event_at(1, 0, 2)});
  EXPECT_EQ(Json::parse(text_of(path))["traceEvents"].size(), 4u);
  EXPECT_EQ(folder.files(), 1u);
}

void expect_write_error(const std::string& path, int code) {
  try {
    write_trace(path, {});
    ADD_FAILURE() << path << " could be written";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource);
    EXPECT_NE(std::string(error.what()).find("'" + path + "'"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("errno = " + std::to_string(code)), std::string::npos) << error.what();
  }
}

TEST(WriteTrace, PathThatCannotBeWrittenIsNamedWithItsErrno) {
  const Folder folder;
  expect_write_error(folder.file("missing/trace.json"), ENOENT);
  std::ofstream(folder.file("plain")) << "x";
  expect_write_error(folder.file("plain/trace.json"), ENOTDIR);
  if (::geteuid() != 0) {
    ::chmod(folder.path().c_str(), 0500);
    expect_write_error(folder.file("trace.json"), EACCES);
    ::chmod(folder.path().c_str(), 0700);
  }
  EXPECT_EQ(folder.files(), 1u);
}

TEST(WriteTrace, NoPartIsLeftWhenTheLastStepFails) {
  const Folder folder;
  fs::create_directories(folder.file("taken/inside"));
  expect_write_error(folder.file("taken"), EISDIR);
  EXPECT_EQ(folder.files(), 1u);
}

}  // namespace
}  // namespace tilewire
