// MoE dispatch on thread ranks: every row and every element of calls of all kinds of shapes and routings.
#include "ops/moe_dispatch/moe_dispatch.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "ops/moe_dispatch/random_calls.h"
#include "testing/sanitized.h"
#include "testing/simulation_test_support.h"

namespace tilewire::moe_dispatch {
namespace {

TestCall call_of(std::vector<int64_t> tokens, int32_t experts, int32_t top_k, int64_t h, int64_t cols,
                 Skew skew = Skew::uniform) {
  const auto ranks = static_cast<int32_t>(tokens.size());
  TestCall call{.tokens = std::move(tokens), .rank_of_expert = dealt_experts(experts, ranks), .h = h, .cols = cols};
  call.top_k = top_k;
  call.skew = skew;
  call.salt = static_cast<uint64_t>(experts * 100 + top_k);
  return call;
}

Options call_options() {
  Options options = test_options();
  options.arena_reserve_bytes = 256 << 20;
  return options;
}

// With room for as many rows as there can be.
TestCall with_room(TestCall call) {
  int64_t all = 0, most = 0;
  for (const int64_t count : call.tokens) {
    all += count;
    most = std::max(most, count);
  }
  call.max_tokens = all * call.top_k;
  call.max_source_tokens = most;
  return call;
}

TEST(MoeDispatch, EveryRowComesOnceOnEveryLayoutAndUnderEverySkew) {
  for (const Layout& layout : part_if_sanitized<Layout>({{1}, {2}, {2, 2}, {3, 1}, {1, 3}, {1, 1, 2}})) {
    std::vector<TestCall> calls;
    for (const Skew skew : {Skew::uniform, Skew::zipf, Skew::one, Skew::with_none}) {
      std::vector<int64_t> tokens;
      for (int32_t r = 0; r < ranks_of(layout); ++r) tokens.push_back((r * 7 + 13) % 23);
      calls.push_back(call_of(tokens, 7, 3, 20, 9, skew));
      calls.back().is_64_bit = skew == Skew::zipf;
      calls.back().is_n_by_k = skew == Skew::one;
      calls.push_back(with_room(calls.back()));
    }
    run_and_check(layout, call_options(), calls);
  }
}

TEST(MoeDispatch, TokensOfOneRankOrOfNone) {
  run_and_check({2}, call_options(), {call_of({0, 4096}, 16, 2, 16, 3), call_of({4096, 0}, 16, 2, 16, 3)});
  for (const Layout& layout : {Layout{4}, Layout{2, 2}, Layout{1, 3}}) {
    std::vector<TestCall> calls;
    for (const std::vector<int64_t>& tokens :
         {std::vector<int64_t>{1, 0, 0, 0}, {0, 0, 0, 0}, {4096 / 64, 17, 100, 1}, {0, 0, 0, 1}}) {
      calls.push_back(call_of(tokens, 16, 2, 32, 5));
      calls.push_back(with_room(calls.back()));
    }
    run_and_check(layout, call_options(), calls);
  }
}

TEST(MoeDispatch, AnyNumberOfExpertsAndAnyDepth) {
  std::vector<TestCall> calls;
  for (const int32_t experts : part_if_sanitized<int32_t>({1, 8, 60, 256, 512, 1024})) {
    for (const int32_t top_k : {1, 2, 6, 8}) calls.push_back(call_of({9, 0, 14, 3}, experts, top_k, 24, 4));
  }
  for (const int64_t h : {64, 1000, 2880, 7168}) calls.push_back(call_of({5, 2, 0, 7}, 8, 2, h, 4));
  for (const int32_t top_k : {32, 33}) calls.push_back(call_of({5, 2, 0, 7}, 60, top_k, 8, 4, Skew::with_none));
  run_and_check({2, 2}, call_options(), calls);
}

// To one expert, to one rank, to one node.
TEST(MoeDispatch, AllTokensToOnePlace) {
  for (const Layout& layout : {Layout{2, 2}, Layout{1, 1, 2}}) {
    std::vector<TestCall> calls = {call_of({30, 30, 30, 31}, 8, 2, 16, 8, Skew::one)};
    for (const std::vector<int32_t>& ranks : {std::vector<int32_t>{3}, {2, 3}, {0, 1}}) {
      calls.push_back(call_of({30, 30, 30, 31}, 8, 2, 16, 8));
      for (size_t e = 0; e < 8; ++e) calls.back().rank_of_expert[e] = ranks[e % ranks.size()];
    }
    const size_t count = calls.size();
    for (size_t i = 0; i < count; ++i) calls.push_back(with_room(calls[i]));
    run_and_check(layout, call_options(), calls);
  }
}

// Rows of many rounds in room for few of them: what moves is what fits.
TEST(MoeDispatch, AFewRoundsOfMemoryAreEnoughUnderAnySkew) {
  for (const Skew skew : {Skew::uniform, Skew::one}) {
    std::vector<TestCall> calls;
    for (const int64_t window : {1, 2, 3}) {
      TestCall call = with_room(call_of({61, 0, 90, 33}, 6, 3, 16, 8, skew));
      call.plan_json = to_json(
          {.block_tokens = 4, .window = window, .chunk_tokens = 3, .pieces = 2, .tile_rows = 8, .cursors = {1, 2}});
      calls.push_back(call);
    }
    Options options = call_options();
    options.test_delay_us = 50;
    run_and_check({2, 2}, options, calls);
  }
}

// Memory of which few pages are touched.
class SparseMatrix {
 public:
  SparseMatrix(int64_t rows, int64_t cols, int64_t row_stride, DataType dtype)
      : bytes_(static_cast<size_t>(((rows - 1) * row_stride + cols) * size_bytes(dtype))),
        view_{.data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
              .rows = rows,
              .cols = cols,
              .row_stride = row_stride,
              .dtype = dtype} {}
  ~SparseMatrix() { munmap(view_.data, bytes_); }
  SparseMatrix(const SparseMatrix&) = delete;
  SparseMatrix& operator=(const SparseMatrix&) = delete;
  const MatrixView& view() const { return view_; }

 private:
  size_t bytes_;
  MatrixView view_;
};

void copy_rows(const MatrixView& from, const MatrixView& to) {
  for (int64_t row = 0; row < from.rows; ++row) {
    std::memcpy(element_at(to, row, 0), element_at(from, row, 0),
                static_cast<size_t>(from.cols * size_bytes(from.dtype)));
  }
}

// B23: rows of x, of a weight and of the result that lie further behind each other than 32 bits count.
TEST(MoeDispatch, RowsMayLieGigabytesApart) {
  constexpr int64_t kStride = (int64_t{1} << 28) + 64;
  const TestCall call = with_room(call_of({9, 9}, 2, 1, 10, 6));
  const auto outcomes = run_thread_cluster({1, 1}, call_options(), [&](Session& session) {
    Operation op(session);
    CallChecker checker(call, session.rank().value);
    Arguments args = checker.arguments();
    const SparseMatrix x(args.x.rows, args.x.cols, kStride, args.x.dtype);
    const SparseMatrix w(args.w[0].rows, args.w[0].cols, kStride, args.w[0].dtype);
    const MatrixView dense = checker.results()[0].view();
    const SparseMatrix out(dense.rows, dense.cols, kStride, dense.dtype);
    for (const SparseMatrix* sparse : {&x, &w, &out}) {
      ASSERT_NE(sparse->view().data, MAP_FAILED);
      ASSERT_GT((sparse->view().rows - 1) * kStride, int64_t{1} << 31);
    }
    copy_rows(args.x, x.view());
    copy_rows(args.w[0], w.view());
    args.x = x.view();
    args.w[0] = w.view();
    args.make_results = [&out, make = args.make_results](const Problem& problem) {
      Arguments::Results results = make(problem);
      results.out = out.view();
      return results;
    };
    op.run(args);
    copy_rows(out.view(), dense);
    checker.check();
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(MoeDispatch, SizesThatGrowForFiftyCalls) {
  std::vector<TestCall> calls;
  for (int64_t step = 1; step <= (kIsSanitized ? 15 : 50); ++step) {
    calls.push_back(call_of({step * 3, step, 0, 17 * step % 23}, 12, 2, 16, 5));
    calls.back().salt = static_cast<uint64_t>(step);
  }
  Options options = call_options();
  options.arena_initial_bytes = 4096;
  run_and_check({2, 2}, options, calls);
}

// What is sent is what is routed: each token once to each other node that it goes to, behind its header, and the counts.
TEST(MoeDispatch, BytesOnTheWireAreThoseOfDistinctTokensAndNodes) {
  for (const Layout& layout : {Layout{2, 2}, Layout{1, 3}, Layout{1, 1, 2}}) {
    const TopologyTables tables = TopologyTables::from_layout(layout);
    const Topology t = tables.view();
    TestCall call = with_room(call_of({40, 31, 8, 55}, 12, 4, 50, 8));
    const auto reports = run_and_check(layout, call_options(), {call});
    const CallChecker checker(call, 0);
    for (int32_t r = 0; r < t.ranks; ++r) {
      std::set<std::pair<int64_t, int32_t>> pairs;
      for (int64_t token = 0; token < checker.routes().tokens(Rank{r}); ++token) {
        for (int32_t slot = 0; slot < call.top_k; ++slot) {
          const int32_t expert = checker.routes().expert(Rank{r}, token, slot);
          const Node node = t.node(Rank{call.rank_of_expert[static_cast<size_t>(expert)]});
          if (node != t.node(Rank{r})) pairs.insert({token, node.value});
        }
      }
      const int64_t token_bytes = 48 + 112;  // a header of 9 numbers; 50 elements of 2 bytes: in units of 16
      const PlanChoice plan = PlanChoice::from_json(reports[static_cast<size_t>(r)].plan_json);
      const int64_t rounds = div_up(call.tokens[static_cast<size_t>(r)], plan.block_tokens);
      const int64_t record_bytes = round_up((4 + rounds * (12 + t.nodes)) * 4, 16);
      EXPECT_EQ(reports[static_cast<size_t>(r)].network_bytes,
                static_cast<int64_t>(pairs.size()) * token_bytes + (t.nodes - 1) * record_bytes)
          << "rank " << r;
    }
  }
}

// A rank gets one row more than it may: all ranks hear both numbers, results are NaN, and the next call works.
TEST(MoeDispatch, TooManyRowsForOneRankAreAnErrorOnAllAndTheCommunicatorStaysUsable) {
  const auto outcomes = run_thread_cluster({2, 2}, call_options(), [&](Session& session) {
    Operation op(session);
    TestCall call = with_room(call_of({20, 3, 9, 11}, 8, 2, 16, 8, Skew::zipf));
    const int64_t most = CallChecker(call, 0).rows();  // expert 0 is the most wanted
    for (int i = 0; i < 3; ++i) {
      call.max_tokens = most - 1;
      CallChecker tight(call, session.rank().value);
      for (OwnedMatrix& result : tight.results()) result.fill(1);
      const Epoch before = session.epoch();
      try {
        op.run(tight.arguments());
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::resource);
        const std::string text = error.what();
        EXPECT_NE(text.find(fmt::format("rank 0 gets {} rows", most)), std::string::npos) << text;
        EXPECT_NE(text.find(fmt::format("max_tokens = {}", most - 1)), std::string::npos) << text;
      }
      EXPECT_EQ(session.epoch(), before + 1);
      EXPECT_TRUE(is_all_nan(tight.results()[0]));
      call.max_tokens = most;
      CallChecker good(call, session.rank().value);
      op.run(good.arguments());
      good.check();
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// Results have the same bits by any plan, call after call, whatever comes first.
TEST(MoeDispatch, BitsDependOnNeitherThePlanNorTheTiming) {
  Options options = call_options();
  options.test_delay_us = 200;
  options.workers = 3;
  std::vector<std::string> plans = {""};
  for (const int64_t block : {4, 16, 64}) {
    PlanChoice choice{.block_tokens = block,
                      .window = 2,
                      .chunk_tokens = 5,
                      .pieces = 3,
                      .tile_rows = 8,
                      .tile_cols = 16,
                      .workers = 3,
                      .cursors = {}};
    for (const bool is_fused : {true, false}) {
      choice.is_fused = is_fused;
      choice.local_first = !choice.local_first;
      plans.push_back(to_json(choice));
    }
  }
  expect_same_bits<Op>(options, {DataType::bf16, DataType::fp16}, plans,
                       [](Session& session, Operation& op, DataType dtype, const std::string& plan) {
                         TestCall call = with_room(call_of({30, 7, 41, 12}, 10, 3, 48, 40));
                         call.dtype = call.out_dtype = dtype;
                         call.plan_json = plan;
                         CallChecker checker(call, session.rank().value);
                         Arguments args = checker.arguments();
                         const OwnedMatrix x =
                             matrix_of(args.x.rows, args.x.cols, dtype, NormalNumbers(session.rank()));
                         args.x = x.view();
                         op.run(args);
                         return checker.results()[0].bytes();
                       });
}

TEST(MoeDispatch, RandomCallsWithRandomDelays) {
  for (const Layout& layout : {Layout{2, 2}, Layout{3, 1}}) {
    Dice dice(11);
    std::vector<TestCall> calls;
    for (int i = 0; i < (kIsSanitized ? 15 : 60); ++i) calls.push_back(OpRandomCalls<Op>::call(layout, dice));
    Options options = call_options();
    options.test_delay_us = 50;
    run_and_check(layout, options, calls);
  }
}

// ---- what a rank can find wrong by itself ----

void expect_refused(const std::string& text, const std::function<void(Arguments&)>& spoil) {
  const auto outcomes = run_spoiled<Op>([&](Rank r, Arguments& args) {
    if (r == Rank{2}) spoil(args);
  });
  expect_everywhere(outcomes, {text});
  EXPECT_EQ(outcomes[2].kind, ErrorKind::invalid_argument);
}

TEST(MoeDispatch, WhatCannotBeIsRefusedByName) {
  std::vector<int32_t> ids(64, 0);
  expect_refused("topk_ids[4, 1] = 6", [&](Arguments& args) {
    ids[9] = 6;
    args.routes.ids = ids.data();
  });
  expect_refused("topk_ids[0, 1] = -2", [&](Arguments& args) {
    ids[1] = -2;
    args.routes.ids = ids.data();
  });
  expect_refused("topk_ids has 8 rows, x has 9", [](Arguments& args) { args.routes.tokens = 8; });
  // A row of no bytes, as often as one likes.
  expect_refused("2147483648 tokens of 1 experts each", [&](Arguments& args) {
    args.x = {.data = args.x.data, .rows = int64_t{1} << 31, .cols = 0, .row_stride = 0, .dtype = args.x.dtype};
    args.routes = {.ids = ids.data(), .tokens = args.x.rows, .top_k = 1, .token_stride = 0};
    for (MatrixView& w : args.w) w.rows = 0;
    args.max_tokens.reset();
    args.max_source_tokens.reset();
  });
  expect_refused("experts gives it 1", [](Arguments& args) { args.w.clear(); });
  expect_refused("must be [16, 13]", [](Arguments& args) { args.cols = 13; });
  expect_refused("max_source_tokens = 8", [](Arguments& args) { args.max_source_tokens = 8; });
  expect_refused("max_tokens = -1", [](Arguments& args) { args.max_tokens = -1; });
  expect_refused("experts[5] = 4", [](Arguments& args) { args.rank_of_expert[5] = 4; });
  expect_refused("experts[5] = -1", [](Arguments& args) { args.rank_of_expert[5] = -1; });
}

TEST(MoeDispatch, RanksThatDisagreeOnWhereExpertsAreHearBothPlacements) {
  const auto outcomes = run_spoiled<Op>([](Rank r, Arguments& args) {
    if (r == Rank{2}) std::swap(args.rank_of_expert[0], args.rank_of_expert[1]);
  });
  expect_everywhere(
      outcomes, ErrorKind::mismatch,
      {"experts on ranks [0, 1, 2, 3, 0, 1]", "experts on ranks [1, 0, 2, 3, 0, 1]", "pass the same experts="});
}

// The memory of topk_ids is looked at once: what a careless caller, or another thread, writes there later has no part in
// the call. Asked for the results, the call has taken its copy and has not counted.
TEST(MoeDispatch, RoutesThatChangeDuringACallAreThoseOfItsBegin) {
  std::vector<TestCall> calls;
  for (const bool has_limit : {true, false}) {
    calls.push_back(call_of({8, 30, 0, 5}, 6, 3, 16, 8));
    calls.back().is_64_bit = has_limit;
    if (has_limit) calls.back() = with_room(calls.back());
  }
  const auto outcomes = run_thread_cluster({2, 2}, call_options(), [&](Session& session) {
    Operation op(session);
    for (const TestCall& call : calls) {
      CallChecker checker(call, session.rank().value);
      Arguments args = checker.arguments();
      const auto bytes = static_cast<size_t>(args.routes.tokens * args.routes.top_k) * (args.routes.is_64_bit ? 8 : 4);
      std::vector<std::byte> ids(bytes);
      if (bytes > 0) std::memcpy(ids.data(), args.routes.ids, bytes);
      args.routes.ids = ids.data();
      args.make_results = [&ids, make = args.make_results](const Problem& problem) {
        std::fill(ids.begin(), ids.end(), std::byte{0x55});  // no expert that there is
        return make(problem);
      };
      op.run(args);
      checker.check();
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// Whatever is written into the local peers is in the report: rows, own counts, and those of other nodes that go on here.
TEST(MoeDispatch, BytesInTheNodeAreRowsAndTheCountsOfAllRanks) {
  for (const Layout& layout : {Layout{3}, Layout{2, 2}, Layout{1, 3}, Layout{3, 1}}) {
    const TopologyTables tables = TopologyTables::from_layout(layout);
    const Topology t = tables.view();
    TestCall call = with_room(call_of({40, 31, 8, 55}, 12, 4, 50, 8));
    call.tokens.resize(static_cast<size_t>(t.ranks));
    for (int32_t& rank : call.rank_of_expert) rank %= t.ranks;
    const auto reports = run_and_check(layout, call_options(), {call});
    const CallChecker checker(call, 0);
    std::vector<int64_t> expected(static_cast<size_t>(t.ranks), 0);
    for (int32_t source = 0; source < t.ranks; ++source) {
      const auto entry = [&](Node n) {
        return n == t.node(Rank{source}) ? Rank{source} : t.rail_partner(Rank{source}, n);
      };
      const PlanChoice plan = PlanChoice::from_json(reports[0].plan_json);
      const int64_t rounds = div_up(call.tokens[static_cast<size_t>(source)], plan.block_tokens);
      for (int32_t n = 0; n < t.nodes; ++n) {
        const int64_t record_bytes = round_up((4 + rounds * (12 + t.nodes)) * 4, 16);
        expected[static_cast<size_t>(entry(Node{n}).value)] += (t.ranks_on(Node{n}) - 1) * record_bytes;
      }
      for (int64_t token = 0; token < checker.routes().tokens(Rank{source}); ++token) {
        for (int32_t slot = 0; slot < call.top_k; ++slot) {
          const Rank to{call.rank_of_expert[static_cast<size_t>(checker.routes().expert(Rank{source}, token, slot))]};
          const Rank from = entry(t.node(to));
          if (from != to) expected[static_cast<size_t>(from.value)] += 112;
        }
      }
    }
    for (int32_t r = 0; r < t.ranks; ++r) {
      EXPECT_EQ(reports[static_cast<size_t>(r)].node_bytes, expected[static_cast<size_t>(r)])
          << testing::PrintToString(layout) << " rank " << r;
    }
  }
}

}  // namespace
}  // namespace tilewire::moe_dispatch
