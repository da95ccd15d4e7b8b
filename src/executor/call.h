// One call of any op on this rank, from the first check to the last word: what all ops do alike. An op describes
// itself, gives its roles, and hands over.
//
//   Call call(session, "all_gather_matmul");           // takes the call's number
//   ... local checks; on an error call.refuse(error)   // tells the others, touches no word
//   call.begin(text);
//   ... agreement steps (call.agree, call.exchange)
//   call.run(agreed_hash, make);                       // begin, the roles of make(epoch), its drain, done, await
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "executor/role_context.h"

namespace tilewire {

class Call {
 public:
  // Waits for a call of another thread. Throws what the communicator died of, as its end, Error(closed), or
  // Error(deadline) when that call takes too long.
  Call(Session& session, const char* op);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  uint64_t attempt() const { return site_.attempt; }
  Rank rank() const { return session_.rank(); }
  // The call is not made; the error is told to the ranks that may wait for it.
  void refuse(const Error& error);
  // From here on this rank takes part.
  void begin(CallTextRef text);
  // A better text, once more is known.
  void describe(CallTextRef text);
  // A number from every rank, by rank: host only, over the control connection. Where a rank refuses in it, the call is
  // over and Error(refused) quotes the lowest such rank.
  std::vector<int64_t> exchange(const char* what, int64_t mine);
  // The same of a list from every rank, each as long as it likes.
  std::vector<std::vector<int64_t>> exchange_lists(const char* what, const std::vector<int64_t>& mine);
  // As refuse(), of a call that is not begun and whose other ranks come to the exchange `what`: the refusal takes the
  // place of this rank's number there. So all ranks skip the call, and the communicator stays usable. Waits for them;
  // an error of the exchange itself is not thrown. `advice`: as a CallText has it.
  void refuse_in_exchange(const char* what, const Error& error, const char* advice) noexcept;
  // Collective, once for each agreed text of a communicator and for each handle: all ranks have it, and the halves are
  // large enough. `what`: that they agree on, for people; ranks that say different things hear of both.
  void agree(const char* what, uint64_t agreed_hash, int64_t half_bytes);
  // Collective, behind agree(): all ranks have made ready what the agreed text needs. That may take as long as joining
  // does.
  void await_ready(uint64_t agreed_hash);
  // Ends a call that only agreed on something and moves no data. Takes no epoch.
  void end();

  struct RoleBody {
    RoleName name;
    std::function<void(RoleContext&)> run;
  };
  struct Program {
    std::vector<RoleBody> roles;
    std::function<void(RoleContext&)> drain;  // runs when the roles have finished
    bool sends_from_user = false;             // the call ends only when everything sent has landed
    const char* family_names[kWordFamilies] = {};
  };
  // Takes an epoch and runs the program. Throws the error that all ranks get; then the communicator is dead.
  // `make` gets the epoch.
  void run(uint64_t agreed_hash, const std::function<Program(Epoch)>& make);
  // In place of run() on a GPU rank: `put` puts a kernel into a stream, which takes an epoch when it runs and ends the
  // call by itself. What it throws ends the communicator, and is thrown as all ranks get it. Where this rank has refused
  // a call it waits first until all have, or until the communicator has ended because some are in that call.
  void launch(const std::function<void()>& put);

 private:
  struct Exchanged {
    std::vector<int64_t> numbers{};
    std::string refusal{};  // empty: it makes the call
  };
  std::vector<Exchanged> exchange_all(const char* what, const Exchanged& mine);
  void write_record(Epoch epoch);
  void run_roles(const Program& program);
  void finish(RoleContext& context, const Program& program);
  [[noreturn]] void throw_verdict();

  Session& session_;
  Session::CallGuard guard_;
  CallSite site_;
  enum class State { fresh, begun, entered, refused, ended };
  State state_ = State::fresh;
};

}  // namespace tilewire
