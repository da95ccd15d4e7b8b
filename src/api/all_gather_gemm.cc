#include <tilewire/all_gather_gemm.h>

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "api/communicator_parts.h"
#include "ops/ag_gemm/simulation.h"

namespace tilewire {
namespace {

ag_gemm::Rows to_rows(const AllGatherGemmArguments& a) {
  switch (a.rows_from) {
    case RowsFrom::same: return {ag_gemm::Rows::Policy::same, {}};
    case RowsFrom::list: return {ag_gemm::Rows::Policy::given, a.rows};
    case RowsFrom::exchange: return {ag_gemm::Rows::Policy::exchange, {}};
  }
  return {};
}

ag_gemm::Arguments to_arguments(const AllGatherGemmArguments& a) {
  ag_gemm::Arguments out{.a = a.a,
                         .b = a.b,
                         .bias = a.bias,
                         .bias_dtype = a.bias_dtype,
                         .out_dtype = a.out_dtype,
                         .rows = to_rows(a),
                         .wants_gathered = a.return_gathered,
                         .plan_json = a.plan_json,
                         .stand_in = {},
                         .make_results = {}};
  if (a.compute_stand_in) {
    out.stand_in = [stand_in = a.compute_stand_in, k = a.a.cols](const ag_gemm::TileWork& w) {
      stand_in(w.rows.rows(), w.columns.end - w.columns.begin, k);
    };
  }
  out.make_results = [&a](const ag_gemm::Problem& problem) {
    const AllGatherGemmResults results = a.make_results(problem.total_rows());
    return ag_gemm::Arguments::Results{results.out, results.gathered};
  };
  return out;
}

ag_gemm::Problem to_problem(const AllGatherGemm::Shape& s) {
  return {.rows = s.rows,
          .k = s.k,
          .dtype = s.dtype,
          .cols = s.cols,
          .out_dtype = s.out_dtype,
          .wants_gathered = s.return_gathered};
}

std::optional<ag_gemm::PlanChoice> to_choice(const std::string& json) {
  if (json.empty()) return std::nullopt;
  return ag_gemm::plan_from_json(json);
}

Machine machine_of(const PlanQuery& q) {
  Machine m;
  if (q.worker_tflops > 0) m.worker_flops = q.worker_tflops * 1e12;
  if (q.node_gb_per_s > 0) m.node_bytes_per_s = q.node_gb_per_s * 1e9;
  if (q.network_gbit_per_s > 0) m.network_bytes_per_s = q.network_gbit_per_s * 1e9 / 8;
  if (q.network_latency_us > 0) m.network_latency_s = q.network_latency_us * 1e-6;
  return m;
}

CallReport run(Communicator& comm, const AllGatherGemmArguments& arguments, const ag_gemm::Problem* fixed) {
  const ag_gemm::Report r = comm.parts().ag_gemm.run(to_arguments(arguments), fixed);
  return {.seconds = r.seconds,
          .predicted_s = r.plan.predicted_s,
          .copy_bytes = r.copy_bytes,
          .node_bytes = r.node_bytes,
          .network_bytes = r.network_bytes,
          .plan_json = to_json(r.plan.choice)};
}

}  // namespace

CallReport all_gather_matmul(Communicator& comm, const AllGatherGemmArguments& arguments) {
  return run(comm, arguments, nullptr);
}

AllGatherGemm::AllGatherGemm(Communicator& comm, Shape shape) : comm_(&comm), shape_(std::move(shape)) {
  const ag_gemm::Plan plan = comm.parts().ag_gemm.agree(to_problem(shape_), shape_.plan_json);
  plan_json_ = to_json(plan.choice);
  explanation_ = plan.explain();
}

CallReport AllGatherGemm::operator()(const AllGatherGemmArguments& arguments) const {
  AllGatherGemmArguments fixed = arguments;
  fixed.rows_from = RowsFrom::list;
  fixed.rows = shape_.rows;
  fixed.plan_json = plan_json_;
  fixed.return_gathered = shape_.return_gathered;
  fixed.out_dtype = shape_.out_dtype;
  const ag_gemm::Problem problem = to_problem(shape_);
  return run(*comm_, fixed, &problem);
}

PlanAnswer plan_all_gather_matmul(const PlanQuery& query) {
  const TopologyTables topology = TopologyTables::from_layout(query.ranks_per_node);
  const Options defaults;
  ag_gemm::PlanContext context{.topology = topology.view(),
                               .me = Rank{query.rank},
                               .arena = {.flags = {.ranks = topology.view().ranks,
                                                   .max_chunks = static_cast<int32_t>(defaults.max_chunks_per_source)},
                                         .half_stride_bytes = defaults.arena_reserve_bytes,
                                         .user_stride_bytes = defaults.user_arena_reserve_bytes},
                               .machine = machine_of(query),
                               .workers = std::max(1, query.workers)};
  if (query.rank < 0 || query.rank >= topology.view().ranks) {
    throw Error(ErrorKind::invalid_argument,
                {.what = "no such rank",
                 .where = "plan",
                 .values = fmt::format("rank = {}, layout = {}", query.rank, topology.describe())});
  }
  const ag_gemm::Problem problem = to_problem(query.shape);
  const auto choice = to_choice(query.shape.plan_json);
  const ag_gemm::Plan plan = choice ? check_plan(*choice, problem, context) : make_plan(problem, context);
  const TimedReport timed = ag_gemm::simulate(problem, plan.choice, topology, context, query.wants_timeline);
  PlanAnswer answer{.plan_json = to_json(plan.choice),
                    .explanation = plan.explain(),
                    .predicted_s = plan.predicted_s,
                    .compute_s = plan.compute_s,
                    .communication_s = plan.communication_s,
                    .simulated_s = timed.seconds,
                    .timeline = {}};
  for (const TraceEvent& e : timed.trace) answer.timeline.push_back(to_work_event(e));
  return answer;
}

}  // namespace tilewire
