// What a report of the link test says of the ranks beside what was measured: host, kernel, options, GPU, NICs with their
// drivers, firmware, addresses and limits.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "executor/session.h"

namespace tilewire {

// Collective: what each rank brings, by rank.
std::vector<nlohmann::ordered_json> gather_json(Session& session, const char* kind, const nlohmann::ordered_json& own);

// Of this rank: one object a NIC, "name", "gbps" and what its transport knows.
nlohmann::ordered_json nics_of(const Session& session);

// Of this rank; `given` are the options that it was started with. Holds no secret.
nlohmann::ordered_json facts_of_rank(Session& session, const Options& given);

}  // namespace tilewire
