#include "ops/moe_dispatch/arguments_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "operands/matrix_checks.h"

namespace tilewire::moe_dispatch {
namespace {

void check_weights(const Arguments& args, const std::vector<int32_t>& rank_of, Rank me) {
  const auto own = std::count(rank_of.begin(), rank_of.end(), me.value);
  if (args.w.size() != static_cast<size_t>(own)) {
    refuse_argument(kCallName, "w1 has the wrong number of experts",
                    fmt::format("{} weights on rank {}", args.w.size(), me.value),
                    fmt::format("experts gives it {}", own), "pass the weights of the experts that experts= puts here");
  }
  for (size_t e = 0; e < args.w.size(); ++e) {
    const MatrixView& w = args.w[e];
    const std::string name = fmt::format("w1[{}]", e);
    if (w.rows != args.x.cols || w.cols != args.cols) {
      refuse_argument(kCallName, "w1 does not fit x",
                      fmt::format("{} is {}, x is {}", name, shape_text(w), shape_text(args.x)),
                      fmt::format("must be [{}, {}]", args.x.cols, args.cols));
    }
    if (w.dtype != args.x.dtype) {
      refuse_argument(kCallName, "w1 has another dtype than x",
                      fmt::format("{} is {}, x is {}", name, to_string(w.dtype), to_string(args.x.dtype)),
                      "must be equal");
    }
    check_memory(kCallName, {name, w});
  }
}

void check_routes(const Arguments& args) {
  const CallerRoutes& routes = args.routes;
  if (routes.tokens != args.x.rows) {
    refuse_argument(kCallName, "topk_ids does not fit x",
                    fmt::format("topk_ids has {} rows, x has {}", routes.tokens, args.x.rows), "must be equal");
  }
  if (routes.tokens > 0 && routes.top_k > 0 && routes.ids == nullptr) {
    refuse_argument(kCallName, "topk_ids has no memory",
                    fmt::format("[{}, {}] at address 0", routes.tokens, routes.top_k), "not null");
  }
  check_number_of_tokens(routes.tokens, routes.top_k);
}

void check_limits(const Arguments& args) {
  const auto check = [](const char* name, const std::optional<int64_t>& value) {
    if (value && *value < 0) {
      refuse_argument(kCallName, fmt::format("negative {}", name), fmt::format("{} = {}", name, *value), ">= 0");
    }
  };
  check("max_tokens", args.max_tokens);
  check("max_source_tokens", args.max_source_tokens);
  if (!args.max_tokens) {
    if (args.max_source_tokens) {
      refuse_argument(kCallName, "max_source_tokens without max_tokens",
                      fmt::format("max_source_tokens = {}", *args.max_source_tokens), "goes with max_tokens");
    }
    return;
  }
  const int64_t most = args.max_source_tokens.value_or(*args.max_tokens);
  if (args.x.rows > most) {
    refuse_argument(kCallName, "x has too many tokens", fmt::format("x is {}", shape_text(args.x)),
                    fmt::format("{} = {}", args.max_source_tokens ? "max_source_tokens" : "max_tokens", most),
                    args.max_source_tokens ? "raise max_source_tokens on all ranks"
                                           : "raise max_tokens, or pass max_source_tokens, on all ranks");
  }
}

// What is read of the caller's memory. Numbers of experts have the width of one element or of two.
std::vector<NamedMatrix> read_matrices(const Arguments& args) {
  const int64_t width = args.routes.is_64_bit ? 2 : 1;
  std::vector<NamedMatrix> read = {
      {"x", args.x},
      {"topk_ids",
       {const_cast<void*>(args.routes.ids), args.routes.tokens, args.routes.top_k, width * args.routes.token_stride,
        width * args.routes.slot_stride, DataType::fp32}}};
  for (size_t e = 0; e < args.w.size(); ++e) read.push_back({fmt::format("w1[{}]", e), args.w[e]});
  return read;
}

}  // namespace

std::vector<int32_t> placement(const Arguments& args, int32_t ranks) {
  if (!args.rank_of_expert.empty()) return args.rank_of_expert;
  std::vector<int32_t> rank_of;
  for (int32_t r = 0; r < ranks; ++r) rank_of.insert(rank_of.end(), args.w.size(), r);
  return rank_of;
}

void check_arguments(const Arguments& args, Rank me, int32_t ranks, bool takes_routes) {
  check_memory(kCallName, {"x", args.x});
  const std::vector<int32_t> rank_of = placement(args, ranks);
  check_limits(args);
  check_weights(args, rank_of, me);
  check_routes(args);
  if (takes_routes && !args.counted) args.copy->take(args.routes, static_cast<int64_t>(rank_of.size()));
}

HostOperands make_operands(const Arguments& args, const Problem& problem) {
  HostOperands operands;
  operands.x = args.x;
  if (args.copy != nullptr) operands.routes = args.copy->view();
  operands.given_routes = args.routes;
  operands.w = args.w;
  operands.most_rows = problem.most_rows;
  operands.counts = args.counts;
  if (problem.counts_only) return operands;
  if (args.counted) operands.counted_rows = problem.result_rows;
  const Arguments::Results results = args.make_results(problem);
  operands.out = results.out;
  operands.origins = results.origins;
  operands.offsets = results.offsets;
  if (problem.result_rows > 0 && operands.origins == nullptr) {
    refuse_argument(kCallName, "no memory for origins", "make_results gave none", "a place for each row");
  }
  if (operands.offsets == nullptr) {
    refuse_argument(kCallName, "no memory for offsets", "make_results gave none", "one more than local experts");
  }
  const NamedMatrix out{"out", results.out};
  check_result(kCallName, out, {.rows = problem.result_rows, .cols = problem.cols, .dtype = problem.out_dtype});
  check_no_overlap(kCallName, {out}, read_matrices(args));
  return operands;
}

}  // namespace tilewire::moe_dispatch
