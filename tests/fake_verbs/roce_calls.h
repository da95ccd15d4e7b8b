// What a RoCE device does otherwise than one of EFA: queue pairs of RC, requests as chains, one completion queue that is
// polled by copying. It refuses what real ones refuse.
#pragma once

#include "fake_verbs/objects.h"

namespace tilewire::fake_verbs {

void fill_roce_calls(abi::ContextOps& ops);

// Under the lock of the device. Null with errno where it is refused.
abi::Cq* create_roce_cq(abi::Context* context, FakeDevice& device, int entries);
abi::Qp* create_rc_qp(FakePd& pd, const abi::QpInitAttr& attr);

// The masks that a queue pair of RC takes for a step, and no others.
bool is_right_rc_step(const FakeQp& qp, const abi::QpAttr& attr, int mask);

}  // namespace tilewire::fake_verbs
