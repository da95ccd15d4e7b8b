#include "ops/gemm_ar/host_executor.h"

#include <cstring>

#include "executor/op_program.h"
#include "reduction/reduction_worker.h"

namespace tilewire::gemm_ar {
namespace {

// What one thread of a call does.
class RoleWorker : public ReductionWorker<Schedule> {
 public:
  using ReductionWorker::ReductionWorker;
  using ReductionWorker::operator();

  // ---- two shots
  TraceEvent operator()(const SendWork& w) {
    if (w.kind == SendWork::Kind::sum) return ReductionWorker::operator()(w);
    hands().give(w.command);
    if (w.kind == SendWork::Kind::result_slot) return {.name = "slot free", .work = schedule().map.global(w.chunk)};
    return event_of("result", w.chunk, schedule().result_chunk_bytes(w.chunk), TraceLink::network);
  }
  TraceEvent operator()(const OwnedSumWork& w);
  TraceEvent operator()(const ForwardWork& w) {
    const int64_t bytes = schedule().result_chunk_bytes(w.chunk);
    context().copy_to(w.to, schedule().result_offset(w.chunk), bytes);
    return from_rank(w.chunk.owner, event_of("result", w.chunk, bytes, TraceLink::node));
  }
  TraceEvent operator()(const CollectWork& w);

  // ---- one shot
  TraceEvent operator()(const one_shot::ComputeWork& w);
  TraceEvent operator()(const one_shot::ReduceWork& w) {
    add_up_node(w.chunk);
    return event_of("sum", w.chunk, schedule().sum_bytes(w.chunk), TraceLink::copy);
  }
  TraceEvent operator()(const one_shot::SendWork& w) {
    if (w.command.kind == CommandKind::call_end) return hands().give_end(w.command);
    hands().give(w.command);
    return event_of("chunk", w.chunk, schedule().sum_bytes(w.chunk), TraceLink::network);
  }
  TraceEvent operator()(const one_shot::ForwardWork& w) {
    const Schedule& s = schedule();
    context().copy_to(w.to, s.received_offset(s.topology().node(w.adder), w.chunk), s.sum_bytes(w.chunk));
    return from_rank(w.adder, event_of("chunk", w.chunk, s.sum_bytes(w.chunk), TraceLink::node));
  }
  TraceEvent operator()(const one_shot::FinishWork& w);

 private:
  // What this rank hands on: the event of a chunk is that of the rank whose it is, on all its way.
  static TraceEvent from_rank(Rank source, TraceEvent event) {
    event.source = source.value;
    return event;
  }
  int64_t row_bytes(OwnedChunk c) const { return schedule().map.columns(c).cols() * schedule().result_bytes; }
  int64_t pitch_bytes(OwnedChunk c) const {
    return ReductionBuffers::pitch_bytes(schedule().map.columns(c), schedule().result_bytes);
  }
  std::byte* result_at(OwnedChunk c, int64_t row) const {
    return element_at(operands().out, schedule().map.rows(c).begin + row, schedule().map.columns(c).begin);
  }
  // The rows of a chunk into the caller's result: finish_row(row, where it begins) after each.
  template <class FinishRow>
  void finish_into_result(OwnedChunk c, const FinishRow& finish_row) {
    const MatrixView& out = operands().out;
    finish(c, schedule().map.rows(c).begin, [&](int64_t row, std::span<const float> sum) {
      std::byte* to = result_at(c, row);
      from_fp32(sum.data(), static_cast<int64_t>(sum.size()), {to, out.dtype});
      finish_row(row, to);
    });
  }
  TraceEvent result_event(OwnedChunk c) const {
    return event_of("result", c, schedule().map.rows(c).rows() * row_bytes(c), TraceLink::copy);
  }
};

// Into the caller's result, into the place from which it is sent, and from there to the local peers.
TraceEvent RoleWorker::operator()(const OwnedSumWork& w) {
  const Schedule& s = schedule();
  std::byte* finished = context().own_half() + s.finished_offset(w.chunk);
  const int64_t bytes = row_bytes(w.chunk), pitch = pitch_bytes(w.chunk);
  finish_into_result(w.chunk, [&](int64_t row, const std::byte* from) {
    std::byte* to = finished + row * pitch;
    std::memcpy(to, from, static_cast<size_t>(bytes));
    std::memset(to + bytes, 0, static_cast<size_t>(pitch - bytes));  // no stale bytes travel
  });
  for (int32_t i = 0; i < s.width() - 1; ++i) {
    std::memcpy(context().half_of(s.topology().local_peer(s.me(), i)) + s.result_offset(w.chunk), finished,
                static_cast<size_t>(s.result_chunk_bytes(w.chunk)));
  }
  return result_event(w.chunk);
}

TraceEvent RoleWorker::operator()(const CollectWork& w) {
  const Schedule& s = schedule();
  const std::byte* from = context().own_half() + s.result_offset(w.chunk);
  const int64_t rows = s.map.rows(w.chunk).rows(), pitch = pitch_bytes(w.chunk);
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(result_at(w.chunk, row), from + row * pitch, static_cast<size_t>(row_bytes(w.chunk)));
  }
  return result_event(w.chunk);
}

// Into the own slot, and from there to the local peers.
TraceEvent RoleWorker::operator()(const one_shot::ComputeWork& w) {
  const Schedule& s = schedule();
  const int64_t offset = s.partial_offset(s.me(), w.chunk);
  multiply(w.chunk, context().own_half() + offset);
  for (int32_t i = 0; i < s.width() - 1; ++i) {
    context().copy_to(s.topology().local_peer(s.me(), i), offset, s.partial_bytes(w.chunk));
  }
  return tile_event(w.chunk);
}

TraceEvent RoleWorker::operator()(const one_shot::FinishWork& w) {
  finish_into_result(w.chunk, [](int64_t, const std::byte*) {});
  return result_event(w.chunk);
}

}  // namespace

Call::Program host_program(const Schedule& schedule, Cursors cursors, const HostOperands& operands,
                           const ChunkStandIn* stand_in) {
  const ReductionExecution<Schedule> x{&schedule, &operands, stand_in};
  return make_program(schedule, cursors, kFamilyNames, [x](RoleContext& c, Ring r) { return RoleWorker(c, r, x); });
}

}  // namespace tilewire::gemm_ar
