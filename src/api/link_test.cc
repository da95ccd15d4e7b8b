#include <tilewire/communicator.h>
#include <tilewire/link_test.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "api/communicator_parts.h"
#include "base/log.h"
#include "executor/link/link_test.h"

namespace tilewire {
namespace {

// A long test is not to end with nowhere to put what it found. Leaves no file that was not there.
void check_can_be_written(const std::string& file) {
  if (file.empty()) return;
  std::error_code ignored;
  const bool was_there = std::filesystem::exists(file, ignored);
  errno = 0;
  if (!std::ofstream(file, std::ios::app)) {
    throw Error(ErrorKind::invalid_argument, {.what = "the report cannot be written",
                                              .where = "link test",
                                              .values = file + ": " + std::strerror(errno),
                                              .advice = "name a file in a folder that is there and can be written"});
  }
  if (!was_there) std::filesystem::remove(file, ignored);
}

// Why not, or "".
std::string write_report(const std::string& file, const std::string& json) {
  if (file.empty()) return "";
  errno = 0;
  std::ofstream out(file);
  out << json << '\n' << std::flush;
  return out ? "" : file + ": " + std::strerror(errno);
}

}  // namespace

LinkReport run_link_test(Options options, const LinkTest& test, const std::atomic<bool>* is_cancelled) {
  set_log_level(parse_log_level(options.log_level));
  const SessionSetup setup = session_setup(with_launcher(std::move(options), false), is_cancelled);
  const auto rank = static_cast<int32_t>(setup.options.rank);
  set_log_rank(Rank{rank});
  const LinkTestSettings settings{.seconds = test.seconds, .messages = test.messages};
  const std::string file = rank == 0 ? test.report : "";
  try {
    setup.options.validate();
    settings.validate(setup.options);
    check_can_be_written(file);
  } catch (const Error& error) {
    Communicator::refuse_init(setup.options, error, nullptr, is_cancelled);
    throw;
  }
#if defined(TILEWIRE_HAS_CUDA)
  LinkTestResult result = run_link_test(setup, settings, make_link_kernel);
#else
  LinkTestResult result = run_link_test(setup, settings);
#endif
  std::string unwritten = write_report(file, result.json);
  return {
      .rank = rank, .json = std::move(result.json), .wrong_messages = result.wrong, .unwritten = std::move(unwritten)};
}

}  // namespace tilewire
