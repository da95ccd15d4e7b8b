// Ranks that share a GPU: whether its SMs suffice for all of them, seen by a roll-call, and the wire process between
// those that play several nodes.
#include <fmt/format.h>

#include "base/log.h"
#include "executor/session.h"
#include "executor/session_times.h"

namespace tilewire {
namespace {

constexpr const char* kWireVersion = TILEWIRE_VERSION;
constexpr uint32_t kWireEntries = 1024;

}  // namespace

void Session::join_wire() {
  if (options_.wire.empty() || !gpu_) return;
  const SteadyTime limit = deadline_in(to_milliseconds(options_.connect_deadline_s));
  wire_ = std::make_unique<WireLink>(WireLinkConfig{.socket = options_.wire,
                                                    .secret = options_.secret,
                                                    .version = kWireVersion,
                                                    .job = control_->job().nonce,
                                                    .rank = rank(),
                                                    .ranks = control_->world_size(),
                                                    .arena_bytes = arena_->layout().total_bytes(),
                                                    .ring_entries = kWireEntries,
                                                    .poll = [this] { control_->throw_if_aborted(); },
                                                    .on_lost =
                                                        [this](const WireFailure& failure) {
                                                          try {
                                                            control_->send_abort(failure.kind, failure.text);
                                                          } catch (const std::exception& error) {
                                                            log_error("that the wire is gone could not be told: {}",
                                                                      error.what());
                                                          }
                                                        }},
                                     limit);
  if (wire_->place().gpu == gpu_->id()) shares_->check(wire_->place().ctas);
  tell_wire_of_new_memory();
}

// The wire reads from the user area too, which peers do not map.
void Session::tell_wire_of_new_memory() {
  if (!wire_) return;
  wire_->add(arena_->exports().subspan(known_to_wire_), deadline_in(to_milliseconds(options_.connect_deadline_s)));
  known_to_wire_ = arena_->exports().size();
}

// One rank of each GPU makes the page, the others of that GPU map it; so does the wire.
void Session::share_roll_call_page(UniqueFd& page) {
  const SteadyTime limit = deadline_in(to_milliseconds(options_.connect_deadline_s));
  const Rank leader = shares_->ranks_here().front();
  if (leader == rank()) page = gpu_->make_roll_call_page();
  const int fd = page.is_open() ? page.get() : arena_->exports()[0].fd;
  std::vector<UniqueFd> pages = exchange_fds("roll-call", fd, limit);
  if (leader != rank()) gpu_->map_roll_call_page(pages[static_cast<size_t>(leader.value)], leader);
  control_->barrier("roll-call", limit, kJoinLimitVariable);  // all memory is known to the wire
}

// Collective wherever a GPU is shared, since pages are passed among all ranks of a host.
void Session::hold_roll_call(const SessionSetup& setup) {
  if (!gpu_ || (!wire_ && !shares_->is_any_shared())) return;
  if (!setup.roll_call) {
    throw Error(ErrorKind::unavailable, {.what = "ranks share a GPU, and nothing here can hold the roll-call",
                                         .where = fmt::format("rank {}", rank().value)});
  }
  UniqueFd page;
  share_roll_call_page(page);
  const std::vector<Rank> here = shares_->ranks_here();
  const bool is_wire_here = wire_ && wire_->place().gpu == gpu_->id();
  RollCallPart part{.ctas = shares_->roll_call_ctas(rank()), .expected = is_wire_here ? wire_->place().ctas : 0};
  std::vector<int32_t> expected;
  for (const Rank r : here) {
    if (r == rank()) part.participant = static_cast<int32_t>(expected.size());
    expected.push_back(shares_->roll_call_ctas(r));
    part.expected += expected.back();
  }
  if (is_wire_here) expected.push_back(wire_->place().ctas);
  // Of the ranks on the GPU of the wire the first, else of all.
  const std::vector<Rank> beside_wire = wire_ ? shares_->ranks_on(wire_->place().gpu) : std::vector<Rank>{};
  const bool starts_wire = wire_ && rank() == (beside_wire.empty() ? Rank{0} : beside_wire.front());
  if (starts_wire && is_wire_here) {
    wire_->ask_start({.participant = static_cast<int32_t>(here.size()), .expected = part.expected}, page.get());
  } else if (starts_wire) {
    wire_->ask_start({}, -1);
  }
  shares_->check_roll_call(gpu_->hold_roll_call(setup.roll_call, part), expected);
  if (starts_wire) wire_->await_start(deadline_in(to_milliseconds(options_.connect_deadline_s)));
}

}  // namespace tilewire
