// The control connection with ranks as processes: death by SIGKILL, silence by SIGSTOP, forked children.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing/given_time.h"
#include "transport/bootstrap/bootstrap_fixture.h"

namespace tilewire {
namespace {

constexpr const char* kReady = "ready\n";

// A forked rank and the pipe it writes to. Killed and reaped when the test is over.
class RankProcess {
 public:
  explicit RankProcess(const std::function<void(int pipe)>& body) {
    int pipe[2] = {-1, -1};
    EXPECT_EQ(::pipe(pipe), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const Failure failure = failure_of([&] { body(pipe[1]); });
      say(pipe[1], failure.text);
      ::_exit(0);
    }
    ::close(pipe[1]);
    read_ = UniqueFd(pipe[0]);
  }
  ~RankProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  RankProcess(RankProcess&&) = delete;

  static void say(int pipe, const std::string& text) {
    [[maybe_unused]] const ssize_t written = ::write(pipe, text.data(), text.size());
  }
  void signal(int number) const { ::kill(pid_, number); }
  // All that was written since the last look, up to what is awaited or the end of the pipe or half a minute.
  std::string wait_for(const std::string& awaited) {
    std::string text;
    const SteadyTime until = deadline_in(30s);
    while (text.find(awaited) == std::string::npos && wait_ready(read_.get(), POLLIN, until)) {
      std::array<char, 512> chunk{};
      const ssize_t got = ::read(read_.get(), chunk.data(), chunk.size());
      if (got <= 0) break;
      text.append(chunk.data(), static_cast<size_t>(got));
    }
    return text;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd read_;
};

struct Scene {
  ControlOptions options;
  std::function<void(ControlConnection& control, int rank)> before_ready;
};

// Connects, says ready, then waits for an abort, which is what the process ends with.
void live(int rank, int world_size, const std::string& address, const Scene& scene, int pipe) {
  ControlConnection control(rendezvous(rank_options(rank, world_size, address)), scene.options, {});
  if (scene.before_ready) scene.before_ready(control, rank);
  control.barrier("ready", deadline_in(30s));
  RankProcess::say(pipe, kReady);
  const SteadyTime until = deadline_in(30s);
  while (!control.aborted() && steady_now() < until) std::this_thread::sleep_for(2ms);
  control.throw_if_aborted();
}

using Processes = std::vector<std::unique_ptr<RankProcess>>;

Processes start(int world_size, const Scene& scene) {
  const std::string address = free_address();
  Processes processes;
  for (int rank = 0; rank < world_size; ++rank) {
    processes.push_back(
        std::make_unique<RankProcess>([&, rank](int pipe) { live(rank, world_size, address, scene, pipe); }));
  }
  for (auto& process : processes) EXPECT_EQ(process->wait_for(kReady), kReady);
  return processes;
}

constexpr bool kBySilence = true;

// What a rank says of one that was lost, where it is not as it should be; "" where it is. A death is seen at once, by the
// end of the connection, and a silence after ControlOptions::death.
std::string complaint_of_loss(RankProcess& process, int lost, bool by_silence) {
  const std::string text = process.wait_for("<peer lost>");
  const bool is_named = text.find("rank " + std::to_string(lost) + " is lost: ") != std::string::npos;
  const bool is_silence = text.find("nothing was heard") != std::string::npos;
  return is_named && is_silence == by_silence ? "" : "it says: " + text;
}

std::string complaint_of_others(Processes& processes, int lost, bool by_silence) {
  for (int rank = 0; rank < static_cast<int>(processes.size()); ++rank) {
    if (rank == lost) continue;
    const std::string complaint = complaint_of_loss(*processes[static_cast<size_t>(rank)], lost, by_silence);
    if (!complaint.empty()) return "rank " + std::to_string(rank) + ": " + complaint;
  }
  return "";
}

TEST(ControlProcess, KilledRankIsNamedOnAllOthersAtOnce) {
  for (const int killed : {2, 0}) {
    Processes processes = start(3, {});
    processes[static_cast<size_t>(killed)]->signal(SIGKILL);
    EXPECT_EQ(complaint_of_others(processes, killed, !kBySilence), "");
  }
}

TEST(ControlProcess, StoppedRankIsNamedByItsSilence) {
  for (const int stopped : {1, 0}) {
    expect_given_time(500ms, [&](std::chrono::milliseconds death) {
      Processes processes = start(3, {.options = {.heartbeat = 50ms, .death = death}, .before_ready = {}});
      processes[static_cast<size_t>(stopped)]->signal(SIGSTOP);
      return complaint_of_others(processes, stopped, kBySilence);
    });
  }
}

TEST(ControlProcess, ShortStopIsNoDeath) {
  expect_given_time(1500ms, [](std::chrono::milliseconds death) {
    Processes processes = start(2, {.options = {.heartbeat = 50ms, .death = death}, .before_ready = {}});
    processes[1]->signal(SIGSTOP);
    std::this_thread::sleep_for(500ms);
    processes[1]->signal(SIGCONT);
    std::this_thread::sleep_for(300ms);
    processes[1]->signal(SIGKILL);
    return complaint_of_loss(*processes[0], 1, !kBySilence);
  });
}

TEST(ControlProcess, RanksThatSleptTogetherDoNotCallEachOtherDead) {
  expect_given_time(600ms, [](std::chrono::milliseconds death) {
    Processes processes = start(2, {.options = {.heartbeat = 100ms, .death = death}, .before_ready = {}});
    for (const auto& process : processes) process->signal(SIGSTOP);
    std::this_thread::sleep_for(2 * death);
    processes[1]->signal(SIGCONT);
    std::this_thread::sleep_for(100ms);  // rank 1 looks around, and has heard nothing of rank 0 for far too long
    processes[0]->signal(SIGCONT);
    std::this_thread::sleep_for(300ms);
    processes[0]->signal(SIGKILL);
    return complaint_of_loss(*processes[1], 0, !kBySilence);
  });
}

// The worker ends when this test does, as nobody holds the other end of its pipe then.
TEST(ControlProcess, ForkedWorkerThatLivesOnDoesNotHideItsRanksDeath) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const UniqueFd waits(ends[0]);
  UniqueFd lets_go(ends[1]);
  Scene scene;
  scene.before_ready = [&](ControlConnection&, int rank) {
    lets_go.reset();
    if (rank != 1 || ::fork() != 0) return;
    char byte = 0;
    ::_exit(static_cast<int>(::read(waits.get(), &byte, 1)));
  };
  Processes processes = start(2, scene);
  processes[1]->signal(SIGKILL);
  EXPECT_EQ(complaint_of_others(processes, 1, !kBySilence), "");
}

TEST(ControlProcess, ForkedChildThatDestroysItsCopyDoesNotDisturb) {
  Scene scene;
  scene.before_ready = [](ControlConnection& control, int) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (failure_of([&] { control.barrier("from a child", deadline_in(5s)); }).kind != ErrorKind::closed) ::_exit(1);
      control.close();
      control.~ControlConnection();
      ::_exit(7);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) throw std::runtime_error("the child did not end well");
  };
  Processes processes = start(3, scene);  // the barrier behind before_ready works on all ranks
  processes[1]->signal(SIGKILL);
  EXPECT_EQ(complaint_of_others(processes, 1, !kBySilence), "");
}

}  // namespace
}  // namespace tilewire
