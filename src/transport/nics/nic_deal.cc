#include "transport/nics/nic_deal.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>

namespace tilewire {
namespace {

constexpr int64_t kFar = std::numeric_limits<int64_t>::max() / 4;
constexpr int64_t kPerStep = int64_t{1} << 20;  // a step of distance weighs more than any order
constexpr int64_t kPerUser = int64_t{1} << 42;  // and one rank more on a NIC more than any way

// Each rank is to get `each` NICs, no NIC more than `most` ranks: one unit after the other along the cheapest way, which
// may take NICs from ranks that got them before.
class Deal {
 public:
  Deal(const NicDistances& distances, bool nearest_only) : ranks_(distances.size()), nics_(distances[0].size()) {
    for (size_t r = 0; r < ranks_; ++r) {
      const int32_t nearest = *std::min_element(distances[r].begin(), distances[r].end());
      std::vector<int64_t>& row = costs_.emplace_back(nics_, kFar);
      for (size_t n = 0; n < nics_; ++n) {
        if (nearest_only && distances[r][n] > nearest) continue;
        row[n] = distances[r][n] * kPerStep + out_of_order(r, n);
      }
    }
  }

  std::optional<std::vector<std::vector<size_t>>> run(size_t each, size_t most) {
    has_.assign(ranks_, std::vector<bool>(nics_, false));
    users_.assign(nics_, 0);
    for (size_t turn = 0; turn < each; ++turn) {
      for (size_t r = 0; r < ranks_; ++r) {
        if (!add_one(r, most)) return std::nullopt;
      }
    }
    std::vector<std::vector<size_t>> dealt(ranks_);
    for (size_t r = 0; r < ranks_; ++r) {
      for (size_t n = 0; n < nics_; ++n) {
        if (has_[r][n]) dealt[r].push_back(n);
      }
    }
    return dealt;
  }

 private:
  // How far NIC n is from rank r's own part of the list.
  int64_t out_of_order(size_t r, size_t n) const {
    const auto first = static_cast<int64_t>(r * nics_), last = static_cast<int64_t>((r + 1) * nics_);
    const auto at = static_cast<int64_t>(n * ranks_);
    return at < first ? first - at : std::max<int64_t>(0, at - (last - 1));
  }

  // Cheapest ways from `from` to every NIC and rank (Bellman and Ford): a rank to a NIC that it has not, a NIC to a rank
  // that has it and gives it up.
  bool add_one(size_t from, size_t most) {
    std::vector<int64_t> to_rank(ranks_, kFar), to_nic(nics_, kFar);
    std::vector<size_t> rank_by(ranks_, 0), nic_by(nics_, 0);
    to_rank[from] = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t r = 0; r < ranks_; ++r) {
        for (size_t n = 0; n < nics_; ++n) {
          if (costs_[r][n] >= kFar) continue;
          if (!has_[r][n] && to_rank[r] < kFar && to_rank[r] + costs_[r][n] < to_nic[n]) {
            to_nic[n] = to_rank[r] + costs_[r][n];
            nic_by[n] = r;
            changed = true;
          } else if (has_[r][n] && to_nic[n] < kFar && to_nic[n] - costs_[r][n] < to_rank[r]) {
            to_rank[r] = to_nic[n] - costs_[r][n];
            rank_by[r] = n;
            changed = true;
          }
        }
      }
    }
    const auto cost = [&](size_t n) { return to_nic[n] + static_cast<int64_t>(users_[n]) * kPerUser; };
    size_t best = nics_;
    for (size_t n = 0; n < nics_; ++n) {
      if (users_[n] < most && to_nic[n] < kFar && (best == nics_ || cost(n) < cost(best))) best = n;
    }
    if (best == nics_) return false;
    ++users_[best];
    for (size_t n = best;;) {
      const size_t r = nic_by[n];
      has_[r][n] = true;
      if (r == from) return true;
      n = rank_by[r];
      has_[r][n] = false;
    }
  }

  size_t ranks_;
  size_t nics_;
  std::vector<std::vector<int64_t>> costs_;
  std::vector<std::vector<bool>> has_;
  std::vector<size_t> users_;  // of each NIC
};

}  // namespace

std::vector<std::vector<size_t>> deal_nics(const NicDistances& distances, size_t each) {
  const size_t ranks = distances.size(), nics = distances.at(0).size();
  if (each == 0) {
    for (size_t own = nics / ranks; own > 0; --own) {
      if (auto dealt = Deal(distances, true).run(own, 1)) return *dealt;
    }
  }
  return *Deal(distances, false).run(std::clamp<size_t>(each, 1, nics), ranks);
}

}  // namespace tilewire
