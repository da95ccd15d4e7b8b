#include "ops/attention/arguments_check.h"

#include <fmt/format.h>

#include <cmath>

#include "operands/matrix_checks.h"

namespace tilewire::attention {
namespace {

std::string text_of(const char* name, const HeadsView& t) {
  return fmt::format("{} is [{}, {}, {}, {}]", name, t.batch, t.rows, t.heads, t.dim);
}

void check_tensor(const char* name, const HeadsView& t) {
  if (t.batch < 0 || t.rows < 0 || t.heads < 0 || t.dim < 0) {
    refuse_argument(kCallName, fmt::format("{} has a negative size", name), text_of(name, t), ">= 0");
  }
  const bool is_empty = t.batch == 0 || t.rows == 0 || t.heads == 0 || t.dim == 0;
  if (!is_empty && t.data == nullptr) {
    refuse_argument(kCallName, fmt::format("{} has no memory", name), text_of(name, t) + " at address 0", "not null");
  }
}

// What shapes of one call have to do with each other.
void check_fit(const HeadsView& q, const HeadsView& k, const HeadsView& v) {
  const auto texts = [&] { return text_of("q", q) + ", " + text_of("k", k) + ", " + text_of("v", v); };
  if (k.batch != v.batch || k.rows != v.rows || k.heads != v.heads || k.dim != v.dim) {
    refuse_argument(kCallName, "v does not fit k", texts(), "must have the same shape");
  }
  if (q.batch != k.batch || q.dim != k.dim) {
    refuse_argument(kCallName, "k does not fit q", texts(), "batch and head dimension must be equal");
  }
  if (q.dtype != k.dtype || q.dtype != v.dtype) {
    refuse_argument(
        kCallName, "dtypes differ",
        fmt::format("q is {}, k is {}, v is {}", to_string(q.dtype), to_string(k.dtype), to_string(v.dtype)),
        "must be equal");
  }
}

void check_positions(const char* name, const std::vector<int64_t>& positions, const char* of, int64_t rows) {
  if (static_cast<int64_t>(positions.size()) != rows) {
    refuse_argument(kCallName, fmt::format("{} do not fit {}", name, of),
                    fmt::format("{} {} for {} rows", positions.size(), name, rows), "one for each row");
  }
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] >= 0 && positions[i] < INT64_MAX / 4) continue;
    refuse_argument(kCallName, fmt::format("{} are out of range", name),
                    fmt::format("{}[{}] = {}", name, i, positions[i]), "from 0 on");
  }
}

void check_list(const char* name, const RowCounts& counts, const char* of, int64_t own, const Session& session) {
  if (counts.from != RowCounts::From::list) return;
  check_row_counts(kCallName, counts.counts, session.topology().ranks);
  const int64_t listed = counts.counts[static_cast<size_t>(session.rank().value)];
  if (listed == own) return;
  refuse_argument(kCallName, fmt::format("{} does not match {}", name, of),
                  fmt::format("{}[{}] = {}, {} has {} rows", name, session.rank().value, listed, of, own),
                  "must be equal", "rows lists what each rank brings of q, kv_rows of k and v");
}

// One for each batch entry and head: together they are the tensor.
void add_matrices(const char* name, const HeadsView& t, std::vector<NamedMatrix>& matrices) {
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) matrices.push_back({name, head_of(t, b, h)});
  }
}

}  // namespace

void check_arguments(const Arguments& args, const Session& session) {
  check_tensor("q", args.q);
  check_tensor("k", args.k);
  check_tensor("v", args.v);
  check_fit(args.q, args.k, args.v);
  if (args.scale && !std::isfinite(static_cast<float>(*args.scale))) {
    refuse_argument(kCallName, "scale is no number", fmt::format("scale = {}", *args.scale),
                    "must be finite in 32 bits");
  }
  check_list("rows", args.rows, "q", args.q.rows, session);
  const bool follows = args.kv_rows.from == RowCounts::From::same && args.rows.from == RowCounts::From::list;
  check_list("kv_rows", follows ? args.rows : args.kv_rows, "k", args.k.rows, session);
  if (args.placement != Placement::given) return;
  check_positions("positions", args.positions, "q", args.q.rows);
  check_positions("positions of k", args.kv_positions, "k", args.k.rows);
}

HostOperands make_operands(const Arguments& args, const Problem& problem, Rank me) {
  const Arguments::Results results = args.make_results(problem);
  const int64_t rows = problem.rows[static_cast<size_t>(me.value)];
  const std::vector<NamedMatrix> written{{"out", results.out}, {"lse", results.lse}};
  check_result(kCallName, written[0],
               {.rows = problem.batch * rows, .cols = problem.q_heads * problem.head_dim, .dtype = problem.out_dtype});
  check_result(kCallName, written[1], {.rows = problem.batch * problem.q_heads, .cols = rows, .dtype = DataType::fp32});
  std::vector<NamedMatrix> read;
  add_matrices("q", args.q, read);
  add_matrices("k", args.k, read);
  add_matrices("v", args.v, read);
  check_no_overlap(kCallName, written, read);
  const double scale = args.scale.value_or(1 / std::sqrt(static_cast<double>(problem.head_dim)));
  return {.q = args.q,
          .k = args.k,
          .v = args.v,
          .scale = static_cast<float>(scale),
          .out = results.out,
          .lse = results.lse,
          .sums = args.memory == nullptr ? nullptr : args.memory->sums.data()};
}

}  // namespace tilewire::attention
