#include "ops/gemm_rs/host_executor.h"

#include "executor/op_program.h"
#include "reduction/reduction_worker.h"

namespace tilewire::gemm_rs {
namespace {

// What one thread of a call does.
class RoleWorker : public ReductionWorker<Schedule> {
 public:
  using ReductionWorker::ReductionWorker;
  using ReductionWorker::operator();

  TraceEvent operator()(const FinishWork& w) {
    const Schedule& s = schedule();
    const MatrixView& out = operands().out;
    const ColumnRange columns = s.map.columns(w.chunk);
    const RowRange rows = s.map.rows(w.chunk);
    const int64_t first = rows.begin - s.map.blocks.row_begin[s.me().value];
    finish(w.chunk, first, [&](int64_t row, std::span<const float> sum) {
      from_fp32(sum.data(), columns.cols(), {element_at(out, first + row, columns.begin), out.dtype});
    });
    const int64_t bytes = rows.rows() * columns.cols() * size_bytes(out.dtype);
    return event_of("result", w.chunk, bytes, TraceLink::copy);
  }
};

}  // namespace

Call::Program host_program(const Schedule& schedule, Cursors cursors, const HostOperands& operands,
                           const ChunkStandIn* stand_in) {
  const ReductionExecution<Schedule> x{&schedule, &operands, stand_in};
  return make_program(schedule, cursors, kFamilyNames, [x](RoleContext& c, Ring r) { return RoleWorker(c, r, x); });
}

}  // namespace tilewire::gemm_rs
