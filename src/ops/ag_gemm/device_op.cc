#include "ops/ag_gemm/device_op.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "executor/matrix_checks.h"
#include "ops/ag_gemm/device_launch.cuh"
#include "ops/ag_gemm/device_plan.h"
#include "ops/ag_gemm/device_roles.h"

namespace tilewire::ag_gemm {

struct DeviceOp::Kernel {
  FusedKernel fused;
};

namespace {

constexpr int64_t kCopyBytes = 16;  // what the copy engine counts in

[[noreturn]] void refuse(const std::string& what, const std::string& values, const std::string& limit,
                         const std::string& advice = {}) {
  refuse_argument(kCallName, what, values, limit, advice);
}

// A row of a matrix that has one alone may have any pitch.
int64_t pitch_bytes(int64_t rows, int64_t cols, int64_t stride, DataType type) {
  return rows > 1 ? stride * size_bytes(type) : round_up(cols * size_bytes(type), kCopyBytes);
}

// Whether the weight is stored as [K, N], which is what its view says, or as [N, K].
bool is_n_major(const std::string& name, const MatrixView& b) {
  const bool has_contiguous_cols = b.row_stride == 1 || b.rows <= 1;
  if (has_contiguous_cols && b.cols <= 1) return b.rows <= 1;
  if (b.has_contiguous_rows()) return true;
  if (has_contiguous_cols) return false;
  refuse(name + " has strides that a kernel cannot follow",
         fmt::format("strides of {} and {} elements", b.row_stride, b.col_stride), "one of them must be 1",
         "copy it into contiguous memory");
}

DeviceMatrix as_stored(const std::string& name, const MatrixView& b) {
  if (is_n_major(name, b)) {
    return {b.data, b.rows, b.cols, pitch_bytes(b.rows, b.cols, b.row_stride, b.dtype), b.dtype};
  }
  return {b.data, b.cols, b.rows, pitch_bytes(b.cols, b.rows, b.col_stride, b.dtype), b.dtype};
}

void check_stored(const std::string& name, const DeviceMatrix& m) {
  if (m.rows > 0 && m.cols > 0) check_copyable(name.c_str(), m);
}

DeviceMatrix rows_of(const MatrixView& m) {
  return {m.data, m.rows, m.cols, pitch_bytes(m.rows, m.cols, m.row_stride, m.dtype), m.dtype};
}

bool are_n_major(const Arguments& arguments) {
  const std::vector<MatrixView>& b = arguments.b;
  const bool first = is_n_major(argument_name("b", 0, b.size()), b[0]);
  for (size_t w = 1; w < b.size(); ++w) {
    if (is_n_major(argument_name("b", w, b.size()), b[w]) != first) {
      refuse("the weights of a call are stored in different orders",
             fmt::format("b[0] as {}, b[{}] as {}", first ? "[K, N]" : "[N, K]", w, first ? "[N, K]" : "[K, N]"),
             "the same for all", "make a call for each, or store them alike");
    }
  }
  return first;
}

void check_types(const Arguments& arguments) {
  const DataType type = arguments.a.dtype;
  if (type == DataType::fp32) refuse("a has elements of 32 bits", "fp32", "bf16 or fp16 on a GPU");
  if (arguments.out_dtype != type) {
    refuse("out has another dtype than a", to_string(arguments.out_dtype), fmt::format("{} on a GPU", to_string(type)));
  }
  if (!arguments.bias.empty() && arguments.bias_dtype != DataType::fp32 && arguments.bias_dtype != type) {
    refuse("bias has a dtype of its own", to_string(arguments.bias_dtype),
           fmt::format("fp32 or {} on a GPU", to_string(type)));
  }
}

// What ranks agree on without knowing each other's GPUs: a tile's rows, or more where the flags do not suffice.
int64_t chunk_rows_of(const Problem& problem, const PlanContext& context) {
  const int64_t most = *std::max_element(problem.rows.begin(), problem.rows.end());
  const int64_t row_bytes = round_up(problem.k * size_bytes(problem.dtype), kWireUnitBytes);
  int64_t rows = 128;
  while (rows < most && !reason_against_chunks(rows, most, row_bytes, context).empty()) rows *= 2;
  return rows;
}

// Those that copy stand beside the tiles: measured best wherever rows come from other ranks (docs/results).
FusedPlan chosen_plan(const Problem& problem, const PlanContext& context) {
  FusedPlan plan = fused_plan(problem, context.topology, context.machine, context.workers, 0);
  plan.choice.chunk_rows = chunk_rows_of(problem, context);
  return plan;
}

}  // namespace

KernelNames DeviceOp::names() {
  return {.op = kCallName, .mismatch_advice = kRowsAdvice, .roles = kRoleNames, .family_names = kFamilyNames};
}

void DeviceOp::check(const Arguments& arguments, const Session&) {
  check_types(arguments);
  if (arguments.stand_in) refuse("a kernel has no stand-in", "", "CPU ranks");
  if (arguments.wants_gathered) refuse("the gathered rows are no result of a kernel", "return_gathered", "CPU ranks");
  if (arguments.a.cols == 0) refuse("k is 0", "", "K = 0 needs no kernel: the result is the bias or zeros");
  if (!arguments.a.has_contiguous_rows()) {
    refuse("a has columns that a kernel cannot follow",
           fmt::format("a stride of {} elements between columns", arguments.a.col_stride), "1",
           "copy it into contiguous memory");
  }
  if (arguments.b.empty()) refuse("there is no weight", "b is empty", "at least one");
  check_stored("a", rows_of(arguments.a));
  are_n_major(arguments);
  for (size_t w = 0; w < arguments.b.size(); ++w) {
    const std::string name = argument_name("b", w, arguments.b.size());
    check_stored(name, as_stored(name, arguments.b[w]));
  }
}

std::string DeviceOp::variant(const Arguments& arguments) { return are_n_major(arguments) ? ", [K, N]" : ", [N, K]"; }

DevicePlan DeviceOp::make_plan(const Problem& problem, const std::string& plan_json, const PlanContext& context) {
  problem.validate();
  const FusedPlan fused = plan_json.empty() ? chosen_plan(problem, context) : fused_plan_from_json(plan_json);
  const std::string wrong = out_of_range_text(fused);
  if (!wrong.empty()) refuse_given_plan(kCallName, problem.text(), wrong);
  return {.fused = std::make_shared<const FusedPlan>(fused),
          .json = to_json(fused),
          .explanation = text_of(fused),
          .half_bytes = check_plan(fused.choice, problem, context).half_bytes};
}

std::string DeviceOp::agreed_text(const Problem& problem, const Plan& plan) {
  return problem.agreed_text() + ", " + plan.fused->choice.shared_text() + ", on GPUs";
}

void DeviceOp::check_operands(const Op::Operands& operands) {
  for (size_t w = 0; w < operands.out.size(); ++w) {
    check_stored(argument_name("out", w, operands.out.size()), rows_of(operands.out[w]));
  }
}

std::shared_ptr<DeviceOp::Kernel> DeviceOp::make_kernel(const Problem& problem, const Plan& plan,
                                                        const PlanContext& context, const DeviceRank& rank,
                                                        const Arguments& arguments) {
  return std::make_shared<Kernel>(Kernel{FusedKernel(problem, *plan.fused, context, rank, are_n_major(arguments))});
}

CallReport DeviceOp::report(const Problem& problem, const Plan& plan, const PlanContext& context) {
  return Op::report(ScheduleTables(problem, plan.fused->choice, context).schedule(1));
}

void DeviceOp::launch(const Kernel& kernel, uint64_t agreed_hash, const Op::Operands& operands, void* stream) {
  std::vector<DeviceMatrix> b, out;
  b.reserve(operands.b.size());
  out.reserve(operands.b.size());
  for (size_t w = 0; w < operands.b.size(); ++w) {
    b.push_back(as_stored(argument_name("b", w, operands.b.size()), operands.b[w]));
    out.push_back(rows_of(operands.out[w]));
  }
  kernel.fused.launch(
      agreed_hash,
      {.a = rows_of(operands.a), .b = b, .out = out, .bias = operands.bias, .bias_type = operands.bias_dtype},
      static_cast<cudaStream_t>(stream));
}

}  // namespace tilewire::ag_gemm
