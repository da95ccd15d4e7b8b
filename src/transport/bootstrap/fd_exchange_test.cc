#include "transport/bootstrap/fd_exchange.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "testing/given_time.h"
#include "transport/bootstrap/bootstrap_fixture.h"

namespace tilewire {
namespace {

UniqueFd memory_that_says(const std::string& text) {
  UniqueFd fd(::memfd_create("fd_exchange_test", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return fd;
}

std::string content(int fd) {
  std::array<char, 64> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  return size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : std::string();
}

FdExchange exchange_of(const JobKey& job, Rank rank, std::vector<Rank> ranks) {
  return {.job = job, .rank = rank, .ranks = std::move(ranks), .purpose = "arena 0", .poll = {}};
}

std::pair<sockaddr_un, socklen_t> socket_name(const JobKey& job, int rank) {
  const std::string name = "tilewire-" + job.nonce_hex() + "-" + std::to_string(rank) + "-arena 0";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

std::vector<Rank> first_ranks(int count) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < count; ++rank) ranks.emplace_back(2 * rank + 1);  // a host holds any ranks
  return ranks;
}

TEST(FdExchange, EveryRankGetsEveryOthersMemory) {
  const size_t before = open_descriptors();
  for (const int count : {1, 2, 3, 8}) {
    const JobKey job = derive_job_key("s", random_nonce());
    const std::vector<Rank> ranks = first_ranks(count);
    const auto failures = run_ranks(count, [&](int i) {
      const UniqueFd own = memory_that_says("memory of " + std::to_string(i));
      const auto fds = exchange_fds(exchange_of(job, ranks[static_cast<size_t>(i)], ranks), own.get(), deadline_in(5s));
      ASSERT_EQ(fds.size(), ranks.size());
      for (int other = 0; other < count; ++other) {
        const UniqueFd& fd = fds[static_cast<size_t>(other)];
        EXPECT_EQ(fd.is_open(), other != i);
        EXPECT_EQ(content(fd.get()), other == i ? "" : "memory of " + std::to_string(other));
      }
    });
    for (const Failure& failure : failures) EXPECT_FALSE(failure.has_failed) << failure.text;
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(FdExchange, RanksThatDoNotComeAreListedOnBothSides) {
  const JobKey job = derive_job_key("s", random_nonce());
  const std::vector<Rank> ranks = {Rank(0), Rank(1), Rank(2), Rank(3)};
  for (const auto& [rank, missing] : std::vector<std::pair<int, std::string>>{{0, "ranks 1, 2, 3"}, {3, "rank"}}) {
    const UniqueFd own = memory_that_says("x");
    const Failure failure =
        failure_of([&, r = rank] { exchange_fds(exchange_of(job, Rank(r), ranks), own.get(), deadline_in(100ms)); });
    EXPECT_EQ(failure.kind, ErrorKind::deadline) << failure.text;
    EXPECT_TRUE(failure.names(missing)) << failure.text;
  }
}

// In a process of its own: an exchange with so many descriptors more than are open now. Its exit code says how it ended.
enum Ended { well = 0, for_lack_of_descriptors, otherwise };
pid_t start_with_few_descriptors(rlim_t more, const FdExchange& exchange, int own_fd) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  rlimit few{};
  ::getrlimit(RLIMIT_NOFILE, &few);
  const UniqueFd next(::dup(own_fd));  // the lowest that is free
  few.rlim_cur = static_cast<rlim_t>(next.get()) + 1 + more;
  ::setrlimit(RLIMIT_NOFILE, &few);
  const Failure failure = failure_of([&] { exchange_fds(exchange, own_fd, deadline_in(20s)); });
  const bool is_said = failure.kind == ErrorKind::resource && failure.names("ulimit -n");
  ::_exit(!failure.has_failed ? well : is_said ? for_lack_of_descriptors : otherwise);
}

TEST(FdExchange, DescriptorsThatRunOutAtAnyPointOfARankAreNamedByItAndNotWaitedFor) {
  for (const int short_of : {0, 1}) {
    int failed = 0, status = 0;
    for (status = -1; status != well && failed < 10;) {
      const JobKey job = derive_job_key("s", random_nonce());
      const std::vector<Rank> ranks = {Rank(0), Rank(1)};
      const UniqueFd own = memory_that_says("x");
      const auto more = static_cast<rlim_t>(failed);
      const pid_t child = start_with_few_descriptors(more, exchange_of(job, Rank(short_of), ranks), own.get());
      FdExchange exchange = exchange_of(job, Rank(1 - short_of), ranks);
      bool has_ended = false;
      exchange.poll = [&] {
        has_ended = has_ended || ::waitpid(child, &status, WNOHANG) == child;
        if (has_ended && status != well) throw Error(ErrorKind::aborted, {.what = "the other one failed"});
      };
      failure_of([&] { exchange_fds(exchange, own.get(), deadline_in(40s)); });
      if (!has_ended) ::waitpid(child, &status, 0);
      ASSERT_TRUE(WIFEXITED(status));
      status = WEXITSTATUS(status);
      EXPECT_NE(status, otherwise) << "rank " << short_of << " with " << more << " descriptors";
      failed += status != well;
    }
    EXPECT_EQ(status, well);
    EXPECT_EQ(failed, 3) << "a socket that listens, a connection, and what comes over it";
  }
}

TEST(FdExchange, WrongKeyGetsNoDescriptor) {
  JobKey job = derive_job_key("s", random_nonce());
  JobKey forged = job;
  forged.key[0] ^= std::byte{1};
  const std::vector<Rank> ranks = {Rank(0), Rank(1)};
  expect_given_time(150ms, [&](std::chrono::milliseconds limit) {
    const auto failures = run_ranks(2, [&](int rank) {
      const UniqueFd own = memory_that_says("x");
      exchange_fds(exchange_of(rank == 0 ? job : forged, Rank(rank), ranks), own.get(), deadline_in(limit));
    });
    EXPECT_EQ(failures[0].kind, ErrorKind::deadline) << failures[0].text;
    return failures[1].kind == ErrorKind::mismatch ? "" : "the other one says: " + failures[1].text;
  });
}

TEST(FdExchange, StrangersOnTheSocketDoNotDisturb) {
  const JobKey job = derive_job_key("s", random_nonce());
  const std::vector<Rank> ranks = {Rank(0), Rank(1)};
  const auto [name, name_bytes] = socket_name(job, 0);
  const sockaddr_un address = name;
  const socklen_t size = name_bytes;
  std::atomic<bool> are_strangers_in{false};
  const auto failures = run_ranks(3, [&](int rank) {
    if (rank == 2) {
      std::vector<UniqueFd> strangers;
      while (strangers.size() < 3) {
        UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0)
          strangers.push_back(std::move(fd));
      }
      EXPECT_EQ(::send(strangers[0].get(), "junk", 4, MSG_NOSIGNAL), 4);
      const std::string long_junk(4000, 'x');
      EXPECT_EQ(::send(strangers[1].get(), long_junk.data(), long_junk.size(), MSG_NOSIGNAL), 4000);
      are_strangers_in = true;
      std::this_thread::sleep_for(200ms);
      return;
    }
    const UniqueFd own = memory_that_says("memory of " + std::to_string(rank));
    while (rank == 1 && !are_strangers_in) std::this_thread::sleep_for(1ms);
    const auto fds = exchange_fds(exchange_of(job, Rank(rank), ranks), own.get(), deadline_in(20s));
    EXPECT_EQ(content(fds[static_cast<size_t>(1 - rank)].get()), "memory of " + std::to_string(1 - rank));
  });
  for (const Failure& failure : failures) EXPECT_FALSE(failure.has_failed) << failure.text;
}

TEST(FdExchange, RankThatCaresForNoProofGetsNoDescriptor) {
  const JobKey job = derive_job_key("s", random_nonce());
  Failure failure;
  std::atomic<bool> is_over{false};
  std::thread low([&] {
    const UniqueFd own = memory_that_says("secret");
    FdExchange exchange = exchange_of(job, Rank(0), {Rank(0), Rank(1)});
    exchange.poll = [&] {
      if (is_over) throw Error(ErrorKind::deadline, {.what = "the liar has gone"});
    };
    failure = failure_of([&] { exchange_fds(exchange, own.get(), deadline_in(40s)); });
  });
  const auto [address, size] = socket_name(job, 0);
  UniqueFd liar;
  for (const SteadyTime until = deadline_in(20s); steady_now() < until;) {
    liar.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (::connect(liar.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0) break;
  }
  const Bytes hello = ByteWriter().i32(1).raw(Digest{}).take();
  std::array<std::byte, 256> answer;
  EXPECT_GT(::send(liar.get(), hello.data(), hello.size(), MSG_NOSIGNAL), 0);
  EXPECT_EQ(::recv(liar.get(), answer.data(), answer.size(), 0), 64);
  // A proof of the right size with a descriptor in the same packet.
  const int fd = liar.get();
  iovec part{answer.data(), 32};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_len = CMSG_LEN(sizeof(int));
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  std::copy_n(reinterpret_cast<const unsigned char*>(&fd), sizeof fd, CMSG_DATA(header));
  EXPECT_EQ(::sendmsg(liar.get(), &message, MSG_NOSIGNAL), 32);
  EXPECT_EQ(::recv(liar.get(), answer.data(), answer.size(), 0), 0);  // closed, nothing came
  is_over = true;
  low.join();
  EXPECT_TRUE(failure.names("the liar has gone")) << failure.text;
}

TEST(FdExchange, PollEndsTheWait) {
  const JobKey job = derive_job_key("s", random_nonce());
  for (const int rank : {0, 1}) {
    FdExchange exchange = exchange_of(job, Rank(rank), {Rank(0), Rank(1)});
    exchange.poll = [] { throw Error(ErrorKind::peer_lost, {.what = "rank 5 is lost"}); };
    const UniqueFd own = memory_that_says("x");
    const SteadyTime start = steady_now();
    EXPECT_EQ(failure_of([&] { exchange_fds(exchange, own.get(), deadline_in(20s)); }).kind, ErrorKind::peer_lost);
    EXPECT_LT(steady_now() - start, 10s);
  }
}

TEST(FdExchange, BadArgumentsAreNamed) {
  const JobKey job = derive_job_key("s", random_nonce());
  const UniqueFd own = memory_that_says("x");
  const auto kind = [&](const FdExchange& exchange, int fd) {
    return failure_of([&] { exchange_fds(exchange, fd, deadline_in(100ms)); }).kind;
  };
  EXPECT_EQ(kind(exchange_of(job, Rank(3), {Rank(0)}), own.get()), ErrorKind::invalid_argument);
  EXPECT_EQ(kind(exchange_of(job, Rank(0), {Rank(0)}), -1), ErrorKind::invalid_argument);
  FdExchange exchange = exchange_of(job, Rank(0), {Rank(0)});
  exchange.purpose = std::string(33, 'p');
  EXPECT_EQ(kind(exchange, own.get()), ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace tilewire
