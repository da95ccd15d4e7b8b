// Timelines of a session's calls.
#include <fmt/format.h>

#include <filesystem>

#include "base/log.h"
#include "executor/session.h"

namespace tilewire {

void Session::start_trace() {
  const QuietGuard guard(*this);
  if (!trace_) trace_ = std::make_unique<TraceLog>(rank(), options_.trace_events);
}

// Whether the file can be written shows at once, not after an hour of work.
void Session::start_trace_file() {
  write_trace(trace_path(), {});
  start_trace();
}

void Session::finish_trace_file() noexcept {
  if (options_.trace_file.empty()) return;
  try {
    const QuietGuard guard(*this);
    if (!trace_) return;  // creation has failed
    const TraceRecord record = recorded();
    write_trace(trace_path(), record.events, record.dropped);
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
  if (!trace_) return;
  traced_ = recorded();
  trace_.reset();
  if (!options_.trace_file.empty()) trace_ = std::make_unique<TraceLog>(rank(), options_.trace_events);  // it wants all
}

TraceRecord Session::trace_record() {
  const QuietGuard guard(*this);
  return recorded();
}

TraceRecord Session::recorded() const {
  TraceRecord record = traced_;
  if (!trace_) return record;
  const std::vector<TraceEvent> events = trace_->collect();
  record.events.insert(record.events.end(), events.begin(), events.end());
  record.dropped += trace_->dropped();
  return record;
}

}  // namespace tilewire
