// The machine of a plan query: one of those that have a name, with the numbers that the query sets.
#pragma once

#include <tilewire/plan_query.h>

#include <string>

#include "schedule/machine.h"

namespace tilewire {

struct AskedMachine {
  Machine machine;
  int32_t workers = 1;
  std::string text;  // for people: its name, which numbers were given, and all of them with their units
};

// Throws Error(invalid_argument) for a name that there is not, naming those that there are, and for a number that
// cannot be.
AskedMachine machine_of(const MachineQuery& query);

}  // namespace tilewire
