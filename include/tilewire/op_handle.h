// What the handles of all operations are: a shape that the ranks have agreed on once, and the plan for it.
#pragma once

#include <tilewire/communicator.h>
#include <tilewire/plan_query.h>

#include <string>
#include <utility>

namespace tilewire {

// What the making of a handle has found.
struct HandlePlan {
  std::string json;
  std::string explanation;
};

// Base of an operation's handle. It follows its communicator when that is moved, and must not be called once the
// communicator is destroyed; all but calls stays good.
template <class ShapeOfOp>
class OpHandle {
 public:
  using Shape = ShapeOfOp;
  // What a call on some cluster would do, worked out without one.
  struct Query : MachineQuery {
    Shape shape;
  };

  const Shape& shape() const { return shape_; }
  std::string plan_json() const { return plan_.json; }
  std::string explain() const { return plan_.explanation; }

  Communicator::Parts& parts() const { return *parts_; }  // for the library itself

 protected:
  OpHandle(Communicator& comm, Shape shape, HandlePlan plan)
      : parts_(&comm.parts()), shape_(std::move(shape)), plan_(std::move(plan)) {}

 private:
  Communicator::Parts* parts_;
  Shape shape_;
  HandlePlan plan_;
};

}  // namespace tilewire
