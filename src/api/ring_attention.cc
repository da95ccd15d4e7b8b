#include <fmt/format.h>
#include <tilewire/error.h>
#include <tilewire/ring_attention.h>

#include "api/op_front.h"
#include "ops/attention/attention.h"
#include "ops/attention/device_op.h"
#include "ops/attention/device_plan.h"
#include "ops/attention/model.h"

namespace tilewire {
namespace {

attention::Placement to_placement(SequencePlacement placement) {
  switch (placement) {
    case SequencePlacement::contiguous: return attention::Placement::contiguous;
    case SequencePlacement::zigzag: return attention::Placement::zigzag;
    case SequencePlacement::given: return attention::Placement::given;
  }
  return attention::Placement::contiguous;
}

const std::vector<int64_t>& or_as(const std::vector<int64_t>& of_keys, const std::vector<int64_t>& of_queries) {
  return of_keys.empty() ? of_queries : of_keys;
}

const std::vector<int64_t>& or_as(const std::optional<std::vector<int64_t>>& of_keys,
                                  const std::vector<int64_t>& of_queries) {
  return of_keys ? *of_keys : of_queries;
}

struct RingAttentionFront {
  using Op = attention::Op;
  using DeviceOp = attention::DeviceOp;
  using GpuPlan = attention::FusedPlan;
  using Arguments = RingAttentionArguments;
  using Shape = RingAttentionShape;

  static attention::Arguments to_op(const Arguments& a, Rank) {
    return {.q = a.q,
            .k = a.k,
            .v = a.v,
            .is_causal = a.causal,
            .scale = a.scale,
            .placement = to_placement(a.placement),
            .positions = a.positions,
            .kv_positions = or_as(a.kv_positions, a.positions),
            .documents = a.cu_seqlens,
            .kv_documents = or_as(a.kv_cu_seqlens, a.cu_seqlens),
            .rows = a.rows,
            .kv_rows = a.kv_rows,
            .out_dtype = a.out_dtype.value_or(a.q.dtype),
            .plan_json = a.plan_json,
            .make_results = [&a](const attention::Problem&) {
              const RingAttentionArguments::Results results = a.make_results();
              return attention::Arguments::Results{results.out, results.lse};
            }};
  }
  static attention::Problem to_problem(const Shape& s) {
    if (s.placement == SequencePlacement::given) {
      throw Error(ErrorKind::invalid_argument, {.what = "a handle takes no given positions",
                                                .where = attention::kCallName,
                                                .limit = "contiguous or zigzag",
                                                .advice = "call without a handle"});
    }
    return {.rows = s.rows,
            .kv_rows = or_as(s.kv_rows, s.rows),
            .batch = s.batch,
            .q_heads = s.q_heads,
            .kv_heads = s.kv_heads,
            .head_dim = s.head_dim,
            .dtype = s.dtype,
            .is_causal = s.causal,
            .placement = to_placement(s.placement),
            .documents = s.cu_seqlens,
            .kv_documents = or_as(s.kv_cu_seqlens, s.cu_seqlens),
            .out_dtype = s.out_dtype};
  }
  static void settle(Arguments& arguments, const Shape& shape) {
    arguments.rows = {RowCounts::From::list, shape.rows};
    arguments.kv_rows = {RowCounts::From::list, or_as(shape.kv_rows, shape.rows)};
    arguments.causal = shape.causal;
    arguments.placement = shape.placement;
    arguments.cu_seqlens = shape.cu_seqlens;
    arguments.kv_cu_seqlens = shape.kv_cu_seqlens;
    arguments.out_dtype = shape.out_dtype;
  }
};

}  // namespace

std::vector<int64_t> zigzag_rows(int64_t total, int32_t ranks) {
  if (total < 0 || ranks < 1) {
    throw Error(ErrorKind::invalid_argument, {.what = "there is no such zigzag",
                                              .where = "zigzag_rows",
                                              .values = fmt::format("{} rows over {} ranks", total, ranks),
                                              .limit = "0 rows or more, 1 rank or more"});
  }
  return attention::zigzag_rows(total, ranks);
}

CallReport ring_attention(Communicator& comm, const RingAttentionArguments& arguments) {
  return run_op<RingAttentionFront>(comm, arguments);
}

CallReport ring_attention(Communicator& comm, const RingAttentionArguments& arguments, void* stream) {
  return run_device_op<RingAttentionFront>(comm, arguments, stream);
}

RingAttention::RingAttention(Communicator& comm, const Shape& shape)
    : OpHandle(comm, shape, agree_op<RingAttentionFront>(comm, shape)) {}

CallReport RingAttention::operator()(const RingAttentionArguments& arguments) const {
  return run_handle<RingAttentionFront>(*this, arguments);
}

CallReport RingAttention::operator()(const RingAttentionArguments& arguments, void* stream) const {
  return run_device_handle<RingAttentionFront>(*this, arguments, stream);
}

PlanAnswer plan_ring_attention(const RingAttention::Query& query) { return plan_op<RingAttentionFront>(query); }

}  // namespace tilewire
