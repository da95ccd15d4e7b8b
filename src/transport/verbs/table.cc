#include "transport/verbs/table.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <tilewire/error.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

namespace tilewire::verbs {
namespace {

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

template <class Function>
void fill(Function& member, void* library, const char* name) {
  member = reinterpret_cast<Function>(dlsym(library, name));
}

void need(bool is_there, const std::string& library, const char* name) {
  if (is_there) return;
  throw Error(ErrorKind::unavailable, {.what = "libibverbs is too old, or it is another library",
                                       .where = library,
                                       .values = fmt::format("it has no function {}", name),
                                       .advice = "install rdma-core's libibverbs1, or set TILEWIRE_VERBS_LIBRARY"});
}

Verbs load(const std::string& library) {
  std::unique_ptr<void, CloseLibrary> loaded(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!loaded) {
    const char* reason = dlerror();
    throw Error(ErrorKind::unavailable,
                {.what = "libibverbs is not here",
                 .where = library,
                 .values = reason != nullptr ? reason : "unknown reason",
                 .advice = "install libibverbs1 and ibverbs-providers, or set TILEWIRE_VERBS_LIBRARY to its path"});
  }
  Verbs verbs;
#define TILEWIRE_VERBS_FILL(member, name, result, arguments) \
  fill(verbs.member, loaded.get(), #name);                   \
  need(verbs.member != nullptr, library, #name);
  TILEWIRE_VERBS_CALLS(TILEWIRE_VERBS_FILL)
#undef TILEWIRE_VERBS_FILL
#define TILEWIRE_VERBS_FILL(member, name, result, arguments) fill(verbs.member, loaded.get(), #name);
  TILEWIRE_VERBS_OPTIONAL_CALLS(TILEWIRE_VERBS_FILL)
#undef TILEWIRE_VERBS_FILL
  verbs.post_send = [](abi::Qp* qp, abi::SendWr* wr, abi::SendWr** bad) {
    return qp->context->ops.post_send(qp, wr, bad);
  };
  verbs.post_recv = [](abi::Qp* qp, abi::RecvWr* wr, abi::RecvWr** bad) {
    return qp->context->ops.post_recv(qp, wr, bad);
  };
  verbs.poll_cq = [](abi::Cq* cq, int most, abi::Wc* wc) { return cq->context->ops.poll_cq(cq, most, wc); };
  static_cast<void>(loaded.release());  // providers start threads and keep state: it is never unloaded
  return verbs;
}

}  // namespace

const Verbs& load_verbs(const std::string& library) {
  static std::mutex mutex;
  static std::map<std::string, Verbs> tables;
  const std::lock_guard lock(mutex);
  const auto found = tables.find(library);
  return found != tables.end() ? found->second : tables.emplace(library, load(library)).first->second;
}

std::string errno_text(int number) { return fmt::format("{} ({})", std::strerror(number), number); }

}  // namespace tilewire::verbs
