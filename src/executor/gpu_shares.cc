#include "executor/gpu_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace tilewire {
namespace {

std::string names_of(std::span<const Rank> ranks) {
  std::string text;
  for (const Rank r : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", r.value);
  return text;
}

}  // namespace

GpuShares::GpuShares(ControlConnection& control, const GpuRank& gpu, SteadyTime deadline)
    : rank_(control.rank()), gpu_(gpu) {
  Bytes own = ByteWriter().raw(gpu.id()).i32(gpu.sms()).u8(gpu.has_mps() ? 1 : 0).take();
  const GatherTag tag{.kind = "shares of GPUs", .limit_variable = kJoinLimitVariable};
  for (const Bytes& bytes : control.allgather(tag, std::move(own), deadline)) {
    ByteReader reader(bytes, "share of a GPU");
    Share share{.gpu = reader.array<16>(), .sms = reader.i32()};
    share.has_mps = reader.u8() != 0;
    shares_.push_back(share);
  }
}

std::vector<Rank> GpuShares::ranks_on(const GpuId& gpu) const {
  std::vector<Rank> ranks;
  for (int32_t r = 0; r < std::ssize(shares_); ++r) {
    if (of(Rank{r}).gpu == gpu) ranks.emplace_back(r);
  }
  return ranks;
}

int32_t GpuShares::most_ranks_on_a_gpu() const {
  size_t most = 0;
  for (const Share& share : shares_) most = std::max(most, ranks_on(share.gpu).size());
  return static_cast<int32_t>(most);
}

int32_t GpuShares::roll_call_ctas(Rank rank) const { return of(rank).sms / 2 * 2; }

void GpuShares::check(int32_t wire_ctas) const {
  const std::vector<Rank> here = ranks_here();
  if (here.size() < 2 && wire_ctas == 0) return;
  int32_t sum = wire_ctas;
  bool have_mps = true;
  for (const Rank r : here) {
    sum += of(r).sms;
    have_mps = have_mps && of(r).has_mps;
  }
  const std::string who = fmt::format("ranks {}{}", names_of(here), wire_ctas > 0 ? " and the wire" : "");
  const std::string where = fmt::format("rank {}, GPU {}", rank_.value, gpu_.device());
  if (!have_mps) {
    throw Error(ErrorKind::unavailable,
                {.what = "ranks share a GPU without MPS, so their kernels cannot run at once",
                 .where = where,
                 .values = who,
                 .limit = "",
                 .advice = "start them with `tilewire run --virtual`, which brings an MPS daemon of its own, or give "
                           "each rank a GPU of its own"});
  }
  if (sum <= gpu_.gpu_sms()) return;
  throw Error(ErrorKind::invalid_argument,
              {.what = "ranks that share a GPU take more SMs than it has",
               .where = where,
               .values = fmt::format("{} take {}{}", who, sum,
                                     wire_ctas > 0 ? fmt::format(", {} of them the wire", wire_ctas) : ""),
               .limit = fmt::format("{} SMs", gpu_.gpu_sms()),
               .advice = "set TILEWIRE_SMS to each rank's share, an even number, or start them with `tilewire run "
                         "--virtual`, which does"});
}

void GpuShares::check_roll_call(const RollCallPage& page, std::span<const int32_t> expected) const {
  const std::vector<Rank> here = ranks_here();
  std::string text;
  uint64_t all = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::string who = i < here.size() ? fmt::format("rank {}", here[i].value) : "the wire";
    text += fmt::format("{}{} {} of {}", i > 0 ? ", " : "", who, page.came[i], expected[i]);
    all += static_cast<uint64_t>(expected[i]);
  }
  if (page.missed == 0 && page.present == all) return;
  throw Error(ErrorKind::unavailable,
              {.what = "not all CTAs of the ranks that share a GPU were there at once",
               .where = fmt::format("rank {}, GPU {}, roll-call", rank_.value, gpu_.device()),
               .values = "came: " + text,
               .limit = "all within 2 s",
               .advice = "end other programs on this GPU, lower TILEWIRE_SMS, and set no MPS percentage "
                         "(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE)"});
}

}  // namespace tilewire
