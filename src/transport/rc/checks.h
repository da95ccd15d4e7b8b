// What is checked before the RC transport makes or connects anything, and what a failed request means.
#pragma once

#include <cstdint>
#include <string>

#include "transport/rc/address.h"
#include "transport/rc/rc_options.h"
#include "transport/verbs/port.h"

namespace tilewire {

// All counts, those of other ranks on the same device too, are known before anything is made. Throws Error(resource) with what is needed and what the device has.
void check_device_limits(const verbs::Port& port, const RcOptions& options, const TransportContext& context,
                         const std::string& where);

// Throws Error(mismatch) where the rank `peer` of that address and this one cannot talk to each other.
void check_agreement(const verbs::Port& port, const RcOptions& options, Rank peer, const RcAddress& address,
                     const std::string& where);

// What a status says to a user, "" where its name says it all.
const char* meaning_of(int32_t status);

}  // namespace tilewire
