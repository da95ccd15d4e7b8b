// THE list of an op's roles, from which the host executor, the simulator and the kernel take what they are called and which
// command ring each fills. An op has it as a struct in its roles.h:
//
//   struct Roles : RoleList<Roles> {
//     static constexpr RoleEntry kAll[] = {{"none"}, {"call", Ring::call}, {"compute"}, {"send", Ring::send}, {"drain"}};
//   };
//
// A role's number is its place there: kernels write it into fault records and notes, 0 is none. "call" is what begins and
// ends a call (call_roles.h). All is worked out by the compiler; a name that is not in the list does not compile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "schedule/call_roles.h"

namespace tilewire {

struct RoleEntry {
  const char* name = "";
  int32_t ring = -1;  // -1: none

  constexpr RoleEntry(const char* role) : name(role) {}  // NOLINT(google-explicit-constructor): lists of names
  constexpr RoleEntry(const char* role, Ring filled) : name(role), ring(static_cast<int32_t>(filled)) {}
};

template <class Roles>
struct RoleList {
  static consteval int32_t number(std::string_view name) { return place_of(name); }
  // Where an agent of the role stands, as for_each_role() visits it.
  static consteval AgentPlace place(std::string_view name) {
    const RoleEntry& entry = Roles::kAll[place_of(name)];
    return {.role = entry.name, .ring = entry.ring};
  }
  static consteval Ring ring(int32_t number) { return Ring{Roles::kAll[number].ring}; }
  static consteval bool fills(int32_t ring) {
    for (const RoleEntry& entry : Roles::kAll) {
      if (entry.ring == ring) return true;
    }
    return false;
  }
  // By number.
  static consteval auto names() {
    std::array<const char*, std::size(Roles::kAll)> names{};
    for (size_t i = 0; i < names.size(); ++i) names[i] = Roles::kAll[i].name;
    return names;
  }

 private:
  // clang 14 takes no consteval function for a constant inside another one.
  static constexpr int32_t place_of(std::string_view name) {
    for (size_t i = 0; i < std::size(Roles::kAll); ++i) {
      if (name == Roles::kAll[i].name) return static_cast<int32_t>(i);
    }
    throw "there is no role of this name in the op's list";
  }
};

}  // namespace tilewire
