#include "ops/ag_gemm/arguments_check.h"

#include "operands/matrix_checks.h"
#include "operands/weighted_matmul.h"

namespace tilewire::ag_gemm {

void check_arguments(const Arguments& args, const Session& session) {
  check_operands(kCallName, args);
  check_rows(kCallName, args.rows, session, {"a", args.a});
}

HostOperands make_operands(const Arguments& args, const Problem& problem) {
  const Arguments::Results results = args.make_results(problem);
  HostOperands operands{args, results.out, problem.wants_gathered ? results.gathered : MatrixView{}};
  std::vector<NamedMatrix> written =
      check_outs(kCallName, operands, operands.out, problem.total_rows(), problem.out_dtype);
  if (problem.wants_gathered) {
    written.push_back({"gathered", operands.gathered});
    check_result(kCallName, written.back(), {.rows = problem.total_rows(), .cols = problem.k, .dtype = problem.dtype});
  }
  check_no_overlap(kCallName, written, read_matrices(operands));
  return operands;
}

}  // namespace tilewire::ag_gemm
