#include "transport/bootstrap/rendezvous.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>

#include "base/log.h"
#include "testing/given_time.h"
#include "transport/bootstrap/bootstrap_fixture.h"
#include "transport/bootstrap/handshake.h"
#include "transport/bootstrap/rendezvous_sides.h"

namespace tilewire {
namespace {

using Change = std::function<void(RendezvousOptions&)>;

// All ranks with one of them changed; what each threw.
std::vector<Failure> run_with(int world_size, int changed_rank, const Change& change) {
  const std::string address = free_address();
  return run_ranks(world_size, [&](int rank) {
    RendezvousOptions options = rank_options(rank, world_size, address);
    if (rank == changed_rank) change(options);
    rendezvous(options);
  });
}

// Of the first rank that did not fail so; "" when all did.
std::string complaint_of(const std::vector<Failure>& failures, ErrorKind kind, const std::vector<std::string>& parts) {
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    const Failure& failure = failures[rank];
    const std::string own = fmt::format("rank {}: {}", rank, failure.has_failed ? failure.text : "has not failed");
    if (!failure.has_failed || failure.kind != kind) return own;
    for (const std::string& part : parts) {
      if (!failure.names(part)) return fmt::format("'{}' is not said by {}", part, own);
    }
  }
  return "";
}

void expect_all(const std::vector<Failure>& failures, ErrorKind kind, const std::vector<std::string>& parts) {
  EXPECT_EQ(complaint_of(failures, kind, parts), "");
}

TEST(Rendezvous, AnyNumberOfRanksComesTogetherByPort) {
  for (const int world_size : {1, 2, 3, 8}) {
    const std::string address = free_address();
    std::vector<Rendezvous> results(static_cast<size_t>(world_size));
    const auto failures = run_ranks(world_size, [&](int rank) {
      results[static_cast<size_t>(rank)] = rendezvous(rank_options(rank, world_size, address));
    });
    for (const Failure& failure : failures) EXPECT_FALSE(failure.has_failed) << failure.text;
    for (const Rendezvous& result : results) {
      EXPECT_EQ(result.job.nonce, results[0].job.nonce);
      EXPECT_EQ(result.job.key, results[0].job.key);
      ASSERT_EQ(result.hosts.size(), static_cast<size_t>(world_size));
      EXPECT_EQ(group_by_host(result.hosts).size(), 1u);
    }
  }
}

TEST(Rendezvous, StoreCarriesAddressNonceAndAMadeSecret) {
  MemoryStore store;
  std::vector<Rendezvous> results(3);
  const auto failures = run_ranks(3, [&](int rank) {
    RendezvousOptions options = rank_options(rank, 3, "");
    options.secret.clear();
    options.store = &store;
    results[static_cast<size_t>(rank)] = rendezvous(options);
  });
  for (const Failure& failure : failures) EXPECT_FALSE(failure.has_failed) << failure.text;
  EXPECT_EQ(results[1].job.key, results[0].job.key);
  EXPECT_NE(results[0].job.key, derive_job_key("", results[0].job.nonce).key);
  EXPECT_NE(results[0].address_reason.find("127.0.0.1"), std::string::npos);
}

TEST(Rendezvous, IPv6LoopbackWorks) {
  uint16_t port = 0;
  const Failure no_ipv6 = failure_of([&] { port = local_port(listen_on({"::1", 0}).get()); });
  if (no_ipv6.has_failed) GTEST_SKIP() << no_ipv6.text;
  const std::string address = HostPort{"::1", port}.to_text();
  for (const Failure& failure : run_ranks(2, [&](int rank) { rendezvous(rank_options(rank, 2, address)); })) {
    EXPECT_FALSE(failure.has_failed) << failure.text;
  }
}

TEST(Rendezvous, PortInUseIsNamed) {
  const UniqueFd holder = listen_on({"127.0.0.1", 0});
  const std::string port = std::to_string(local_port(holder.get()));
  const Failure failure = failure_of([&] { rendezvous(rank_options(0, 2, "127.0.0.1:" + port)); });
  EXPECT_EQ(failure.kind, ErrorKind::resource);
  EXPECT_TRUE(failure.names("port " + port)) << failure.text;
}

TEST(Rendezvous, DifferentOptionIsToldToAllWithBothValues) {
  const auto failures = run_with(3, 2, [](auto& options) { options.agreed_options = "window=8\nchunk_bytes=1024\n"; });
  expect_all(failures, ErrorKind::mismatch, {"'window=4' on ranks 0, 1", "'window=8' on rank 2"});
}

TEST(Rendezvous, DifferentLibraryVersionIsToldToAll) {
  const auto failures = run_with(3, 1, [](auto& options) { options.library_version = "1.1"; });
  expect_all(failures, ErrorKind::mismatch, {"library version", "'1.0' on ranks 0, 2", "'1.1' on rank 1"});
}

TEST(Rendezvous, DifferentWorldSizeIsToldToAll) {
  const auto failures = run_with(3, 1, [](auto& options) { options.world_size = 4; });
  expect_all(failures, ErrorKind::mismatch, {"world size", "'3' on ranks 0, 2", "'4' on rank 1"});
}

TEST(Rendezvous, SameRankTwiceIsToldToAll) {
  const auto failures = run_with(3, 2, [](auto& options) { options.rank = Rank(1); });
  expect_all(failures, ErrorKind::mismatch, {"rank 1 came twice", "must be one process"});
}

TEST(Rendezvous, WrongSecretIsToldToAll) {
  const auto failures = run_with(3, 2, [](auto& options) { options.secret = "another"; });
  expect_all(failures, ErrorKind::mismatch,
             {"rank 2", "another secret than rank 0", "TILEWIRE_SECRET (secret=) must be equal on all ranks"});
}

TEST(Rendezvous, WrongSecretOfRankZeroIsToldToAll) {
  const auto failures = run_with(3, 0, [](auto& options) { options.secret = "another"; });
  expect_all(failures, ErrorKind::mismatch, {"another secret than rank 0"});
}

TEST(Rendezvous, WrongJobNonceIsToldToAll) {
  const Nonce other = random_nonce();
  const auto failures = run_with(2, 1, [&](auto& options) { options.expected_nonce = other; });
  expect_all(failures, ErrorKind::mismatch, {"job nonce", to_hex(other)});
}

// Whoever knows that it will not come says why; the others need not wait for it.
TEST(Rendezvous, ARankThatRefusesIsToldToAllThatCameWithItsReason) {
  for (const bool is_early : {true, false}) {
    const std::string address = free_address();
    const SteadyTime start = steady_now();
    const auto failures = run_ranks(3, [&](int rank) {
      const RendezvousOptions options = rank_options(rank, 3, address);
      if ((rank == 2) != is_early) std::this_thread::sleep_for(200ms);
      if (rank != 2) {
        rendezvous(options);
      } else {
        refuse_rendezvous(options, "no such option: nope");
      }
    });
    EXPECT_FALSE(failures[2].has_failed) << failures[2].text;
    expect_all({failures[0], failures[1]}, ErrorKind::refused,
               {"rank 2 refused to join the job", "no such option: nope"});
    EXPECT_LT(steady_now() - start, 20s) << "they waited for it until their deadline";
  }
}

TEST(Rendezvous, ARefusalOfAStrangerEndsNothing) {
  const std::string address = free_address();
  const auto failures = run_ranks(3, [&](int rank) {
    RendezvousOptions options = rank_options(rank == 2 ? 1 : rank, 2, address);
    if (rank == 1) std::this_thread::sleep_for(300ms);
    if (rank != 2) {
      rendezvous(options);
    } else {
      options.secret = "another";
      refuse_rendezvous(options, "away with you");
    }
  });
  for (const Failure& failure : failures) EXPECT_FALSE(failure.has_failed) << failure.text;
}

TEST(Rendezvous, ARefusalThatReachesNobodyGivesUpSoon) {
  RendezvousOptions options = rank_options(1, 2, free_address());
  options.connect_deadline = 300ms;
  const SteadyTime start = steady_now();
  EXPECT_EQ(failure_of([&] { refuse_rendezvous(options, "no"); }).kind, ErrorKind::deadline);
  EXPECT_LT(steady_now() - start, 20s);
  options.rank = Rank(0);
  EXPECT_FALSE(failure_of([&] { refuse_rendezvous(options, "no"); }).has_failed) << "rank 0 has nobody to tell";
}

TEST(Rendezvous, RankOutsideTheJobIsRefusedAtOnce) {
  EXPECT_EQ(failure_of([] { rendezvous(rank_options(2, 2, "127.0.0.1:1")); }).kind, ErrorKind::invalid_argument);
  EXPECT_EQ(failure_of([] { rendezvous(rank_options(-1, 2, "127.0.0.1:1")); }).kind, ErrorKind::invalid_argument);
  EXPECT_EQ(failure_of([] { rendezvous(rank_options(0, 0, "127.0.0.1:1")); }).kind, ErrorKind::invalid_argument);
}

// Rank 0 tells the others once a second who is missing.
TEST(Rendezvous, MissingRanksAreListedOnEveryRankThatCame) {
  expect_given_time(1300ms, [](std::chrono::milliseconds limit) {
    const std::string address = free_address();
    const SteadyTime start = steady_now();
    const std::vector<Failure> failures = run_ranks(3, [&](int rank) {
      RendezvousOptions options = rank_options(rank, 5, address);
      options.connect_deadline = limit;
      rendezvous(options);
    });
    if (steady_now() - start > 4 * limit + 1s) return std::string("the deadline was not kept");
    return complaint_of(failures, ErrorKind::deadline, {"ranks 3, 4 did not come"});
  });
}

TEST(Rendezvous, RankWhoseDeadlineEndsEarlyStillNamesTheMissing) {
  expect_given_time(1300ms, [](std::chrono::milliseconds limit) {
    const std::string address = free_address();
    const auto failures = run_ranks(2, [&](int rank) {
      RendezvousOptions options = rank_options(rank, 3, address);
      if (rank == 1) options.connect_deadline = limit;
      rendezvous(options);
    });
    return complaint_of(failures, ErrorKind::deadline, {"rank 2 did not come"});
  });
}

TEST(Rendezvous, MissingRankZeroIsNamedWithItsAddress) {
  const std::string address = free_address();
  RendezvousOptions options = rank_options(1, 2, address);
  options.connect_deadline = 200ms;
  const Failure failure = failure_of([&] { rendezvous(options); });
  EXPECT_EQ(failure.kind, ErrorKind::deadline);
  EXPECT_TRUE(failure.names("rank 0 did not come") && failure.names(address)) << failure.text;
}

// 203.0.113.77 is an address that no host has, and .invalid a domain without names.
TEST(Rendezvous, PlaceThatIsNotRankZerosHostIsRefusedAtOnce) {
  const SteadyTime start = steady_now();
  const Failure failure = failure_of([] { rendezvous(rank_options(0, 2, "203.0.113.77:29500")); });
  EXPECT_EQ(failure.kind, ErrorKind::unavailable);
  EXPECT_TRUE(failure.names("203.0.113.77:29500") && failure.names("lo 127.0.0.1") && failure.names("rank 0"))
      << failure.text;
  EXPECT_LT(steady_now() - start, 20s);
}

TEST(Rendezvous, NameThatNobodyKnowsIsRefusedOnEveryRank) {
  ::setenv("RES_OPTIONS", "timeout:1 attempts:1", 1);  // where no name server answers
  const SteadyTime start = steady_now();
  const auto failures = run_ranks(2, [](int rank) {
    RendezvousOptions options = rank_options(rank, 2, "no-such-host.invalid:29500");
    options.connect_deadline = 60s;
    rendezvous(options);
  });
  EXPECT_LT(steady_now() - start, 40s) << "the resolver's own patience, but not the deadline";
  expect_all(failures, ErrorKind::unavailable, {"no-such-host.invalid"});
  for (const int rank : {0, 1}) {
    const Failure& failure = failures[static_cast<size_t>(rank)];
    EXPECT_TRUE(failure.names(fmt::format("rank {}", rank))) << failure.text;
  }
}

TEST(Rendezvous, InterfaceThatIsNotThereIsNamedOnEveryRank) {
  for (const int rank : {0, 1}) {
    RendezvousOptions options = rank_options(rank, 2, "127.0.0.1:29500");
    options.address.interface = "wlan9";
    const Failure failure = failure_of([&] { rendezvous(options); });
    EXPECT_EQ(failure.kind, ErrorKind::unavailable) << failure.text;
    EXPECT_TRUE(failure.names("wlan9") && failure.names("lo 127.0.0.1")) << failure.text;
    EXPECT_TRUE(failure.names(fmt::format("rank {}, rendezvous at 127.0.0.1:29500", rank))) << failure.text;
  }
}

TEST(Rendezvous, RanksMeetOnTheNamedInterface) {
  const NetworkView network = this_network();
  const auto outer = std::find_if(network.interfaces.begin(), network.interfaces.end(), [](const auto& i) {
    return i.is_up && !i.is_loopback && i.address.find(':') == std::string::npos;
  });
  if (outer == network.interfaces.end()) GTEST_SKIP() << "this host has loopback alone";
  const uint16_t port = parse_host_port(free_address()).port;
  const std::string meeting = HostPort{"0.0.0.0", port}.to_text();
  std::thread rank0([&] {
    RendezvousOptions options = rank_options(0, 2, meeting);
    options.address.interface = outer->interface;
    EXPECT_FALSE(failure_of([&] { rendezvous(options); }).has_failed);
  });
  const SteadyTime until = deadline_in(20s);
  while (!try_connect(outer->address, port, until).fd.is_open() && steady_now() < until) std::this_thread::yield();
  EXPECT_FALSE(try_connect("127.0.0.1", port, until).fd.is_open()) << "rank 0 listens elsewhere too";
  RendezvousOptions options = rank_options(1, 2, HostPort{outer->address, port}.to_text());
  options.address.interface = outer->interface;
  const Failure failure = failure_of([&] { rendezvous(options); });
  EXPECT_FALSE(failure.has_failed) << failure.text;
  rank0.join();
}

TEST(TryConnect, ConnectionComesFromTheSourceThatWasAskedFor) {
  const UniqueFd listener = listen_on({"127.0.0.1", 0});
  const Connected connected = try_connect("127.0.0.1", local_port(listener.get()), deadline_in(20s), "127.0.0.5");
  ASSERT_TRUE(connected.fd.is_open()) << connected.reason;
  ASSERT_TRUE(wait_ready(listener.get(), POLLIN, deadline_in(20s)));
  EXPECT_TRUE(accept_from(listener.get()).peer.starts_with("127.0.0.5:"));
  const Connected foreign = try_connect("127.0.0.1", local_port(listener.get()), deadline_in(20s), "203.0.113.77");
  EXPECT_FALSE(foreign.fd.is_open());
  EXPECT_NE(foreign.reason.find("from 203.0.113.77"), std::string::npos) << foreign.reason;
}

// Who started one rank too few sees why nothing happens before the deadline of a minute.
TEST(Rendezvous, WhoIsLateIsNamedOnceInTheLog) {
  std::vector<std::string> lines;
  std::atomic<bool> has_rank_0_told = false, has_rank_1_told = false;
  const LogSink before = set_log_sink([&](LogLevel, std::string_view line) {
    lines.emplace_back(line);
    if (line.find("did not come to the rendezvous") != std::string_view::npos) has_rank_0_told = true;
    if (line.find("rank 1 has not reached rank 0") != std::string_view::npos) has_rank_1_told = true;
  });
  const std::string address = free_address();
  const auto failures = run_ranks(3, [&](int rank) {
    RendezvousOptions options = rank_options(rank, 3, address);
    options.silence = rank == 0 ? 0ms : 10ms;
    const SteadyTime until = deadline_in(20s);
    const auto await = [&](const std::atomic<bool>& told) {
      while (!told && steady_now() < until) std::this_thread::sleep_for(1ms);
    };
    if (rank == 0) await(has_rank_1_told);
    if (rank == 2) await(has_rank_0_told);
    rendezvous(options);
  });
  set_log_sink(before);
  for (const Failure& failure : failures) EXPECT_FALSE(failure.has_failed) << failure.text;
  const auto count = [&](const std::string& part) {
    return std::count_if(lines.begin(), lines.end(),
                         [&](const std::string& line) { return line.find(part) != std::string::npos; });
  };
  EXPECT_EQ(count("did not come to the rendezvous at " + address), 1);
  EXPECT_EQ(count("rank 1 has not reached rank 0 at " + address), 1);
}

TEST(Rendezvous, StrangersWithJunkOrSilenceDoNotDisturb) {
  const std::string address = free_address();
  const HostPort root = parse_host_port(address);
  std::vector<Rendezvous> results(2);
  std::vector<UniqueFd> strangers;
  std::thread rank0([&] { results[0] = rendezvous(rank_options(0, 2, address)); });
  const SteadyTime until = deadline_in(20s);
  while (strangers.size() < 4 && steady_now() < until) {
    Connected connected = try_connect("127.0.0.1", root.port, until);
    if (connected.fd.is_open()) strangers.push_back(std::move(connected.fd));
  }
  ASSERT_EQ(strangers.size(), 4u);
  const std::string junk = "GET / HTTP/1.1\r\nHost: somebody\r\n\r\n";
  EXPECT_GT(::send(strangers[0].get(), junk.data(), junk.size(), MSG_NOSIGNAL), 0);
  MessageSocket half(std::move(strangers[1]), "rank 0", kMaxHandshakeBytes);  // right at first, then silent
  half.send(static_cast<uint16_t>(HandshakeType::hello), Hello{.rank = Rank(1)}.pack(), until);
  strangers[2].reset();
  const Failure failure = failure_of([&] { results[1] = rendezvous(rank_options(1, 2, address)); });
  rank0.join();
  EXPECT_FALSE(failure.has_failed) << failure.text;
  EXPECT_EQ(results[0].job.key, results[1].job.key);
  EXPECT_GE(results[0].strangers, 1);
}

TEST(Rendezvous, OtherProtocolVersionIsNamedOnBothSides) {
  const std::string address = free_address();
  Failure root_failure;
  std::thread rank0([&] { root_failure = failure_of([&] { rendezvous(rank_options(0, 2, address)); }); });
  MessageSocket socket;
  const SteadyTime until = deadline_in(20s);
  while (!socket.is_open() && steady_now() < until) {
    Connected connected = try_connect("127.0.0.1", parse_host_port(address).port, until);
    if (connected.fd.is_open()) socket = MessageSocket(std::move(connected.fd), "rank 0", kMaxHandshakeBytes);
  }
  Bytes hello = Hello{.protocol_version = 77, .rank = Rank(1)}.pack();
  hello.resize(hello.size() + 5);  // a later version may say more
  socket.send(static_cast<uint16_t>(HandshakeType::hello), hello, until);
  const Message answer = socket.receive(until);
  EXPECT_EQ(RootChallenge::unpack(answer.payload).protocol_version, kProtocolVersion);
  rank0.join();
  EXPECT_EQ(root_failure.kind, ErrorKind::mismatch);
  EXPECT_TRUE(root_failure.names("protocol version is 77 on rank 1 and 1 on rank 0")) << root_failure.text;
}

TEST(Rendezvous, AnotherProgramInThePlaceOfRankZeroIsNamedByWhatItSays) {
  const std::vector<std::pair<std::string, std::string>> programs = {
      {"HTTP/1.1 400 Bad Request\r\n\r\n", "\"HTTP/1.1\""}, {"\x16\x03\x01, and so on", "16 03 01 2c 20 61 6e 64"}};
  for (const auto& [says, shown] : programs) {
    const UniqueFd listener = listen_on({"127.0.0.1", 0});
    Failure failure;
    const std::string address = HostPort{"127.0.0.1", local_port(listener.get())}.to_text();
    std::thread rank1([&] { failure = failure_of([&] { rendezvous(rank_options(1, 2, address)); }); });
    ASSERT_TRUE(wait_ready(listener.get(), POLLIN, deadline_in(20s)));
    const UniqueFd socket = accept_from(listener.get()).fd;
    EXPECT_GT(::send(socket.get(), says.data(), says.size(), MSG_NOSIGNAL), 0);
    rank1.join();
    EXPECT_EQ(failure.kind, ErrorKind::mismatch);
    EXPECT_TRUE(failure.names(shown) && failure.names("rank 1, rendezvous") && failure.names("a port of its own"))
        << failure.text;
  }
}

TEST(Rendezvous, OtherProtocolVersionOfRankZeroIsNamed) {
  const UniqueFd listener = listen_on({"127.0.0.1", 0});
  Failure failure;
  const std::string address = HostPort{"127.0.0.1", local_port(listener.get())}.to_text();
  std::thread rank1([&] { failure = failure_of([&] { rendezvous(rank_options(1, 2, address)); }); });
  ASSERT_TRUE(wait_ready(listener.get(), POLLIN, deadline_in(20s)));
  MessageSocket socket(accept_from(listener.get()).fd, "rank 1", kMaxHandshakeBytes);
  socket.receive(deadline_in(20s));
  socket.send(static_cast<uint16_t>(HandshakeType::challenge), RootChallenge{.protocol_version = 9}.pack(),
              deadline_in(20s));
  rank1.join();
  EXPECT_EQ(failure.kind, ErrorKind::mismatch);
  EXPECT_TRUE(failure.names("protocol version is 1 on rank 1 and 9 on rank 0")) << failure.text;
}

TEST(Rendezvous, TwoJobsAtOnceDoNotMeet) {
  const std::string first = free_address(), second = free_address();
  std::vector<Rendezvous> results(4);
  const auto failures = run_ranks(
      4, [&](int i) { results[static_cast<size_t>(i)] = rendezvous(rank_options(i % 2, 2, i < 2 ? first : second)); });
  for (const Failure& failure : failures) EXPECT_FALSE(failure.has_failed) << failure.text;
  EXPECT_EQ(results[0].job.nonce, results[1].job.nonce);
  EXPECT_EQ(results[2].job.nonce, results[3].job.nonce);
  EXPECT_NE(results[0].job.nonce, results[2].job.nonce);
}

// The challenge of the rank 0 at `address`, and the socket to it.
struct RawRank {
  MessageSocket socket;
  HandshakeKeys keys;
};

RawRank greet_raw(const std::string& address, int rank, const std::string& secret) {
  const SteadyTime until = deadline_in(20s);
  RawRank raw;
  while (!raw.socket.is_open() && steady_now() < until) {
    Connected connected = try_connect("127.0.0.1", parse_host_port(address).port, until);
    if (connected.fd.is_open()) raw.socket = MessageSocket(std::move(connected.fd), "rank 0", kMaxVerdictBytes);
  }
  Hello hello{.rank = Rank(rank)};
  random_bytes(hello.challenge);
  raw.socket.send(static_cast<uint16_t>(HandshakeType::hello), hello.pack(), until);
  const RootChallenge root = RootChallenge::unpack(raw.socket.receive(until).payload);
  raw.keys = {derive_job_key(secret, root.nonce).key, hello.challenge, root.challenge};
  return raw;
}

TEST(Rendezvous, RankThatCaresForNoProofIsRefusedAllTheSame) {
  const std::string address = free_address();
  Failure failure;
  std::thread rank0([&] { failure = failure_of([&] { rendezvous(rank_options(0, 2, address)); }); });
  RawRank liar = greet_raw(address, 1, "guessed");
  const Bytes join = own_join(rank_options(1, 2, address)).pack();
  liar.socket.send(static_cast<uint16_t>(HandshakeType::join), Sealed{join, liar.keys.join_proof(join)}.pack(),
                   deadline_in(20s));
  rank0.join();
  EXPECT_EQ(failure.kind, ErrorKind::mismatch) << failure.text;
  EXPECT_TRUE(failure.names("rank 1") && failure.names("another secret")) << failure.text;
}

TEST(Rendezvous, ImpostorWithTheWrongSecretDoesNotKeepTheRightRankOut) {
  const std::string address = free_address();
  const std::vector<int> ranks = {0, 1, 1, 2};  // the first rank 1 is the impostor
  std::atomic<bool> is_refused{false};
  const auto failures = run_ranks(4, [&](int i) {
    RendezvousOptions options = rank_options(ranks[static_cast<size_t>(i)], 3, address);
    options.settle = 700ms;
    if (i == 1) options.secret = "of another job";
    if (i >= 2) {
      EXPECT_TRUE(comes_true([&] { return is_refused.load(); }));
      std::this_thread::sleep_for(1000ms);  // longer than the impostor could hold up the job
    }
    const Failure failure = failure_of([&] { rendezvous(options); });
    if (i == 1) is_refused = true;
    if (failure.has_failed) throw Error(failure.kind, {.what = failure.text});
  });
  for (const int i : {0, 2, 3}) {
    EXPECT_FALSE(failures[static_cast<size_t>(i)].has_failed) << failures[static_cast<size_t>(i)].text;
  }
  EXPECT_EQ(failures[1].kind, ErrorKind::mismatch);
}

TEST(Rendezvous, ForgedVerdictIsNotBelieved) {
  const UniqueFd listener = listen_on({"127.0.0.1", 0});
  const std::string address = HostPort{"127.0.0.1", local_port(listener.get())}.to_text();
  const RendezvousOptions options = rank_options(1, 2, address);
  Failure failure;
  std::thread rank1([&] { failure = failure_of([&] { rendezvous(options); }); });
  ASSERT_TRUE(wait_ready(listener.get(), POLLIN, deadline_in(20s)));
  MessageSocket socket(accept_from(listener.get()).fd, "rank 1", kMaxHandshakeBytes);
  const Hello hello = Hello::unpack(socket.receive(deadline_in(20s)).payload);
  RootChallenge challenge;
  const HandshakeKeys keys{derive_job_key(options.secret, challenge.nonce).key, hello.challenge, challenge.challenge};
  challenge.proof = keys.root_proof();
  socket.send(static_cast<uint16_t>(HandshakeType::challenge), challenge.pack(), deadline_in(20s));
  socket.receive(deadline_in(20s));
  const Bytes verdict = RosterVerdict{.is_accepted = true}.pack();
  socket.send(static_cast<uint16_t>(HandshakeType::verdict), Sealed{verdict, keys.join_proof(verdict)}.pack(),
              deadline_in(20s));
  rank1.join();
  EXPECT_EQ(failure.kind, ErrorKind::mismatch) << failure.text;
  EXPECT_TRUE(failure.names("not from rank 0")) << failure.text;
}

}  // namespace
}  // namespace tilewire
