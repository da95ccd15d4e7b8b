// Timelines of a session's calls.
#include <fmt/format.h>

#include <filesystem>

#include "base/log.h"
#include "executor/session.h"

namespace tilewire {

void Session::start_trace() {
  const CallGuard guard(*this);
  if (!trace_) trace_ = std::make_unique<TraceLog>(rank(), options_.trace_events);
}

// Whether the file can be written shows at once, not after an hour of work.
void Session::start_trace_file() {
  write_trace(trace_path(), {});
  start_trace();
}

void Session::finish_trace_file() noexcept {
  if (options_.trace_file.empty() || !trace_) return;  // no trace: creation has failed
  try {
    write_trace(trace_path(), trace_events(), trace_->dropped());
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
  const CallGuard guard(*this);
  if (!trace_) return;
  const std::vector<TraceEvent> events = trace_->collect();
  traced_.insert(traced_.end(), events.begin(), events.end());
  trace_.reset();
  if (!options_.trace_file.empty()) trace_ = std::make_unique<TraceLog>(rank(), options_.trace_events);  // it wants all
}

std::vector<TraceEvent> Session::trace_events() const {
  std::vector<TraceEvent> events = traced_;
  if (trace_) {
    const std::vector<TraceEvent> now = trace_->collect();
    events.insert(events.end(), now.begin(), now.end());
  }
  return events;
}

}  // namespace tilewire
