#include "ops/attention/attention.h"

#include <fmt/format.h>

#include <utility>

#include "ops/attention/arguments_check.h"

namespace tilewire::attention {
namespace {

// What each rank tells the others where it is not known before: how many rows it brings, and where they are.
struct Own {
  int64_t rows = 0;
  int64_t kv_rows = 0;
  Positions positions{};
  Positions kv_positions{};
};

std::vector<int64_t> to_numbers(const Own& own) {
  std::vector<int64_t> numbers{own.rows, own.kv_rows};
  for (const Positions& of : {own.positions, own.kv_positions}) {
    const std::vector<int64_t> list = packed(of);
    numbers.push_back(static_cast<int64_t>(list.size()));
    numbers.insert(numbers.end(), list.begin(), list.end());
  }
  return numbers;
}

// Throws Error(invalid_argument) for what no rank has sent.
Own from_numbers(std::span<const int64_t> numbers) {
  const auto take = [&](size_t count) {
    if (numbers.size() < count) {
      throw Error(ErrorKind::invalid_argument, {.what = "a rank's row counts are cut off", .where = kCallName});
    }
    const std::span<const int64_t> taken = numbers.first(count);
    numbers = numbers.subspan(count);
    return taken;
  };
  Own own{.rows = take(1)[0], .kv_rows = take(1)[0]};
  own.positions = unpacked(take(static_cast<size_t>(take(1)[0])));
  own.kv_positions = unpacked(take(static_cast<size_t>(take(1)[0])));
  return own;
}

Problem problem_of(const Arguments& args, const std::vector<int64_t>& rows, const std::vector<int64_t>& kv_rows) {
  return {.rows = rows,
          .kv_rows = kv_rows,
          .batch = args.q.batch,
          .q_heads = args.q.heads,
          .kv_heads = args.k.heads,
          .head_dim = args.q.dim,
          .dtype = args.q.dtype,
          .is_causal = args.is_causal,
          .placement = args.placement,
          .documents = args.documents,
          .kv_documents = args.kv_documents,
          .out_dtype = args.out_dtype};
}

// What this rank knows by itself, or thinks where that is exchanged.
std::vector<int64_t> counts_of(const RowCounts& counts, int64_t own, int32_t ranks) {
  if (counts.from == RowCounts::From::list) return counts.counts;
  return std::vector<int64_t>(static_cast<size_t>(ranks), own);
}

const RowCounts& kv_counts_of(const Arguments& args) {
  return args.kv_rows.from == RowCounts::From::same ? args.rows : args.kv_rows;
}

void exchange_into(Problem& problem, const Arguments& args, CountExchange& counts) {
  const Own mine{.rows = args.q.rows,
                 .kv_rows = args.k.rows,
                 .positions = runs_of(args.positions),
                 .kv_positions = runs_of(args.kv_positions)};
  const auto lists = counts.exchange_lists(Op::exchanged(args), to_numbers(mine),
                                           problem.text() + " (own rows; counts are exchanged)");
  problem.placement = args.placement;
  for (size_t r = 0; r < lists.size(); ++r) {
    Own of_rank = from_numbers(lists[r]);
    if (args.rows.from == RowCounts::From::exchange) problem.rows[r] = of_rank.rows;
    if (kv_counts_of(args).from == RowCounts::From::exchange) problem.kv_rows[r] = of_rank.kv_rows;
    if (args.placement != Placement::given) continue;
    problem.given.push_back(std::move(of_rank.positions));
    problem.given_kv.push_back(std::move(of_rank.kv_positions));
  }
}

}  // namespace

// By one name, whatever the lists hold: ranks that refuse say so in it before they know more.
const char* Op::exchanged(const Arguments& args) {
  const bool exchanges = args.rows.from == RowCounts::From::exchange ||
                         args.kv_rows.from == RowCounts::From::exchange || args.placement == Placement::given;
  return exchanges ? "row counts" : nullptr;
}

void Op::check(const Arguments& arguments, Session& session) { check_arguments(arguments, session); }

Problem Op::make_problem(const Arguments& args, Session& session, CountExchange& counts) {
  const int32_t ranks = session.topology().ranks;
  Problem problem =
      problem_of(args, counts_of(args.rows, args.q.rows, ranks), counts_of(kv_counts_of(args), args.k.rows, ranks));
  if (exchanged(args) != nullptr) {
    // All that is known to be wrong before is told in the exchange: rows of other ranks are not.
    problem.validate_documents();
    Problem known = problem;
    known.placement = Placement::contiguous;
    known.documents = known.kv_documents = {};
    known.validate();
    exchange_into(problem, args, counts);
  }
  problem.validate();
  return problem;
}

void Op::settle(const Arguments& args, const Problem& problem, const Tables& tables) {
  CallMemory& memory = *args.memory;
  memory.schedule = problem.is_shape() ? tables.schedule(0) : tables.schedule(problem, memory.sight);
  memory.sums.resize(static_cast<size_t>(kept_sums(memory.schedule, problem.head_dim)));
}

Schedule Op::make_schedule(const Tables&, Epoch epoch, const Arguments& args, Session&) {
  Schedule schedule = args.memory->schedule;
  schedule.frame.epoch = epoch;
  return schedule;
}

HostOperands Op::make_operands(const Arguments& arguments, const Problem& problem, Rank me) {
  return attention::make_operands(arguments, problem, me);
}

// Copied are rows into the own buffer; local peers get the own shard and forwarded ones; the network counts what the
// proxy was given.
CallReport Op::report(const Schedule& s) {
  CallReport report;
  LoadWork load;
  for (LoadRole role(s); role.next(load);) report.copy_bytes += s.bytes(load.chunk);
  CopyWork copy;
  if (s.local_peers() > 0) {
    for (PushRole role(s); role.next(copy);) report.node_bytes += s.bytes(copy.chunk);
    for (ForwardRole role(s); role.next(copy);) report.node_bytes += copy.is_end ? 0 : s.bytes(copy.chunk);
  }
  SendWork send;
  for (SendRole role(s); role.next(send);) report.network_bytes += int64_t{send.command.units} * kWireUnitBytes;
  return report;
}

}  // namespace tilewire::attention
