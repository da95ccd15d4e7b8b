#include "ops/ag_gemm/arrivals.h"

#include <algorithm>
#include <limits>

namespace tilewire::ag_gemm {
namespace {

// A chunk that was given to a proxy for an entry rank of the node.
struct Sent {
  ChunkRef chunk;
  Rank entry;
  double posted_s = 0;
  double left_s = 0;  // the last byte, from the sender's port
};

// A push or forward role of a rank of the node, standing at a piece of work.
template <class Role>
struct Mover {
  Rank rank;
  Role role;
  CopyWork work;
  double free_s = 0;
  bool has_work = false;

  Mover(Rank of, const Schedule& s) : rank(of), role(s) { has_work = role.next(work); }
};

class NodeClock {
 public:
  NodeClock(const Schedule& s, Node node, const Machine& machine) : s_(s), node_(node), m_(machine) {
    const auto width = static_cast<size_t>(s.topology().ranks_on(node));
    const double never = std::numeric_limits<double>::max();
    at_s_.assign(width, std::vector<double>(static_cast<size_t>(s.chunks.total_chunks()), never));
    node_out_.resize(width);
    node_in_.resize(width);
    // Nobody brings them: they are used where they are.
    const bool is_mine = s.own_in_user && s.topology().node(s.me()) == node;
    for (int32_t c = 0; is_mine && c < s.own_chunks(); ++c) at_s(s.me(), {s.me(), Chunk{c}}) = 0;
  }

  std::vector<std::vector<double>> run() {
    for (int32_t r = 0; r < s_.topology().ranks; ++r) {
      if (s_.topology().node(Rank{r}) != node_) send_all(Rank{r});
    }
    land_all();
    move_all();
    return std::move(at_s_);
  }

 private:
  size_t local(Rank r) const { return static_cast<size_t>(s_.topology().local(r).value); }
  double& at_s(Rank r, ChunkRef c) { return at_s_[local(r)][static_cast<size_t>(s_.chunks.global(c))]; }
  double seconds(ChunkRef c, double bytes_per_s) const { return static_cast<double>(s_.bytes(c)) / bytes_per_s; }
  Schedule of(Rank r) const {
    Schedule other = s_;
    other.frame.me = r;
    other.own_in_user = other.own_in_user && r == s_.me();
    return other;
  }

  // When each chunk of a rank of another node lies in its own buffer.
  std::vector<double> own_copies_s(Rank r) const {
    std::vector<double> ready_s(static_cast<size_t>(s_.chunks.chunks_of(r)), 0);
    double free_s = 0;
    CopyWork w;
    for (PushRole push(of(r)); push.next(w);) {
      free_s += seconds(w.chunk, w.to == r ? m_.copy_bytes_per_s : m_.node_bytes_per_s) + m_.step_s;
      if (w.to == r) ready_s[static_cast<size_t>(w.chunk.chunk.value)] = free_s + m_.node_latency_s;
    }
    return ready_s;
  }

  // A rank's proxy, which takes the call records first.
  Lane behind_records(Rank r) const {
    Lane proxy;
    double free_s = 0;
    CallWork w;
    for (BeginRole begin(of(r).frame); begin.next(w);) {
      free_s += m_.step_s;
      if (w.by_command) proxy.take(free_s, m_.command_s);
    }
    return proxy;
  }

  void send_all(Rank r) {
    const std::vector<double> ready_s = own_copies_s(r);
    double free_s = 0;
    Lane proxy = behind_records(r), port;
    SendWork w;
    for (SendRole send(of(r)); send.next(w) && w.command.kind == CommandKind::write;) {
      free_s = std::max(free_s, ready_s[static_cast<size_t>(w.chunk.chunk.value)]) + m_.step_s;
      const double posted_s = proxy.take(free_s, m_.command_s);
      const double left_s = port.take(posted_s, seconds(w.chunk, m_.network_bytes_per_s));
      if (s_.topology().node(w.command.peer) == node_) sent_.push_back({w.chunk, w.command.peer, posted_s, left_s});
    }
  }

  void land_all() {
    std::stable_sort(sent_.begin(), sent_.end(), [](const Sent& a, const Sent& b) { return a.posted_s < b.posted_s; });
    std::vector<Lane> ports(at_s_.size()), proxies(at_s_.size());
    for (const Sent& m : sent_) {
      const double in_s = ports[local(m.entry)].take(m.posted_s, seconds(m.chunk, m_.network_bytes_per_s));
      const double landed_s = std::max(m.left_s, in_s) + m_.network_latency_s;
      at_s(m.entry, m.chunk) = proxies[local(m.entry)].take(landed_s, m_.command_s);
    }
  }

  // Local copies in the order of their begins.
  void move_all() {
    std::vector<Mover<PushRole>> pushes;
    std::vector<Mover<ForwardRole>> forwards;
    const int32_t width = s_.topology().ranks_on(node_);
    for (int32_t l = 0; l < width; ++l) {
      const Rank r = s_.topology().rank_at(node_, LocalRank{l});
      pushes.emplace_back(r, of(r));
      if (s_.frame.has_network()) forwards.emplace_back(r, of(r));
    }
    while (true) {
      double push_s = 0, forward_s = 0;
      Mover<PushRole>* push = first_of(pushes, push_s);
      Mover<ForwardRole>* forward = first_of(forwards, forward_s);
      if (push == nullptr && forward == nullptr) return;
      if (forward == nullptr || (push != nullptr && push_s <= forward_s)) {
        move(*push, push_s);
      } else {
        move(*forward, forward_s);
      }
    }
  }

  double begin_s(const Mover<PushRole>& mover) { return mover.free_s; }
  double begin_s(const Mover<ForwardRole>& mover) { return std::max(mover.free_s, at_s(mover.rank, mover.work.chunk)); }
  template <class Role>
  Mover<Role>* first_of(std::vector<Mover<Role>>& movers, double& first_s) {
    Mover<Role>* first = nullptr;
    for (Mover<Role>& mover : movers) {
      if (!mover.has_work) continue;
      const double at = begin_s(mover);
      if (first != nullptr && at >= first_s) continue;
      first = &mover;
      first_s = at;
    }
    return first;
  }

  template <class Role>
  void move(Mover<Role>& mover, double begin_s) {
    const ChunkRef c = mover.work.chunk;
    const Rank to = mover.work.to;
    double end_s = begin_s + seconds(c, m_.copy_bytes_per_s);
    if (to != mover.rank) {
      const double on_link = seconds(c, m_.node_bytes_per_s);
      end_s = std::max(node_out_[local(mover.rank)].take(begin_s, on_link), node_in_[local(to)].take(begin_s, on_link));
    }
    mover.free_s = end_s + m_.step_s;
    at_s(to, c) = mover.free_s + m_.node_latency_s;
    mover.has_work = mover.role.next(mover.work);
  }

  const Schedule& s_;
  Node node_;
  Machine m_;
  std::vector<std::vector<double>> at_s_;
  std::vector<Sent> sent_;
  std::vector<Lane> node_out_, node_in_;
};

}  // namespace

std::vector<std::vector<double>> expected_arrivals_s(const Schedule& s, Node node, const Machine& machine) {
  return NodeClock(s, node, machine).run();
}

double last_arrival_s(const std::vector<std::vector<double>>& arrivals_s) {
  double last_s = 0;
  for (const std::vector<double>& rank : arrivals_s) {
    for (const double at_s : rank) last_s = std::max(last_s, at_s);
  }
  return last_s;
}

}  // namespace tilewire::ag_gemm
