// The two sides of rendezvous(): rank 0 and the others. Internal to this folder.
#pragma once

#include <string>
#include <vector>

#include "transport/bootstrap/handshake.h"
#include "transport/bootstrap/rendezvous.h"
#include "transport/bootstrap/socket.h"

namespace tilewire {

// ErrorParts.where of what goes wrong in a rendezvous on this rank.
std::string rendezvous_where(const RendezvousOptions& options);
// The same error of names and addresses, with that and the place where the ranks were to meet.
Error error_at(const HostPort& place, const RendezvousOptions& options, const Error& error);

Join own_join(const RendezvousOptions& options);

// Of ranks that did not come: they may not have been started, have ended, have failed before init() or in it, or be slow.
inline constexpr const char* kMissingAdvice =
    "look at the output of the missing ranks: they may have failed before they could say so, or never have been "
    "started; where they are only late, raise TILEWIRE_CONNECT_DEADLINE_S";

// Of a rank that does not prove that it knows the job's secret.
inline constexpr const char* kSecretLimit = "TILEWIRE_SECRET (secret=) must be equal on all ranks";

// Rank 0: collects the others on one thread with one poll loop, so that no single connection can hold it up.
class RendezvousRoot {
 public:
  RendezvousRoot(const RendezvousOptions& options, UniqueFd listener, const JobKey& job, SteadyTime deadline);

  // All ranks accepted, or the error that they were all told.
  Rendezvous run();

 private:
  struct Pending {  // not authenticated yet
    MessageSocket socket;
    SteadyTime give_up;
    HandshakeKeys keys;
    bool has_said_hello = false;
    Rank claimed;
  };
  struct Arrived {
    MessageSocket socket;
    HandshakeKeys keys;
  };
  struct Claim {  // somebody that calls itself a rank but could not be authenticated
    Rank rank;
    std::string reason;
  };
  enum class Step { keep, drop, joined };

  void wait_for_events(SteadyTime until);
  void accept_new();
  Accepted accept_or_fail();
  void serve_pending();
  Step serve(Pending& pending);
  Step on_hello(Pending& pending, const Message& message);
  Step on_join(Pending& pending, const Message& message);
  Step on_refusal(const Pending& pending, const Sealed& sealed);
  Step deny(const Pending& pending);
  void watch_arrived();
  void tell_who_is_missing();
  bool is_complete() const;
  void update_settle();
  bool are_all_missing_claimed() const;
  bool is_lost() const { return !differences_.empty() || !refusals_.empty(); }
  [[noreturn]] void fail(ErrorKind kind, ErrorParts parts);
  [[noreturn]] void fail_by_difference();
  [[noreturn]] void fail_by_deadline();
  void send_verdict(const RosterVerdict& verdict);
  Rendezvous accept_all();

  const RendezvousOptions& options_;
  UniqueFd listener_;
  JobKey job_;
  SteadyTime deadline_;
  std::vector<Pending> pending_;
  std::vector<Join> joins_;  // joins_[0] is rank 0's own; joins_[i + 1] belongs to arrived_[i]
  std::vector<Arrived> arrived_;
  std::vector<Claim> claims_;
  std::vector<std::string> differences_;
  std::vector<Claim> refusals_;  // of ranks that are authenticated, by which they will not come
  std::optional<SteadyTime> settle_until_;
  SteadyTime next_news_;
  SteadyTime silent_until_ = deadline_in(options_.silence);
  bool is_lateness_told_ = false;
  int64_t strangers_ = 0;
};

struct RootAddress {
  HostPort host_port;
  std::string secret;
  std::optional<Nonce> nonce;
};

// The others: reach rank 0, prove, wait for the verdict.
Rendezvous join_rendezvous(const RendezvousOptions& options, const RootAddress& root, SteadyTime deadline);
// Or reach it, prove, and say why this rank does not come.
void tell_refusal(const RendezvousOptions& options, const RootAddress& root, const std::string& why,
                  SteadyTime deadline);

}  // namespace tilewire
