#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "transport/bootstrap/rendezvous_sides.h"
#include "transport/bootstrap/socket.h"

namespace tilewire {
namespace {

constexpr std::chrono::milliseconds kFirstRetry{5};
constexpr std::chrono::milliseconds kLastRetry{250};
constexpr std::chrono::milliseconds kPollPeriod{100};
constexpr size_t kMostRefusalBytes = 4096;
constexpr std::chrono::seconds kAttemptLimit{3};  // one connect or one answer; a host that drops packets gives none

// One address of rank 0, and the own one that connections to it come from ("": as the system chooses).
struct Way {
  std::string literal;
  std::string source;
};

struct Greeted {
  MessageSocket socket;
  Challenge own{};
  RootChallenge root;
};

// The next message of rank 0, with a look at options.poll now and then.
Message receive_polling(MessageSocket& socket, const RendezvousOptions& options, SteadyTime deadline) {
  if (auto message = socket.next()) return *std::move(message);
  do {
    if (options.poll) options.poll();
  } while (!wait_ready(socket.fd(), POLLIN, std::min(deadline, deadline_in(kPollPeriod))) && steady_now() < deadline);
  return socket.receive(deadline);
}

// One attempt to connect and exchange challenges; nullopt with the reason when it is worth another one.
std::optional<Greeted> try_greet(const Way& way, const RendezvousOptions& options, const HostPort& root,
                                 SteadyTime until, std::string& reason) {
  Connected connected = try_connect(way.literal, root.port, until, way.source);
  if (!connected.fd.is_open()) {
    reason = connected.reason;
    return std::nullopt;
  }
  Greeted greeted;
  greeted.socket =
      MessageSocket(std::move(connected.fd), fmt::format("rank 0 at {}", root.to_text()), kMaxVerdictBytes);
  Hello hello;
  hello.rank = options.rank;
  random_bytes(hello.challenge);
  greeted.own = hello.challenge;
  try {
    greeted.socket.send(type_of(HandshakeType::hello), hello.pack(), until);
    const Message answer = receive_polling(greeted.socket, options, until);
    if (answer.type != type_of(HandshakeType::challenge)) {
      throw Error(ErrorKind::mismatch, {.what = fmt::format("what answers at {} is no rank 0", root.to_text()),
                                        .values = fmt::format("a message of type {}", answer.type)});
    }
    greeted.root = RootChallenge::unpack(answer.payload);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::mismatch) {
      ErrorParts parts = error.parts();
      parts.where = rendezvous_where(options);
      parts.advice = "another program has this port, or a Tilewire of another version: give the job a port of its own";
      throw Error(ErrorKind::mismatch, std::move(parts));
    }
    if (error.kind() != ErrorKind::deadline && error.kind() != ErrorKind::peer_lost) throw;
    reason = error.parts().what;  // a rank 0 that is about to end or has just been restarted
    return std::nullopt;
  }
  return greeted;
}

std::vector<Way> ways_to_root(const RendezvousOptions& options, const HostPort& root, SteadyTime deadline) {
  std::vector<Way> ways;
  try {
    const NetworkView network = this_network();
    for (const std::string& literal : resolve(root.host, deadline, options.poll)) {
      ways.push_back({literal, source_address(literal, options.address, network)});
    }
    return ways;
  } catch (const Error& error) {
    throw error_at(root, options, error);
  }
}

Greeted greet_root(const RendezvousOptions& options, const HostPort& root, SteadyTime deadline) {
  const std::vector<Way> ways = ways_to_root(options, root, deadline);
  std::chrono::milliseconds pause = kFirstRetry;
  std::string reason;
  const SteadyTime silent_until = deadline_in(options.silence);
  bool is_lateness_told = false;
  do {
    if (options.poll) options.poll();
    if (!is_lateness_told && steady_now() >= silent_until) {
      is_lateness_told = true;
      log_warn("rank {} has not reached rank 0 at {} within {} s, and tries on: {}", options.rank.value, root.to_text(),
               std::chrono::duration<double>(options.silence).count(), reason);
    }
    for (const Way& way : ways) {
      const SteadyTime until = std::min(deadline, deadline_in(kAttemptLimit));
      if (auto greeted = try_greet(way, options, root, until, reason)) return *std::move(greeted);
    }
    std::this_thread::sleep_until(std::min(deadline, deadline_in(pause)));
    pause = std::min(kLastRetry, pause * 2);
  } while (steady_now() < deadline);
  const double limit_s = std::chrono::duration<double>(options.connect_deadline).count();
  throw Error(ErrorKind::deadline, {.what = fmt::format("rank 0 did not come to the rendezvous at {}", root.to_text()),
                                    .where = rendezvous_where(options),
                                    .values = reason,
                                    .limit = fmt::format("connect deadline {} s", limit_s),
                                    .advice = "check the address and the output of rank 0"});
}

// Why rank 0 is not the one this rank is looking for; "" when it is.
std::string denial_of(const Greeted& greeted, const HandshakeKeys& keys, const RendezvousOptions& options,
                      const RootAddress& root) {
  if (greeted.root.protocol_version != kProtocolVersion) {
    return fmt::format("protocol version is {} on rank {} and {} on rank 0", kProtocolVersion, options.rank.value,
                       greeted.root.protocol_version);
  }
  if (equal_in_constant_time(greeted.root.proof, keys.root_proof())) return {};
  if (root.nonce && *root.nonce != greeted.root.nonce) {
    return fmt::format("job nonce is '{}' on rank {} and '{}' on rank 0, which is of another job", to_hex(*root.nonce),
                       options.rank.value, to_hex(greeted.root.nonce));
  }
  return fmt::format("rank {} has another secret than rank 0 at {}, {}", options.rank.value, root.host_port.to_text(),
                     kSecretLimit);
}

Join join_of(const RendezvousOptions& options, const RootAddress& root) {
  Join join = own_join(options);
  join.expected_nonce = root.nonce;
  return join;
}

// So that rank 0 tells the others about the missing ranks and not about this one.
void tell_giving_up(MessageSocket& socket) {
  try {
    socket.queue(type_of(HandshakeType::give_up), {});
    socket.flush();
  } catch (const Error&) {  // then rank 0 sees the closed connection
  }
}

RosterVerdict await_verdict(MessageSocket& socket, const HandshakeKeys& keys, const RendezvousOptions& options,
                            SteadyTime deadline) {
  std::string missing = "not known";
  try {
    while (true) {
      const Message message = receive_polling(socket, options, deadline);
      if (message.type == type_of(HandshakeType::waiting)) missing = to_text(message.payload);
      if (message.type != type_of(HandshakeType::verdict)) continue;
      const Sealed sealed = Sealed::unpack(message.payload);
      if (!equal_in_constant_time(sealed.proof, keys.verdict_proof(sealed.content))) {
        throw Error(ErrorKind::mismatch, {.what = "the outcome of the rendezvous is not from rank 0"});
      }
      return RosterVerdict::unpack(sealed.content);
    }
  } catch (const Error& error) {
    const std::string where = rendezvous_where(options);
    if (error.kind() == ErrorKind::peer_lost) {
      throw Error(ErrorKind::peer_lost, {.what = "rank 0 went away before all ranks had come to the rendezvous",
                                         .where = where,
                                         .values = fmt::format("missing then: {}", missing),
                                         .advice = "see what rank 0 reported"});
    }
    if (error.kind() != ErrorKind::deadline) throw;
    tell_giving_up(socket);
    const double limit_s = std::chrono::duration<double>(options.connect_deadline).count();
    throw Error(ErrorKind::deadline, {.what = fmt::format("{} did not come to the rendezvous", missing),
                                      .where = where,
                                      .limit = fmt::format("connect deadline {} s", limit_s),
                                      .advice = kMissingAdvice});
  }
}

}  // namespace

Rendezvous join_rendezvous(const RendezvousOptions& options, const RootAddress& root, SteadyTime deadline) {
  Greeted greeted = greet_root(options, root.host_port, deadline);
  MessageSocket& socket = greeted.socket;
  const JobKey job = derive_job_key(root.secret, greeted.root.nonce);
  const HandshakeKeys keys{job.key, greeted.own, greeted.root.challenge};
  if (const std::string denial = denial_of(greeted, keys, options, root); !denial.empty()) {
    socket.send(type_of(HandshakeType::denial), to_bytes(denial), deadline);
    throw Error(ErrorKind::mismatch,
                {.what = "the ranks of this job do not agree", .where = rendezvous_where(options), .values = denial});
  }
  const Bytes join = join_of(options, root).pack();
  socket.send(type_of(HandshakeType::join), Sealed{join, keys.join_proof(join)}.pack(), deadline);
  const RosterVerdict verdict = await_verdict(socket, keys, options, deadline);
  if (!verdict.is_accepted) {
    ErrorParts parts = verdict.parts;
    parts.where = rendezvous_where(options);
    throw Error(verdict.kind, std::move(parts));
  }
  Rendezvous out;
  out.rank = options.rank;
  out.world_size = options.world_size;
  out.job = job;
  out.hosts = verdict.hosts;
  out.to_root = std::move(socket);
  return out;
}

void tell_refusal(const RendezvousOptions& options, const RootAddress& root, const std::string& why,
                  SteadyTime deadline) {
  Greeted greeted = greet_root(options, root.host_port, deadline);
  const JobKey job = derive_job_key(root.secret, greeted.root.nonce);
  const HandshakeKeys keys{job.key, greeted.own, greeted.root.challenge};
  if (!denial_of(greeted, keys, options, root).empty()) return;
  const Bytes content = to_bytes(why.substr(0, kMostRefusalBytes));
  greeted.socket.send(type_of(HandshakeType::refusal), Sealed{content, keys.refusal_proof(content)}.pack(), deadline);
}

}  // namespace tilewire
