// Communicators of two ranks in one process: what the other rank hears of one that leaves.
#include <gtest/gtest.h>
#include <tilewire/all_gather_gemm.h>

#include <array>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tilewire {
namespace {

// A launcher's store within the process.
class Store {
 public:
  StoreFunctions functions() {
    return {.set = [this](const std::string& key, const std::string& value) { set(key, value); },
            .get = [this](const std::string& key, double timeout_s) { return get(key, timeout_s); }};
  }

 private:
  void set(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, double timeout_s) {
    std::unique_lock lock(mutex_);
    const auto limit = std::chrono::duration<double>(timeout_s);
    if (!changed_.wait_for(lock, limit, [&] { return values_.count(key) != 0; })) {
      throw std::runtime_error("no key " + key);
    }
    return values_[key];
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

void multiply(Communicator& comm) {
  std::vector<float> a(8, 1), b(8, 1), y;
  AllGatherGemmArguments arguments;
  arguments.a = {a.data(), 2, 4, 4, 1, DataType::fp32};
  arguments.b = {{b.data(), 4, 2, 2, 1, DataType::fp32}};
  arguments.out_dtype = DataType::fp32;
  arguments.make_results = [&](int64_t total_rows) {
    y.resize(static_cast<size_t>(total_rows) * 2);
    return AllGatherGemmResults{.out = {{y.data(), total_rows, 2, 2, 1, DataType::fp32}}, .gathered = {}};
  };
  all_gather_matmul(comm, arguments);
}

struct Ending {
  ErrorKind kind = ErrorKind::internal;
  std::string text{};  // "" where the rank's body returned
};

// Runs `body` on both ranks, rank 1 on the caller's thread, each with a communicator that lives in a scope of its own.
std::array<Ending, 2> run_two(const std::function<void(Communicator&)>& body) {
  Store store;
  std::array<Ending, 2> endings;
  const auto run_rank = [&](int rank) {
    Ending& ending = endings[static_cast<size_t>(rank)];
    try {
      Options options;
      options.rank = rank;
      options.world_size = 2;
      options.layout = "1,1";
      options.deadline_s = 20;
      options.connect_deadline_s = 20;
      options.arena_reserve_bytes = 64 << 20;
      options.user_arena_reserve_bytes = 64 << 20;
      options.arena_initial_bytes = 1 << 20;
      const StoreFunctions functions = store.functions();
      Communicator comm = Communicator::init(options, &functions);
      body(comm);
    } catch (const Error& error) {
      ending = {error.kind(), error.what()};
    } catch (const std::exception& error) {
      ending.text = error.what();
    }
  };
  std::thread other(run_rank, 0);
  run_rank(1);
  other.join();
  return endings;
}

TEST(Communicator, AnExceptionOutOfItsScopeEndsTheCallsOfTheOthersByName) {
  const auto endings = run_two([](Communicator& comm) {
    multiply(comm);
    if (comm.rank() == 1) throw std::runtime_error("the user's own");
    multiply(comm);
  });
  EXPECT_EQ(endings[1].text, "the user's own");
  EXPECT_EQ(endings[0].kind, ErrorKind::aborted) << endings[0].text;
  EXPECT_NE(endings[0].text.find("rank 1 left the scope of its communicator by an exception"), std::string::npos)
      << endings[0].text;
}

TEST(Communicator, ALeaveWithoutAnExceptionIsSaidToBeAClose) {
  const auto endings = run_two([](Communicator& comm) {
    multiply(comm);
    if (comm.rank() == 1) return;
    multiply(comm);
  });
  EXPECT_EQ(endings[1].text, "");
  EXPECT_EQ(endings[0].kind, ErrorKind::peer_lost) << endings[0].text;
  EXPECT_NE(endings[0].text.find("rank 1 closed its communicator"), std::string::npos) << endings[0].text;
}

TEST(Communicator, AnExceptionThatStaysInsideItsScopeEndsNothing) {
  const auto endings = run_two([](Communicator& comm) {
    multiply(comm);
    try {
      throw std::runtime_error("caught");
    } catch (const std::exception&) {
    }
    multiply(comm);
  });
  EXPECT_EQ(endings[0].text, "");
  EXPECT_EQ(endings[1].text, "");
}

// Made and closed while another exception unwinds: that one is not why it ends.
TEST(Communicator, OneThatIsMadeDuringAnUnwindingLeavesInOrder) {
  struct Cleanup {
    std::array<Ending, 2>* endings;
    ~Cleanup() {
      *endings = run_two([](Communicator& comm) {
        multiply(comm);
        if (comm.rank() == 0) multiply(comm);
      });
    }
  };
  std::array<Ending, 2> endings;
  try {
    const Cleanup cleanup{&endings};
    throw std::runtime_error("an earlier one");
  } catch (const std::exception&) {
  }
  EXPECT_EQ(endings[0].kind, ErrorKind::peer_lost) << endings[0].text;
  EXPECT_EQ(endings[1].text, "");
}

}  // namespace
}  // namespace tilewire
