#include "transport/call_tracker.h"

#include <algorithm>

#include "base/check.h"

namespace tilewire {

CallTracker::CallTracker(size_t rings, Epoch first_epoch)
    : epochs_(rings, first_epoch), sent_(first_epoch - 1), newest_(first_epoch) {
  TILEWIRE_CHECK_GE(rings, 1, ErrorKind::invalid_argument, "a proxy needs a command ring");
  TILEWIRE_CHECK_GE(first_epoch, 1, ErrorKind::invalid_argument, "epoch 0 means never");
}

CallTracker::Call& CallTracker::call(Epoch e) {
  const uint64_t index = e - sent_ - 1;
  if (index >= calls_.size()) calls_.resize(index + 1);
  return calls_[index];
}

void CallTracker::end_call(size_t ring) {
  ++call(epochs_[ring]).rings_ended;
  ++epochs_[ring];
  newest_ = std::max(newest_, epochs_[ring]);
}

bool CallTracker::advance() {
  const Epoch before = sent_;
  while (!calls_.empty() && calls_.front().open == 0 && calls_.front().rings_ended == epochs_.size()) {
    calls_.erase(calls_.begin());
    ++sent_;
  }
  return sent_ != before;
}

}  // namespace tilewire
