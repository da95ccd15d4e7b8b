#include "soak/process_state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace tilewire {
namespace {

int64_t count_files(const char* folder, const std::string& with) {
  int64_t files = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    files += entry.path().filename().string().find(with) != std::string::npos ? 1 : 0;
  }
  return files;
}

int64_t count_mappings(const std::string& with) {
  std::ifstream in("/proc/self/maps");
  int64_t lines = 0;
  for (std::string line; std::getline(in, line);) lines += line.find(with) != std::string::npos ? 1 : 0;
  return lines;
}

int64_t count_resident_bytes() {
  std::ifstream in("/proc/self/statm");
  int64_t all = 0;
  int64_t resident = 0;
  in >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

ProcessState ProcessState::now() {
  return {.descriptors = count_files("/proc/self/fd", ""),
          .threads = count_files("/proc/self/task", ""),
          .mappings = count_mappings(""),
          .arena_mappings = count_mappings("memfd:"),
          .shared_names = count_files("/dev/shm", "tilewire"),
          .resident_bytes = count_resident_bytes()};
}

std::string growth(const ProcessState& before, const ProcessState& after, [[maybe_unused]] const GrowthLimits& limits) {
  std::string text;
  const auto compare = [&](const char* what, int64_t ProcessState::*field, int64_t limit) {
    if (after.*field > before.*field + limit) {
      text += fmt::format("{} grew from {} to {} (may grow by {})\n", what, before.*field, after.*field, limit);
    }
  };
  compare("descriptors", &ProcessState::descriptors, 0);
  compare("threads", &ProcessState::threads, 0);
  compare("mappings of memory files", &ProcessState::arena_mappings, 0);
  compare("names in /dev/shm", &ProcessState::shared_names, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep freed memory and shadows of it
  compare("mappings", &ProcessState::mappings, limits.mappings);
  compare("resident bytes", &ProcessState::resident_bytes, limits.resident_bytes);
#endif
  return text;
}

std::string lasting_growth(const ProcessState& before, const GrowthLimits& limits) {
  std::string grown;
  for (int looks = 0; looks < 200; ++looks) {
    if (looks > 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    grown = growth(before, ProcessState::now(), limits);
    if (grown.empty()) break;
  }
  return grown;
}

}  // namespace tilewire
