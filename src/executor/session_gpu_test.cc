// Sessions of GPU ranks over a driver that is none: what the host does, without kernels.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "base/options.h"
#include "executor/call.h"
#include "executor/wire/host_wire.h"
#include "memory/cuda/fake_driver.h"
#include "memory/words.h"
#include "testing/fake_gpu_ranks.h"
#include "testing/given_time.h"
#include "testing/toy_op.h"

namespace tilewire {
namespace {

uint64_t& device_word(std::byte* at) { return *reinterpret_cast<uint64_t*>(at); }

TEST_F(GpuSession, RanksOfANodeReachEachOthersMemoryAlsoWhenItHasGrown) {
  expect_all_well(run_gpu_ranks(3, gpu_options(), [](Session& s) {
    const int32_t me = s.rank().value;
    Call call(s, "grow");
    call.begin(std::make_shared<CallText>(plain_text("grow")));
    call.agree("plan", hash64("grow"), 5 * kPage);
    call.end();
    EXPECT_GE(s.arena().half_bytes(), 5 * kPage);
    const int64_t last = s.arena().layout().half_offset(1) + 5 * kPage - 64;
    for (int32_t p = 0; p < 3; ++p)
      device_word(s.arena().peer(Rank{p}) + last + int64_t{8} * me) =
          uint64_t{100} * static_cast<uint64_t>(me) + static_cast<uint64_t>(p);
    s.control().barrier("written", s.deadline());
    for (int32_t p = 0; p < 3; ++p) {
      EXPECT_EQ(device_word(s.arena().base() + last + int64_t{8} * p),
                uint64_t{100} * static_cast<uint64_t>(p) + static_cast<uint64_t>(me))
          << me << " of " << p;
    }
    s.control().barrier("read", s.deadline());
  }));
}

TEST_F(GpuSession, TheUserAreaGrowsOnOneRankAlone) {
  expect_all_well(run_gpu_ranks(2, gpu_options(), [](Session& s) {
    std::byte* at = s.rank() == Rank{1} ? s.allocate_user(3 * kPage) : nullptr;
    Call call(s, "grow");
    call.begin(std::make_shared<CallText>(plain_text("grow")));
    call.agree("plan", hash64("grow"), 5 * kPage);
    call.end();
    if (at != nullptr) {
      at[3 * kPage - 1] = std::byte{7};
      s.free_user(at);
    }
    s.control().barrier("grown", s.deadline());
  }));
}

TEST_F(GpuSession, GpusAreDealtOutInTurnAndSharesAreChecked) {
  std::vector<int32_t> devices(3), sms(3);
  expect_all_well(run_gpu_ranks(
      3, gpu_options(),
      [&](Session& s) {
        devices[static_cast<size_t>(s.rank().value)] = s.gpu()->device();
        sms[static_cast<size_t>(s.rank().value)] = s.gpu()->sms();
      },
      [](int32_t r, Options& o) { o.sms = r == 1 ? 0 : 44; }));
  EXPECT_EQ(devices, (std::vector<int32_t>{0, 1, 0}));
  EXPECT_EQ(sms, (std::vector<int32_t>{44, 132, 44}));
  const auto errors = run_gpu_ranks(
      2, gpu_options(), [](Session&) {}, [](int32_t r, Options& o) { o.sms = 132 + r; });
  EXPECT_NE(errors[1].find("sms = 133"), std::string::npos) << errors[1];
  EXPECT_NE(errors[0].find("TILEWIRE_SMS"), std::string::npos) << "the others hear of it: " << errors[0];
}

TEST_F(GpuSession, CpuAndGpuRanksDoNotJoin) {
  const auto errors = run_gpu_ranks(
      2, gpu_options(), [](Session&) {},
      [](int32_t r, Options& o) {
        if (r == 1) o.device = "cpu";
      });
  for (const std::string& e : errors) EXPECT_NE(e.find("device=cuda"), std::string::npos) << e;
}

TEST_F(GpuSession, SeveralNodesWithoutAWireAreRefusedByName) {
  Options o = gpu_options();
  o.layout = "1,1";
  for (const std::string& e : run_gpu_ranks(2, o, [](Session&) {})) {
    EXPECT_NE(e.find("no transport that all ranks can use"), std::string::npos) << e;
    EXPECT_NE(e.find("tilewire run --virtual"), std::string::npos) << e;
  }
}

// As roles do it: a write of one unit from the first half to a peer, with its word, and the end of the call.
void send_unit(Session& s, Rank peer, uint32_t word, int64_t offset, Epoch e) {
  const auto data = static_cast<uint64_t>((offset - s.arena().layout().half_offset(e)) / kWireUnitBytes);
  EXPECT_TRUE(
      s.ring(Ring::send).try_post(Command{.peer = peer, .word = word, .units = 1, .src_unit = data, .dst_unit = data}));
}
void end_call(Session& s, Epoch e) {
  for (int32_t r = 0; r < kRings; ++r) {
    EXPECT_TRUE(s.ring(static_cast<Ring>(r)).try_post(Command{.kind = CommandKind::call_end, .epoch = e}));
  }
}

bool comes(Session& s, uint32_t word, Epoch e) {
  const auto* at = reinterpret_cast<const uint64_t*>(s.arena().base() + s.arena().layout().word_offset(word));
  const SteadyTime limit = deadline_in(std::chrono::seconds(20));
  while (std::atomic_ref(*const_cast<uint64_t*>(at)).load() < e && steady_now() < limit) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return std::atomic_ref(*const_cast<uint64_t*>(at)).load() == e;
}

// Data, then its word, between nodes of one GPU, also in memory that was appended after the wire had started.
void exchange_over_the_wire(Session& s) {
  const int32_t me = s.rank().value, ranks = s.topology().ranks;
  Call call(s, "grow");
  call.begin(std::make_shared<CallText>(plain_text("grow")));
  call.agree("plan", hash64("grow"), 5 * kPage);
  call.end();
  const Epoch e = s.next_epoch();
  const FlagLayout& flags = s.arena().layout().flags;
  const int64_t last = s.arena().layout().half_offset(e) + 5 * kPage - 4096;
  for (int32_t p = 0; p < ranks; ++p) {
    if (s.topology().same_node(Rank{p}, Rank{me}) || !s.topology().ends_together(Rank{me}, Rank{p})) continue;
    device_word(s.arena().base() + last + int64_t{64} * me) = 1000 + static_cast<uint64_t>(me);
    send_unit(s, Rank{p}, flags.chunk(0, Rank{me}, Chunk{0}), last + int64_t{64} * me, e);
  }
  end_call(s, e);
  for (int32_t p = 0; p < ranks; ++p) {
    if (s.topology().same_node(Rank{p}, Rank{me}) || !s.topology().ends_together(Rank{me}, Rank{p})) continue;
    EXPECT_TRUE(comes(s, flags.chunk(0, Rank{p}, Chunk{0}), e)) << me << " from " << p;
    EXPECT_EQ(device_word(s.arena().base() + last + int64_t{64} * p), 1000u + static_cast<uint64_t>(p));
  }
  s.control().barrier("seen", s.deadline());
}

TEST_F(GpuSession, NodesOnOneGpuAreJoinedByTheWire) {
  HostWire wire(kJobSecret);
  for (const char* layout : {"2,2", "3,1", "1,2", "1,1,1"}) {
    Options o = gpu_options();
    o.layout = layout;
    o.wire = wire.socket();
    o.cuda_device = 0;
    const int32_t ranks = TopologyTables::from_layout(parse_counts(layout)).view().ranks;
    expect_all_well(run_gpu_ranks(ranks, o, exchange_over_the_wire));
  }
}

// A kernel ends when its peers are done, whatever became of its own words: close() sees them off. So it does when the
// communicator has died in the call behind that one, of which the rank has handed over no more than a part: who still waits
// in the call that ended may have nobody left who could tell it of the death.
TEST_F(GpuSession, WordsOfTheLastCallThatEndedArriveAlsoWhenTheirRankHasClosed) {
  HostWire wire(kJobSecret);
  Options o = gpu_options();
  o.layout = "1,1";
  o.wire = wire.socket();
  o.cuda_device = 0;
  o.emulated_latency_us = 100'000;
  for (const bool is_aborted : {false, true}) {
    expect_all_well(run_gpu_ranks(2, o, [&](Session& s) {
      const DeviceRank rank = s.device_rank({.op = "toy"});
      const Epoch e = rank.state->epoch + 1;
      const uint32_t word = s.arena().layout().flags.chunk(0, Rank{0}, Chunk{0});
      if (s.rank() == Rank{0}) send_unit(s, Rank{1}, word, s.arena().layout().half_offset(e), e);
      end_call(s, e);
      rank.state->epoch = e;  // as a kernel does when it has ended well
      if (s.rank() == Rank{0} && is_aborted) {
        EXPECT_TRUE(s.ring(Ring::send).try_post(Command{.kind = CommandKind::call_end, .epoch = e + 1}));
        s.control().send_abort(ErrorKind::aborted, "the call behind it went wrong");
        s.await_verdict();
      }
      if (s.rank() == Rank{1}) {
        EXPECT_TRUE(comes(s, word, e));
      }
    }));
  }
}

TEST_F(GpuSession, WireThatDiesIsAnErrorOfAllRanks) {
  auto wire = std::make_unique<HostWire>(kJobSecret);
  Options o = gpu_options();
  o.layout = "1,1";
  o.wire = wire->socket();
  o.cuda_device = 0;
  std::atomic<int> ready{0};
  for (const std::string& e : run_gpu_ranks(2, o, [&](Session& s) {
         if (++ready == 2) wire->end();
         s.await_verdict();
         s.check();
       })) {
    EXPECT_NE(e.find("the wire process between the nodes is gone"), std::string::npos) << e;
  }
}

// As a wire that dies with a rank: the death is the news, not the wire.
TEST_F(GpuSession, WireThatDiesBesideAnAbortIsNotToldOf) {
  auto wire = std::make_unique<HostWire>(kJobSecret);
  Options o = gpu_options();
  o.layout = "1,1";
  o.wire = wire->socket();
  o.cuda_device = 0;
  std::atomic<int> ready{0};
  std::atomic<bool> is_dead{false};
  for (const std::string& e : run_gpu_ranks(2, o, [&](Session& s) {
         if (++ready == 2) {
           wire->end();
           is_dead = true;
         }
         if (s.rank() == Rank{1}) {
           EXPECT_TRUE(comes_true([&] { return is_dead.load(); }));  // well within the link's time of grace
           s.control().send_abort(ErrorKind::peer_lost, "rank 7 is lost");
         }
         s.await_verdict();
         s.check();
       })) {
    EXPECT_NE(e.find("rank 7 is lost"), std::string::npos) << e;
  }
}

TEST_F(GpuSession, WireOfAnotherJobIsRefused) {
  HostWire wire("what only another job knows");
  Options o = gpu_options();
  o.layout = "1,1";
  o.wire = wire.socket();
  for (const std::string& e : run_gpu_ranks(2, o, [](Session&) {})) {
    EXPECT_NE(e.find("of another job"), std::string::npos) << e;
  }
}

TEST_F(GpuSession, RanksThatShareAGpuWithoutMpsAreRefusedAndThoseThatDoNotAreNot) {
  FakeGpu::start({.has_mps = false});
  for (const std::string& e : run_gpu_ranks(3, gpu_options(), [](Session&) {})) {
    EXPECT_NE(e.find("without MPS"), std::string::npos) << e;
    EXPECT_NE(e.find("ranks 0, 2"), std::string::npos) << e;
  }
  expect_all_well(run_gpu_ranks(2, gpu_options(), [](Session&) {}));
}

TEST_F(GpuSession, MoreSmsThanThereAreAreRefusedBeforeAnythingRuns) {
  Options o = gpu_options();
  o.cuda_device = 0;
  o.sms = 68;
  for (const std::string& e : run_gpu_ranks(2, o, [](Session&) {})) {
    EXPECT_NE(e.find("ranks 0, 1 take 136"), std::string::npos) << e;
  }
  HostWire wire(kJobSecret);
  o.sms = 66;
  expect_all_well(run_gpu_ranks(2, o, [](Session&) {}));
  o.layout = "1,1";
  o.wire = wire.socket();
  for (const std::string& e : run_gpu_ranks(2, o, [](Session&) {})) {
    EXPECT_NE(e.find("and the wire take 134"), std::string::npos) << e;
  }
}

// Too few CTAs of one come, of a rank or of the wire: all ranks say who came.
TEST_F(GpuSession, RollCallThatIsNotCompleteIsARefusalThatSaysWhoCame) {
  const auto kernel = [](int32_t missing_participant) -> RollCallKernel {
    return [missing_participant](RollCallPart part) {
      part.timeout_ns = 200'000'000;
      host_roll_call(part, part.ctas - (part.participant == missing_participant ? 2 : 0));
    };
  };
  for (const int32_t missing : {1, 2}) {
    HostWire wire(kJobSecret, kernel(missing));
    Options o = gpu_options();
    o.layout = "1,1";
    o.wire = wire.socket();
    o.cuda_device = 0;
    const std::string came = missing == 1 ? "rank 0 32 of 32, rank 1 30 of 32, the wire 2 of 2"
                                          : "rank 0 32 of 32, rank 1 32 of 32, the wire 0 of 2";
    for (const std::string& e : run_gpu_ranks(
             2, o, [](Session&) {}, {}, kernel(missing))) {
      EXPECT_NE(e.find(came), std::string::npos) << e;
    }
  }
}

struct NoKernel : toy::Op {
  static constexpr bool kHasKernel = false;
};

// Not for where its operands are, which a handle does not have.
TEST_F(GpuSession, AnOpWithoutAKernelIsRefusedForThat) {
  for (const bool is_handle : {false, true}) {
    const auto errors = run_gpu_ranks(2, gpu_options(), [&](Session& s) {
      OpCalls<NoKernel> calls(s);
      if (is_handle) calls.agree({.size = 4}, "");
      calls.run({.size = 4});
    });
    for (const std::string& e : errors) {
      EXPECT_NE(e.find("has no kernel"), std::string::npos) << e;
      EXPECT_NE(e.find("TILEWIRE_DEVICE=cpu"), std::string::npos) << e;
    }
  }
}

// Plans have a part that must be the same on ranks that share their GPU with others and on those that do not.
TEST_F(GpuSession, AllRanksPlanForTheSameMachineHoweverGpusAreDealtOut) {
  std::vector<int32_t> ranks_per_gpu(3);
  expect_all_well(run_gpu_ranks(3, gpu_options(), [&](Session& s) {
    ranks_per_gpu[static_cast<size_t>(s.rank().value)] = s.machine().ranks_per_gpu;
  }));
  EXPECT_EQ(ranks_per_gpu, (std::vector<int32_t>{2, 2, 2}));
}

TEST_F(GpuSession, OperandsOfTheHostAreRefused) {
  for (const std::string& e : run_gpu_ranks(2, gpu_options(), [](Session& s) { s.check_operands_on(false, "toy"); })) {
    EXPECT_NE(e.find("host memory"), std::string::npos) << e;
  }
}

TEST_F(GpuSession, KernelsGetTheArenasOfTheNodeAndTheEpochThatOptionsSay) {
  Options o = gpu_options();
  o.first_epoch = 7;
  expect_all_well(run_gpu_ranks(2, o, [](Session& s) {
    const DeviceRank rank = s.device_rank({.op = "toy"});
    EXPECT_EQ(rank.arenas[static_cast<size_t>(s.rank().value)], s.arena().base());
    EXPECT_EQ(rank.arenas[1 - static_cast<size_t>(s.rank().value)], s.arena().peer(Rank{1 - s.rank().value}));
    EXPECT_EQ(rank.state->epoch, 6u);
    EXPECT_EQ(rank.state->busy, 0u);
    EXPECT_EQ(rank.timeout_ns, 20'000'000'000u);
    EXPECT_EQ(rank.control_page, s.arena().control());
    s.control().barrier("seen", s.deadline());
  }));
}

TEST_F(GpuSession, RingsLieWhereKernelsReachThem) {
  expect_all_well(run_gpu_ranks(1, gpu_options(), [](Session& s) {
    const CommandRing ring = s.gpu()->make_ring(static_cast<int32_t>(Ring::send), 16);
    const ArrivalRing arrivals(s.gpu()->make_ring(GpuRank::kArrivalRing, 32));
    const DeviceRank rank = s.gpu()->device_rank(1);
    const RingMemory& seen = rank.rings[static_cast<int32_t>(Ring::send)];
    EXPECT_EQ(seen.entry_count, 16u);
    EXPECT_EQ(rank.arrivals.entry_count, 32u);
    EXPECT_EQ(rank.rings[static_cast<int32_t>(Ring::call)].entry_count, 0u);
    // The memory of the fake driver is at one address for both sides.
    EXPECT_EQ(seen.header, ring.memory().header);
    CommandProducer producer(seen);
    PackedCommand taken;
    EXPECT_TRUE(producer.try_post(PackedCommand{5, 6}));
    CommandConsumer consumer(ring.memory());
    EXPECT_TRUE(consumer.try_take(taken));
    EXPECT_EQ(taken.second, 6u);
  }));
}

// As a kernel writes it; the abort word of the arena comes with it.
void leave_record(Session& s, FaultRecord& record, const FaultRecord& what) {
  record = what;
  record.state = FaultRecord::kNone;
  device_word(s.arena().base() + ControlPage::kAbort) = 1;
  std::atomic_ref(record.state).store(FaultRecord::kComplete);
}

TEST_F(GpuSession, WhatAKernelLeavesIsAnErrorOfAllRanksWithNamesInIt) {
  constexpr const char* kRoles[] = {"none", "call", "compute"};
  constexpr const char* kFamilies[kWordFamilies] = {"shard_arrived"};
  const auto errors = run_gpu_ranks(2, gpu_options(), [&](Session& s) {
    const DeviceRank rank = s.device_rank({.op = "toy", .roles = kRoles, .family_names = kFamilies});
    if (s.rank() == Rank{0}) {
      const uint32_t word = s.arena().layout().flags.chunk(0, Rank{1}, Chunk{3});
      leave_record(s, *rank.fault,
                   {.kind = KernelFaultKind::deadline,
                    .op = rank.op,
                    .role = 2,
                    .cta = 9,
                    .word = word,
                    .expected = 5,
                    .seen = 4,
                    .epoch = 5});
    }
    const auto limit = steady_now() + std::chrono::seconds(20);
    while (!s.is_dead() && steady_now() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(abort_reason(s.arena().control()), 1u) << "kernels of this rank are told";
    s.check();
  });
  for (const std::string& e : errors) {
    for (const char* part : {"rank 0 waited 20 s", "shard_arrived of chunk 3 of rank 1", "epoch 5 (seen 4)", "toy",
                             "role compute", "CTA 9"}) {
      EXPECT_NE(e.find(part), std::string::npos) << part << " in: " << e;
    }
  }
}

TEST_F(GpuSession, RanksThatRunDifferentCallsAreToldBothTexts) {
  const auto errors = run_gpu_ranks(2, gpu_options(), [](Session& s) {
    const DeviceRank rank = s.device_rank({.op = "toy"});
    const auto add = [&](uint64_t hash, const char* rows) {
      const CallText text{.op = "toy", .parts = {{rows}}, .advice = "make the same calls"};
      s.kernel_faults().add_text(hash, std::make_shared<CallText>(text));
    };
    add(11, "3 rows");
    add(12, "4 rows");
    if (s.rank() == Rank{1}) {
      leave_record(s, *rank.fault,
                   {.kind = KernelFaultKind::mismatch,
                    .op = rank.op,
                    .role = 1,
                    .word = 0,
                    .expected = 11,
                    .seen = 12,
                    .epoch = 2});
    }
    s.check();  // whether the news has come or not: the abort word of the arena says that there will be some
    s.await_verdict();
    s.check();
  });
  for (const std::string& e : errors) {
    EXPECT_NE(e.find("rank 0: toy of 4 rows | rank 1: toy of 3 rows; make the same calls"), std::string::npos) << e;
  }
}

// As with documents, which ranks may bring to a call for the first time: only the other rank knows what it runs.
TEST_F(GpuSession, ARankThatRunsWhatTheOtherNeverCalledIsAskedForItsText) {
  const auto errors = run_gpu_ranks(2, gpu_options(), [](Session& s) {
    const DeviceRank rank = s.device_rank({.op = "toy"});
    const CallText texts[] = {{.op = "toy", .parts = {{"4 rows"}}, .advice = "make the same calls"},
                              {.op = "toy", .parts = {{"3 rows"}}, .advice = "make the same calls"}};
    const CallText& own = texts[s.rank().value];
    const uint64_t call = 7 + static_cast<uint64_t>(s.rank().value);  // not what a kernel counts
    s.control().begin_call(call, std::make_shared<CallText>(own));
    s.kernel_faults().add_text(own.hash(), std::make_shared<CallText>(own));
    s.control().barrier("begun", s.deadline());
    if (s.rank() == Rank{1}) {
      leave_record(s, *rank.fault,
                   {.kind = KernelFaultKind::mismatch,
                    .op = rank.op,
                    .role = 1,
                    .word = 0,
                    .expected = own.hash(),
                    .seen = texts[0].hash(),
                    .epoch = 2});
    }
    s.await_verdict();
    s.check();
  });
  for (const std::string& e : errors) {
    EXPECT_NE(
        e.find("call 2 is not the same on all ranks: rank 0: toy of 4 rows | rank 1: toy of 3 rows; make the same"),
        std::string::npos)
        << e;
  }
}

// A kernel that has left its call on a peer's word is not taken for one that has ended well.
TEST_F(GpuSession, CheckWaitsForTheNewsWhereAKernelHasGivenUp) {
  const auto errors = run_gpu_ranks(2, gpu_options(), [](Session& s) {
    s.control().barrier("ready", s.deadline());
    if (s.rank() == Rank{0}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      s.control().send_abort(ErrorKind::deadline, "late news");
      s.await_verdict();
    } else {
      device_word(s.arena().base() + ControlPage::kAbort) = 1;
    }
    s.check();
  });
  for (const std::string& e : errors) EXPECT_NE(e.find("late news"), std::string::npos) << e;
}

// As comm.check() and comm.synchronize() of one thread beside close() of another.
TEST_F(GpuSession, WhoAsksTheGpuWhileAnotherThreadClosesFindsNothingThatIsGone) {
  expect_all_well(run_gpu_ranks(1, gpu_options(), [](Session& s) {
    GpuRank& gpu = *s.gpu();
    gpu.before_launch(nullptr);
    gpu.after_launch(nullptr);
    std::atomic<bool> is_over{false};
    std::thread asking([&] {
      while (!is_over) {
        gpu.is_idle();
        gpu.has_given_up();
      }
    });
    s.close();
    EXPECT_TRUE(gpu.is_idle());
    EXPECT_FALSE(gpu.has_given_up());
    is_over = true;
    asking.join();
  }));
}

TEST_F(GpuSession, CreationThatFailsAnywhereLeavesNothing) {
  int64_t n = 1;
  for (; n < 200; ++n) {
    FakeGpu::start();
    FakeGpu::fail_call(n);
    const auto errors = run_gpu_ranks(1, gpu_options(), [](Session&) { FakeGpu::fail_call(0); });
    const bool has_failed = !FakeGpu::failed().empty();
    EXPECT_EQ(has_failed, !errors[0].empty()) << FakeGpu::failed();
    FakeGpu::fail_call(0);
    EXPECT_EQ(FakeGpu::live_text(), "") << FakeGpu::failed();
    if (!has_failed) break;
  }
  EXPECT_GT(n, 25);
}

// Notes as a kernel of CTA 3 leaves them.
TEST_F(GpuSession, TimelineLosesNotesOrTheClock) {
  static constexpr const char* kRoles[] = {"none", "call", "compute", "push"};
  Options options = gpu_options();
  options.trace_events = 2 * options.sms * kTracePlaces;
  const auto body = [&](Session& session) {
    const DeviceRank rank = session.device_rank({.op = "an op", .roles = kRoles});
    EXPECT_EQ(rank.trace->notes, nullptr);
    session.start_trace();
    TraceView view = *rank.trace;
    ASSERT_NE(view.notes, nullptr);
    ASSERT_EQ(view.capacity, 2u);
    const int32_t lane = 3 * kTracePlaces + static_cast<int32_t>(TracePlace::second_group);
    const auto now = static_cast<uint64_t>(trace_clock_ns() - kGpuBehindNs);
    view.notes[lane * 2] = {
        .t_wait_ns = now, .t_begin_ns = now + 50, .t_end_ns = now + 90, .work = 7, .op = 0, .role = 2};
    view.notes[lane * 2 + 1] = {.t_wait_ns = now + 100,
                                .t_begin_ns = now + 100,
                                .t_end_ns = now + 120,
                                .work = 1,
                                .source = 0,
                                .bytes = 64,
                                .op = 0,
                                .role = 3,
                                .link = TraceLink::node};
    view.counts[lane] = 5;
    const TraceRecord record = session.trace_record();
    EXPECT_EQ(record.dropped, 3);
    ASSERT_EQ(record.events.size(), 2u);
    const TraceEvent& tile = record.events[0];
    EXPECT_STREQ(tile.role, "compute");
    EXPECT_STREQ(tile.name, "tile");
    EXPECT_EQ(tile.worker, 7);
    EXPECT_EQ(tile.work, 7);
    EXPECT_EQ(tile.t_wait_ns, 50);
    EXPECT_EQ(tile.t_end_ns - tile.t_begin_ns, 40);
    EXPECT_LT(std::abs(tile.t_begin_ns - 50 - kGpuBehindNs - static_cast<int64_t>(now)), 5'000'000)
        << "the making of the clock was taken for the look at it";
    EXPECT_STREQ(record.events[1].role, "push");
    EXPECT_STREQ(record.events[1].name, "chunk");
    EXPECT_EQ(record.events[1].bytes, 64);
    EXPECT_EQ(view.counts[lane], 0u) << "they would come twice";
    session.stop_trace();
    EXPECT_EQ(rank.trace->notes, nullptr);
    EXPECT_EQ(session.trace_record().events.size(), 2u);

    session.start_trace();
    view.counts[lane] = 2;
    session.stop_trace();
    session.start_trace();
    EXPECT_EQ(session.trace_record().events.size(), 0u) << "a recording has what the one before it has left";
    EXPECT_EQ(session.trace_counts().events, 4);
  };
  expect_all_well(run_gpu_ranks(1, options, body));
}

}  // namespace
}  // namespace tilewire
