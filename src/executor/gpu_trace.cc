#include "executor/gpu_trace.h"

#include <limits>

namespace tilewire {
namespace {

// A computing CTA has two groups, whose tiles overlap: a track each.
int32_t worker_of(const NotedWork& n) {
  if (n.place == TracePlace::first_group) return 2 * n.cta;
  if (n.place == TracePlace::second_group) return 2 * n.cta + 1;
  return n.cta;
}

}  // namespace

GpuTrace::GpuTrace(GpuRank& gpu, const GpuClockMaker& make_clock, int64_t events) : gpu_(gpu) {
  learn_clock(make_clock);
  gpu_.make_trace(events);
  again();
}

GpuTrace::~GpuTrace() { pause(); }

// The quickest of some looks says best what the host's clock was: tests hold it to 0.2 ms. The GPU's timer is the same for
// all ranks on it, but each learns it for itself, so that their events are in order with each other to that, too.
void GpuTrace::learn_clock(const GpuClockMaker& make_clock) {
  constexpr int kLooks = 8;
  int64_t quickest_ns = std::numeric_limits<int64_t>::max();
  gpu_.with_context([&] {
    const GpuClock clock = make_clock();
    for (int look = 0; look < kLooks; ++look) {
      const int64_t before_ns = trace_clock_ns();
      const auto gpu_ns = static_cast<int64_t>(clock());
      const int64_t took_ns = trace_clock_ns() - before_ns;
      if (took_ns >= quickest_ns) continue;
      quickest_ns = took_ns;
      clock_offset_ns_ = before_ns + took_ns / 2 - gpu_ns;
    }
  });
}

void GpuTrace::move_to(TraceLog& log, const KernelFaults& kernels) {
  const NotedWorks taken = gpu_.take_notes();
  for (const NotedWork& n : taken.works) {
    const auto host_ns = [&](uint64_t gpu_ns) { return static_cast<int64_t>(gpu_ns) + clock_offset_ns_; };
    const auto begin_ns = static_cast<int64_t>(n.note.t_begin_ns);
    log.ring(kernels.role_name(n.note.op, n.note.role), worker_of(n))
        ->add({.name = n.note.link == TraceLink::none ? "tile" : "chunk",
               .work = n.note.work,
               .source = n.note.source,
               .t_begin_ns = host_ns(n.note.t_begin_ns),
               .t_wait_ns = begin_ns - static_cast<int64_t>(n.note.t_wait_ns),
               .t_end_ns = host_ns(n.note.t_end_ns),
               .bytes = n.note.bytes,
               .link = n.note.link});
  }
  log.add_dropped(taken.dropped);
}

}  // namespace tilewire
