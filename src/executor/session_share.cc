// Ranks that share a GPU: whether its SMs suffice for all of them, seen by a roll-call, and the wire process between
// those that play several nodes.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "executor/session.h"
#include "executor/session_times.h"

namespace tilewire {
namespace {

constexpr const char* kWireVersion = TILEWIRE_VERSION;
constexpr uint32_t kWireEntries = 1024;

// Kernels take SMs in pairs.
int32_t whole_pairs(int32_t sms) { return sms / 2 * 2; }

std::string names_of(std::span<const Rank> ranks) {
  std::string text;
  for (const Rank r : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", r.value);
  return text;
}

}  // namespace

void Session::learn_shares() {
  if (!gpu_) return;
  Bytes own = ByteWriter().raw(gpu_->id()).i32(gpu_->sms()).u8(gpu_->has_mps() ? 1 : 0).take();
  const auto all = control_->allgather({.kind = "shares of GPUs"}, std::move(own),
                                       deadline_in(to_milliseconds(options_.connect_deadline_s)));
  for (const Bytes& bytes : all) {
    ByteReader reader(bytes, "share of a GPU");
    GpuShare share{.gpu = reader.array<16>(), .sms = reader.i32()};
    share.has_mps = reader.u8() != 0;
    shares_.push_back(share);
  }
  check_share(0);
}

int32_t Session::most_ranks_on_a_gpu() const {
  size_t most = 0;
  for (const GpuShare& share : shares_) most = std::max(most, ranks_on(share.gpu).size());
  return static_cast<int32_t>(most);
}

std::vector<Rank> Session::ranks_on(const GpuId& gpu) const {
  std::vector<Rank> ranks;
  for (int32_t r = 0; r < std::ssize(shares_); ++r) {
    if (shares_[static_cast<size_t>(r)].gpu == gpu) ranks.emplace_back(r);
  }
  return ranks;
}

// `wire_ctas`: of the wire, where it is on the GPU of this rank.
void Session::check_share(int32_t wire_ctas) const {
  const std::vector<Rank> here = ranks_on(gpu_->id());
  if (here.size() < 2 && wire_ctas == 0) return;
  int32_t sum = wire_ctas;
  bool have_mps = true;
  for (const Rank r : here) {
    sum += shares_[static_cast<size_t>(r.value)].sms;
    have_mps = have_mps && shares_[static_cast<size_t>(r.value)].has_mps;
  }
  const std::string who = fmt::format("ranks {}{}", names_of(here), wire_ctas > 0 ? " and the wire" : "");
  const std::string where = fmt::format("rank {}, GPU {}", rank().value, gpu_->device());
  if (!have_mps) {
    throw Error(ErrorKind::unavailable,
                {.what = "ranks share a GPU without MPS, so their kernels cannot run at once",
                 .where = where,
                 .values = who,
                 .limit = "",
                 .advice = "start them with `tilewire run --virtual`, which brings an MPS daemon of its own, or give "
                           "each rank a GPU of its own"});
  }
  if (sum <= gpu_->gpu_sms()) return;
  throw Error(ErrorKind::invalid_argument,
              {.what = "ranks that share a GPU take more SMs than it has",
               .where = where,
               .values = fmt::format("{} take {}{}", who, sum,
                                     wire_ctas > 0 ? fmt::format(", {} of them the wire", wire_ctas) : ""),
               .limit = fmt::format("{} SMs", gpu_->gpu_sms()),
               .advice = "set TILEWIRE_SMS to each rank's share, an even number, or start them with `tilewire run "
                         "--virtual`, which does"});
}

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
  if (wire_->place().gpu == gpu_->id()) check_share(wire_->place().ctas);
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
  const Rank leader = ranks_on(gpu_->id()).front();
  if (leader == rank()) page = gpu_->make_roll_call_page();
  const int fd = page.is_open() ? page.get() : arena_->exports()[0].fd;
  std::vector<UniqueFd> pages = exchange_fds("roll-call", fd, limit);
  if (leader != rank()) gpu_->map_roll_call_page(pages[static_cast<size_t>(leader.value)], leader);
  control_->barrier("roll-call", limit);  // all memory is known to the wire
}

// Collective wherever a GPU is shared, since pages are passed among all ranks of a host.
void Session::hold_roll_call(const SessionSetup& setup) {
  const auto is_shared = [this](const GpuShare& share) { return ranks_on(share.gpu).size() > 1; };
  if (!wire_ && std::none_of(shares_.begin(), shares_.end(), is_shared)) return;
  if (!setup.roll_call) {
    throw Error(ErrorKind::unavailable, {.what = "ranks share a GPU, and nothing here can hold the roll-call",
                                         .where = fmt::format("rank {}", rank().value)});
  }
  UniqueFd page;
  share_roll_call_page(page);
  const std::vector<Rank> here = ranks_on(gpu_->id());
  const bool is_wire_here = wire_ && wire_->place().gpu == gpu_->id();
  RollCallPart part{.ctas = whole_pairs(gpu_->sms()), .expected = is_wire_here ? wire_->place().ctas : 0};
  std::vector<int32_t> expected;
  for (const Rank r : here) {
    if (r == rank()) part.participant = static_cast<int32_t>(expected.size());
    expected.push_back(whole_pairs(shares_[static_cast<size_t>(r.value)].sms));
    part.expected += expected.back();
  }
  if (is_wire_here) expected.push_back(wire_->place().ctas);
  const bool starts_wire = wire_ && rank() == (is_wire_here ? here.front() : wire_starter());
  if (starts_wire && is_wire_here) {
    wire_->ask_start({.participant = static_cast<int32_t>(here.size()), .expected = part.expected}, page.get());
  } else if (starts_wire) {
    wire_->ask_start({}, -1);
  }
  check_roll_call(gpu_->hold_roll_call(setup.roll_call, part), expected);
  if (starts_wire) wire_->await_start(deadline_in(to_milliseconds(options_.connect_deadline_s)));
}

// Of the ranks on the GPU of the wire the first, else of all.
Rank Session::wire_starter() const {
  const std::vector<Rank> beside_wire = ranks_on(wire_->place().gpu);
  return beside_wire.empty() ? Rank{0} : beside_wire.front();
}

// `expected`: CTAs of the ranks of this GPU, in their order, and of the wire where it is there.
void Session::check_roll_call(const RollCallPage& page, std::span<const int32_t> expected) const {
  const std::vector<Rank> here = ranks_on(gpu_->id());
  std::string text;
  uint64_t all = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::string who = i < here.size() ? fmt::format("rank {}", here[i].value) : "the wire";
    text += fmt::format("{}{} {} of {}", i > 0 ? ", " : "", who, page.came[i], expected[i]);
    all += static_cast<uint64_t>(expected[i]);
  }
  if (page.missed == 0 && page.present == all) return;
  throw Error(ErrorKind::unavailable,
              {.what = "not all CTAs of the ranks that share a GPU were there at once",
               .where = fmt::format("rank {}, GPU {}, roll-call", rank().value, gpu_->device()),
               .values = "came: " + text,
               .limit = "all within 2 s",
               .advice = "end other programs on this GPU, lower TILEWIRE_SMS, and set no MPS percentage "
                         "(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE)"});
}

}  // namespace tilewire
