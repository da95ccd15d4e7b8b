#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "transport/bootstrap/agreement.h"
#include "transport/bootstrap/rendezvous_sides.h"
#include "transport/bootstrap/socket.h"

namespace tilewire {
namespace {

constexpr std::chrono::seconds kHandshakeLimit{10};  // for one connection to prove itself
constexpr std::chrono::seconds kNewsInterval{1};
constexpr std::chrono::seconds kVerdictLimit{1};
constexpr size_t kMaxClaimChars = 300;
constexpr size_t kMaxPending = 512;  // the oldest connection that has proved nothing makes room

// What somebody unknown said, fit for an error text.
std::string printable(const Bytes& bytes) {
  std::string text = to_text(bytes).substr(0, kMaxClaimChars);
  for (char& c : text) c = c >= ' ' && c <= '~' ? c : '?';
  return text;
}

bool fill_or_lose(MessageSocket& socket) {
  try {
    return socket.fill();
  } catch (const Error&) {  // a reset is as good as an end-of-file here
    return false;
  }
}

}  // namespace

RendezvousRoot::RendezvousRoot(const RendezvousOptions& options, UniqueFd listener, const JobKey& job,
                               SteadyTime deadline)
    : options_(options), listener_(std::move(listener)), job_(job), deadline_(deadline), joins_({own_join(options)}) {
  next_news_ = steady_now();
}

Rendezvous RendezvousRoot::run() {
  while (!is_complete()) {
    const SteadyTime now = steady_now();
    if (settle_until_ && now >= *settle_until_) fail_by_difference();
    if (now >= deadline_) fail_by_deadline();
    if (options_.poll) options_.poll();
    wait_for_events(std::min({deadline_, settle_until_.value_or(deadline_), next_news_}));
    accept_new();
    serve_pending();
    watch_arrived();
    tell_who_is_missing();
    update_settle();
  }
  return accept_all();
}

void RendezvousRoot::wait_for_events(SteadyTime until) {
  std::vector<pollfd> entries = {{listener_.get(), POLLIN, 0}};
  for (const Pending& pending : pending_) entries.push_back({pending.socket.fd(), POLLIN, 0});
  for (const Arrived& arrived : arrived_) entries.push_back({arrived.socket.fd(), POLLIN, 0});
  for (const Pending& pending : pending_) until = std::min(until, pending.give_up);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_now()).count();
  const int ready = ::poll(entries.data(), entries.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 250)));
  if (ready < 0 && errno != EINTR) {
    fail(ErrorKind::resource, {.what = "rank 0 cannot wait for the other ranks", .values = strerror(errno)});
  }
}

Accepted RendezvousRoot::accept_or_fail() {
  try {
    return accept_from(listener_.get());
  } catch (const Error& error) {
    fail(error.kind(), error.parts());
  }
}

void RendezvousRoot::accept_new() {
  while (true) {
    Accepted accepted = accept_or_fail();
    if (!accepted.fd.is_open()) return;
    if (pending_.size() >= kMaxPending) {
      pending_.erase(pending_.begin());
      ++strangers_;
    }
    MessageSocket socket(std::move(accepted.fd), accepted.peer, kMaxHandshakeBytes);
    pending_.push_back({std::move(socket), deadline_in(kHandshakeLimit), {}, false, {}});
  }
}

void RendezvousRoot::serve_pending() {
  for (size_t i = 0; i < pending_.size();) {
    Step step = Step::drop;
    try {
      step = serve(pending_[i]);
    } catch (const Error& error) {  // junk, a reset, or cut short: nobody of ours
      log_info("rendezvous: dropped a connection: {}", error.what());
    }
    if (step == Step::keep) {
      ++i;
      continue;
    }
    strangers_ += step == Step::drop;
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

RendezvousRoot::Step RendezvousRoot::serve(Pending& pending) {
  const bool is_connected = pending.socket.fill();
  while (auto message = pending.socket.next()) {
    const Step step = pending.has_said_hello ? on_join(pending, *message) : on_hello(pending, *message);
    if (step != Step::keep) return step;
  }
  pending.socket.flush();
  return is_connected && steady_now() < pending.give_up ? Step::keep : Step::drop;
}

RendezvousRoot::Step RendezvousRoot::on_hello(Pending& pending, const Message& message) {
  if (message.type != type_of(HandshakeType::hello)) return Step::drop;
  const Hello hello = Hello::unpack(message.payload);
  RootChallenge answer;
  answer.nonce = job_.nonce;
  random_bytes(answer.challenge);
  pending.keys = {job_.key, hello.challenge, answer.challenge};
  answer.proof = pending.keys.root_proof();
  pending.claimed = hello.rank;
  pending.has_said_hello = true;
  pending.socket.queue(type_of(HandshakeType::challenge), answer.pack());
  pending.socket.flush();
  if (hello.protocol_version == kProtocolVersion) return Step::keep;
  claims_.push_back({hello.rank, fmt::format("protocol version is {} on rank {} and {} on rank 0",
                                             hello.protocol_version, hello.rank.value, kProtocolVersion)});
  return Step::drop;
}

RendezvousRoot::Step RendezvousRoot::on_join(Pending& pending, const Message& message) {
  if (message.type == type_of(HandshakeType::denial)) {
    claims_.push_back({pending.claimed, printable(message.payload)});
    return Step::drop;
  }
  if (message.type == type_of(HandshakeType::refusal)) return on_refusal(pending, Sealed::unpack(message.payload));
  if (message.type != type_of(HandshakeType::join)) return Step::drop;
  const Sealed sealed = Sealed::unpack(message.payload);
  if (!equal_in_constant_time(sealed.proof, pending.keys.join_proof(sealed.content))) return deny(pending);
  joins_.push_back(Join::unpack(sealed.content));
  const Join& join = joins_.back();
  pending.socket.rename_peer(fmt::format("rank {} on {}", join.rank.value, join.host.to_text()));
  pending.socket.set_max_payload_bytes(kMaxVerdictBytes);
  arrived_.push_back({std::move(pending.socket), pending.keys});
  differences_ = find_differences(joins_, job_.nonce);
  return Step::joined;
}

RendezvousRoot::Step RendezvousRoot::deny(const Pending& pending) {
  claims_.push_back({pending.claimed, fmt::format("rank {} at {} has another secret than rank 0, {}",
                                                  pending.claimed.value, pending.socket.peer(), kSecretLimit)});
  return Step::drop;
}

RendezvousRoot::Step RendezvousRoot::on_refusal(const Pending& pending, const Sealed& sealed) {
  if (!equal_in_constant_time(sealed.proof, pending.keys.refusal_proof(sealed.content))) return deny(pending);
  refusals_.push_back({pending.claimed, to_text(sealed.content)});
  return Step::joined;
}

void RendezvousRoot::watch_arrived() {
  for (size_t i = 0; i < arrived_.size(); ++i) {
    const bool is_connected = fill_or_lose(arrived_[i].socket);
    while (const auto message = arrived_[i].socket.next()) {
      if (message->type == type_of(HandshakeType::give_up)) fail_by_deadline();
    }
    if (is_connected) continue;
    const Rank rank = joins_[i + 1].rank;
    arrived_[i].socket.close();
    const auto missing = missing_ranks(joins_, options_.world_size);
    if (is_lost()) fail_by_difference();
    fail(ErrorKind::peer_lost,
         {.what = fmt::format("rank {} went away before all ranks had come to the rendezvous", rank.value),
          .values = missing.empty() ? std::string() : fmt::format("still missing: {}", rank_list(missing)),
          .advice = fmt::format("see what rank {} on {} reported", rank.value, joins_[i + 1].host.to_text())});
  }
}

void RendezvousRoot::tell_who_is_missing() {
  if (steady_now() < next_news_) return;
  next_news_ = deadline_in(kNewsInterval);
  const std::string missing = rank_list(missing_ranks(joins_, options_.world_size));
  if (!is_lateness_told_ && steady_now() >= silent_until_ && !is_lost()) {
    is_lateness_told_ = true;
    log_warn("{} did not come to the rendezvous at {} within {} s; waiting for {} s in all", missing,
             options_.host_port, std::chrono::duration<double>(options_.silence).count(),
             std::chrono::duration<double>(options_.connect_deadline).count());
  }
  for (Arrived& arrived : arrived_) {
    try {
      arrived.socket.queue(type_of(HandshakeType::waiting), to_bytes(missing));
      arrived.socket.flush();
    } catch (const Error&) {  // watch_arrived() sees it and says whom it was
    }
  }
}

bool RendezvousRoot::is_complete() const {
  return differences_.empty() && arrived_.size() + 1 == static_cast<size_t>(options_.world_size);
}

// Ranks that differ are told only after the late ones have had their chance to come and hear of it too. Somebody that
// could not be authenticated may be a stranger, so claims matter only once every missing rank has been claimed.
void RendezvousRoot::update_settle() {
  int32_t expected = options_.world_size;
  for (const Join& join : joins_) expected = std::min(expected, std::max(join.world_size, 1));
  const size_t heard_of = joins_.size() + claims_.size() + refusals_.size();
  if (is_lost() && heard_of >= static_cast<size_t>(expected)) fail_by_difference();
  if (!is_lost() && !are_all_missing_claimed()) {
    settle_until_.reset();
  } else if (!settle_until_) {
    settle_until_ = std::min(deadline_, deadline_in(options_.settle));
  }
}

bool RendezvousRoot::are_all_missing_claimed() const {
  const auto missing = missing_ranks(joins_, options_.world_size);
  return !missing.empty() && std::all_of(missing.begin(), missing.end(), [this](Rank rank) {
    return std::any_of(claims_.begin(), claims_.end(), [rank](const Claim& claim) { return claim.rank == rank; });
  });
}

void RendezvousRoot::fail_by_difference() {
  if (!refusals_.empty()) {
    const Claim& first = refusals_.front();
    fail(ErrorKind::refused, {.what = fmt::format("rank {} refused to join the job", first.rank.value),
                              .values = first.reason,
                              .advice = fmt::format("mend that on rank {}", first.rank.value)});
  }
  std::vector<std::string> texts = differences_;
  for (const Claim& claim : claims_) texts.push_back(claim.reason);
  fail(ErrorKind::mismatch,
       {.what = "the ranks of this job do not agree", .values = fmt::format("{}", fmt::join(texts, "; "))});
}

void RendezvousRoot::fail_by_deadline() {
  if (is_lost()) fail_by_difference();
  std::string seen;
  for (const Claim& claim : claims_) seen += fmt::format("; {}", claim.reason);
  if (strangers_ > 0) seen += fmt::format("; {} connections of strangers dropped", strangers_);
  const double limit_s = std::chrono::duration<double>(options_.connect_deadline).count();
  fail(ErrorKind::deadline,
       {.what = fmt::format("{} did not come to the rendezvous", rank_list(missing_ranks(joins_, options_.world_size))),
        .values = fmt::format("{} of {} ranks came{}", joins_.size(), options_.world_size, seen),
        .limit = fmt::format("connect deadline {} s", limit_s),
        .advice = kMissingAdvice});
}

void RendezvousRoot::fail(ErrorKind kind, ErrorParts parts) {
  RosterVerdict verdict;
  verdict.kind = kind;
  verdict.parts = parts;
  send_verdict(verdict);
  parts.where = rendezvous_where(options_);
  throw Error(kind, std::move(parts));
}

void RendezvousRoot::send_verdict(const RosterVerdict& verdict) {
  const Bytes content = verdict.pack();
  const SteadyTime until = deadline_in(kVerdictLimit);
  for (Arrived& arrived : arrived_) {
    if (!arrived.socket.is_open()) continue;
    try {
      const Sealed sealed{content, arrived.keys.verdict_proof(content)};
      arrived.socket.send(type_of(HandshakeType::verdict), sealed.pack(), until);
    } catch (const Error& error) {
      log_warn("rendezvous: the outcome did not reach a rank: {}", error.what());
    }
  }
}

Rendezvous RendezvousRoot::accept_all() {
  Rendezvous out;
  out.rank = options_.rank;
  out.world_size = options_.world_size;
  out.job = job_;
  out.strangers = strangers_;
  out.hosts.resize(joins_.size());
  out.to_ranks.resize(joins_.size());
  for (const Join& join : joins_) out.hosts[static_cast<size_t>(join.rank.value)] = join.host;
  RosterVerdict verdict;
  verdict.is_accepted = true;
  verdict.hosts = out.hosts;
  send_verdict(verdict);
  for (size_t i = 0; i < arrived_.size(); ++i) {
    out.to_ranks[static_cast<size_t>(joins_[i + 1].rank.value)] = std::move(arrived_[i].socket);
  }
  return out;
}

}  // namespace tilewire
