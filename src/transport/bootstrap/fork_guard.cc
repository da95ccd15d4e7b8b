#include "transport/bootstrap/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace tilewire {
namespace {

struct Registry {
  std::mutex mutex;
  std::set<int> descriptors;
};

// Never destroyed: fork handlers may run after static destructors have begun.
Registry& registry() {
  static Registry* const the_registry = new Registry;
  return *the_registry;
}

void before_fork() { registry().mutex.lock(); }
void after_fork_in_parent() { registry().mutex.unlock(); }
void after_fork_in_child() {
  for (const int fd : registry().descriptors) ::close(fd);
  registry().descriptors.clear();
  registry().mutex.unlock();
}

}  // namespace

void close_in_child(int fd) {
  static const int is_installed = ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(is_installed);  // out of memory: then only the heartbeat tells of a parent's death
  const std::lock_guard lock(registry().mutex);
  registry().descriptors.insert(fd);
}

void remove_from_child_close(int fd) {
  const std::lock_guard lock(registry().mutex);
  registry().descriptors.erase(fd);
}

}  // namespace tilewire
