// Why nothing moves any more.
#pragma once

namespace tilewire {

class World;

// Follows who waits for whom and adds one violation to the world's report: a cycle with all its agents and words, a
// wait that nobody will signal, a signal that its agent holds back, or a ring that does not end its call.
void explain_standstill(World& world);

}  // namespace tilewire
