#include "ops/attention/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/bytes.h"
#include "base/hash.h"
#include "operands/matrix_checks.h"
#include "operands/weighted_matmul.h"

namespace tilewire::attention {
namespace {

void check_counts(const char* name, const std::vector<int64_t>& counts) {
  if (counts.empty()) refuse_argument(kCallName, "no ranks", fmt::format("{} = []", name), "at least one");
  int64_t sum = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] < 0) {
      refuse_argument(kCallName, "negative row count", fmt::format("{}[{}] = {}", name, r, counts[r]), ">= 0");
    }
    sum = checked_add(sum, counts[r]);
  }
}

void check_heads(const Problem& p) {
  for (const auto& [name, count] : {std::pair{"batch", p.batch}, {"q_heads", p.q_heads}, {"kv_heads", p.kv_heads}}) {
    if (count < 0) refuse_argument(kCallName, fmt::format("negative {}", name), fmt::format("{}", count), ">= 0");
  }
  if (p.kv_heads == 0 ? p.q_heads != 0 : p.q_heads % p.kv_heads != 0) {
    refuse_argument(kCallName, "heads of q do not share those of k and v evenly",
                    fmt::format("q has {} heads, k and v have {}", p.q_heads, p.kv_heads),
                    "the heads of q must be a multiple");
  }
  if (std::find(std::begin(kHeadDims), std::end(kHeadDims), p.head_dim) == std::end(kHeadDims)) {
    refuse_argument(kCallName, "head dimension is not supported", fmt::format("D = {}", p.head_dim),
                    "must be 64 or 128", "pad q, k and v with zeros to 64 or 128, and pass scale=");
  }
  if (p.dtype == DataType::fp32) {
    refuse_argument(kCallName, "dtype is not supported", "q, k and v are fp32", "must be bf16 or fp16");
  }
}

std::string begins_text(const std::vector<int64_t>& begins) {
  return fmt::format("cu_seqlens = [{}]", fmt::join(begins, ", "));
}

void check_begins(const std::vector<int64_t>& begins) {
  if (begins.front() != 0) {
    refuse_argument(kCallName, "documents do not begin at 0", begins_text(begins), "the first must be 0");
  }
  if (!std::is_sorted(begins.begin(), begins.end())) {
    refuse_argument(kCallName, "documents do not follow each other", begins_text(begins), "must not fall");
  }
}

void check_end(const std::vector<int64_t>& begins, int64_t rows) {
  if (begins.empty() || begins.back() <= rows) return;
  refuse_argument(kCallName, "documents end behind the last row", fmt::format("{}, {} rows", begins_text(begins), rows),
                  "the last must not be above all rows");
}

void check_placement(const char* name, const std::vector<int64_t>& rows, Placement placement,
                     const std::vector<Positions>& given) {
  if (placement == Placement::zigzag) {
    const int64_t total = sum_of(rows);
    const std::vector<int64_t> needed = zigzag_rows(total, static_cast<int32_t>(rows.size()));
    if (rows != needed) {
      refuse_argument(kCallName, "rows do not fit a zigzag", fmt::format("{} = [{}]", name, fmt::join(rows, ", ")),
                      fmt::format("{} rows are cut into {} blocks by ceiling, rank r has blocks r and {} - r: [{}]",
                                  total, 2 * rows.size(), 2 * rows.size() - 1, fmt::join(needed, ", ")),
                      "cut the sequence by shard(), and pass rows= with the counts of all ranks");
    }
  }
  if (placement != Placement::given) return;
  if (given.size() != rows.size()) {
    refuse_argument(kCallName, "positions are not those of all ranks",
                    fmt::format("of {} ranks, {} = [{}]", given.size(), name, fmt::join(rows, ", ")),
                    "one list a rank");
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows_of(given[r]) == rows[r]) continue;
    refuse_argument(kCallName, "positions do not fit the rows",
                    fmt::format("rank {} has {} positions and {} rows ({})", r, rows_of(given[r]), rows[r], name),
                    "must be equal");
  }
}

// Of lists that are too long to be quoted.
uint64_t hash_of(const std::vector<Positions>& positions) {
  std::string bytes;
  for (const Positions& of_rank : positions) bytes += fmt::format("{};", fmt::join(packed(of_rank), ","));
  return hash64(bytes);
}

std::string documents_text(const std::vector<int64_t>& begins) {
  const std::string list = fmt::format("{}", fmt::join(begins, ", "));
  if (begins.size() <= 9) return fmt::format("[{}]", list);
  return fmt::format("{} of {} rows (hash {:016x})", begins.size() - 1, begins.back(), hash64(list));
}

}  // namespace

int64_t Problem::total_rows() const { return sum_of(rows); }
int64_t Problem::total_kv_rows() const { return sum_of(kv_rows); }

int64_t Problem::result_bytes(Rank of) const {
  const int64_t row_bytes = head_dim * size_bytes(out_dtype) + size_bytes(DataType::fp32);
  return batch * rows[static_cast<size_t>(of.value)] * q_heads * row_bytes;
}

Problem Problem::shape() const {
  Problem p = *this;
  p.given = p.given_kv = {};
  p.documents = p.kv_documents = {};
  return p;
}

Problem Problem::priced() const {
  Problem p = shape();
  if (placement != Placement::given) return p;
  p.placement = Placement::contiguous;
  p.is_causal = false;
  return p;
}

std::vector<Positions> Problem::positions() const {
  if (placement == Placement::given) return given;
  return placement == Placement::contiguous ? contiguous_positions(rows)
                                            : zigzag_positions(total_rows(), static_cast<int32_t>(rows.size()));
}

std::vector<Positions> Problem::kv_positions() const {
  if (placement == Placement::given) return given_kv;
  return placement == Placement::contiguous ? contiguous_positions(kv_rows)
                                            : zigzag_positions(total_kv_rows(), static_cast<int32_t>(kv_rows.size()));
}

MaskRule Problem::mask() const {
  return {.is_causal = is_causal,
          .query_begins = documents,
          .key_begins = kv_documents,
          .causal_offset = total_kv_rows() - total_rows()};
}

void Problem::validate_documents() const {
  if (documents.size() != kv_documents.size()) {
    refuse_argument(kCallName, "queries and keys have different numbers of documents",
                    fmt::format("cu_seqlens have {} and {} numbers", documents.size(), kv_documents.size()),
                    "must be equal");
  }
  if (documents.empty()) return;
  check_begins(documents);
  check_begins(kv_documents);
}

void Problem::validate() const {
  check_counts("rows", rows);
  check_counts("kv_rows", kv_rows);
  check_heads(*this);
  if (knows_positions()) {
    check_placement("rows", rows, placement, given);
    check_placement("kv_rows", kv_rows, placement, given_kv);
  }
  validate_documents();
  if (placement != Placement::given) {
    check_end(documents, total_rows());
    check_end(kv_documents, total_kv_rows());
  }
  const int64_t most_rows = std::max(total_rows(), total_kv_rows());
  const int64_t row_bytes = checked_mul(checked_mul(batch, std::max(q_heads, kv_heads)), 8 * head_dim);
  checked_mul(most_rows, row_bytes);
}

CallParts Problem::agreed() const {
  const char* same_positions = "pass the same positions= on all ranks";
  std::string where = to_string(placement);
  if (placement == Placement::given && knows_positions())
    where += fmt::format(" {:016x}/{:016x}", hash_of(given), hash_of(given_kv));
  CallParts parts{
      {rows_text(rows)},
      {"keys: " + rows_text(kv_rows), "pass kv_rows= with the counts of all ranks, or kv_rows=\"exchange\""},
      {fmt::format("batch {}", batch), "bring the same batch on all ranks"},
      {fmt::format("heads {}/{}", q_heads, kv_heads), "bring the same numbers of heads on all ranks"},
      {fmt::format("D = {}", head_dim), "bring heads of the same dimension on all ranks"},
      {to_string(dtype), "bring the same dtype on all ranks"},
      {is_causal ? "causal" : "full", "pass the same causal= on all ranks"},
      {where, same_positions}};
  const char* same_documents = "pass the same cu_seqlens= on all ranks";
  parts.push_back({documents.empty() ? "one document" : "documents " + documents_text(documents), same_documents});
  if (kv_documents != documents) parts.push_back({"of keys " + documents_text(kv_documents), same_documents});
  return parts;
}

std::string Problem::text() const { return fmt::format("{} -> {}", text_of(agreed()), to_string(out_dtype)); }

}  // namespace tilewire::attention
