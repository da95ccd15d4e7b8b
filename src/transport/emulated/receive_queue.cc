#include "transport/emulated/receive_queue.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tilewire/error.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "base/check.h"
#include "schedule/arena_layout.h"

namespace tilewire {

struct ReceiveQueue::Head {
  alignas(128) uint64_t claimed;  // cells that senders have claimed
};

// A cell is free for claim number n when turn == n, and filled when turn == n + 1.
struct ReceiveQueue::Cell {
  uint64_t turn;
  uint64_t message;  // sender in the upper half, immediate in the lower
};

namespace {

// The queues of this process, so that threads reach each other's without a second mapping.
struct QueueIndex {
  std::mutex mutex;
  uint64_t next = 1;
  std::map<uint64_t, std::weak_ptr<ReceiveQueue>> queues;
};

QueueIndex& queue_index() {
  static QueueIndex index;
  return index;
}

std::string where(Rank owner) { return fmt::format("emulated receive queue of rank {}", owner.value); }

UniqueFd make_memory(Rank owner, int64_t bytes) {
  UniqueFd fd(memfd_create("tilewire-receive", MFD_CLOEXEC));
  if (!fd.is_open() || ftruncate(fd.get(), bytes) != 0) {
    throw Error(ErrorKind::resource, {.what = "no shared memory for incoming messages",
                                      .where = where(owner),
                                      .values = fmt::format("{} bytes: {}", bytes, std::strerror(errno)),
                                      .advice = "raise the limits on open files and memory"});
  }
  return fd;
}

}  // namespace

int64_t ReceiveQueue::bytes(uint32_t entries) {
  return ArenaLayout::round_page(static_cast<int64_t>(sizeof(Head) + size_t{entries} * sizeof(Cell)));
}

ReceiveQueue::ReceiveQueue(uint32_t entries, Mapping mapping)
    : mapping_(std::move(mapping)),
      entries_(entries),
      head_(reinterpret_cast<Head*>(mapping_.base())),
      cells_(reinterpret_cast<Cell*>(mapping_.base() + sizeof(Head))) {}

std::shared_ptr<ReceiveQueue> ReceiveQueue::create(Rank owner, uint32_t entries) {
  TILEWIRE_CHECK(std::has_single_bit(entries), ErrorKind::invalid_argument, "{} entries, must be a power of two",
                 entries);
  UniqueFd fd = make_memory(owner, bytes(entries));
  Mapping mapping = Mapping::share(fd.get(), bytes(entries), where(owner), "own queue");
  std::shared_ptr<ReceiveQueue> queue(new ReceiveQueue(entries, std::move(mapping)));
  queue->fd_ = std::move(fd);
  for (uint32_t i = 0; i < entries; ++i) {
    std::atomic_ref(queue->cells_[i].turn).store(i, std::memory_order_release);
  }
  QueueIndex& index = queue_index();
  const std::lock_guard lock(index.mutex);
  queue->number_ = index.next++;
  std::erase_if(index.queues, [](const auto& entry) { return entry.second.expired(); });
  index.queues[queue->number_] = queue;
  return queue;
}

std::shared_ptr<ReceiveQueue> ReceiveQueue::open(Rank owner, uint32_t entries, int fd) {
  struct stat status {};
  if (!std::has_single_bit(entries) || fstat(fd, &status) != 0 || status.st_size != bytes(entries)) {
    throw Error(ErrorKind::mismatch, {.what = "a descriptor is not the queue it should be",
                                      .where = where(owner),
                                      .values = fmt::format("size = {} bytes", status.st_size),
                                      .limit = fmt::format("{} entries, {} bytes", entries, bytes(entries))});
  }
  return std::shared_ptr<ReceiveQueue>(
      new ReceiveQueue(entries, Mapping::share(fd, bytes(entries), where(owner), "peer's queue")));
}

std::shared_ptr<ReceiveQueue> ReceiveQueue::find(uint64_t number) {
  QueueIndex& index = queue_index();
  const std::lock_guard lock(index.mutex);
  const auto found = index.queues.find(number);
  return found == index.queues.end() ? nullptr : found->second.lock();
}

bool ReceiveQueue::push(Rank from, uint32_t immediate) {
  const std::atomic_ref claimed(head_->claimed);
  uint64_t n = claimed.load(std::memory_order_relaxed);
  for (;;) {
    Cell& cell = cells_[n & (entries_ - 1)];
    const std::atomic_ref turn(cell.turn);
    const auto lead = static_cast<int64_t>(turn.load(std::memory_order_acquire) - n);
    if (lead < 0) return false;
    if (lead > 0) {
      n = claimed.load(std::memory_order_relaxed);
    } else if (claimed.compare_exchange_weak(n, n + 1, std::memory_order_relaxed)) {
      cell.message = (static_cast<uint64_t>(from.value) << 32) | immediate;
      turn.store(n + 1, std::memory_order_release);
      return true;
    }
  }
}

bool ReceiveQueue::pop(Rank& from, uint32_t& immediate) {
  Cell& cell = cells_[next_ & (entries_ - 1)];
  const std::atomic_ref turn(cell.turn);
  if (turn.load(std::memory_order_acquire) != next_ + 1) return false;
  from = Rank{static_cast<int32_t>(cell.message >> 32)};
  immediate = static_cast<uint32_t>(cell.message);
  turn.store(next_ + entries_, std::memory_order_release);
  ++next_;
  return true;
}

}  // namespace tilewire
