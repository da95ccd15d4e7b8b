#include "executor/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "executor/relay.h"
#include "executor/session_times.h"
#include "memory/words.h"
#include "base/hash.h"

namespace tilewire {
namespace {

constexpr RoleName kCallRole{.name = "call", .worker = 0};
constexpr size_t kMostRefusalBytes = 4096;  // of the text in an exchange

// A call that comes after the end is told that it was never made, and what to do, beside the cause that ended it.
void throw_if_ended(Session& session, const char* op) {
  const auto notice = session.control().aborted();
  if (!notice) return session.throw_if_dead();
  throw Error(notice->kind, {.what = "this communicator has ended before: " + notice->text,
                             .where = fmt::format("rank {}, {}", session.rank().value, op),
                             .advice = "close it and make a new one by init(), on all ranks"});
}

// Runs one of the call roles: local members by a store, the others by a command.
template <class Role, class Prepare>
void run_call_role(RoleContext& context, Role role, Prepare&& prepare) {
  run_role(context, role, Cursors{}, [&](const CallWork& w) {
    prepare(w);
    if (w.by_command) context.post(Ring::call, w.command);
    return TraceEvent{};
  });
}

}  // namespace

Call::Call(Session& session, const char* op) : session_(session), guard_(session) {
  throw_if_ended(session, op);
  session.look_at_gpu();
  site_.op = op;
  site_.attempt = session.next_attempt();
}

Call::~Call() {
  if (state_ == State::ended || state_ == State::refused) return;
  const std::string text =
      fmt::format("rank {} left {}, call {}, before its end", session_.rank().value, site_.op, site_.attempt);
  try {
    // An exception on the way: the others must not wait for this rank.
    if (state_ == State::entered) {
      session_.control().send_abort(ErrorKind::aborted, text);
    } else {
      session_.control().refuse_call(site_.attempt, text);
    }
  } catch (const std::exception&) {
    // The communicator is dead or closed: everyone knows.
  }
}

void Call::refuse(const Error& error) {
  if (state_ != State::fresh && state_ != State::begun) return;
  state_ = State::refused;
  if (!session_.is_dead()) session_.control().refuse_call(site_.attempt, error.what());
}

void Call::begin(CallTextRef text) {
  site_.text = std::move(text);
  session_.control().begin_call(site_.attempt, site_.text);
  state_ = State::begun;
}

void Call::describe(CallTextRef text) {
  site_.text = std::move(text);
  session_.control().describe_call(site_.attempt, site_.text);
}

std::vector<Call::Exchanged> Call::exchange_all(const char* what, const Exchanged& mine) {
  ByteWriter writer;
  writer.text(mine.refusal).u64(mine.numbers.size());
  for (const int64_t number : mine.numbers) writer.u64(static_cast<uint64_t>(number));
  const auto all = session_.control().allgather({.kind = what, .call = site_.attempt, .hash = hash64(site_.op)},
                                                writer.take(), session_.deadline());
  std::vector<Exchanged> values;
  values.reserve(all.size());
  for (const Bytes& bytes : all) {
    ByteReader reader(bytes, what);
    Exchanged& of_rank = values.emplace_back();
    of_rank.refusal = reader.text();
    for (uint64_t left = reader.u64(); left > 0; --left) of_rank.numbers.push_back(static_cast<int64_t>(reader.u64()));
    reader.finish();
  }
  return values;
}

std::vector<std::vector<int64_t>> Call::exchange_lists(const char* what, const std::vector<int64_t>& mine) {
  const std::vector<Exchanged> all = exchange_all(what, {.numbers = mine});
  const auto refused = std::find_if(all.begin(), all.end(), [](const Exchanged& e) { return !e.refusal.empty(); });
  if (refused != all.end()) {
    end();
    const Rank by{static_cast<int32_t>(refused - all.begin())};
    throw Error(ErrorKind::refused,
                {.what = refused_text(site_.attempt, by, refused->refusal, session_.rank()),
                 .where = fmt::format("rank {}, {}, call {}", session_.rank().value, site_.op, site_.attempt)});
  }
  std::vector<std::vector<int64_t>> lists;
  lists.reserve(all.size());
  for (const Exchanged& e : all) lists.push_back(e.numbers);
  return lists;
}

std::vector<int64_t> Call::exchange(const char* what, int64_t mine) {
  std::vector<int64_t> numbers;
  for (const std::vector<int64_t>& list : exchange_lists(what, {mine})) numbers.push_back(list.at(0));
  return numbers;
}

void Call::refuse_in_exchange(const char* what, const Error& error, const char* advice) noexcept {
  try {
    CallText text = plain_text(fmt::format("{}, refused: {}", site_.op, error.what()));
    text.advice = advice;
    begin(std::make_shared<CallText>(std::move(text)));
    exchange_all(what, {.refusal = std::string(error.what()).substr(0, kMostRefusalBytes)});
    end();
  } catch (const std::exception&) {
    state_ = State::refused;  // the communicator is dead, and why is known to all; what counts here is `error`
  }
}

void Call::agree(const char* what, uint64_t agreed_hash, int64_t half_bytes) {
  session_.control().allgather({.kind = what, .call = site_.attempt, .hash = agreed_hash}, {}, session_.deadline());
  if (half_bytes > session_.agreed_half_bytes()) session_.grow_halves(site_.attempt, half_bytes);
}

void Call::await_ready(uint64_t agreed_hash) {
  const SteadyTime limit =
      std::max(session_.deadline(), deadline_in(to_milliseconds(session_.options().connect_deadline_s)));
  session_.control().allgather({.kind = "ready", .call = site_.attempt, .hash = agreed_hash}, {}, limit);
}

void Call::end() {
  session_.control().enter_call(site_.attempt);
  session_.control().end_call(site_.attempt);
  state_ = State::ended;
}

void Call::run(uint64_t agreed_hash, const std::function<Program(Epoch)>& make) {
  session_.control().enter_call(site_.attempt);
  state_ = State::entered;
  site_.epoch = session_.next_epoch();
  site_.record = {.agreed_hash = agreed_hash, .sequence = site_.attempt};
  const Program program = make(site_.epoch);
  std::copy(std::begin(program.family_names), std::end(program.family_names), site_.family_names);
  try {
    const RelayThread relay(session_, site_, session_.relay_ring());
    RoleContext context(session_, site_, kCallRole);
    write_record(site_.epoch);
    const CallFrame frame = session_.frame(site_.epoch);
    const CallRecord record = site_.record;
    run_call_role(context, BeginRole(frame), [&](const CallWork& w) {
      if (w.by_command) return;
      std::memcpy(context.half_of(w.peer) + ArenaLayout::record_offset(frame.me), &record, sizeof(record));
    });
    run_roles(program);
    finish(context, program);
  } catch (const CallAborted&) {
    throw_verdict();
  } catch (const Error& error) {
    session_.fail(error.kind(), error.what());
  } catch (const std::exception& error) {
    session_.fail(ErrorKind::internal, error.what());
  }
  session_.note_ended(site_.epoch);
  session_.control().end_call(site_.attempt);
  state_ = State::ended;
}

// Kernels know of no call but its epoch, which a refused call takes none of: a kernel that is launched here would meet
// those of ranks that have not refused it.
void Call::launch(const std::function<void()>& put) {
  session_.control().await_refusals(session_.deadline());
  session_.control().enter_call(site_.attempt);
  state_ = State::entered;
  try {
    put();
  } catch (const Error& error) {
    session_.fail(error.kind(), fmt::format("rank {}: {}", session_.rank().value, error.what()));
  }
  session_.note_launched(site_.attempt);
  state_ = State::ended;
}

void Call::write_record(Epoch epoch) {
  std::byte* half = session_.arena().base() + session_.arena().layout().half_offset(epoch);
  std::memcpy(half + ArenaLayout::record_offset(session_.rank()), &site_.record, sizeof(site_.record));
}

void Call::run_roles(const Program& program) {
  std::vector<TeamRole> roles;
  roles.reserve(program.roles.size());
  std::atomic<bool> was_aborted{false};
  for (const RoleBody& body : program.roles) {
    roles.push_back({fmt::format("{}{}", body.name.name, body.name.worker), [this, &body, &was_aborted] {
                       try {
                         RoleContext context(session_, site_, body.name);
                         body.run(context);
                       } catch (const CallAborted&) {
                         was_aborted = true;
                       }
                     }});
  }
  // A role that fails for a reason of its own ends the call on all ranks, this one included.
  session_.team().run(roles, [this](const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const Error& error) {
      session_.control().send_abort(error.kind(), error.what());
    } catch (const std::exception& error) {
      session_.control().send_abort(ErrorKind::internal,
                                    fmt::format("rank {}, {}: {}", session_.rank().value, site_.op, error.what()));
    }
  });
  if (was_aborted) throw CallAborted{};
}

void Call::finish(RoleContext& context, const Program& program) {
  const CallFrame frame = session_.frame(site_.epoch);
  program.drain(context);
  run_call_role(context, DoneRole(frame), [](const CallWork&) {});
  run_call_role(context, AwaitRole(frame, program.sends_from_user), [](const CallWork&) {});
}

// What a role left for has been reported, or heard from others: an abort of this rank's own would only hide the cause.
void Call::throw_verdict() {
  session_.await_verdict();
  session_.throw_if_dead();
  session_.fail(ErrorKind::aborted,
                fmt::format("rank {} left {}, call {}", session_.rank().value, site_.op, site_.attempt));
}

}  // namespace tilewire
