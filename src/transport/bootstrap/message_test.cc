#include "transport/bootstrap/message.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>
#include <thread>

#include "transport/bootstrap/bootstrap_fixture.h"
#include "transport/bootstrap/control_record.h"
#include "transport/bootstrap/handshake.h"

namespace tilewire {
namespace {

constexpr size_t kLimitBytes = 1 << 20;

struct Pair {
  MessageSocket a;
  MessageSocket b;
  int raw_a = -1;
};

Pair make_pair(size_t limit_bytes = kLimitBytes) {
  int fds[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {MessageSocket(UniqueFd(fds[0]), "a's peer", limit_bytes),
          MessageSocket(UniqueFd(fds[1]), "b's peer", limit_bytes), fds[0]};
}

void write_raw(int fd, const Bytes& bytes) {
  ASSERT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

TEST(Message, LargerThanTheSocketsBufferComesWhole) {
  Pair pair = make_pair();
  Bytes payload(kLimitBytes);
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::thread sender([&] {
    pair.a.send(5, payload, deadline_in(5s));
    pair.a.send(6, {}, deadline_in(5s));
  });
  const Message first = pair.b.receive(deadline_in(5s));
  const Message second = pair.b.receive(deadline_in(5s));
  sender.join();
  EXPECT_EQ(first.type, 5);
  EXPECT_EQ(first.payload, payload);
  EXPECT_EQ(second.type, 6);
  EXPECT_TRUE(second.payload.empty());
}

TEST(Message, ByteByByteArrivalGivesTheSameMessages) {
  Pair pair = make_pair();
  Pair source = make_pair();
  source.a.send(9, to_bytes("drip"), deadline_in(1s));
  std::array<std::byte, 64> wire;
  const ssize_t size = ::recv(source.b.fd(), wire.data(), wire.size(), 0);
  ASSERT_EQ(size, static_cast<ssize_t>(kMessageHeaderBytes + 4));
  for (ssize_t i = 0; i < size; ++i) {
    EXPECT_FALSE(pair.b.next().has_value());
    write_raw(pair.raw_a, {wire[static_cast<size_t>(i)]});
    ASSERT_TRUE(pair.b.fill());
  }
  const auto message = pair.b.next();
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(to_text(message->payload), "drip");
}

TEST(Message, SilentPeerIsADeadlineError) {
  Pair pair = make_pair();
  const SteadyTime start = steady_now();
  const Failure failure = failure_of([&] { pair.b.receive(deadline_in(50ms)); });
  EXPECT_EQ(failure.kind, ErrorKind::deadline);
  EXPECT_TRUE(failure.names("b's peer")) << failure.text;
  EXPECT_LT(steady_now() - start, 2s);
}

TEST(Message, PeerThatReadsNothingIsADeadlineErrorOfTheSender) {
  Pair pair = make_pair(size_t{64} << 20);
  const Failure failure = failure_of([&] { pair.a.send(1, Bytes(size_t{32} << 20), deadline_in(50ms)); });
  EXPECT_EQ(failure.kind, ErrorKind::deadline);
}

TEST(Message, ClosedPeerIsNamedAlsoInMidMessage) {
  Pair pair = make_pair();
  write_raw(pair.raw_a, to_bytes("TWLM\x01"));
  pair.a.close();
  const Failure failure = failure_of([&] { pair.b.receive(deadline_in(5s)); });
  EXPECT_EQ(failure.kind, ErrorKind::peer_lost) << failure.text;
}

TEST(Message, TooLongIsRefusedByBothSidesBeforeItIsRead) {
  Pair pair = make_pair(100);
  EXPECT_EQ(failure_of([&] { pair.a.send(1, Bytes(101), deadline_in(1s)); }).kind, ErrorKind::invalid_argument);
  pair.a.set_max_payload_bytes(1000);
  pair.a.send(1, Bytes(101), deadline_in(1s));
  const Failure failure = failure_of([&] { pair.b.receive(deadline_in(1s)); });
  EXPECT_EQ(failure.kind, ErrorKind::mismatch);
  EXPECT_TRUE(failure.names("101")) << failure.text;
}

TEST(Message, RandomBytesNeverHangOrCrashAReader) {
  std::mt19937 random(1234);
  for (int turn = 0; turn < 300; ++turn) {
    Pair pair = make_pair(4096);
    Bytes junk(random() % 200 + kMessageHeaderBytes);
    for (std::byte& b : junk) b = static_cast<std::byte>(random());
    if (turn % 3 == 0) {  // a right header before the junk, so that payloads are reached too
      const Bytes header = ByteWriter().u32(0x4d4c5754).u16(32 + random() % 14).u16(0).u32(random() % 150).take();
      std::copy(header.begin(), header.end(), junk.begin());
    }
    write_raw(pair.raw_a, junk);
    pair.a.close();
    const Failure failure = failure_of([&] {
      while (true) pair.b.receive(deadline_in(5s));
    });
    EXPECT_TRUE(failure.kind == ErrorKind::mismatch || failure.kind == ErrorKind::peer_lost) << failure.text;
  }
}

TEST(Records, RandomPayloadsAreErrorsOrRecordsButNeverWalkPastTheEnd) {
  std::mt19937 random(99);
  int refused = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    Bytes junk(random() % 120);
    for (std::byte& b : junk) b = static_cast<std::byte>(random() % 4 == 0 ? random() : 0);
    refused += failure_of([&] { ControlRecord::unpack(static_cast<uint16_t>(30 + random() % 18), junk); }).has_failed;
    refused += failure_of([&] { Join::unpack(junk); }).has_failed;
    refused += failure_of([&] { RosterVerdict::unpack(junk); }).has_failed;
    refused += failure_of([&] { Sealed::unpack(junk); }).has_failed;
  }
  EXPECT_GT(refused, 9000);
}

TEST(Records, EveryFieldSurvivesTheWire) {
  const ControlRecord in{.type = ControlType::gather,
                         .rank = Rank(-1),
                         .kind = ErrorKind::refused,
                         .call = ~uint64_t{0},
                         .hash = 1,
                         .sequence = 2,
                         .last_tried = 3,
                         .last_ended = 4,
                         .name = "n",
                         .text = "t",
                         .call_text = {.op = "o", .parts = {{"p", "q"}, {}}, .advice = "a"},
                         .parts = {to_bytes("p"), {}}};
  const ControlRecord out = ControlRecord::unpack(static_cast<uint16_t>(in.type), in.pack());
  EXPECT_EQ(out.rank, in.rank);
  EXPECT_EQ(out.kind, in.kind);
  EXPECT_EQ(out.call, in.call);
  EXPECT_EQ(out.hash, in.hash);
  EXPECT_EQ(out.sequence, in.sequence);
  EXPECT_EQ(out.last_tried, in.last_tried);
  EXPECT_EQ(out.last_ended, in.last_ended);
  EXPECT_EQ(out.name + out.text, "nt");
  EXPECT_EQ(out.call_text, in.call_text);
  EXPECT_EQ(out.parts, in.parts);
}

}  // namespace
}  // namespace tilewire
