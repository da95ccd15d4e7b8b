#include "transport/bootstrap/rendezvous.h"

#include <fmt/format.h>

#include "base/log.h"
#include "transport/bootstrap/rendezvous_sides.h"
#include "transport/bootstrap/socket.h"

namespace tilewire {
namespace {

constexpr size_t kMadeSecretBytes = 32;

void check_options(const RendezvousOptions& options) {
  const std::string where = rendezvous_where(options);
  if (options.world_size < 1) {
    throw Error(ErrorKind::invalid_argument, {.what = "the world size is not positive",
                                              .where = where,
                                              .values = fmt::format("world_size = {}", options.world_size)});
  }
  if (options.rank.value < 0 || options.rank.value >= options.world_size) {
    throw Error(ErrorKind::invalid_argument,
                {.what = "the rank is outside the job",
                 .where = where,
                 .values = fmt::format("rank = {}, world_size = {}", options.rank.value, options.world_size),
                 .limit = fmt::format("must be in 0..{}", options.world_size - 1)});
  }
  if (options.agreed_options.size() > kMaxHandshakeBytes / 2) {
    throw Error(ErrorKind::invalid_argument, {.what = "the agreed options are too long",
                                              .where = where,
                                              .values = fmt::format("{} bytes", options.agreed_options.size()),
                                              .limit = fmt::format("at most {} bytes", kMaxHandshakeBytes / 2)});
  }
}

std::string store_key(const RendezvousOptions& options) { return options.store_prefix + "/rank0"; }

Bytes pack_address(const RootAddress& root) {
  return ByteWriter().text(root.host_port.host).u16(root.host_port.port).text(root.secret).raw(*root.nonce).take();
}

RootAddress unpack_address(const Bytes& in) {
  ByteReader reader(in, "store entry");
  RootAddress root;
  root.host_port.host = reader.text();
  root.host_port.port = reader.u16();
  root.secret = reader.text();
  Nonce nonce;
  const auto bytes = reader.raw(nonce.size());
  std::copy(bytes.begin(), bytes.end(), nonce.begin());
  root.nonce = nonce;
  reader.finish();
  return root;
}

std::string make_secret() {
  std::array<std::byte, kMadeSecretBytes> secret;
  random_bytes(secret);
  return to_hex(secret);
}

Rendezvous alone(const RendezvousOptions& options, const JobKey& job) {
  Rendezvous out;
  out.rank = options.rank;
  out.world_size = 1;
  out.job = job;
  out.hosts = {this_host(options.host_id)};
  out.to_ranks.resize(1);
  return out;
}

// Rank 0 finds out before it waits whether the others can reach it where they were told to.
UniqueFd listen_where_told(const RendezvousOptions& options, SteadyTime deadline) {
  const HostPort meeting = parse_host_port(options.host_port);
  try {
    const std::vector<std::string> literals = resolve(meeting.host, deadline, options.poll);
    return listen_on(listening_place(meeting, literals, options.address, this_network()));
  } catch (const Error& error) {
    throw error_at(meeting, options, error);
  }
}

Rendezvous collect_by_port(const RendezvousOptions& options, SteadyTime deadline) {
  const JobKey job = derive_job_key(options.secret, options.expected_nonce.value_or(random_nonce()));
  if (options.world_size == 1) return alone(options, job);
  return RendezvousRoot(options, listen_where_told(options, deadline), job, deadline).run();
}

Rendezvous collect_by_store(const RendezvousOptions& options, SteadyTime deadline) {
  RootAddress root;
  root.nonce = options.expected_nonce.value_or(random_nonce());
  root.secret = options.secret.empty() ? make_secret() : options.secret;
  const JobKey job = derive_job_key(root.secret, *root.nonce);
  if (options.world_size == 1) return alone(options, job);
  const ChosenAddress address = choose_address(options.address, this_network());
  log_info("rendezvous: rank 0 is at {}", address.reason);
  UniqueFd listener = listen_on({address.address, 0});
  root.host_port = {address.address, local_port(listener.get())};
  if (!options.secret.empty()) root.secret.clear();  // the others have been given it too
  options.store->set(store_key(options), pack_address(root));
  Rendezvous out = RendezvousRoot(options, std::move(listener), job, deadline).run();
  out.address_reason = address.reason;
  return out;
}

RootAddress look_up_root(const RendezvousOptions& options, SteadyTime deadline) {
  if (options.store == nullptr) return {parse_host_port(options.host_port), options.secret, options.expected_nonce};
  RootAddress root = unpack_address(options.store->get(store_key(options), deadline));
  if (!options.secret.empty()) root.secret = options.secret;
  if (options.expected_nonce) root.nonce = options.expected_nonce;
  return root;
}

void warn_without_secret(const RendezvousOptions& options) {
  if (options.store != nullptr || !options.secret.empty() || options.rank.value != 0 || options.world_size == 1) return;
  const std::string host = parse_host_port(options.host_port).host;
  if (host == "localhost" || host == "::1" || host.starts_with("127.")) return;
  log_warn("rendezvous at {} without a secret: whoever reaches this port can join the job", options.host_port);
}

}  // namespace

std::string rendezvous_where(const RendezvousOptions& options) {
  return fmt::format("rank {}, rendezvous", options.rank.value);
}

Error error_at(const HostPort& place, const RendezvousOptions& options, const Error& error) {
  ErrorParts parts = error.parts();
  parts.where = fmt::format("{} at {}", rendezvous_where(options), place.to_text());
  return Error(error.kind(), std::move(parts));
}

Join own_join(const RendezvousOptions& options) {
  Join join;
  join.rank = options.rank;
  join.world_size = options.world_size;
  join.expected_nonce = options.expected_nonce;
  join.library_version = options.library_version;
  join.agreed_options = options.agreed_options;
  join.host = this_host(options.host_id);
  return join;
}

Rendezvous rendezvous(const RendezvousOptions& options) {
  check_options(options);
  const SteadyTime deadline = deadline_in(options.connect_deadline);
  warn_without_secret(options);
  if (options.rank.value != 0) return join_rendezvous(options, look_up_root(options, deadline), deadline);
  return options.store != nullptr ? collect_by_store(options, deadline) : collect_by_port(options, deadline);
}

void refuse_rendezvous(const RendezvousOptions& options, const std::string& why) {
  check_options(options);
  if (options.rank.value == 0) return;
  const SteadyTime deadline = deadline_in(options.connect_deadline);
  tell_refusal(options, look_up_root(options, deadline), why, deadline);
}

}  // namespace tilewire
