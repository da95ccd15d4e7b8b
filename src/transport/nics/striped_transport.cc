#include "transport/nics/striped_transport.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <deque>

#include "base/check.h"
#include "base/log.h"
#include "transport/bootstrap/byte_codec.h"
#include "transport/peer_agreement.h"

namespace tilewire {
namespace {

constexpr uint64_t kStripedMagic = 0x5457535452495031;  // changes with what follows it
constexpr size_t kMostWaiting = 64;  // requests to a peer that one NIC has no room for, before all to it wait
constexpr size_t kMostNics = 255;

class StripedTransport final : public Transport {
 public:
  StripedTransport(const TransportContext& context, std::vector<StripedNic> nics);
  ~StripedTransport() override { close(); }

  const Caps& caps() const override { return caps_; }
  void register_arena(uint64_t begin, uint64_t bytes) override;
  std::vector<std::byte> address() override {
    return pack([](Transport& t) { return t.address(); });
  }
  void connect(std::span<const std::vector<std::byte>> addresses, std::chrono::nanoseconds deadline) override;
  void check_paths(const StepLimit& limit) override;
  std::vector<std::byte> new_keys() override {
    return pack([](Transport& t) { return t.new_keys(); });
  }
  void learn_keys(std::span<const std::vector<std::byte>> by_rank) override;
  size_t post(std::span<const WriteRequest> requests) override;
  size_t poll(std::span<Event> events) override;
  void look_at_devices(std::chrono::nanoseconds patience) override {
    for (Nic& nic : nics_) nic.transport->look_at_devices(patience);
  }
  std::chrono::nanoseconds idle_hint() const override;
  std::string describe_status(int32_t status) const override { return nics_[0].transport->describe_status(status); }
  std::string describe_failure(const Event& event) const override;
  std::vector<NicInfo> nics() const override;
  std::vector<int> near_processors() const override;
  void close() noexcept override {
    is_closed_ = true;
    for (Nic& nic : nics_) {
      nic.forget();
      nic.transport->close();
    }
  }

 private:
  // With what is taken and not posted yet, for each peer by itself: one that takes none does not hold up the others.
  struct Nic : StripedNic {
    std::vector<std::vector<WriteRequest>> waiting{};  // by rank
    std::vector<size_t> busy{};                        // ranks that have some
    void add(const WriteRequest& request, size_t rank) {
      if (waiting[rank].empty()) busy.push_back(rank);
      waiting[rank].push_back(request);
    }
    void flush() {
      std::erase_if(busy, [this](size_t rank) {
        std::vector<WriteRequest>& requests = waiting[rank];
        const size_t posted = transport->post(requests);
        requests.erase(requests.begin(), requests.begin() + static_cast<ptrdiff_t>(posted));
        return requests.empty();
      });
    }
    void forget() {
      for (const size_t rank : busy) waiting[rank].clear();
      busy.clear();
    }
  };
  // What the next request to a peer takes, of either kind.
  struct Turn {
    uint32_t data = 0;
    uint32_t control = 0;
  };

  template <class Part>
  std::vector<std::byte> pack(Part&& part) {
    ByteWriter writer;
    writer.u64(kStripedMagic).u64(nics_.size());
    for (Nic& nic : nics_) {
      const std::vector<std::byte> bytes = part(*nic.transport);
      writer.bytes(bytes);
    }
    return writer.take();
  }
  std::vector<std::vector<std::byte>> unpack(size_t rank, std::span<const std::byte> bytes) const;
  std::vector<std::vector<std::vector<std::byte>>> by_nic(std::span<const std::vector<std::byte>> by_rank,
                                                          size_t count) const;
  void drop_nics(size_t count, size_t fewest_rank);
  Caps common_caps() const;
  bool try_take(const WriteRequest& request);

  Rank rank_;
  std::vector<Rank> peers_;
  std::vector<Nic> nics_;
  std::vector<Turn> turns_;  // by rank
  Caps caps_;
  uint32_t in_hand_ = 0;  // requests taken, and not done
  size_t next_to_poll_ = 0;
  bool is_closed_ = false;
};

StripedTransport::StripedTransport(const TransportContext& context, std::vector<StripedNic> nics)
    : rank_(context.rank), peers_(context.peers), turns_(static_cast<size_t>(context.ranks)) {
  TILEWIRE_CHECK(!nics.empty() && nics.size() <= kMostNics, ErrorKind::invalid_argument, "{} NICs of rank {}",
                 nics.size(), rank_.value);
  for (StripedNic& nic : nics) {
    nics_.push_back({std::move(nic), std::vector<std::vector<WriteRequest>>(turns_.size())});
    nics_.back().busy.reserve(turns_.size());
  }
  caps_ = common_caps();
  TILEWIRE_CHECK(nics_.size() == 1 || (caps_.write_with_immediate && !caps_.ordered_writes),
                 ErrorKind::invalid_argument, "words written behind their data need one NIC, and rank {} has {}",
                 rank_.value, nics_.size());
  // Peers begin with different NICs.
  for (size_t r = 0; r < turns_.size(); ++r) {
    turns_[r].data = turns_[r].control = static_cast<uint32_t>((r + static_cast<size_t>(rank_.value)) % nics_.size());
  }
}

// With all NICs or with none: who asks again would else leave two keys for the same memory.
void StripedTransport::register_arena(uint64_t begin, uint64_t bytes) {
  size_t done = 0;
  try {
    for (; done < nics_.size(); ++done) nics_[done].transport->register_arena(begin, bytes);
  } catch (...) {
    while (done > 0) nics_[--done].transport->unregister_arena(begin, bytes);
    throw;
  }
}

Caps StripedTransport::common_caps() const {
  Caps caps = nics_[0].transport->caps();
  for (const Nic& nic : std::span(nics_).subspan(1)) {
    const Caps& own = nic.transport->caps();
    caps.max_outstanding += own.max_outstanding;
    caps.max_write_bytes = std::min(caps.max_write_bytes, own.max_write_bytes);
  }
  return caps;
}

std::vector<std::vector<std::byte>> StripedTransport::unpack(size_t rank, std::span<const std::byte> bytes) const {
  ByteReader reader(bytes, "addresses of NICs");
  if (bytes.size() < 2 * sizeof(uint64_t) || reader.u64() != kStripedMagic) {
    refuse_address(Rank{static_cast<int32_t>(rank)}, bytes.size(),
                   fmt::format("{} transport of rank {}", caps_.name, rank_.value));
  }
  std::vector<std::vector<std::byte>> parts;
  for (uint64_t left = reader.u64(); left > 0; --left) parts.push_back(reader.bytes());
  reader.finish();
  return parts;
}

// Turned round: for each NIC what every rank has said of its own one of that number. Only peers are listened to.
std::vector<std::vector<std::vector<std::byte>>> StripedTransport::by_nic(
    std::span<const std::vector<std::byte>> by_rank, size_t count) const {
  std::vector<std::vector<std::vector<std::byte>>> turned(count, std::vector<std::vector<std::byte>>(by_rank.size()));
  for (size_t r = 0; r < by_rank.size(); ++r) {
    if (by_rank[r].empty()) continue;
    std::vector<std::vector<std::byte>> parts = unpack(r, by_rank[r]);
    for (size_t i = 0; i < std::min(count, parts.size()); ++i) turned[i][r] = std::move(parts[i]);
  }
  return turned;
}

void StripedTransport::drop_nics(size_t count, size_t fewest_rank) {
  if (count >= nics_.size()) return;
  std::string dropped;
  for (size_t i = count; i < nics_.size(); ++i) {
    dropped += (dropped.empty() ? "" : ", ") + nics_[i].name;
    nics_[i].transport->close();
  }
  log_warn("rank {} has {} NICs for this job, so {} of this rank stay without use: {}", fewest_rank, count,
           nics_.size() - count, dropped);
  nics_.resize(count);
  caps_ = common_caps();
  for (Turn& turn : turns_)
    turn = {static_cast<uint32_t>(turn.data % count), static_cast<uint32_t>(turn.control % count)};
}

void StripedTransport::connect(std::span<const std::vector<std::byte>> addresses, std::chrono::nanoseconds deadline) {
  TILEWIRE_CHECK_EQ(addresses.size(), turns_.size(), ErrorKind::invalid_argument, "one address a rank");
  size_t fewest = nics_.size(), fewest_rank = static_cast<size_t>(rank_.value);
  // Of all ranks, peers or not: so all come to the same number.
  for (size_t r = 0; r < addresses.size(); ++r) {
    if (addresses[r].empty()) continue;
    const size_t count = unpack(r, addresses[r]).size();
    if (count < fewest) fewest_rank = r;
    fewest = std::min(fewest, count);
  }
  TILEWIRE_CHECK(fewest > 0, ErrorKind::mismatch, "rank {} has no NIC", fewest_rank);
  drop_nics(fewest, fewest_rank);
  const auto end = std::chrono::steady_clock::now() + deadline;
  const auto turned = by_nic(addresses, nics_.size());
  for (size_t i = 0; i < nics_.size(); ++i) {
    nics_[i].transport->connect(turned[i], end - std::chrono::steady_clock::now());
  }
}

void StripedTransport::check_paths(const StepLimit& limit) {
  const auto end = std::chrono::steady_clock::now() + limit.deadline;
  for (Nic& nic : nics_) nic.transport->check_paths({end - std::chrono::steady_clock::now(), limit.poll});
}

void StripedTransport::learn_keys(std::span<const std::vector<std::byte>> by_rank) {
  const auto turned = by_nic(by_rank, nics_.size());
  for (size_t i = 0; i < nics_.size(); ++i) nics_[i].transport->learn_keys(turned[i]);
}

bool StripedTransport::try_take(const WriteRequest& request) {
  const auto rank = static_cast<size_t>(request.peer.value);
  TILEWIRE_CHECK_LT(rank, turns_.size(), ErrorKind::invalid_argument, "request {} of rank {} is for no rank",
                    request.id, rank_.value);
  uint32_t& turn = request.is_control() ? turns_[rank].control : turns_[rank].data;
  Nic& nic = nics_[turn];
  if (in_hand_ == caps_.max_outstanding) return false;
  if (nic.waiting[rank].size() >= kMostWaiting) nic.flush();
  if (nic.waiting[rank].size() >= kMostWaiting) return false;
  nic.add(request, rank);
  ++in_hand_;
  if (++turn == nics_.size()) turn = 0;
  return true;
}

size_t StripedTransport::post(std::span<const WriteRequest> requests) {
  if (nics_.size() == 1) return nics_[0].transport->post(requests);
  if (is_closed_) return 0;
  size_t taken = 0;
  while (taken < requests.size() && try_take(requests[taken])) ++taken;
  for (Nic& nic : nics_) nic.flush();
  return taken;
}

size_t StripedTransport::poll(std::span<Event> events) {
  size_t count = 0;
  for (size_t i = 0; i < nics_.size() && count < events.size(); ++i) {
    const size_t at = next_to_poll_;
    next_to_poll_ = at + 1 < nics_.size() ? at + 1 : 0;
    const size_t came = nics_[at].transport->poll(events.subspan(count));
    for (Event& event : events.subspan(count, came)) {
      event.nic = static_cast<uint8_t>(at);
      const bool is_of_request = event.kind == EventKind::completed || event.kind == EventKind::failed;
      if (is_of_request && in_hand_ > 0) --in_hand_;
    }
    count += came;
    nics_[at].flush();
  }
  return count;
}

std::chrono::nanoseconds StripedTransport::idle_hint() const {
  auto hint = std::chrono::nanoseconds::max();
  for (const Nic& nic : nics_) {
    hint = std::min(hint, nic.busy.empty() ? nic.transport->idle_hint() : std::chrono::nanoseconds::zero());
  }
  return hint;
}

std::string StripedTransport::describe_failure(const Event& event) const {
  const Nic& nic = nics_[std::min<size_t>(event.nic, nics_.size() - 1)];
  std::string text = nic.transport->describe_failure(event);
  if (nics_.size() == 1) return text;
  return fmt::format("NIC {} of {}, {}: {}", event.nic + 1, nics_.size(), nic.name, text);
}

std::vector<NicInfo> StripedTransport::nics() const {
  std::vector<NicInfo> infos;
  for (const Nic& nic : nics_) infos.push_back({nic.name, nic.gbps, nic.facts});
  return infos;
}

std::vector<int> StripedTransport::near_processors() const {
  std::vector<int> near;
  for (const Nic& nic : nics_) near.insert(near.end(), nic.processors.begin(), nic.processors.end());
  std::sort(near.begin(), near.end());
  near.erase(std::unique(near.begin(), near.end()), near.end());
  return near;
}

}  // namespace

std::unique_ptr<Transport> make_striped_transport(const TransportContext& context, std::vector<StripedNic> nics) {
  return std::make_unique<StripedTransport>(context, std::move(nics));
}

}  // namespace tilewire
