#include "ops/gemm_ar/gemm_ar.h"

#include "reduction/reduction_report.h"

namespace tilewire::gemm_ar {
namespace {

// Each chunk in one shot: a copy stays here, the local peers get one, and so do those to whom sums are forwarded.
void count_one_shot(const Schedule& s, CallReport& report) {
  for (int32_t g = 0; g < s.map.total_chunks(); ++g) {
    const OwnedChunk c = s.map.at(g);
    report.copy_bytes += s.partial_bytes(c);
    report.node_bytes += s.partial_bytes(c) * (s.width() - 1);
    if (s.frame.has_network() && s.adder(s.here(), g) == s.me()) {
      report.copy_bytes += s.sum_bytes(c);
      report.network_bytes += s.sum_bytes(c) * s.other_nodes();
    }
  }
  one_shot::ForwardWork w;
  for (one_shot::ForwardRole role(s); role.next(w);) report.node_bytes += s.sum_bytes(w.chunk);
}

// Each finished chunk: a copy stays here, the local peers get one, and so do those to whom it is forwarded.
void count_results(const Schedule& s, CallReport& report) {
  for (int32_t i = 0; i < s.map.chunks_of(s.me()); ++i) {
    const int64_t bytes = s.result_chunk_bytes({s.me(), Chunk{i}});
    report.copy_bytes += bytes;
    report.node_bytes += bytes * (s.width() - 1);
    report.network_bytes += bytes * s.other_nodes();
  }
  ForwardWork w;
  for (ForwardRole role(s); role.next(w);) report.node_bytes += s.result_chunk_bytes(w.chunk);
}

}  // namespace

void Op::check(const Arguments& args, Session&) { check_reduction(kCallName, args); }

Problem Op::make_problem(const Arguments& args, Session&, CountExchange&) {
  Problem problem{.m = args.a.rows,
                  .n = args.b[0].cols,
                  .dtype = args.a.dtype,
                  .wire_dtype = args.wire_dtype.value_or(args.a.dtype),
                  .out_dtype = args.out_dtype,
                  .has_bias = !args.bias.empty() && args.bias[0] != nullptr,
                  .has_residual = args.residual.has_value(),
                  .k = args.a.cols};
  problem.validate();
  return problem;
}

HostOperands Op::make_operands(const Arguments& args, const Problem& problem, Rank) {
  const ReductionResult result{
      .rows = problem.m, .cols = problem.n, .dtype = problem.out_dtype, .rows_are = "the shape of the result"};
  check_residual(kCallName, args, result);
  return reduction_operands(kCallName, args, args.make_results(problem), result, problem.wire_dtype);
}

CallReport Op::report(const Schedule& s) {
  CallReport report;
  if (s.is_one_shot) {
    count_one_shot(s, report);
  } else {
    count_sums(s, report);
    count_results(s, report);
  }
  return report;
}

}  // namespace tilewire::gemm_ar
