#include "executor/session_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace tilewire {

std::string SessionTrace::where() const { return fmt::format("rank {}", of_.control.rank().value); }

TraceAbout SessionTrace::about(int64_t dropped) const {
  return {.dropped = dropped, .run = of_.control.job().nonce_hex(), .world_size = of_.control.world_size()};
}

void SessionTrace::start() {
  if (is_on_) return;
  if (!log_) log_ = std::make_unique<TraceLog>(of_.control.rank(), of_.options.trace_events);
  if (of_.gpu != nullptr) start_gpu();
  take_gpu();  // what nobody has asked for
  const TraceCounts before = log_->counts();
  forgotten_.events += before.events;
  forgotten_.dropped += before.dropped;
  log_->clear();
  is_on_ = true;
}

void SessionTrace::start_gpu() {
  if (gpu_) return gpu_->again();
  if (of_.options.trace_events == 0) return;
  if (!of_.gpu_clock) {
    throw Error(ErrorKind::unavailable,
                {.what = "nothing here can read the clock of the GPU for a timeline", .where = where()});
  }
  gpu_ = std::make_unique<GpuTrace>(*of_.gpu, of_.gpu_clock, of_.options.trace_events);
}

void SessionTrace::take_gpu() {
  if (gpu_ && of_.await_gpu()) gpu_->move_to(*log_, *of_.kernels);
}

// Whether the file can be written shows at once, not after an hour of work. With the rank in its name, what was given
// would not be met at all.
void SessionTrace::start_file() {
  const std::string& file = of_.options.trace_file;
  std::error_code none;
  const std::filesystem::file_status given = std::filesystem::status(file, none);
  if (std::filesystem::exists(given) && !std::filesystem::is_regular_file(given)) {
    throw Error(ErrorKind::invalid_argument,
                {.what = std::filesystem::is_directory(given) ? "trace_file is a folder" : "trace_file is no file",
                 .where = where(),
                 .values = "trace_file = " + file,
                 .limit = "must be a file, or the name of a new one",
                 .advice = "name a file in a folder, as in trace.json"});
  }
  if (std::filesystem::path(file).extension() != ".json") {
    throw Error(ErrorKind::invalid_argument, {.what = "trace_file has a suffix that says something else",
                                              .where = where(),
                                              .values = "trace_file = " + file,
                                              .limit = "a name that ends in .json",
                                              .advice = "name it trace.json; `tilewire trace` makes pictures of it"});
  }
  write_trace(path(), {}, about(0));
  start();
}

void SessionTrace::finish_file() {
  if (!log_) return;  // creation has failed
  take_gpu();
  write_trace(path(), log_->collect(), about(log_->counts().dropped));
}

std::string SessionTrace::path() const {
  if (of_.control.world_size() == 1) return of_.options.trace_file;
  const std::filesystem::path given(of_.options.trace_file);
  return given.parent_path() /
         fmt::format("{}.{}{}", given.stem().string(), of_.control.rank().value, given.extension().string());
}

void SessionTrace::stop() {
  if (!of_.options.trace_file.empty()) return;  // which wants all
  is_on_ = false;
  if (gpu_) gpu_->pause();
}

TraceCounts SessionTrace::counts() {
  TraceCounts counts = forgotten_;
  if (!log_) return counts;
  take_gpu();
  const TraceCounts kept = log_->counts();
  counts.events += kept.events;
  counts.dropped += kept.dropped;
  return counts;
}

TraceRecord SessionTrace::record(int64_t first) {
  if (!log_) return {};
  take_gpu();
  TraceRecord record{log_->collect(), log_->counts().dropped};
  const int64_t kept = static_cast<int64_t>(record.events.size());
  const int64_t skipped = std::clamp<int64_t>(first - forgotten_.events, 0, kept);
  record.events.erase(record.events.begin(), record.events.begin() + skipped);
  return record;
}

}  // namespace tilewire
