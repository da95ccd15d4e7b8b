#include <tilewire/communicator.h>
#include <tilewire/link_test.h>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <map>
#include <optional>

#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/interruption.h"

namespace nb = nanobind;

namespace tilewire {
namespace {

// Asks the store again and again, for it knows nothing of signals: its get() waits a moment and may give None.
std::string get(const nb::object& store, const std::string& key, double timeout_s,
                const std::atomic<bool>& is_cancelled) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  while (!is_cancelled) {
    const nb::gil_scoped_acquire acquire;
    const nb::object value = store.attr("get")(key);
    if (!value.is_none()) {
      const auto bytes = nb::cast<nb::bytes>(value);
      return std::string(bytes.c_str(), bytes.size());
    }
    if (std::chrono::steady_clock::now() > limit) {
      throw Error(ErrorKind::deadline, {.what = "rank 0 has put nothing into the launcher's store",
                                        .where = "init",
                                        .values = "key " + key,
                                        .advice = "see the output of rank 0"});
    }
  }
  throw Error(ErrorKind::aborted, {.what = "the communicator's creation was cancelled", .where = "init"});
}

using Settings = std::map<std::string, std::string>;

// What waits for other ranks, in a store of Python or without one, and ends soon after Ctrl-C.
void run_with_store(
    const std::optional<nb::object>& store,
    const std::function<void(const StoreFunctions* functions, const std::atomic<bool>* is_cancelled)>& work) {
  std::atomic<bool> is_cancelled{false};
  StoreFunctions functions;
  if (store) {
    functions.set = [&store](const std::string& key, const std::string& value) {
      const nb::gil_scoped_acquire acquire;
      store->attr("set")(key, nb::bytes(value.data(), value.size()));
    };
    functions.get = [&](const std::string& key, double timeout_s) { return get(*store, key, timeout_s, is_cancelled); };
  }
  run_interruptible([&] { work(store ? &functions : nullptr, &is_cancelled); }, [&] { is_cancelled = true; });
}

// Of settings that may be wrong: those by which the ranks meet, as far as they are right.
Options meeting_options(const Settings& settings) {
  Options options;
  for (const char* name : {"rank", "world_size", "rendezvous", "secret", "interface"}) {
    const auto found = settings.find(name);
    if (found == settings.end()) continue;
    try {
      options.set(name, found->second);
    } catch (const Error&) {
      continue;
    }
  }
  return options;
}

void tell_refusal(const Settings& settings, const std::optional<nb::object>& store, const Error& error) {
  const Options options = meeting_options(settings);
  run_with_store(store, [&](const StoreFunctions* functions, const std::atomic<bool>* is_cancelled) {
    Communicator::refuse_init(options, error, functions, is_cancelled);
  });
}

void refuse_init(const Settings& settings, const std::optional<nb::object>& store, nb::handle exception) {
  tell_refusal(settings, store, to_error(exception));
}

// The library would say so too, but not how to get a package that has them.
void check_has_device(const Options& options) {
  if (options.device == "cpu" || has_gpu_ranks()) return;
  throw Error(ErrorKind::unavailable,
              {.what = "this package of Tilewire was built without CUDA",
               .where = "init",
               .values = "device = " + options.device,
               .limit = "it has CPU ranks",
               .advice = "build it where nvcc is: pip install . --config-settings=cmake.define.TILEWIRE_CUDA=ON; or "
                         "leave TILEWIRE_DEVICE out"});
}

CommunicatorHandle init(const Settings& settings, const std::optional<nb::object>& store) {
  Options options;
  try {
    options = Options::from_environment();
    for (const auto& [name, value] : settings) options.set(name, value);
    check_has_device(options);
  } catch (const Error& error) {
    tell_refusal(settings, store, error);
    throw;
  }
  std::optional<Communicator> comm;
  run_with_store(store, [&](const StoreFunctions* functions, const std::atomic<bool>* is_cancelled) {
    comm.emplace(Communicator::init(options, functions, is_cancelled));
  });
  return CommunicatorHandle(std::move(*comm));
}

// Rank, report, and why the file could not be written after all.
std::tuple<int32_t, std::string, std::string> link_test(const Settings& settings, double seconds, uint64_t messages,
                                                        const std::string& file) {
  Options options = Options::from_environment();
  for (const auto& [name, value] : settings) options.set(name, value);
  LinkReport report;
  run_with_store(std::nullopt, [&](const StoreFunctions*, const std::atomic<bool>* is_cancelled) {
    report = run_link_test(options, {.seconds = seconds, .messages = messages, .report = file}, is_cancelled);
  });
  return {report.rank, report.json, report.unwritten};
}

// Runs `get`, which waits for calls of other threads.
template <class Get>
auto waited(const CommunicatorHandle& comm, const char* what, const Get& get) {
  decltype(get()) result{};
  comm.run(what, [&] { result = get(); });
  return result;
}

std::vector<nb::dict> trace_events(const CommunicatorHandle& comm, int64_t first) {
  const auto events = waited(comm, "trace_events", [&] { return comm->trace_events(first); });
  std::vector<nb::dict> rows;
  rows.reserve(events.size());
  for (const WorkEvent& event : events) rows.push_back(to_dict(event));
  return rows;
}

void refuse_call(const CommunicatorHandle& comm, const std::string& op, nb::handle exception, bool exchanges_rows) {
  const Error error = to_error(exception);
  comm.run(op, [&] { comm->refuse_call(op, error, exchanges_rows); });
}

std::vector<nb::bytes> all_gather_bytes(const CommunicatorHandle& comm, const nb::bytes& mine) {
  const std::string own(mine.c_str(), mine.size());
  std::vector<nb::bytes> out;
  for (const std::string& bytes : waited(comm, "all_gather_bytes", [&] { return comm->all_gather_bytes(own); })) {
    out.emplace_back(bytes.data(), bytes.size());
  }
  return out;
}

std::vector<nb::tuple> transport_rows() {
  const auto found = [] {
    const nb::gil_scoped_release release;
    return transports(Options::from_environment());
  }();
  std::vector<nb::tuple> rows;
  for (const TransportInfo& t : found) rows.push_back(nb::make_tuple(t.name, t.purpose, t.why_unavailable));
  return rows;
}

}  // namespace

void CommunicatorHandle::run(const std::string& what, const std::function<void()>& work) const {
  run_interruptible(work, [&] { comm_->abort("interrupted in " + what); });
}

nb::dict to_dict(const WorkEvent& e) {
  nb::dict row;
  row["rank"] = e.rank;
  row["role"] = e.role;
  row["worker"] = e.worker;
  row["name"] = e.name;
  row["work"] = e.work;
  row["source"] = e.source;
  row["t_begin_ns"] = e.t_begin_ns;
  row["t_wait_ns"] = e.t_wait_ns;
  row["t_end_ns"] = e.t_end_ns;
  row["bytes"] = e.bytes;
  row["link"] = e.link;
  return row;
}

void add_communicator(nb::module_& m) {
  m.def("init", &init, nb::arg("settings"), nb::arg("store").none());
  m.def("refuse_init", &refuse_init, nb::arg("settings"), nb::arg("store").none(), nb::arg("error"));
  m.def("link_test", &link_test, nb::arg("settings"), nb::arg("seconds"), nb::arg("messages"), nb::arg("report"));
  m.def("transports", &transport_rows);
  m.def("has_gpu_ranks", &has_gpu_ranks);
  m.def(
      "check_options", [](const Environment& variables) { Options::parse(variables); }, nb::arg("variables"));
  nb::class_<CommunicatorHandle>(m, "Communicator", nb::is_weak_referenceable())
      .def_prop_ro("rank", [](const CommunicatorHandle& c) { return c->rank(); })
      .def_prop_ro("world_size", [](const CommunicatorHandle& c) { return c->world_size(); })
      .def_prop_ro("node", [](const CommunicatorHandle& c) { return c->node(); })
      .def_prop_ro("local_rank", [](const CommunicatorHandle& c) { return c->local_rank(); })
      .def_prop_ro("nodes", [](const CommunicatorHandle& c) { return c->nodes(); })
      .def_prop_ro("layout", [](const CommunicatorHandle& c) { return c->layout(); })
      .def_prop_ro("transport", [](const CommunicatorHandle& c) { return c->transport(); })
      .def_prop_ro("gpu", [](const CommunicatorHandle& c) { return c->gpu(); })
      .def_prop_ro("is_idle", [](const CommunicatorHandle& c) { return c->is_idle(); })
      .def_prop_ro("id", [](const CommunicatorHandle& c) { return c->id(); })
      .def_prop_ro("is_closed", [](const CommunicatorHandle& c) { return c->is_closed(); })
      .def("option", [](const CommunicatorHandle& c, const std::string& name) { return c->options().get(name); })
      .def("barrier", [](const CommunicatorHandle& c) { c.run("barrier", [&] { c->barrier(); }); })
      .def("all_gather_bytes", &all_gather_bytes)
      .def(
          "check", [](const CommunicatorHandle& c) { c->check(); }, nb::call_guard<nb::gil_scoped_release>())
      .def("synchronize", [](const CommunicatorHandle& c) { c.run("synchronize", [&] { c->synchronize(); }); })
      .def(
          "close", [](const CommunicatorHandle& c) { c->close(); }, nb::call_guard<nb::gil_scoped_release>())
      .def("forget", &CommunicatorHandle::forget)
      .def(
          "abort", [](const CommunicatorHandle& c, const std::string& why) { c->abort(why); },
          nb::call_guard<nb::gil_scoped_release>())
      .def("refuse_call", &refuse_call)
      .def("start_trace", [](const CommunicatorHandle& c) { c.run("start_trace", [&] { c->start_trace(); }); })
      .def("stop_trace", [](const CommunicatorHandle& c) { c.run("stop_trace", [&] { c->stop_trace(); }); })
      .def("trace_event_count",
           [](const CommunicatorHandle& c) {
             return waited(c, "trace_event_count", [&] { return c->trace_event_count(); });
           })
      .def("trace_dropped",
           [](const CommunicatorHandle& c) { return waited(c, "trace_dropped", [&] { return c->trace_dropped(); }); })
      .def("trace_events", &trace_events);
}

}  // namespace tilewire
