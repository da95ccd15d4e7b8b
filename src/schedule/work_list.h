// Writes works of a role down, for a kernel. Host code.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/work_table.h"

namespace tilewire {

template <class TableWork>
class WorkList {
 public:
  // All works of the role's next worker. `describe(work)`: how the table has it, but for what it needs and publishes,
  // while works() are before it.
  template <class Role, class Describe>
  void add(Role role, const Describe& describe) {
    for (typename Role::Work w; role.next(w);) {
      TableWork work = describe(w);
      static_cast<WorkBase&>(work) = w;
      work.first_need = static_cast<int32_t>(needs_.size());
      work.first_publish = static_cast<int32_t>(publishes_.size());
      for (int32_t i = 0; i < w.needs; ++i) needs_.push_back(role.need(w, i));
      for (int32_t i = 0; i < w.publishes; ++i) publishes_.push_back(role.publish(w, i));
      works_.push_back(work);
    }
    begin_.push_back(static_cast<int32_t>(works_.size()));
  }

  size_t works() const { return works_.size(); }
  size_t workers() const { return begin_.size() - 1; }
  size_t needs() const { return needs_.size(); }
  size_t publishes() const { return publishes_.size(); }
  // As long as the list stays as it is.
  WorkTable<TableWork> view() const { return {works_.data(), begin_.data(), needs_.data(), publishes_.data()}; }

 private:
  std::vector<TableWork> works_;
  std::vector<int32_t> begin_ = {0};
  std::vector<Need> needs_;
  std::vector<Publish> publishes_;
};

}  // namespace tilewire
