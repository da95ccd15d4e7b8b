// The life of a call on GPU ranks, shown on an op whose kernel does nothing but take its epoch, over a driver that is
// none. What ranks of both kinds do alike is in op_call_test.cc.
#include "executor/device_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "testing/fake_gpu_ranks.h"
#include "testing/toy_op.h"

namespace tilewire {
namespace {

struct ToyKernel {
  DeviceRank rank;
  int64_t size = 0;
  Rank me{};
};

// Of all ranks together.
struct Counts {
  std::atomic<int> plans{0}, kernels{0}, launches{0};
};
Counts counts;

struct DeviceToy {
  using Op = toy::Op;
  struct Plan {
    int64_t half_bytes = 0;
    std::string json;
    double predicted_s = 0;
  };
  using Kernel = ToyKernel;

  static constexpr int64_t kNoKernel = 13;  // a size for which none can be made

  static KernelNames names() { return {.op = Op::kName}; }
  static void check(const toy::Arguments& arguments, const Session&) {
    if (arguments.size < 0) throw Error(ErrorKind::invalid_argument, {.what = "no kernel multiplies so little"});
  }
  static std::string variant(const toy::Arguments& arguments) { return arguments.make_result ? ", with a result" : ""; }
  static Plan make_plan(const toy::Problem& problem, const std::string& json, const PlanContext&) {
    ++counts.plans;
    return {.half_bytes = problem.size, .json = json.empty() ? "chosen" : json, .predicted_s = 0.25};
  }
  static CallParts agreed(const toy::Problem& problem, const Plan& plan) {
    return {{problem.text()}, {"plan " + plan.json, kPlanAdvice}, {"on GPUs"}};
  }
  static void check_operands(const toy::Operands&) {}
  static std::shared_ptr<ToyKernel> make_kernel(const toy::Problem& problem, const Plan&, const PlanContext& context,
                                                const DeviceRank& rank, const toy::Arguments&) {
    if (problem.size == kNoKernel) throw Error(ErrorKind::resource, {.what = "the kernel does not load"});
    ++counts.kernels;
    return std::make_shared<ToyKernel>(ToyKernel{rank, problem.size, context.me});
  }
  static CallReport report(const toy::Problem& problem, const Plan&, const PlanContext&) {
    CallReport report;
    report.network_bytes = problem.size;
    return report;
  }
  static void launch(const ToyKernel& kernel, uint64_t, const toy::Operands&, void*) {
    ++counts.launches;
    ++kernel.rank.state->epoch;
  }
};

class DeviceCall : public GpuSession {
 protected:
  void SetUp() override {
    GpuSession::SetUp();
    for (std::atomic<int>* count : {&counts.plans, &counts.kernels, &counts.launches}) *count = 0;
  }
};

using Calls = DeviceCalls<DeviceToy>;

std::string error_of_call(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(DeviceCall, WhatIsSlowComesOnceAndEachCallHasALaunchAndTheReportOfItsPlan) {
  expect_all_well(run_gpu_ranks(2, gpu_options(), [](Session& s) {
    Calls calls(s);
    for (int64_t i = 0; i < 6; ++i) {
      const CallReport report = calls.run({.size = 4 + i % 2}, nullptr);
      EXPECT_EQ(report.network_bytes, 4 + i % 2);
      EXPECT_EQ(report.plan_json, "chosen");
      EXPECT_EQ(report.predicted_s, 0.25);
    }
    EXPECT_EQ(calls.agreed_texts(), 2u);
    EXPECT_EQ(s.gpu()->last_epoch(), 6u);
  }));
  EXPECT_EQ(counts.plans, 4);
  EXPECT_EQ(counts.kernels, 4);
  EXPECT_EQ(counts.launches, 12);
}

// The same text for all ranks, so no rank may wait for another one's agreement.
TEST_F(DeviceCall, AnotherVariantHasAKernelOfItsOwnAndNoNewAgreement) {
  expect_all_well(run_gpu_ranks(2, gpu_options(), [](Session& s) {
    Calls calls(s);
    toy::Arguments arguments{.size = 4};
    calls.run(arguments, nullptr);
    if (s.rank() == Rank{1}) arguments.make_result = [](int64_t) { return MatrixView{}; };
    for (int i = 0; i < 2; ++i) calls.run(arguments, nullptr);
    EXPECT_EQ(calls.agreed_texts(), 1u);
  }));
  EXPECT_EQ(counts.kernels, 3);
}

TEST_F(DeviceCall, AHandlesCallsTakeThePlanThatItsMakingHasMade) {
  expect_all_well(run_gpu_ranks(2, gpu_options(), [](Session& s) {
    Calls calls(s);
    const toy::Problem problem{.size = 4};
    const auto plan = calls.agree(problem, "");
    for (int i = 0; i < 3; ++i) calls.run({.size = 4, .plan_json = plan.json}, nullptr, &problem);
    EXPECT_EQ(calls.agreed_texts(), 1u);
  }));
  EXPECT_EQ(counts.plans, 2) << "one a rank";
  EXPECT_EQ(counts.launches, 6) << "the making of a handle launches nothing";
}

TEST_F(DeviceCall, RanksThatDisagreeHearBothTextsAndWhatToDo) {
  const auto errors = run_gpu_ranks(2, gpu_options(), [](Session& s) {
    Calls calls(s);
    calls.run({.size = 4}, nullptr);
    calls.run({.size = 4, .plan_json = s.rank() == Rank{1} ? "theirs" : "mine"}, nullptr);
  });
  for (const std::string& e : errors) {
    EXPECT_NE(e.find("call 2 is not the same on all ranks: rank 0: toy of size 4, plan mine, on GPUs | rank 1: toy of "
                     "size 4, plan theirs, on GPUs; they differ in 'plan mine' and 'plan theirs'"),
              std::string::npos)
        << e;
    EXPECT_NE(e.find(kPlanAdvice), std::string::npos) << e;
  }
}

TEST_F(DeviceCall, CountsThatAreExchangedAreThoseOfTheCall) {
  expect_all_well(run_gpu_ranks(3, gpu_options(), [](Session& s) {
    Calls calls(s);
    for (int i = 0; i < 2; ++i) {
      const CallReport report = calls.run({.size = s.rank().value + 1, .exchanges = true}, nullptr);
      EXPECT_EQ(report.network_bytes, 1 + 2 + 3);
    }
  }));
}

TEST_F(DeviceCall, WhatAKernelCannotDoIsRefusedByAllAndTheNextCallWorks) {
  expect_all_well(run_gpu_ranks(2, gpu_options(), [](Session& s) {
    Calls calls(s);
    EXPECT_NE(error_of_call([&] { calls.run({.size = -1}, nullptr); }).find("multiplies so little"), std::string::npos);
    calls.run({.size = 4}, nullptr);
  }));
}

TEST_F(DeviceCall, ARefusalOfOneRankIsHeardByTheOtherBeforeAnythingIsLaunched) {
  const auto errors = run_gpu_ranks(2, gpu_options(), [](Session& s) {
    toy::Arguments arguments{.size = 4};
    if (s.rank() == Rank{1}) arguments.make_result = [](int64_t) -> MatrixView { throw std::bad_alloc(); };
    Calls(s).run(arguments, nullptr);
  });
  for (const std::string& e : errors) EXPECT_NE(e.find("4 bytes were asked for"), std::string::npos) << e;
  EXPECT_EQ(counts.launches, 0);
}

// The kernel of its next call would meet that of the others, which are in the call that it has refused or come to it.
TEST_F(DeviceCall, ARankThatHasRefusedAloneLaunchesNothingMoreHoweverLateTheOthersCome) {
  std::atomic<int> launches_of_1{0};
  std::atomic<bool> has_refused{false};
  const auto errors = run_gpu_ranks(2, gpu_options(), [&](Session& s) {
    Calls calls(s);
    calls.run({.size = 4}, nullptr);
    if (s.rank() == Rank{0}) {
      while (!has_refused && !s.is_dead()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(30));  // time to do what it may not
    } else {
      EXPECT_NE(error_of_call([&] { calls.run({.size = -1}, nullptr); }), "");
      has_refused = true;
    }
    calls.run({.size = 4}, nullptr);
    if (s.rank() == Rank{1}) ++launches_of_1;
  });
  EXPECT_EQ(launches_of_1, 0);
  for (const std::string& e : errors) EXPECT_NE(e.find("rank 1 refused call 2"), std::string::npos) << e;
}

TEST_F(DeviceCall, AKernelThatCannotBeMadeEndsTheCommunicatorOnAllRanks) {
  const auto errors = run_gpu_ranks(2, gpu_options(), [](Session& s) {
    Calls calls(s);
    calls.run({.size = 4}, nullptr);
    calls.run({.size = DeviceToy::kNoKernel}, nullptr);
  });
  for (const std::string& e : errors) EXPECT_NE(e.find("the kernel does not load"), std::string::npos) << e;
  EXPECT_EQ(counts.launches, 2);
}

TEST_F(DeviceCall, AFirstCallIsNotCapturedAndALaterOneIsNoCallOfItsCommunicator) {
  expect_all_well(run_gpu_ranks(2, gpu_options(), [](Session& s) {
    Calls calls(s);
    void* captured = FakeGpu::captured_stream();
    const toy::Arguments arguments{.size = 4};
    EXPECT_NE(error_of_call([&] { calls.run(arguments, captured); }).find("that the ranks have not agreed on"),
              std::string::npos);
    calls.agree({.size = 4}, "");
    EXPECT_NE(error_of_call([&] { calls.run(arguments, captured); }).find("that the ranks have not agreed on"),
              std::string::npos)
        << "its kernel is not loaded";
    calls.run(arguments, nullptr);
    // Neither waits for the other rank, which captures nothing.
    if (s.rank() == Rank{0}) {
      EXPECT_EQ(calls.run(arguments, captured).plan_json, "chosen");
      EXPECT_NE(error_of_call([&] {
                  calls.run({.size = 4, .exchanges = true}, captured);
                }).find("cannot be exchanged in a graph"),
                std::string::npos);
    }
    calls.run(arguments, nullptr);
  }));
  EXPECT_EQ(counts.launches, 5);
}

// What is above a hundred is a call's own; all calls of the rest are of one shape, and have one kernel.
struct ShapedProblem : toy::Problem {
  ShapedProblem shape() const { return {{size % 100}}; }
  void validate() const {}
};
struct ShapedToy : DeviceToy {
  struct Op : toy::Op {
    using Problem = ShapedProblem;
    static Problem make_problem(const toy::Arguments& arguments, Session& session, CountExchange& counts) {
      return {toy::Op::make_problem(arguments, session, counts)};
    }
  };
  static constexpr int64_t kMost = 900;

  static void check_problem(const ShapedProblem& problem) {
    if (problem.size >= kMost) throw Error(ErrorKind::invalid_argument, {.what = "no kernel sees so far"});
  }
  static CallReport launch(const ToyKernel& kernel, uint64_t hash, const ShapedProblem& problem, const toy::Operands& o,
                           void* stream) {
    EXPECT_EQ(kernel.size, problem.size % 100);
    DeviceToy::launch(kernel, hash, o, stream);
    CallReport report;
    report.network_bytes = problem.size;
    return report;
  }
};

TEST_F(DeviceCall, CallsOfAShapeShareAKernelThatIsToldWhatIsTheirOwn) {
  expect_all_well(run_gpu_ranks(2, gpu_options(), [](Session& s) {
    DeviceCalls<ShapedToy> calls(s);
    for (const int64_t size : {4, 104, 204, 104}) EXPECT_EQ(calls.run({.size = size}, nullptr).network_bytes, size);
    EXPECT_NE(error_of_call([&] { calls.run({.size = ShapedToy::kMost + 4}, nullptr); }).find("sees so far"),
              std::string::npos);
    EXPECT_EQ(calls.run({.size = 304}, FakeGpu::captured_stream()).network_bytes, 304);
    EXPECT_EQ(calls.agreed_texts(), 1u);
  }));
  EXPECT_EQ(counts.kernels, 2);
  EXPECT_EQ(counts.launches, 10);
}

std::vector<uint64_t> launched_hashes;  // of one rank
struct HashedToy : ShapedToy {
  static CallReport launch(const ToyKernel& kernel, uint64_t hash, const ShapedProblem& problem, const toy::Operands& o,
                           void* stream) {
    launched_hashes.push_back(hash);
    return ShapedToy::launch(kernel, hash, problem, o, stream);
  }
  static void check_problem(const ShapedProblem&) {}
};

// A mismatch may be of any call that a graph has, or that is in flight.
TEST_F(DeviceCall, WhatCallsAreIsKnownHoweverManyHadPartsOfTheirOwnSince) {
  launched_hashes.clear();
  expect_all_well(run_gpu_ranks(1, gpu_options(), [](Session& s) {
    DeviceCalls<HashedToy> calls(s);
    calls.run({.size = 4}, nullptr);
    calls.run({.size = 104}, FakeGpu::captured_stream());
    const int64_t more = 2 * KernelFaults::kMostCallTexts;
    for (int64_t i = 0; i < more; ++i) calls.run({.size = 204 + 100 * i}, nullptr);
    const auto text = [&](uint64_t hash) {
      const auto own = s.kernel_faults().own_side({.kind = KernelFaultKind::mismatch, .expected = hash, .seen = 1});
      return own ? own->text() : "";
    };
    EXPECT_NE(text(launched_hashes.at(0)).find("size 4,"), std::string::npos) << "of what the ranks agreed on";
    EXPECT_NE(text(launched_hashes.at(1)).find("size 104,"), std::string::npos) << "of a graph";
    EXPECT_NE(text(launched_hashes.back()).find("size " + std::to_string(204 + 100 * (more - 1))), std::string::npos);
    const size_t oldest_in_flight = launched_hashes.size() - kMostCallsInFlight;
    EXPECT_NE(text(launched_hashes.at(oldest_in_flight)), "");
    EXPECT_EQ(text(launched_hashes.at(2)), "") << "they do not pile up";
  }));
}

std::set<int64_t> live_kernels;  // their sizes; of one rank
struct CountedKernel {
  CountedKernel(DeviceRank of, int64_t sized) : rank(std::move(of)), size(sized) { live_kernels.insert(size); }
  ~CountedKernel() { live_kernels.erase(size); }
  CountedKernel(const CountedKernel&) = delete;
  CountedKernel& operator=(const CountedKernel&) = delete;
  DeviceRank rank;
  int64_t size = 0;
};
struct CountedDeviceToy : DeviceToy {
  using Kernel = CountedKernel;
  static std::shared_ptr<Kernel> make_kernel(const toy::Problem& problem, const Plan&, const PlanContext&,
                                             const DeviceRank& rank, const toy::Arguments&) {
    return std::make_shared<Kernel>(rank, problem.size);
  }
  static void launch(const Kernel& kernel, uint64_t, const toy::Operands&, void*) { ++kernel.rank.state->epoch; }
};

TEST_F(DeviceCall, KernelsDoNotPileUpButForThoseOfGraphs) {
  live_kernels.clear();
  expect_all_well(run_gpu_ranks(1, gpu_options(), [](Session& s) {
    DeviceCalls<CountedDeviceToy> calls(s);
    const size_t kept = DeviceCalls<CountedDeviceToy>::kMostPrepared / 2;  // two names each
    size_t most = 0;
    for (size_t size = 0; size < 2 * kept + 5; ++size) {
      const toy::Arguments arguments{.size = static_cast<int64_t>(size)};
      calls.run(arguments, nullptr);
      if (size < 2) calls.run(arguments, FakeGpu::captured_stream());
      most = std::max(most, live_kernels.size());
    }
    EXPECT_GE(most, kept);
    EXPECT_LE(most, kept + 2);
    EXPECT_EQ(live_kernels.count(0) + live_kernels.count(1), 2u) << "graphs use them for ever";
    EXPECT_EQ(live_kernels.count(2), 0u);
    EXPECT_NE(error_of_call([&] { calls.run({.size = 1}, FakeGpu::captured_stream()); }), "")
        << "what else was known of the call is forgotten";
  }));
  EXPECT_TRUE(live_kernels.empty());
}

struct LargeDeviceToy : CountedDeviceToy {
  static int64_t bytes(const Kernel&) { return DeviceCalls<LargeDeviceToy>::kMostPreparedBytes / 4; }
};

TEST_F(DeviceCall, KernelsAreKeptUpToSoManyBytesAndWhatIsUsedStays) {
  live_kernels.clear();
  expect_all_well(run_gpu_ranks(1, gpu_options(), [](Session& s) {
    DeviceCalls<LargeDeviceToy> calls(s);
    for (const int64_t size : {1, 2, 3, 4, 1, 5, 6}) calls.run({.size = size}, nullptr);
    EXPECT_EQ(live_kernels, (std::set<int64_t>{1, 4, 5, 6}));
  }));
}

// A row of two calls: the second one is as large as the first one's kernel has found.
struct RowOp : toy::Op {
  using Kept = std::vector<int64_t>;
  template <class Run>
  static CallReport run_row(const Arguments& arguments, Kept& found, const Run& run) {
    found.clear();
    Arguments step = arguments;
    step.make_result = [&found](int64_t) { return MatrixView{&found, 1, 1, 1, 1, DataType::fp32}; };
    run(step);
    if (found.size() != 1) throw Error(ErrorKind::internal, {.what = "nothing was read behind the first call"});
    step.make_result = nullptr;
    step.size = found[0];
    return run(step);
  }
};
struct RowDeviceToy : DeviceToy {
  using Op = RowOp;
  static bool is_read(const toy::Operands& operands) { return operands.result.data != nullptr; }
  static void read(const ToyKernel& kernel, const toy::Operands& operands) {
    const auto epoch = static_cast<int64_t>(kernel.rank.state->epoch);
    static_cast<RowOp::Kept*>(operands.result.data)->push_back(100 + epoch);
  }
};

TEST_F(DeviceCall, WhatACallsKernelHasFoundIsReadBehindItForTheNextCallOfTheRow) {
  expect_all_well(run_gpu_ranks(2, gpu_options(), [](Session& s) {
    DeviceCalls<RowDeviceToy> calls(s);
    for (int64_t i = 0; i < 2; ++i) {
      EXPECT_EQ(calls.run({.size = 4}, nullptr).network_bytes, 100 + 2 * i + 1) << "the last call's report";
    }
  }));
  EXPECT_EQ(counts.launches, 8);
}

struct UnreadableToy : RowDeviceToy {
  static void read(const ToyKernel& kernel, const toy::Operands& operands) {
    if (kernel.me == Rank{1}) throw Error(ErrorKind::resource, {.what = "cannot be read here"});
    RowDeviceToy::read(kernel, operands);
  }
};

TEST_F(DeviceCall, WhatOneRankCannotReadBehindACallEndsTheCommunicatorOnAll) {
  const auto errors = run_gpu_ranks(2, gpu_options(), [](Session& s) {
    DeviceCalls<UnreadableToy>(s).run({.size = 4}, nullptr);
    s.await_verdict();
    s.throw_if_dead();
  });
  for (const std::string& e : errors) EXPECT_NE(e.find("rank 1: cannot be read here"), std::string::npos) << e;
}

struct RemarkingToy : DeviceToy {
  static Error text_of(const CallRemark& remark) {
    const char* what = remark.kind == 1 ? "too much of " : "nobody there at ";
    return Error(ErrorKind::resource, {.what = what + std::to_string(remark.numbers[0])});
  }
  static KernelNames names() { return {.op = Op::kName, .remark = &text_of}; }
  static void launch(const ToyKernel& kernel, uint64_t, const toy::Operands&, void*) {
    ++counts.launches;
    const Epoch epoch = ++kernel.rank.state->epoch;
    const int32_t kind = kernel.size < 20 ? 1 : 2;
    CallRemark& remark = kernel.rank.remarks[kind];
    if (kernel.size < 9 || remark.state != CallRemark::kNone) return;
    remark = {
        .state = CallRemark::kComplete, .op = kernel.rank.op, .kind = kind, .epoch = epoch, .numbers = {kernel.size}};
  }
};

// No call may raise it: other ranks may be in that call, and would wait for this one.
TEST_F(DeviceCall, ARemarkIsRaisedOnceByCheckAndByNoCallAndTheCommunicatorLivesOn) {
  expect_all_well(run_gpu_ranks(2, gpu_options(), [](Session& s) {
    DeviceCalls<RemarkingToy> calls(s);
    for (const int64_t size : {9, 10, 4}) calls.run({.size = size}, nullptr);
    const std::string error = error_of_call([&] { s.check(); });
    EXPECT_NE(error.find("too much of 9"), std::string::npos) << error << "; the first one";
    s.check();
    calls.run({.size = 10}, nullptr);
    EXPECT_NE(error_of_call([&] { s.check(); }).find("too much of 10"), std::string::npos);
  }));
  EXPECT_EQ(counts.launches, 8);
}

TEST_F(DeviceCall, NoRemarkHidesOneOfAnotherKindAndTheEarliestCallComesFirst) {
  expect_all_well(run_gpu_ranks(2, gpu_options(), [](Session& s) {
    DeviceCalls<RemarkingToy> calls(s);
    for (const int64_t size : {20, 9, 21, 10}) calls.run({.size = size}, nullptr);
    EXPECT_NE(error_of_call([&] { s.check(); }).find("nobody there at 20"), std::string::npos);
    EXPECT_NE(error_of_call([&] { s.check(); }).find("too much of 9"), std::string::npos);
    s.check();
  }));
}

}  // namespace
}  // namespace tilewire
