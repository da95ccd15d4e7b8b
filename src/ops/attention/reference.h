// Attention, obviously: one row of queries against all keys that it sees, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace tilewire::attention {

struct ReferenceRow {
  std::vector<double> out;
  double lse = -std::numeric_limits<double>::infinity();
  // For bounds on errors: of the scores and of the values that were seen.
  double most_score = 0;  // in size
  double most_value = 0;
};

// key(i) and value(i) give the elements of the i-th key that is seen.
template <class Key, class Value>
ReferenceRow reference_row(const std::vector<double>& query, int64_t seen, double scale, const Key& key,
                           const Value& value) {
  const auto dim = static_cast<int64_t>(query.size());
  ReferenceRow row{.out = std::vector<double>(query.size(), 0.0)};
  if (seen == 0) return row;
  std::vector<double> scores;
  for (int64_t i = 0; i < seen; ++i) {
    double score = 0;
    const double* elements = key(i);
    for (int64_t d = 0; d < dim; ++d) score += query[static_cast<size_t>(d)] * elements[d];
    scores.push_back(score * scale);
    row.most_score = std::max(row.most_score, std::abs(scores.back()));
  }
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (int64_t i = 0; i < seen; ++i) {
    const double weight = std::exp(scores[static_cast<size_t>(i)] - most);
    sum += weight;
    const double* elements = value(i);
    for (int64_t d = 0; d < dim; ++d) {
      row.out[static_cast<size_t>(d)] += weight * elements[d];
      row.most_value = std::max(row.most_value, std::abs(elements[d]));
    }
  }
  for (double& o : row.out) o /= sum;
  row.lse = most + std::log(sum);
  return row;
}

}  // namespace tilewire::attention
