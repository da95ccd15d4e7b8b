#include <tilewire/error.h>

#include <utility>

#include "executor/link/link_side.h"

namespace tilewire {
namespace {

constexpr const char* kFamilyNames[kWordFamilies] = {"message"};

class GpuSide final : public LinkSide {
 public:
  GpuSide(Session& session, LinkKernel kernel)
      : session_(session),
        kernel_(std::move(kernel)),
        rank_(session.device_rank({.op = "link test", .roles = kLinkRoles, .family_names = kFamilyNames})) {}

  LinkOutcome run(const LinkSeries& series) override {
    LinkOutcome outcome;
    session_.gpu()->with_context([&] { outcome = kernel_(rank_, session_.frame(0), series); });
    session_.throw_if_given_up();
    return outcome;
  }

 private:
  Session& session_;
  LinkKernel kernel_;
  DeviceRank rank_;
};

}  // namespace

std::unique_ptr<LinkSide> make_gpu_side(Session& session, LinkKernel kernel) {
  if (kernel) return std::make_unique<GpuSide>(session, std::move(kernel));
  throw Error(ErrorKind::unavailable, {.what = "there is no kernel that measures links",
                                       .values = "device = cuda",
                                       .advice = "measure them with host memory: TILEWIRE_DEVICE=cpu"});
}

}  // namespace tilewire
