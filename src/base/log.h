// The library's only voice: a levelled log with one sink (stderr unless replaced). A line reads
//   12:03:04.567 tilewire warn rank 3: text
// Thread-safe; lines of several threads never mix. Logging never throws.
#pragma once

#include "base/ids.h"

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tilewire {

enum class LogLevel { error, warn, info, debug };

const char* to_string(LogLevel level);
// "warn" -> LogLevel::warn; throws Error(invalid_argument) for any other word than the four.
LogLevel parse_log_level(std::string_view text);

// Lines less severe than `level` are dropped. The default is warn.
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);

// The rank shown by all threads of this process that have none of their own.
void set_log_rank(Rank rank);
// The rank shown by the calling thread; nothing takes it back. For ranks that are threads of one process.
void set_thread_log_rank(std::optional<Rank> rank);

// Gets one whole line without its newline. Runs under the log's lock, so it must not log.
using LogSink = std::function<void(LogLevel level, std::string_view line)>;
// Replaces the sink and returns the previous one; an empty sink means stderr.
LogSink set_log_sink(LogSink sink);

// Writes a ready text; prefer the functions below.
void log_text(LogLevel level, std::string_view text) noexcept;
// True the first time that `key` is seen in this process.
bool log_first_time(std::string_view key) noexcept;

template <class... Args>
void log_at(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_text(level, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::error, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::warn, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::info, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::debug, format, std::forward<Args>(args)...);
}

// Warns the first time that `key` comes by in this process: for fallbacks, which must be told but not at every call.
template <class... Args>
void log_once(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::warn) && log_first_time(key)) log_warn(format, std::forward<Args>(args)...);
}

}  // namespace tilewire
