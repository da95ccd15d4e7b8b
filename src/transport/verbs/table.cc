#include "transport/verbs/table.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <mutex>

#include "transport/verbs/library.h"

namespace tilewire::verbs {
namespace {

Verbs load(const std::string& name) {
  const RuntimeLibrary library("libibverbs", name,
                               "install libibverbs1 and ibverbs-providers, or set TILEWIRE_VERBS_LIBRARY to its path");
  Verbs verbs;
#define TILEWIRE_VERBS_FILL(member, name, result, arguments) library.need(verbs.member, #name);
  TILEWIRE_VERBS_CALLS(TILEWIRE_VERBS_FILL)
#undef TILEWIRE_VERBS_FILL
#define TILEWIRE_VERBS_FILL(member, name, result, arguments) library.find(verbs.member, #name);
  TILEWIRE_VERBS_OPTIONAL_CALLS(TILEWIRE_VERBS_FILL)
#undef TILEWIRE_VERBS_FILL
  verbs.post_send = [](abi::Qp* qp, abi::SendWr* wr, abi::SendWr** bad) {
    return qp->context->ops.post_send(qp, wr, bad);
  };
  verbs.post_recv = [](abi::Qp* qp, abi::RecvWr* wr, abi::RecvWr** bad) {
    return qp->context->ops.post_recv(qp, wr, bad);
  };
  verbs.poll_cq = [](abi::Cq* cq, int most, abi::Wc* wc) { return cq->context->ops.poll_cq(cq, most, wc); };
  return verbs;
}

Efa load_efa_table(const std::string& name) {
  const RuntimeLibrary library("libefa", name,
                               "install rdma-core of the EFA installer, or set TILEWIRE_EFA_LIBRARY to its path");
  Efa efa;
#define TILEWIRE_EFA_FILL(member, name, result, arguments) library.need(efa.member, #name);
  TILEWIRE_EFA_CALLS(TILEWIRE_EFA_FILL)
#undef TILEWIRE_EFA_FILL
  return efa;
}

// One table for each library that was ever asked for.
template <class Table>
const Table& loaded_once(const std::string& library, Table (*load_table)(const std::string&)) {
  static std::mutex mutex;
  static std::map<std::string, Table> tables;
  const std::lock_guard lock(mutex);
  const auto found = tables.find(library);
  return found != tables.end() ? found->second : tables.emplace(library, load_table(library)).first->second;
}

}  // namespace

const Verbs& load_verbs(const std::string& library) { return loaded_once(library, load); }
const Efa& load_efa(const std::string& library) { return loaded_once(library, load_efa_table); }

std::string errno_text(int number) { return fmt::format("{} ({})", std::strerror(number), number); }

}  // namespace tilewire::verbs
