// One rank's part of a series of epochs of the link test, as calls of its kind of rank do it: by this thread on a CPU, by
// a kernel on a GPU.
#pragma once

#include <memory>

#include "device/link/link_series.h"
#include "executor/session.h"

namespace tilewire {

class LinkSide {
 public:
  virtual ~LinkSide() = default;
  // Ends the session on all ranks, and throws what ended it, where what it waits for does not come.
  virtual LinkOutcome run(const LinkSeries& series) = 0;
};

// Of this session, which outlives it.
std::unique_ptr<LinkSide> make_host_side(Session& session);
// Throws Error(unavailable) without a kernel.
std::unique_ptr<LinkSide> make_gpu_side(Session& session, const LinkKernelMaker& make_kernel);

}  // namespace tilewire
