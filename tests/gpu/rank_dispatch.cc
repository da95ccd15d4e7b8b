// What MoE dispatch alone has on GPU ranks: what a kernel remarks of a call that ends as any other does, and results that
// are made when their rows have been counted.
#include <cstdio>
#include <string>

#include "rank_program.h"
#include "rank_tests.h"

namespace tilewire {
namespace {

constexpr int64_t kRoom = 40;  // rows that a rank may get

MoeRankShape limited(const Topology& t) {
  MoeRankShape shape = MoeDispatchRankOp::shapes(t)[0];
  shape.size.max_tokens = kRoom;
  return shape;
}

// The remark of the calls since the last one: by all ranks, once.
void expect_remark(Joined& joined, ErrorKind kind, const std::vector<std::string>& parts, const char* claim) {
  const auto error = error_of([&] { joined.session().check(); });
  if (error && joined.me() == 0) std::printf("  %s\n", error->what());
  expect(error && error->kind() == kind, claim);
  for (const std::string& part : parts) {
    expect(error && std::string(error->what()).find(part) != std::string::npos, "the error says: " + part);
  }
  expect(!error_of([&] { joined.session().check(); }), "and it is said once");
}

// More rows than there is room for on one rank: no rank gets any, all hear of it, and the next call is as any other.
void test_overflow(Joined& joined, const Stream& stream) {
  const Topology t = joined.topology();
  MoeRankCase fitting(MoeDispatchRankOp::shapes(t)[0], joined.me()), data(limited(t), joined.me());
  data.set_salt(5);
  data.fill_results(stream, 0x11);
  data.enqueue_inputs(stream);
  joined.call(data, stream);
  fitting.set_salt(6);
  fitting.fill_results(stream);
  fitting.enqueue_inputs(stream);
  joined.call(fitting, stream);
  stream.finish();
  expect(data.is_nan(), "no rank has results where one gets too many rows");
  expect(fitting.count_wrong() == 0, "the call behind it is as any other");
  expect_remark(joined, ErrorKind::resource, {"gets", "rows", "max_tokens = 40"}, "all ranks hear of too many rows");
}

// Where rows are counted two kernels read the routes; the first one has ended when the call is there, and is heard of before
// the second.
void test_routes_to_nobody(Joined& joined, const Stream& stream, bool is_counted) {
  MoeRankShape shape = MoeDispatchRankOp::shapes(joined.topology())[0];
  shape.is_counted = is_counted;
  MoeRankCase data(shape, joined.me());
  data.set_salt(1);
  const bool is_mine = joined.me() == 1;
  if (is_mine) data.spoil_route(9);
  data.enqueue_inputs(stream);
  joined.call(data, stream);
  if (!is_counted) stream.finish();
  if (is_mine) {
    expect_remark(joined, ErrorKind::invalid_argument, {"topk_ids[0, 0] = 9"}, "a number of no expert is named");
  }
  stream.finish();
  joined.session().check();
  call_once(joined, data, stream, 2);
  expect(data.count_wrong() == 0, "a call behind such a route");
}

// Neither hides the other, and the earlier call's is said first.
void test_both(Joined& joined, const Stream& stream) {
  MoeRankCase astray(MoeDispatchRankOp::shapes(joined.topology())[0], joined.me());
  MoeRankCase data(limited(joined.topology()), joined.me());
  astray.set_salt(1);
  data.set_salt(5);
  const bool is_mine = joined.me() == 1;
  if (is_mine) astray.spoil_route(9);
  for (MoeRankCase* one : {&astray, &data}) {
    one->enqueue_inputs(stream);
    joined.call(*one, stream);
  }
  stream.finish();
  if (is_mine) {
    const auto error = error_of([&] { joined.session().check(); });
    expect(error && std::string(error->what()).find("topk_ids[0, 0] = 9") != std::string::npos,
           "a route to nobody is said before what is wrong in the next call");
  }
  expect_remark(joined, ErrorKind::resource, {"max_tokens = 40"}, "and hides it not");
}

// Few plans and agreements serve them, and arenas grow.
void test_growing(Joined& joined, const Stream& stream) {
  MoeRankShape shape = MoeDispatchRankOp::shapes(joined.topology())[1];
  int64_t wrong = 0;
  for (int64_t i = 0; i < 50; ++i) {
    for (size_t r = 0; r < shape.size.tokens.size(); ++r) {
      shape.size.tokens[r] = (1 + i) * (1 + static_cast<int64_t>(r) % 3);
    }
    MoeRankCase data(shape, joined.me());
    call_once(joined, data, stream, i);
    wrong += data.count_wrong();
  }
  expect(wrong == 0, "results are as large as rows were counted, for 50 calls of growing sizes");
}

void test_capture_without_a_limit(Joined& joined, const Stream& stream) {
  const MoeRankCase data(MoeDispatchRankOp::shapes(joined.topology())[1], joined.me());
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a capture");
  const auto error = error_of([&] { joined.call(data, stream); });
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  expect(error && std::string(error->what()).find("pass max_tokens=") != std::string::npos,
         "rows are not counted in a graph");
}

}  // namespace

void test_dispatch_remarks(Joined& joined) {
  const Stream stream;
  test_overflow(joined, stream);
  test_both(joined, stream);
  for (const bool is_counted : {false, true}) test_routes_to_nobody(joined, stream, is_counted);
  test_growing(joined, stream);
  test_capture_without_a_limit(joined, stream);
  joined.meet();
}

}  // namespace tilewire
