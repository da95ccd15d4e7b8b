// What the proxy and a transport do for a chunk, once a job is warm: no allocation, no lock, no system call.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <new>
#include <string>

#include "hot_path/rc_rig.h"
#include "srd/engine_rig.h"

namespace {

// Of this thread: the device has one of its own, which wakes now and then.
thread_local uint64_t allocations = 0;
thread_local uint64_t locks = 0;

}  // namespace

// In place of the library's: they count.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static const auto real = reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  ++locks;
  return real(mutex);
}

namespace tilewire {
namespace {

constexpr uint64_t kWarmCalls = 50;
constexpr uint64_t kCalls = 200;
constexpr int kChunks = 500;

template <class Rig>
class HotPath : public ::testing::Test {
 protected:
  HotPath() {
    for (uint64_t i = 0; i < kWarmCalls; ++i) rig_.call(kChunks);
  }
  void run() {
    for (uint64_t i = 0; i < kCalls; ++i) rig_.call(kChunks);
  }

  Rig rig_;
};

using RcByImmediates = RcEngineRig<RcSignal::immediate, 1>;
using RcOverTwoNics = RcEngineRig<RcSignal::immediate, 2>;
using RcByOrder = RcEngineRig<RcSignal::ordered, 1>;
using RcByAcknowledgements = RcEngineRig<RcSignal::completion, 1>;
using Rigs = ::testing::Types<SrdEngineRig, RcByImmediates, RcOverTwoNics, RcByOrder, RcByAcknowledgements>;
struct RigName {
  template <class Rig>
  static std::string GetName(int) {
    return Rig::kName;
  }
};
TYPED_TEST_SUITE(HotPath, Rigs, RigName);

TYPED_TEST(HotPath, EveryChunkIsSentCompletedAndAnnounced) {
  const uint64_t completions = this->rig_.completions(), arrivals = this->rig_.arrivals();
  this->run();
  EXPECT_EQ(this->rig_.completions() - completions, kCalls * (kChunks * TypeParam::kWritesOfAChunk + 1));
  EXPECT_EQ(this->rig_.arrivals() - arrivals, TypeParam::kHasArrivals ? kCalls * (kChunks + 1) : 0);
  EXPECT_EQ(this->rig_.word_of_chunks(), kWarmCalls + kCalls);
}

TYPED_TEST(HotPath, NothingIsAllocated) {
  const uint64_t before = allocations;
  this->run();
  EXPECT_EQ(allocations - before, 0u);
}

TYPED_TEST(HotPath, NoLockIsTaken) {
  std::mutex mutex;
  { const std::lock_guard counted(mutex); }
  ASSERT_GT(locks, 0u) << "locks are not counted";
  const uint64_t before = locks;
  this->run();
  EXPECT_EQ(locks - before, 0u);
}

// The kernel kills a process in strict mode at any call but read, write and exit.
int status_in_strict_mode(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(77);
    body();
    syscall(SYS_exit, 0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TYPED_TEST(HotPath, TheSystemIsNotCalled) {
  const int forbidden = status_in_strict_mode([] { getppid(); });
  if (WIFEXITED(forbidden) && WEXITSTATUS(forbidden) == 77) GTEST_SKIP() << "strict mode cannot be had here";
  ASSERT_TRUE(WIFSIGNALED(forbidden)) << "a call went through";
  const int status = status_in_strict_mode([&] { this->run(); });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "ended by signal " << WTERMSIG(status);
}

}  // namespace
}  // namespace tilewire
