#include "executor/trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <tuple>

#include "base/unique_fd.h"
#include <tilewire/error.h>

namespace tilewire {
namespace {

using Json = nlohmann::json;
using Track = std::tuple<int32_t, std::string, int32_t>;  // rank, role, worker

int64_t wait_begin_ns(const TraceEvent& event) { return event.t_begin_ns - event.t_wait_ns; }
Track track_of(const TraceEvent& event) { return {event.rank, event.role, event.worker}; }
double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000.0; }

// The number of each track within its rank, from 1.
std::map<Track, int> number_tracks(std::span<const TraceEvent> events) {
  std::map<Track, int> tracks;
  for (const TraceEvent& event : events) tracks.emplace(track_of(event), 0);
  std::map<int32_t, int> of_rank;
  for (auto& [track, number] : tracks) number = ++of_rank[std::get<0>(track)];
  return tracks;
}

Json names_of(const std::map<Track, int>& tracks) {
  Json names = Json::array();
  std::set<int32_t> ranks;
  for (const auto& [track, number] : tracks) {
    const auto& [rank, role, worker] = track;
    if (ranks.insert(rank).second) {
      names.push_back(
          {{"ph", "M"}, {"name", "process_name"}, {"pid", rank}, {"args", {{"name", fmt::format("rank {}", rank)}}}});
      names.push_back({{"ph", "M"}, {"name", "process_sort_index"}, {"pid", rank}, {"args", {{"sort_index", rank}}}});
    }
    names.push_back({{"ph", "M"},
                     {"name", "thread_name"},
                     {"pid", rank},
                     {"tid", number},
                     {"args", {{"name", fmt::format("{} {}", role, worker)}}}});
  }
  return names;
}

Json slice(const TraceEvent& event, int track, int64_t begin_ns, int64_t end_ns) {
  return {{"ph", "X"},
          {"pid", event.rank},
          {"tid", track},
          {"ts", microseconds(begin_ns)},
          {"dur", microseconds(end_ns - begin_ns)}};
}

void append_slices(const TraceEvent& event, int track, int64_t start_ns, Json& out) {
  const std::string name = event.work < 0 ? std::string(event.name) : fmt::format("{} {}", event.name, event.work);
  const int64_t begin_ns = event.t_begin_ns - start_ns;
  if (event.t_wait_ns > 0) {
    Json wait = slice(event, track, begin_ns - event.t_wait_ns, begin_ns);
    wait.update({{"name", "wait"}, {"cat", "wait"}, {"args", {{"for", name}}}});
    out.push_back(std::move(wait));
  }
  Json work = slice(event, track, begin_ns, event.t_end_ns - start_ns);
  work.update({{"name", name},
               {"cat", event.role},
               {"args", {{"source rank", event.source}, {"bytes", event.bytes}, {"link", to_string(event.link)}}}});
  out.push_back(std::move(work));
}

// The new file beside the final one; it removes itself unless it got the final name.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path), temporary_(fmt::format("{}.{}.new", path, ::getpid())) {
    fd_ = UniqueFd(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd_.is_open()) fail("create", errno);
    is_there_ = true;
  }
  ~NewFile() {
    if (is_there_) ::unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(fd_.get(), text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write", errno);
      text.remove_prefix(static_cast<size_t>(written));
    }
  }
  void finish() {
    // Some file systems tell only here that the space ran out.
    if (::close(fd_.release()) != 0) fail("write", errno);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("replace", errno);
    is_there_ = false;
  }

 private:
  [[noreturn]] void fail(const char* step, int code) const {
    throw Error(
        ErrorKind::resource,
        {.what = fmt::format("cannot {} the trace file", step),
         .values = fmt::format("path = '{}', errno = {} ({})", path_, code, std::generic_category().message(code)),
         .advice = "set trace_file to a file in a folder that exists, can be written and has room"});
  }

  std::string path_;
  std::string temporary_;
  UniqueFd fd_;
  bool is_there_ = false;
};

}  // namespace

int64_t trace_clock_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

TraceRing::TraceRing(Rank rank, const char* role, int32_t worker, std::atomic<int64_t>& budget)
    : rank_(rank), role_(role), worker_(worker), budget_(budget) {}

void TraceRing::add(TraceEvent event) {
  if (budget_.fetch_sub(1, std::memory_order_relaxed) <= 0) {
    budget_.fetch_add(1, std::memory_order_relaxed);
    ++dropped_;
    return;
  }
  event.rank = rank_.value;
  event.role = role_;
  event.worker = worker_;
  if (count_ % kBlockEvents == 0) blocks_.emplace_back().reserve(kBlockEvents);
  blocks_.back().push_back(event);
  ++count_;
}

void TraceRing::append_to(std::vector<TraceEvent>& events) const {
  for (const auto& block : blocks_) events.insert(events.end(), block.begin(), block.end());
}

void TraceRing::clear() {
  budget_.fetch_add(count_, std::memory_order_relaxed);
  blocks_.clear();
  count_ = dropped_ = 0;
}

TraceLog::TraceLog(Rank rank, int64_t capacity_events)
    : rank_(rank), capacity_events_(capacity_events), budget_(capacity_events) {}

TraceRing* TraceLog::ring(const char* role, int32_t worker) {
  if (capacity_events_ <= 0) return nullptr;
  std::lock_guard lock(mutex_);
  auto& ring = rings_[{role, worker}];
  if (ring == nullptr) ring = std::make_unique<TraceRing>(rank_, role, worker, budget_);
  return ring.get();
}

std::vector<TraceEvent> TraceLog::collect() const {
  std::vector<TraceEvent> events;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, ring] : rings_) ring->append_to(events);
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return wait_begin_ns(a) < wait_begin_ns(b); });
  return events;
}

TraceCounts TraceLog::counts() const {
  std::lock_guard lock(mutex_);
  TraceCounts counts{.dropped = dropped_elsewhere_};
  for (const auto& [key, ring] : rings_) {
    counts.events += ring->events();
    counts.dropped += ring->dropped();
  }
  return counts;
}

void TraceLog::clear() {
  std::lock_guard lock(mutex_);
  for (const auto& [key, ring] : rings_) ring->clear();
  dropped_elsewhere_ = 0;
}

std::string trace_json(std::span<const TraceEvent> events, const TraceAbout& about) {
  const std::map<Track, int> tracks = number_tracks(events);
  int64_t start_ns = events.empty() ? 0 : wait_begin_ns(events.front());
  for (const TraceEvent& event : events) start_ns = std::min(start_ns, wait_begin_ns(event));
  Json out = names_of(tracks);
  for (const TraceEvent& event : events) append_slices(event, tracks.at(track_of(event)), start_ns, out);
  const Json document = {{"traceEvents", std::move(out)},
                         {"displayTimeUnit", "ns"},
                         {"otherData",
                          {{"clock", "CLOCK_MONOTONIC"},
                           {"start_ns", start_ns},
                           {"dropped", about.dropped},
                           {"run", about.run},
                           {"world_size", about.world_size}}}};
  return document.dump();
}

void write_trace(const std::string& path, std::span<const TraceEvent> events, const TraceAbout& about) {
  const std::string text = trace_json(events, about);
  NewFile file(path);
  file.write(text);
  file.finish();
}

}  // namespace tilewire
