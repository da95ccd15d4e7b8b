// Transports between two processes. What the emulated one needs for that, arenas and receive queues, travels as
// descriptors over a Unix socket; the fake devices of SRD find each other by themselves.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "conformance/pattern.h"
#include "fake_verbs/control.h"
#include "memory/memfd_arena.h"
#include "memory/words.h"
#include "transport/registry.h"
#include "transport/test_network.h"

namespace tilewire {
namespace {

constexpr uint64_t kBytes = 300'000;
constexpr uint32_t kRounds = 40;
constexpr uint32_t kSlots = 20;
// A rank is at most so many rounds ahead of what it has checked, and the peer of what that one has: a slot is written
// again when its last round has been checked.
constexpr uint32_t kAhead = kSlots / 2;

void send_fd(int socket, int fd) {
  char byte = 'f';
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  if (sendmsg(socket, &message, 0) != 1) throw std::runtime_error("sendmsg");
}

UniqueFd receive_fd(int socket) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) throw std::runtime_error("recvmsg");
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
  return UniqueFd(fd);
}

std::vector<std::byte> swap_bytes(int socket, const std::vector<std::byte>& mine) {
  std::vector<std::byte> theirs(mine.size());
  if (write(socket, mine.data(), mine.size()) != static_cast<ssize_t>(mine.size())) throw std::runtime_error("write");
  if (read(socket, theirs.data(), theirs.size()) != static_cast<ssize_t>(theirs.size()))
    throw std::runtime_error("read");
  return theirs;
}

// One of two ranks, over a socket to the other.
class ProcessRank {
 public:
  ProcessRank(int32_t rank, int socket, const Options& options) : me_(rank), peer_(1 - rank) {
    layout_ = TestNetwork::default_layout(2);
    arena_ = std::make_unique<MemfdArena>(
        ArenaConfig{.rank = me_, .layout = layout_, .half_bytes = layout_.half_stride_bytes, .user_bytes = 0});
    send_fd(socket, arena_->export_fd());
    const UniqueFd peer_arena = receive_fd(socket);
    TransportContext context{.rank = me_, .ranks = 2, .peers = {peer_}, .arena = arena_->base()};
    context.arena_bytes = static_cast<uint64_t>(layout_.total_bytes());
    LocalReach reach{.arena_fds = {-1, -1}};
    reach.arena_fds[static_cast<size_t>(peer_.value)] = peer_arena.get();
    reach.exchange_fds = [this, socket](std::string_view, int fd, std::chrono::nanoseconds) {
      send_fd(socket, fd);
      std::vector<UniqueFd> fds(2);
      fds[static_cast<size_t>(peer_.value)] = receive_fd(socket);
      return fds;
    };
    context.local_reach = std::make_shared<LocalReach>(std::move(reach));
    transport_ = make_transport(options, context);
    for (const ArenaRange& r : arena_->ranges()) {
      transport_->register_arena(static_cast<uint64_t>(r.begin_bytes), static_cast<uint64_t>(r.bytes));
    }
    std::vector<std::vector<std::byte>> addresses(2);
    addresses[static_cast<size_t>(me_.value)] = transport_->address();
    addresses[static_cast<size_t>(peer_.value)] = swap_bytes(socket, addresses[static_cast<size_t>(me_.value)]);
    transport_->connect(addresses, std::chrono::seconds(10));
    swap_bytes(socket, {std::byte{1}});
    transport_->check_paths({std::chrono::seconds(10)});
    swap_bytes(socket, {std::byte{1}});
  }

  // Sends all rounds to the peer and checks all of the peer's, in the words or immediates that the transport offers.
  // "" when everything was right.
  std::string run() {
    const auto half0 = static_cast<uint64_t>(layout_.half_offset(0));
    const auto half1 = static_cast<uint64_t>(layout_.half_offset(1));
    const bool has_immediates = transport_->caps().write_with_immediate;
    std::string wrong;
    uint32_t posted = 0, completed = 0, arrived = 0;
    std::array<bool, kRounds + 1> is_here{};  // arrivals may pass each other; `arrived` of them are without a gap
    const auto check = [&](uint32_t round) {
      const uint64_t at = round % kSlots * kBytes;
      if (find_wrong_byte(arena_->base() + half1 + at, kBytes, round * 2 + static_cast<uint64_t>(peer_.value))) {
        wrong = "round " + std::to_string(round) + " arrived before its data";
      }
      is_here.at(round) = true;
      while (is_here[arrived]) ++arrived;
    };
    const bool in_time = step_until([&] {
      if (posted < kRounds && posted < arrived + kAhead && posted < completed + kAhead) {
        const uint64_t at = posted % kSlots * kBytes;
        fill_pattern(arena_->base() + half0 + at, kBytes, posted * 2 + static_cast<uint64_t>(me_.value));
        WriteRequest request{.kind = has_immediates ? RequestKind::write_with_immediate : RequestKind::write,
                             .peer = peer_,
                             .src_offset = half0 + at,
                             .dst_offset = half1 + at,
                             .bytes = kBytes};
        request.immediate = posted;
        posted += static_cast<uint32_t>(transport_->post({&request, 1}));
      }
      std::array<Event, 8> events;
      const size_t n = transport_->poll(events);
      for (const Event& event : std::span(events).first(n)) {
        if (event.kind == EventKind::arrived) {
          check(event.immediate);
        } else {
          ++completed;
        }
      }
      if (!has_immediates) arrived = completed;
      return completed == kRounds && arrived == kRounds;
    });
    return in_time ? wrong
                   : "out of time: " + std::to_string(completed) + " done, " + std::to_string(arrived) + " here";
  }

  // Leaves a word in the peer's arena and waits until it is there and the peer's is here.
  std::string swap_words() {
    if (!transport_->caps().value_writes) return "";
    const WriteRequest request{.kind = RequestKind::write_value,
                               .peer = peer_,
                               .dst_offset = static_cast<uint64_t>(layout_.word_offset(3)),
                               .value = 42};
    transport_->post({&request, 1});
    bool is_sent = false;
    const bool in_time = step_until([&] {
      std::array<Event, 8> events;
      is_sent |= transport_->poll(events) > 0;
      return is_sent && load_word(arena_->base(), layout_, 3) == 42;
    });
    return in_time ? "" : "the peer's word never came";
  }

  void leave(int socket) {
    // The peer may still need this process for nothing, but its memory until its last write has landed.
    swap_bytes(socket, {std::byte{1}});
    transport_->close();
  }

 private:
  Rank me_;
  Rank peer_;
  ArenaLayout layout_;
  std::unique_ptr<MemfdArena> arena_;
  std::unique_ptr<Transport> transport_;
};

std::string run_rank(int32_t rank, int socket, const Options& options) {
  ProcessRank me(rank, socket, options);
  std::string wrong = me.run();
  if (wrong.empty()) wrong = me.swap_words();
  me.leave(socket);
  return wrong;
}

struct ProcessVariant {
  std::string name;
  Options options;
  friend void PrintTo(const ProcessVariant& variant, std::ostream* out) { *out << variant.name; }
};

std::vector<ProcessVariant> process_variants() {
  std::vector<ProcessVariant> variants;
  for (const char* personality : {"rc", "relaxed", "srd"}) {
    Options options;
    options.transport = "emulated";
    options.emulated_personality = personality;
    variants.push_back({std::string("emulated_") + personality, options});
  }
#if !defined(__SANITIZE_THREAD__)  // it cannot follow threads that a forked child starts, as the devices' own
  Options options = FakeVerbs::options();
  for (const char* unsolicited : {"on", "off"}) {
    options.srd_unsolicited = unsolicited;
    variants.push_back({std::string("srd_unsolicited_") + unsolicited, options});
  }
#endif
  return variants;
}

class CrossProcess : public ::testing::TestWithParam<ProcessVariant> {};

TEST_P(CrossProcess, DataAndSignalsCrossBothWays) {
  const Options& options = GetParam().options;
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(sockets[0]);
    std::string wrong;
    try {
      wrong = run_rank(1, sockets[1], options);
    } catch (const std::exception& e) {
      wrong = e.what();
    }
    if (!wrong.empty()) fprintf(stderr, "rank 1: %s\n", wrong.c_str());
    _exit(wrong.empty() ? 0 : 1);
  }
  close(sockets[1]);
  EXPECT_EQ(run_rank(0, sockets[0], options), "");
  close(sockets[0]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank 1 failed";
}

INSTANTIATE_TEST_SUITE_P(Transports, CrossProcess, ::testing::ValuesIn(process_variants()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tilewire
