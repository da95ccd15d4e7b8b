#include "base/log.h"

#include <tilewire/error.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <set>

namespace tilewire {
namespace {

constexpr int32_t kNoRank = -1;

struct LogState {
  std::atomic<LogLevel> level{LogLevel::warn};
  std::atomic<int32_t> rank{kNoRank};
  std::mutex mutex;  // guards what follows
  LogSink sink;
  std::set<std::string, std::less<>> seen_keys;
};

// Never destroyed: threads and destructors of statics may log until the process is gone.
LogState& state() {
  static auto* const the_state = new LogState;
  return *the_state;
}

thread_local int32_t thread_rank = kNoRank;

std::string time_text() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  localtime_r(&seconds, &parts);
  return fmt::format("{:02}:{:02}:{:02}.{:03}", parts.tm_hour, parts.tm_min, parts.tm_sec, ms);
}

std::string full_line(LogLevel level, std::string_view text) {
  const int32_t rank = thread_rank != kNoRank ? thread_rank : state().rank.load(std::memory_order_relaxed);
  const std::string who = rank == kNoRank ? "" : fmt::format(" rank {}", rank);
  return fmt::format("{} tilewire {}{}: {}", time_text(), to_string(level), who, text);
}

}  // namespace

const char* to_string(LogLevel level) {
  switch (level) {
    case LogLevel::error: return "error";
    case LogLevel::warn: return "warn";
    case LogLevel::info: return "info";
    case LogLevel::debug: return "debug";
  }
  return "unknown";
}

LogLevel parse_log_level(std::string_view text) {
  for (const LogLevel level : {LogLevel::error, LogLevel::warn, LogLevel::info, LogLevel::debug}) {
    if (text == to_string(level)) return level;
  }
  throw Error(ErrorKind::invalid_argument, {.what = fmt::format("'{}' is no log level", text),
                                            .where = "",
                                            .values = "",
                                            .limit = "must be error, warn, info or debug",
                                            .advice = ""});
}

void set_log_level(LogLevel level) { state().level.store(level, std::memory_order_relaxed); }

bool log_enabled(LogLevel level) { return level <= state().level.load(std::memory_order_relaxed); }

void set_log_rank(Rank rank) { state().rank.store(rank.value, std::memory_order_relaxed); }

void set_thread_log_rank(std::optional<Rank> rank) { thread_rank = rank ? rank->value : kNoRank; }

LogSink set_log_sink(LogSink sink) {
  const std::lock_guard lock(state().mutex);
  return std::exchange(state().sink, std::move(sink));
}

void log_text(LogLevel level, std::string_view text) noexcept try {
  if (!log_enabled(level)) return;
  const std::string line = full_line(level, text);
  const std::lock_guard lock(state().mutex);
  if (state().sink) {
    state().sink(level, line);
    return;
  }
  const std::string with_end = line + "\n";
  std::fwrite(with_end.data(), 1, with_end.size(), stderr);
} catch (...) {
  // A line that cannot be made or written is lost; the caller's work goes on.
}

bool log_first_time(std::string_view key) noexcept try {
  const std::lock_guard lock(state().mutex);
  return state().seen_keys.emplace(key).second;
} catch (...) {
  return true;
}

}  // namespace tilewire
