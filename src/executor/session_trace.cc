// Timelines of a session's calls.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "executor/session.h"

namespace tilewire {
namespace {

TraceAbout about_trace(const ControlConnection& control, int64_t dropped) {
  return {.dropped = dropped, .run = control.job().nonce_hex(), .world_size = control.world_size()};
}

}  // namespace

void Session::start_trace() {
  const QuietGuard guard(*this);
  if (gpu_) wait_for_gpu();
  if (is_tracing_) return;
  if (!trace_) trace_ = std::make_unique<TraceLog>(rank(), options_.trace_events);
  if (gpu_) start_gpu_trace();
  take_gpu_trace();  // what nobody has asked for
  const TraceCounts before = trace_->counts();
  forgotten_.events += before.events;
  forgotten_.dropped += before.dropped;
  trace_->clear();
  is_tracing_ = true;
}

void Session::start_gpu_trace() {
  if (gpu_trace_) return gpu_trace_->again();
  if (options_.trace_events == 0) return;
  if (!gpu_clock_) {
    throw Error(ErrorKind::unavailable, {.what = "nothing here can read the clock of the GPU for a timeline",
                                         .where = fmt::format("rank {}", rank().value)});
  }
  gpu_trace_ = std::make_unique<GpuTrace>(*gpu_, gpu_clock_, options_.trace_events);
}

// Of a dead communicator what runs still is not looked at.
void Session::take_gpu_trace() {
  if (!gpu_trace_) return;
  if (!is_dead()) wait_for_gpu();
  if (is_gpu_idle()) gpu_trace_->move_to(*trace_, *kernel_faults_);
}

// Whether the file can be written shows at once, not after an hour of work. With the rank in its name, what was given
// would not be met at all.
void Session::start_trace_file() {
  std::error_code none;
  const std::filesystem::file_status given = std::filesystem::status(options_.trace_file, none);
  if (std::filesystem::exists(given) && !std::filesystem::is_regular_file(given)) {
    throw Error(ErrorKind::invalid_argument,
                {.what = std::filesystem::is_directory(given) ? "trace_file is a folder" : "trace_file is no file",
                 .where = fmt::format("rank {}", rank().value),
                 .values = "trace_file = " + options_.trace_file,
                 .limit = "must be a file, or the name of a new one",
                 .advice = "name a file in a folder, as in trace.json"});
  }
  if (std::filesystem::path(options_.trace_file).extension() != ".json") {
    throw Error(ErrorKind::invalid_argument, {.what = "trace_file has a suffix that says something else",
                                              .where = fmt::format("rank {}", rank().value),
                                              .values = "trace_file = " + options_.trace_file,
                                              .limit = "a name that ends in .json",
                                              .advice = "name it trace.json; `tilewire trace` makes pictures of it"});
  }
  write_trace(trace_path(), {}, about_trace(*control_, 0));
  start_trace();
}

void Session::finish_trace_file() noexcept {
  if (options_.trace_file.empty()) return;
  try {
    const QuietGuard guard(*this);
    if (!trace_) return;  // creation has failed
    take_gpu_trace();
    write_trace(trace_path(), trace_->collect(), about_trace(*control_, trace_->counts().dropped));
  } catch (const std::exception& error) {
    log_error("the timeline is lost: {}", error.what());
  }
}

std::string Session::trace_path() const {
  if (control_->world_size() == 1) return options_.trace_file;
  const std::filesystem::path path(options_.trace_file);
  return path.parent_path() / fmt::format("{}.{}{}", path.stem().string(), rank().value, path.extension().string());
}

void Session::stop_trace() {
  const QuietGuard guard(*this);
  if (!options_.trace_file.empty()) return;  // which wants all
  is_tracing_ = false;
  if (gpu_trace_) gpu_trace_->pause();
}

TraceCounts Session::trace_counts() {
  const QuietGuard guard(*this);
  TraceCounts counts = forgotten_;
  if (!trace_) return counts;
  take_gpu_trace();
  const TraceCounts kept = trace_->counts();
  counts.events += kept.events;
  counts.dropped += kept.dropped;
  return counts;
}

TraceRecord Session::trace_record(int64_t first) {
  const QuietGuard guard(*this);
  if (!trace_) return {};
  take_gpu_trace();
  TraceRecord record{trace_->collect(), trace_->counts().dropped};
  const int64_t kept = static_cast<int64_t>(record.events.size());
  const int64_t skipped = std::clamp<int64_t>(first - forgotten_.events, 0, kept);
  record.events.erase(record.events.begin(), record.events.begin() + skipped);
  return record;
}

}  // namespace tilewire
