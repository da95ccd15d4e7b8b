#include "rank_tests.h"

#include <signal.h>

#include <cstdlib>
#include <algorithm>
#include <set>
#include <string>

namespace tilewire {
namespace {

constexpr int kUnwritten = 0x11;  // no NaN

template <class Op>
struct Tests {
  using Case = typename Op::Case;
  using Shape = typename Op::Shape;

  static void test_shapes(Joined& joined) {
    const Stream stream;
    for (const Shape& shape : Op::shapes(joined.topology())) {
      Case data(shape, joined.me());
      for (int64_t salt = 1; salt <= 3; ++salt) {
        call_once(joined, data, stream, salt);
        expect(data.count_wrong() == 0, shape.name);
      }
      if (joined.me() == 0) std::printf("  %s\n", shape.name.c_str());
    }
  }

  // 200 calls behind each other, now on one stream and now on another; the ranks run apart from one another.
  static void test_two_streams(Joined& joined) {
    const Stream one, other;
    Case data(Op::shapes(joined.topology())[0], joined.me());
    call_once(joined, data, one, 1);
    const auto begin = Clock::now();
    constexpr int kCalls = 200;
    for (int i = 0; i < kCalls; ++i) joined.call(data, i % 3 == 0 ? other : one);
    const double enqueued_ms = ms_since(begin);
    one.finish();
    other.finish();
    joined.session().check();
    expect(data.count_wrong() == 0, "calls on two streams");
    if (joined.me() == 0) {
      std::printf("  %d calls on two streams: %.1f us each to enqueue, %.1f us each to run\n", kCalls,
                  enqueued_ms * 1e3 / kCalls, ms_since(begin) * 1e3 / kCalls);
    }
  }

  static void test_graph(Joined& joined) {
    const Stream stream;
    Case data(Op::shapes(joined.topology())[0], joined.me());
    call_once(joined, data, stream, 1);
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a capture");
    data.enqueue_inputs(stream);
    joined.call(data, stream);
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream, &graph), "ending a capture");
    cudaGraphExec_t replay = nullptr;
    check_cuda(cudaGraphInstantiate(&replay, graph, 0), "making a graph");
    int64_t wrong = 0;
    for (int64_t salt = 2; salt < 12; ++salt) {
      data.set_salt(salt);
      data.fill_results(stream);
      check_cuda(cudaGraphLaunch(replay, stream), "launching a graph");
      if (!stream.finish()) break;
      joined.session().check();
      wrong += data.count_wrong();
    }
    expect(wrong == 0, "replays of a graph, inputs changed in place");
    call_once(joined, data, stream, 20);
    expect(data.count_wrong() == 0, "a call behind replays");
    for (int i = 0; i < 500; ++i) check_cuda(cudaGraphLaunch(replay, stream), "launching a graph");
    stream.finish();
    joined.session().check();
    expect(data.count_wrong() == 0, "500 replays in a row");
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);

    const Case fresh(Op::new_shape(joined.topology()), joined.me());
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a capture");
    const auto error = error_of([&] { joined.call(fresh, stream); });
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    expect(error && error->kind() == ErrorKind::invalid_argument &&
               std::string(error->what()).find("before the capture") != std::string::npos,
           "a capture of a new shape is refused");
  }

  static void expect_own_refusal(Joined& joined, const Case& data, const Stream& stream) {
    auto arguments = data.arguments();
    Op::spoil(arguments);
    const auto error = error_of([&] { joined.call<typename Case::Device>(arguments, stream); });
    expect(error && error->kind() == ErrorKind::invalid_argument &&
               std::string(error->what()).find(Op::kRefusedText) != std::string::npos,
           "a misaligned operand is refused by name");
  }

  static void test_all_refuse(Joined& joined) {
    const Stream stream;
    Case data(Op::shapes(joined.topology())[0], joined.me());
    expect_own_refusal(joined, data, stream);
    call_once(joined, data, stream, 3);
    expect(data.count_wrong() == 0, "a call behind one that all refused");
  }

  static void test_report(Joined& joined) {
    const Stream stream;
    Case data(Op::shapes(joined.topology())[0], joined.me());
    call_once(joined, data, stream, 1);
    const CallReport report = joined.call(data, stream);
    stream.finish();
    Op::expect_moved(report, joined.topology(), Rank{joined.me()});
    expect(report.plan_json.find("\"tile_rows\"") != std::string::npos, "the report has the plan");
  }

  // Events of one call lie between the host's times around it, and none comes when the recording has ended.
  static void test_trace(Joined& joined) {
    const Stream stream;
    Case data(Op::shapes(joined.topology())[0], joined.me());
    call_once(joined, data, stream, 1);
    joined.session().start_trace();
    const int64_t begin_ns = trace_clock_ns();
    call_once(joined, data, stream, 2);
    const int64_t end_ns = trace_clock_ns();
    expect(data.count_wrong() == 0, "a traced call computes what others do");
    const TraceRecord record = joined.session().trace_record();
    constexpr int64_t kClockErrorNs = 200'000;
    std::set<std::string> roles;
    bool is_forward = true;
    int64_t first_ns = end_ns, last_ns = begin_ns;
    for (const TraceEvent& e : record.events) {
      roles.insert(e.role);
      is_forward = is_forward && e.t_wait_ns >= 0 && e.t_begin_ns <= e.t_end_ns;
      first_ns = std::min(first_ns, e.t_begin_ns - e.t_wait_ns);
      last_ns = std::max(last_ns, e.t_end_ns);
    }
    for (const std::string& role : Op::roles(joined.topology(), Rank{joined.me()})) {
      expect(roles.count(role) == 1, "the timeline has the works of " + role);
    }
    expect(joined.topology().nodes > 1 || roles.count("send") == 0, "it has chunks for other nodes, if any");
    expect(is_forward, "its events wait, begin and end in this order");
    const bool is_within = first_ns > begin_ns - kClockErrorNs && last_ns < end_ns + kClockErrorNs;
    expect(is_within, "its events lie where the host saw the call: from " +
                          std::to_string((first_ns - begin_ns) / 1000) + " us behind its begin to " +
                          std::to_string((last_ns - end_ns) / 1000) + " us behind its end");
    expect(record.dropped == 0, "all of them had room");
    joined.session().stop_trace();
    call_once(joined, data, stream, 3);
    expect(joined.session().trace_record().events.size() == record.events.size(), "no event behind the recording");
  }

  static void test_life(Joined& joined) {
    test_trace(joined);
    test_report(joined);
    test_shapes(joined);
    test_two_streams(joined);
    test_graph(joined);
    test_all_refuse(joined);
    joined.meet();
  }

  static void test_next_life(Joined& joined) {
    const Stream stream;
    Case data(Op::shapes(joined.topology())[1], joined.me());
    call_once(joined, data, stream, 4);
    expect(data.count_wrong() == 0, "a second communicator of the process");
    joined.meet();
  }

  static void test_mismatch(Joined& joined) {
    const Stream stream;
    Case first(Op::shapes(joined.topology())[0], joined.me()), second(Op::shapes(joined.topology())[2], joined.me());
    call_once(joined, first, stream, 1);
    call_once(joined, second, stream, 1);
    joined.meet();
    const auto begin = Clock::now();
    joined.call(joined.me() == 0 ? first : second, stream);
    stream.finish();
    expect_end(joined, ErrorKind::mismatch, {Op::kFirstText, Op::kOtherText}, begin);
  }

  // As on two streams on which ranks put their calls in opposite orders: each waits for what the other has behind it.
  static void test_orders(Joined& joined) {
    const Stream one, other;
    Case first(Op::shapes(joined.topology())[0], joined.me()), second(Op::shapes(joined.topology())[2], joined.me());
    call_once(joined, first, one, 1);
    call_once(joined, second, one, 1);
    joined.meet();
    const auto begin = Clock::now();
    const bool is_last = joined.me() + 1 == joined.ranks();
    // The second one may hear already what has become of the first.
    static_cast<void>(error_of([&] {
      joined.call(is_last ? second : first, one);
      joined.call(is_last ? first : second, other);
    }));
    one.finish();
    other.finish();
    expect_end(joined, ErrorKind::mismatch, {Op::kFirstText, Op::kOtherText}, begin);
  }

  static void test_refused(Joined& joined) {
    const Stream stream;
    Case data(Op::shapes(joined.topology())[0], joined.me());
    call_once(joined, data, stream, 1);
    joined.meet();
    data.fill_results(stream, kUnwritten);
    const auto begin = Clock::now();
    if (joined.me() == 1) {
      joined.meet();
      expect_own_refusal(joined, data, stream);
    } else {
      joined.call(data, stream);
      // Rank 1 waits for the calls: a rank that has heard of the refusal makes none. It may hear of it here.
      static_cast<void>(error_of([&] { joined.meet(); }));
      stream.finish();
      expect(data.is_nan_without(1), "results that lack what never came are NaN");
    }
    expect_end(joined, ErrorKind::refused, {Op::kRefusedText, "rank 1 refused"}, begin);
  }

  // The deadline of this scenario is short; what the first call does has been done in another communicator.
  static void test_absent(Joined& joined) {
    const Stream stream;
    Case data(Op::shapes(joined.topology())[0], joined.me());
    joined.meet();
    call_once(joined, data, stream, 1);
    joined.meet();
    data.fill_results(stream, kUnwritten);
    const auto begin = Clock::now();
    if (joined.me() != 0) {
      joined.call(data, stream);
      stream.finish();
      expect(data.is_nan_without(0), "results that lack what never came are NaN");
      expect(ms_since(begin) < 5000, "a rank that never calls ends the call at its deadline");
    }
    expect_end(joined, ErrorKind::deadline, {"waited 0.05 s", Op::Device::Op::kName, "role ", "CTA "}, begin);
  }

  static void test_killed(Joined& joined) {
    const Stream stream;
    Case data(Op::shapes(joined.topology())[0], joined.me());
    call_once(joined, data, stream, 1);
    joined.meet();
    const auto begin = Clock::now();
    if (joined.me() == joined.ranks() - 1) {
      // In the middle of a call: rank 0 has not come.
      joined.call(data, stream);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      raise(SIGKILL);
    }
    if (joined.me() != 0) {
      joined.call(data, stream);
      stream.finish();
    }
    std::optional<Error> error;
    while (!error && Clock::now() - begin < kPatience) {
      error = error_of([&] { joined.session().check(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    expect(error.has_value(), "survivors of a kill get an error");
    if (error) std::printf("  rank %d after %.1f ms: %s\n", joined.me(), ms_since(begin), error->what());
    const std::string name = "rank " + std::to_string(joined.ranks() - 1);
    expect(error && error->kind() == ErrorKind::peer_lost && std::string(error->what()).find(name) != std::string::npos,
           "and it says who is gone");
    DeviceBuffer<uint16_t> fresh(64);
    fresh.fill_bytes(0x22);
    expect(fresh.to_host()[63] == 0x2222, "survivors of a kill can use their GPU");
  }

  // The wire between the nodes dies in the middle of a call.
  static void test_wire_killed(Joined& joined) {
    const Stream stream;
    Case data(Op::shapes(joined.topology())[0], joined.me());
    call_once(joined, data, stream, 1);
    joined.meet();
    const auto begin = Clock::now();
    if (joined.me() != 0) {
      joined.call(data, stream);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      kill(std::atoi(std::getenv(kWirePid)), SIGKILL);
    }
    stream.finish();
    expect_end(joined, ErrorKind::peer_lost, {"the wire process between the nodes is gone"}, begin);
  }
};

}  // namespace

template <class Op>
void RankTests<Op>::life(Joined& joined) {
  Tests<Op>::test_life(joined);
}
template <class Op>
void RankTests<Op>::next_life(Joined& joined) {
  Tests<Op>::test_next_life(joined);
}
template <class Op>
void RankTests<Op>::mismatch(Joined& joined) {
  Tests<Op>::test_mismatch(joined);
}
template <class Op>
void RankTests<Op>::orders(Joined& joined) {
  Tests<Op>::test_orders(joined);
}
template <class Op>
void RankTests<Op>::refused(Joined& joined) {
  Tests<Op>::test_refused(joined);
}
template <class Op>
void RankTests<Op>::absent(Joined& joined) {
  Tests<Op>::test_absent(joined);
}
template <class Op>
void RankTests<Op>::killed(Joined& joined) {
  Tests<Op>::test_killed(joined);
}
template <class Op>
void RankTests<Op>::wire_killed(Joined& joined) {
  Tests<Op>::test_wire_killed(joined);
}

template struct RankTests<AgGemmRankOp>;
template struct RankTests<GemmRsRankOp>;
template struct RankTests<GemmArRankOp>;
template struct RankTests<AttentionRankOp>;
template struct RankTests<MoeDispatchRankOp>;

}  // namespace tilewire
