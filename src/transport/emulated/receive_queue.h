// Where the immediates of an emulated network wait at their receiver: many senders, one receiver, in memory that the
// receiver makes and the senders map. Ranks that are threads of one process share the object itself.
//
// A sender that dies between claiming a cell and filling it blocks the cells behind it; its death ends the communicator
// anyway.
//
// Thread-safety: push() by any thread of any process, pop() by one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/unique_fd.h"
#include "memory/mapping.h"
#include "transport/transport.h"

namespace tilewire {

class ReceiveQueue {
 public:
  // A queue of this process. Throws Error(resource), or Error(invalid_argument) for no power of two.
  static std::shared_ptr<ReceiveQueue> create(Rank owner, uint32_t entries);
  // The queue of another process, from its descriptor, which stays the caller's. Throws Error(mismatch) when it is not
  // of that size.
  static std::shared_ptr<ReceiveQueue> open(Rank owner, uint32_t entries, int fd);
  // The queue of that number made in this process and still alive, or nothing.
  static std::shared_ptr<ReceiveQueue> find(uint64_t number);

  uint64_t number() const { return number_; }
  uint32_t entries() const { return entries_; }
  int fd() const { return fd_.get(); }

  // Everything the sender wrote before is visible to whoever pops it. False when the queue is full.
  bool push(Rank from, uint32_t immediate);
  bool pop(Rank& from, uint32_t& immediate);

 private:
  struct Head;
  struct Cell;

  ReceiveQueue(uint32_t entries, Mapping mapping);
  static int64_t bytes(uint32_t entries);

  UniqueFd fd_;
  Mapping mapping_;
  uint32_t entries_;
  uint64_t number_ = 0;
  Head* head_;
  Cell* cells_;
  uint64_t next_ = 0;  // receiver: the cell to look at
};

}  // namespace tilewire
