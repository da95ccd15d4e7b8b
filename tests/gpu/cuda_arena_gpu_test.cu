// The arena in GPU memory over the real driver: in one process, and between two that are started as programs of their
// own. Runs with MPS and without (then the two take turns on the GPU, and a letter takes milliseconds); what a kill does
// to the other clients of an MPS server is tried with --kill-under-mps only.
#include "cuda_arena_talk.cuh"
#include "gpu_program.cuh"

#include "memory/export_link.h"
#include "memory/forked_child.h"
#include "memory/words.h"

#include <tilewire/error.h>

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

extern char** environ;

namespace tilewire {
namespace {

constexpr int64_t kPage = int64_t{2} << 20;
constexpr int64_t kLetterWords = 64 << 10;
constexpr int64_t kRounds = 40;
constexpr int kSocket = 3;  // of a rank that was started as a program, to the other one
constexpr unsigned kRankLimitS = 20;
constexpr unsigned kTestLimitS = 30;

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

bool has_mps() {
  int value = 0;
  return cudaDeviceGetAttribute(&value, cudaDevAttrMpsEnabled, 0) == cudaSuccess && value != 0;
}

bool is_zero(const std::byte* on_gpu, int64_t bytes) {
  std::vector<std::byte> host(static_cast<size_t>(bytes));
  check_cuda(cudaMemcpy(host.data(), on_gpu, host.size(), cudaMemcpyDeviceToHost), "copying to the host");
  return std::all_of(host.begin(), host.end(), [](std::byte b) { return b == std::byte{0}; });
}

int64_t free_bytes() {
  size_t free = 0;
  size_t all = 0;
  check_cuda(cudaMemGetInfo(&free, &all), "asking for free memory");
  return static_cast<int64_t>(free);
}

int64_t open_descriptors() {
  const std::filesystem::directory_iterator folder("/proc/self/fd");
  return std::distance(begin(folder), end(folder));
}

void map_all(Arena& arena, const Arena& peer) {
  for (const ArenaExport& e : peer.exports()) {
    arena.map_peer(peer.rank(), e.range, UniqueFd(fcntl(e.fd, F_DUPFD_CLOEXEC, 0)));
  }
}

// The error's text when f throws one of that kind.
std::string refusal(ErrorKind kind, const std::string& claim, const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    expect(e.kind() == kind, claim + ", got: " + e.what());
    std::printf("  %s: %s\n", claim.c_str(), e.what());
    return e.what();
  }
  expect(false, claim + ", but there was no error");
  return "";
}

void test_memory(const std::shared_ptr<const CudaDevice>& device) {
  CudaArena arena(device, talk_config(0));
  std::printf("pages of %lld bytes, %lld bytes reserved, RDMA %s, dma-buf %s\n",
              static_cast<long long>(arena.page_bytes()), static_cast<long long>(arena.layout().total_bytes()),
              device->has_rdma() ? "yes" : "no", device->has_dma_buf() ? "yes" : "no");
  for (const ArenaRange r : arena.ranges())
    expect(is_zero(arena.base() + r.begin_bytes, r.bytes), "new memory is zero");
  std::byte* const base = arena.base();
  arena.grow(6 * kPage, 3 * kPage);
  expect(arena.base() == base && arena.ranges().size() == 7, "growth appends and moves nothing");
  for (const ArenaRange r : arena.ranges()) expect(is_zero(base + r.begin_bytes, r.bytes), "grown memory is zero");
  if (device->has_rdma() && device->has_dma_buf()) {
    try {
      expect(arena.dma_buf(arena.ranges()[1]).is_open(), "a dma-buf is a descriptor");
      std::printf("  a dma-buf of a half was made\n");
    } catch (const Error& e) {
      std::printf("  dma-buf, although the device says it has them: %s\n", e.what());
    }
  } else {
    refusal(ErrorKind::unavailable, "no dma-buf is a refusal", [&] { static_cast<void>(arena.dma_buf({0, 4096})); });
  }
}

__global__ void say_sent(uint64_t* word, Epoch epoch) { ptx::store_release_sys(word, epoch); }

void test_control_page(const std::shared_ptr<const CudaDevice>& device) {
  const CudaArena arena(device, talk_config(0));
  say_sent<<<1, 1>>>(reinterpret_cast<uint64_t*>(arena.control_on_gpu() + ControlPage::kSent), 41);
  check_cuda(cudaDeviceSynchronize(), "writing the control page");
  expect(load_sent(arena.control()) == 41, "the host sees what a kernel wrote to the control page");
  const UniqueFd file(memfd_create("shared", MFD_CLOEXEC));
  expect(ftruncate(file.get(), 8192) == 0, "a memory file has a length");
  const PinnedMemory a = PinnedMemory::share(device, file.get(), 8192, "test", "shared words");
  const PinnedMemory b = PinnedMemory::share(device, file.get(), 8192, "test", "shared words");
  say_sent<<<1, 1>>>(reinterpret_cast<uint64_t*>(a.on_gpu()), 42);
  check_cuda(cudaDeviceSynchronize(), "writing shared words");
  expect(*reinterpret_cast<const uint64_t*>(b.host()) == 42, "a mapped memory file is one memory for all");
}

void test_peers_of_one_process(const std::shared_ptr<const CudaDevice>& device) {
  CudaArena a(device, talk_config(0));
  CudaArena b(device, talk_config(1));
  map_all(a, b);
  map_all(b, a);
  TalkingRank rank_a(0, a, device);
  TalkingRank rank_b(1, b, device);
  rank_a.start(1, kRounds, 0, kLetterWords);
  rank_b.start(1, kRounds, 0, kLetterWords);
  rank_a.finish();
  rank_b.finish();
  expect(rank_a.wrong_words() + rank_b.wrong_words() == 0, "two arenas of one process talk");
  expect(!rank_a.has_fault() && !rank_b.has_fault(), "no wait of one process expires");
}

void test_refusals(const std::shared_ptr<const CudaDevice>& device) {
  CudaArena a(device, talk_config(0));
  const CudaArena b(device, talk_config(1));
  const ArenaExport half = b.exports()[1];
  const auto map = [&](ArenaRange range, int fd) {
    a.map_peer(Rank{1}, range, UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)));
  };
  refusal(ErrorKind::mismatch, "more than the memory has is refused", [&] {
    map({half.range.begin_bytes, 2 * half.range.bytes}, half.fd);
  });
  const UniqueFd null_file(open("/dev/null", O_RDWR | O_CLOEXEC));
  refusal(ErrorKind::mismatch, "what is no GPU memory is refused", [&] { map(half.range, null_file.get()); });
  expect(a.peer(Rank{1}) == nullptr, "a refused peer is not mapped");
  try {
    map({half.range.begin_bytes, half.range.bytes / 2}, half.fd);
    std::printf("  a part of a peer's memory can be mapped\n");
  } catch (const Error& e) {
    std::printf("  a part of a peer's memory: %s\n", e.what());
  }
}

// Half 0 and half 1 may fit, the user area then does not.
void test_out_of_memory(const std::shared_ptr<const CudaDevice>& device) {
  CudaArena arena(device, talk_config(0));
  const int64_t before = free_bytes();
  const int64_t all = int64_t{64} << 30;
  if (before > 3 * all) return;
  const auto begin = Clock::now();
  refusal(ErrorKind::resource, "more than the GPU has is refused", [&] { arena.grow(all, all); });
  std::printf("  that took %.0f ms\n", ms_since(begin));
  expect(arena.ranges().size() == 4 && arena.exports().size() == 4, "the arena is as it was");
  expect(free_bytes() >= before - (64 << 20), "what was taken is given back");
  arena.grow(4 * kPage, 0);
}

void test_lives(const std::shared_ptr<const CudaDevice>& device) {
  const auto live_once = [&] {
    CudaArena a(device, talk_config(0));
    const CudaArena b(device, talk_config(1));
    map_all(a, b);
    a.grow(4 * kPage, 0);
  };
  live_once();
  const int64_t descriptors = open_descriptors();
  const int64_t memory = free_bytes();
  const auto begin = Clock::now();
  for (int life = 0; life < 30; ++life) live_once();
  std::printf("a pair of arenas from creation to close: %.1f ms\n", ms_since(begin) / 30);
  expect(open_descriptors() == descriptors, "no descriptor is left");
  expect(free_bytes() >= memory - (32 << 20), "no memory is left");
}

void test_fork(const std::shared_ptr<const CudaDevice>& device) {
  auto arena = std::make_unique<CudaArena>(device, talk_config(0));
  ForkedChild child([&] {
    try {
      arena->grow(8 * kPage, 0);
    } catch (const Error& e) {
      arena.reset();
      return e.kind() == ErrorKind::closed ? 0 : 2;
    }
    return 1;
  });
  expect(child.wait() == 0, "a forked child is refused and forgets the arena");
  arena->grow(8 * kPage, 0);
}

// --- Ranks that are programs of their own ---

void tell(char what) {
  if (send(kSocket, &what, 1, MSG_NOSIGNAL) != 1) throw std::runtime_error("the other rank is gone");
}
// 0 when the other one has gone.
char hear() {
  char what = 0;
  return recv(kSocket, &what, 1, 0) == 1 ? what : '\0';
}

void talk(TalkingRank& rank, Epoch first, int64_t offset, const char* when) {
  tell('t');
  expect(hear() == 't', "the other rank is ready");
  const auto begin = Clock::now();
  rank.start(first, kRounds, offset, kLetterWords);
  rank.finish();
  std::printf("    %s: %lld letters each way, %.3f ms a letter\n", when, static_cast<long long>(kRounds),
              ms_since(begin) / kRounds);
  expect(rank.wrong_words() == 0, std::string("letters are as they were written, ") + when);
  expect(!rank.has_fault(), std::string("no wait expires, ") + when);
}

// Rank 1 kills itself; rank 0 goes on with its memory, closes, and begins anew.
void survive(CudaArena& arena, const std::shared_ptr<const CudaDevice>& device) {
  expect(hear() == '\0', "the killed rank has left");
  std::byte* const theirs = arena.peer(Rank{1}) + arena.layout().half_offset(0);
  check_cuda(cudaMemset(theirs, 0x5a, static_cast<size_t>(2 * kPage)), "writing to memory of a dead rank");
  expect(!is_zero(theirs, 2 * kPage), "memory of a dead rank can be read");
  arena.close();
  const CudaArena next(device, talk_config(0));
  expect(is_zero(next.base() + next.layout().half_offset(0), 2 * kPage), "a new arena can be made after a death");
}

int run_rank(const std::string& scenario, int32_t me) {
  alarm(kRankLimitS);
  const auto device = open_cuda_device(0);
  check_cuda(cudaSetDevice(0), "choosing the GPU");
  CudaArena arena(device, talk_config(me));
  send_exports(kSocket, arena);
  map_exports(kSocket, arena, Rank{1 - me});
  TalkingRank rank(me, arena, device);
  talk(rank, 1, 0, "at first");
  if (scenario == "kill") {
    if (me == 1) raise(SIGKILL);
    survive(arena, device);
    return verdict_of_claims();
  }
  Epoch next = 1 + kRounds;
  for (int64_t pages = 4; pages <= 8; pages += 2, next += kRounds) {
    const size_t known = arena.exports().size();
    arena.grow(pages * kPage, 0);
    send_exports(kSocket, arena, known);
    map_exports(kSocket, arena, Rank{1 - me});
    // Across the seam between old and new memory.
    talk(rank, next, (pages - 2) * kPage - kLetterWords * 2, ("at " + std::to_string(pages) + " pages").c_str());
  }
  return verdict_of_claims();
}

// --- The test that starts them ---

pid_t start_rank(const char* scenario, int32_t rank, const UniqueFd& socket, const char* loading) {
  std::string rank_text = std::to_string(rank);
  std::string scenario_text = scenario;
  std::string program = "/proc/self/exe";
  std::string rank_word = "rank";
  std::vector<char*> args = {program.data(), rank_word.data(), scenario_text.data(), rank_text.data(), nullptr};
  std::string loading_text = std::string("CUDA_MODULE_LOADING=") + loading;
  std::vector<char*> env = {loading_text.data()};
  for (char** e = environ; *e != nullptr; ++e) {
    if (std::strncmp(*e, "CUDA_MODULE_LOADING=", 20) != 0) env.push_back(*e);
  }
  env.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket.get(), kSocket);
  pid_t pid = -1;
  const int result = posix_spawn(&pid, program.c_str(), &actions, nullptr, args.data(), env.data());
  posix_spawn_file_actions_destroy(&actions);
  if (result != 0) throw std::runtime_error(std::string("posix_spawn: ") + std::strerror(result));
  return pid;
}

// The exit status, or minus the signal; ranks end by their own alarm.
int end_of(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void test_two_processes(const char* scenario, const char* loading, int expected_of_rank_1) {
  std::printf("two processes, %s, CUDA_MODULE_LOADING=%s\n", scenario, loading);
  std::fflush(stdout);
  const auto begin = Clock::now();
  SocketPair sockets;
  const pid_t first = start_rank(scenario, 0, sockets.parent, loading);
  const pid_t second = start_rank(scenario, 1, sockets.child, loading);
  sockets.parent.reset();
  sockets.child.reset();
  const int end_of_first = end_of(first);
  const int end_of_second = end_of(second);
  std::printf("  took %.0f ms, ends: %d and %d\n", ms_since(begin), end_of_first, end_of_second);
  expect(end_of_first == 0, std::string("rank 0 ends well: ") + scenario);
  expect(end_of_second == expected_of_rank_1, std::string("rank 1 ends as it should: ") + scenario);
}

int run_all(bool kills_under_mps) {
  alarm(kTestLimitS);
  const bool mps = has_mps();
  std::printf("MPS: %s\n", mps ? "yes" : "no");
  {
    const auto device = open_cuda_device(0);
    check_cuda(cudaSetDevice(0), "choosing the GPU");
    test_memory(device);
    test_control_page(device);
    test_peers_of_one_process(device);
    test_refusals(device);
    test_out_of_memory(device);
    test_lives(device);
    test_fork(device);
  }
  test_two_processes("growth", "LAZY", 0);
  test_two_processes("growth", "EAGER", 0);
  if (!mps || kills_under_mps) {
    test_two_processes("kill", "LAZY", -SIGKILL);
  } else {
    std::printf("a kill under MPS is tried with --kill-under-mps\n");
  }
  return verdict_of_claims();
}

}  // namespace
}  // namespace tilewire

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 3 && args[0] == "rank") {
    return tilewire::run_gpu_program([&] { return tilewire::run_rank(args[1], std::stoi(args[2])); });
  }
  const bool kills = args.size() == 1 && args[0] == "--kill-under-mps";
  return tilewire::run_gpu_program([kills] { return tilewire::run_all(kills); });
}
