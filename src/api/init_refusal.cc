// A rank that finds out before init() that it will not come tells the others why.
#include <fmt/format.h>
#include <tilewire/communicator.h>

#include <chrono>
#include <memory>
#include <string_view>

#include "api/launcher_store.h"
#include "base/launch_environment.h"
#include "base/log.h"
#include "base/options.h"
#include "transport/bootstrap/rendezvous.h"

namespace tilewire {
namespace {

constexpr std::chrono::seconds kReach{2};  // long enough for ranks that were started together

// What an option is when the options as a whole cannot be read: that of the environment where it is not given, and none
// where that is no value of it.
void take_from(const Environment& environment, const char* variable, std::string_view name, Options& options) {
  const auto found = environment.find(variable);
  if (found == environment.end() || found->second.empty()) return;
  try {
    options.set(name, found->second);
  } catch (const Error&) {
    return;  // what is wrong may be this one
  }
}

Options meeting_of(Options options, bool has_store) {
  const Environment environment = process_environment();
  if (options.secret.empty()) take_from(environment, "TILEWIRE_SECRET", "secret", options);
  if (options.interface.empty()) take_from(environment, "TILEWIRE_INTERFACE", "interface", options);
  if (options.rendezvous.empty() && !has_store) {
    take_from(environment, "TILEWIRE_RENDEZVOUS", "rendezvous", options);
  }
  const LaunchEnvironment launch = launch_environment();
  if (options.rank < 0) options.rank = launch.rank;
  if (options.world_size < 0) options.world_size = launch.world_size;
  if (options.rendezvous.empty() && !has_store) options.rendezvous = launch.rendezvous;
  return options;
}

void throw_if(const std::atomic<bool>* is_cancelled) {
  if (is_cancelled != nullptr && *is_cancelled) throw Error(ErrorKind::aborted, {.what = "cancelled"});
}

}  // namespace

void Communicator::refuse_init(const Options& options, const Error& error, const StoreFunctions* store,
                               const std::atomic<bool>* is_cancelled) noexcept {
  try {
    const Options meeting = meeting_of(options, store != nullptr);
    if (meeting.rank < 1 || meeting.rank >= meeting.world_size) return;
    if (store == nullptr && meeting.rendezvous.empty()) return;
    std::unique_ptr<LauncherStore> launcher_store;
    if (store != nullptr) launcher_store = std::make_unique<LauncherStore>(*store);
    refuse_rendezvous({.rank = Rank{static_cast<int32_t>(meeting.rank)},
                       .world_size = static_cast<int32_t>(meeting.world_size),
                       .host_port = meeting.rendezvous,
                       .store = launcher_store.get(),
                       .secret = meeting.secret,
                       .address = {.interface = meeting.interface},
                       .connect_deadline = kReach,
                       .poll = [is_cancelled] { throw_if(is_cancelled); }},
                      error.what());
  } catch (const std::exception& failure) {
    log_info("the other ranks could not be told why this one does not come: {}", failure.what());
  }
}

}  // namespace tilewire
