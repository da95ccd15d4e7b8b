#include <deque>
#include <vector>

#include "rank_tests.h"

#include "ops/attention/device_sight.cuh"

namespace tilewire {
namespace {

using attention::DeviceSight;

constexpr int64_t kKinds = DeviceSight::kRooms + 4;  // more than there are rooms for
constexpr int64_t kCalledFirst = kKinds - 1;
constexpr int kCalls = 60;

class PackedCalls {
 public:
  explicit PackedCalls(Joined& joined) : joined_(joined) {
    for (int64_t n = 0; n < kKinds; ++n) {
      AttentionRankCase& data = data_.emplace_back(AttentionRankOp::packed(joined.topology(), n), joined.me());
      data.set_salt(1 + n);
      data.fill_results(stream_);
      data.enqueue_inputs(stream_);
    }
  }
  ~PackedCalls() {
    for (cudaGraphExec_t replay : replays_) cudaGraphExecDestroy(replay);
  }

  void call(int64_t n, const Stream& stream) { joined_.call(data_[static_cast<size_t>(n)], stream); }
  // Without a wait between them.
  void call_in_a_row() {
    const Stream other;
    stream_.finish();
    for (int i = 0; i < kCalls; ++i) call(i * 5 % kCalledFirst, i % 3 == 0 ? other : stream_);
    other.finish();
    expect_right("calls with documents of their own in a row", kCalledFirst);
  }
  // Of a call that was made before. "" or why it was refused.
  std::string capture(int64_t n) {
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "beginning a capture");
    const auto error = error_of([&] { call(n, stream_); });
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream_, &graph), "ending a capture");
    if (error) {
      if (graph != nullptr) cudaGraphDestroy(graph);
      return error->what();
    }
    check_cuda(cudaGraphInstantiate(&replays_.emplace_back(), graph, 0), "making a graph");
    check_cuda(cudaGraphDestroy(graph), "making a graph");
    return "";
  }
  void replay_all() {
    for (AttentionRankCase& data : data_) data.fill_results(stream_);
    for (int round = 0; round < 50; ++round) {
      for (cudaGraphExec_t replay : replays_) check_cuda(cudaGraphLaunch(replay, stream_), "launching a graph");
    }
    for (int64_t n = static_cast<int64_t>(replays_.size()); n < kKinds; ++n) call(n, stream_);
    expect_right("replays, and calls that graphs have no room for", kKinds);
  }
  const Stream& stream() const { return stream_; }

 private:
  void expect_right(const std::string& what, int64_t kinds) {
    stream_.finish();
    joined_.session().check();
    int64_t wrong = 0;
    for (int64_t n = 0; n < kinds; ++n) wrong += data_[static_cast<size_t>(n)].count_wrong();
    expect(wrong == 0, what);
  }

  Joined& joined_;
  const Stream stream_;
  std::deque<AttentionRankCase> data_;
  std::vector<cudaGraphExec_t> replays_;
};

}  // namespace

void test_packed_calls(Joined& joined) {
  PackedCalls calls(joined);
  calls.call_in_a_row();
  const auto most = static_cast<int64_t>(DeviceSight::kRoomsOfGraphs);
  for (int64_t n = 0; n < most; ++n) {
    calls.call(n, calls.stream());
    calls.stream().finish();
    expect(calls.capture(n) == "", "a call whose documents a call had before is captured");
  }
  expect(calls.capture(kCalledFirst).find("before the capture") != std::string::npos,
         "a capture of documents that no call has had is refused");
  calls.call(most, calls.stream());
  calls.stream().finish();
  expect(calls.capture(most).find("too many calls of this shape") != std::string::npos,
         "graphs do not take all memory for documents");
  calls.replay_all();
  joined.meet();
}

}  // namespace tilewire
