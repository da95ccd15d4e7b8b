#include <tilewire/error.h>

#include "executor/link/link_side.h"

namespace tilewire {
namespace {

constexpr const char* kFamilyNames[kWordFamilies] = {"message"};

class GpuSide final : public LinkSide {
 public:
  GpuSide(Session& session, const LinkKernelMaker& make_kernel) : session_(session) {
    const DeviceRank rank = session.device_rank({.op = "link test", .roles = kLinkRoles, .family_names = kFamilyNames});
    session.gpu()->with_context([&] { kernel_ = make_kernel(rank, session.frame(0)); });
  }
  ~GpuSide() override {
    session_.gpu()->with_context([&] { kernel_ = {}; });
  }

  LinkOutcome run(const LinkSeries& series) override {
    LinkOutcome outcome;
    session_.gpu()->with_context([&] { outcome = kernel_(series); });
    if (outcome.has_given_up) session_.throw_if_given_up();
    session_.throw_if_dead();
    return outcome;
  }

 private:
  Session& session_;
  LinkKernel kernel_;
};

}  // namespace

std::unique_ptr<LinkSide> make_gpu_side(Session& session, const LinkKernelMaker& make_kernel) {
  if (make_kernel) return std::make_unique<GpuSide>(session, make_kernel);
  throw Error(ErrorKind::unavailable, {.what = "there is no kernel that measures links",
                                       .values = "device = cuda",
                                       .advice = "measure them with host memory: TILEWIRE_DEVICE=cpu"});
}

}  // namespace tilewire
