#include "rank_mix.h"

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "rank_ops.h"
#include "rank_program.h"

namespace tilewire {
namespace {

constexpr int kBatch = 12;     // calls between two looks at their results
constexpr int64_t kSalts = 2;  // inputs of a call, so that what is right is worked out once for each
constexpr int kMostDelayUs = 300;

int64_t number_of(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

// `text` with another value of a field, "" where it does not have the first one.
std::string with(std::string text, const std::string& was, const std::string& is) {
  const size_t at = text.find(was);
  return at == std::string::npos ? "" : text.replace(at, was.size(), is);
}

// One shape and plan of an operation, with its data.
class Kind {
 public:
  virtual ~Kind() = default;
  virtual std::string name() const = 0;
  virtual void prepare(int64_t salt, const Stream& stream) = 0;
  virtual void call(Joined& joined, const Stream& stream) = 0;
  virtual void call_in_capture(Joined& joined, const Stream& stream) = 0;
  virtual int64_t count_wrong() = 0;
  virtual bool fits_graphs() const = 0;

  // The first replay makes the graph, of a call that has been made before.
  void replay(Joined& joined, const Stream& stream) {
    if (graph_ == nullptr) {
      check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a capture");
      call_in_capture(joined, stream);
      cudaGraph_t graph = nullptr;
      check_cuda(cudaStreamEndCapture(stream, &graph), "ending a capture");
      check_cuda(cudaGraphInstantiate(&graph_, graph, 0), "making a graph");
      check_cuda(cudaGraphDestroy(graph), "making a graph");
    }
    check_cuda(cudaGraphLaunch(graph_, stream), "launching a graph");
  }
  void forget_graph() {
    if (graph_ != nullptr) check_cuda(cudaGraphExecDestroy(graph_), "destroying a graph");
    graph_ = nullptr;
  }

  bool was_called = false;

 private:
  cudaGraphExec_t graph_ = nullptr;
};

template <class Op>
class KindOf : public Kind {
 public:
  KindOf(const typename Op::Shape& shape, int32_t me, std::string plan, const char* variant)
      : name_(std::string(Op::Device::Op::kName) + ": " + shape.name + variant),
        shape_(shape),
        data_(shape, me),
        plan_(std::move(plan)) {}

  std::string name() const override { return name_; }
  void prepare(int64_t salt, const Stream& stream) override {
    data_.set_salt(salt);
    data_.fill_results(stream);
    data_.enqueue_inputs(stream);
  }
  void call(Joined& joined, const Stream& stream) override { run(joined, data_.arguments(), stream); }
  // What a graph cannot ask the other ranks for is said: it is the same call.
  void call_in_capture(Joined& joined, const Stream& stream) override {
    auto arguments = data_.arguments();
    Op::set_rows(arguments, shape_);
    run(joined, std::move(arguments), stream);
  }
  int64_t count_wrong() override { return data_.count_wrong(); }
  bool fits_graphs() const override { return Op::fits_graphs(shape_); }
  const std::string& plan_json() const { return report_.plan_json; }

 private:
  void run(Joined& joined, typename Op::Device::Op::Arguments arguments, const Stream& stream) {
    arguments.plan_json = plan_;
    report_ = joined.call<typename Op::Device>(arguments, stream);
  }

  std::string name_;
  typename Op::Shape shape_;
  typename Op::Case data_;
  std::string plan_;
  CallReport report_;
};

// A kind for each shape and each plan that there is of it. Collective, as plans are those of calls.
template <class Op>
void add_kinds(Joined& joined, std::vector<std::unique_ptr<Kind>>& kinds) {
  const Stream stream;
  for (const auto& shape : Op::shapes(joined.topology())) {
    auto chosen = std::make_unique<KindOf<Op>>(shape, joined.me(), "", "");
    chosen->prepare(1, stream);
    chosen->call(joined, stream);
    stream.finish();
    expect(chosen->count_wrong() == 0, chosen->name());
    chosen->was_called = true;
    const std::string plan = chosen->plan_json();
    kinds.push_back(std::move(chosen));
    const auto add = [&](const std::string& other, const char* variant) {
      if (!other.empty()) kinds.push_back(std::make_unique<KindOf<Op>>(shape, joined.me(), other, variant));
    };
    // Whether it is fused is each rank's own: all have a kind of the other way.
    const std::string unfused = with(plan, "\"is_fused\":true", "\"is_fused\":false");
    add(unfused.empty() ? with(plan, "\"is_fused\":false", "\"is_fused\":true") : unfused, ", the other way");
    const std::string two_shots = with(plan, "\"is_one_shot\":true", "\"is_one_shot\":false");
    add(two_shots.empty() ? with(plan, "\"is_one_shot\":false", "\"is_one_shot\":true") : two_shots,
        ", the other form");
  }
}

class Mix {
 public:
  explicit Mix(Joined& joined)
      : joined_(joined),
        all_(static_cast<uint64_t>(number_of(kMixedSeed, 1))),
        own_(static_cast<uint64_t>(number_of(kMixedSeed, 1) * 100 + joined.me())) {
    add_kinds<AgGemmRankOp>(joined, kinds_);
    add_kinds<GemmRsRankOp>(joined, kinds_);
    add_kinds<GemmArRankOp>(joined, kinds_);
    add_kinds<AttentionRankOp>(joined, kinds_);
    add_kinds<MoeDispatchRankOp>(joined, kinds_);
  }

  // All ranks draw the same calls.
  void batch() {
    std::vector<Kind*> drawn;
    for (size_t i = 0; i < kinds_.size() && drawn.size() < kBatch; ++i) {
      std::swap(kinds_[i], kinds_[i + below(all_, kinds_.size() - i)]);
      drawn.push_back(kinds_[i].get());
    }
    const bool are_replays = below(all_, 2) == 0;
    for (Kind* kind : drawn) {
      // Replays are in order with other calls where they share a stream with them.
      const Stream& stream = are_replays || below(own_, 2) == 0 ? one_ : other_;
      kind->prepare(1 + static_cast<int64_t>(below(all_, kSalts)), stream);
      std::this_thread::sleep_for(std::chrono::microseconds(below(own_, kMostDelayUs)));
      if (are_replays && kind->was_called && kind->fits_graphs()) {
        kind->replay(joined_, stream);
        ++replays_;
      } else {
        kind->call(joined_, stream);
        kind->was_called = true;
        ++eager_;
      }
    }
    one_.finish();
    other_.finish();
    joined_.session().check();
    for (Kind* kind : drawn) {
      const int64_t wrong = kind->count_wrong();
      if (wrong > 0) std::printf("  %lld wrong: %s\n", static_cast<long long>(wrong), kind->name().c_str());
      wrong_ += wrong;
    }
  }

  int64_t calls() const { return eager_ + replays_; }
  int64_t wrong() const { return wrong_; }
  void end() {
    for (const auto& kind : kinds_) kind->forget_graph();
    if (joined_.me() == 0) {
      std::printf("  %lld calls of %zu kinds, %lld of them replays\n", static_cast<long long>(calls()), kinds_.size(),
                  static_cast<long long>(replays_));
    }
    expect(eager_ > calls() / 4 && replays_ > calls() / 8, "calls were eager, and replays");
  }

 private:
  static size_t below(std::mt19937_64& numbers, size_t bound) { return static_cast<size_t>(numbers() % bound); }

  Joined& joined_;
  std::mt19937_64 all_, own_;  // of all ranks, and of each
  const Stream one_, other_;
  std::vector<std::unique_ptr<Kind>> kinds_;
  int64_t eager_ = 0, replays_ = 0, wrong_ = 0;
};

}  // namespace

int64_t mixed_calls() { return number_of(kMixedCalls, 400); }

void mix_calls(Joined& joined) {
  const int64_t calls = mixed_calls();
  if (joined.me() == 0) std::printf("  seed %lld\n", static_cast<long long>(number_of(kMixedSeed, 1)));
  Mix mix(joined);
  while (mix.calls() < calls && mix.wrong() == 0) mix.batch();
  mix.end();
  expect(mix.wrong() == 0, "calls of all operations on one communicator give what each gives alone");
  joined.meet();
}

}  // namespace tilewire
