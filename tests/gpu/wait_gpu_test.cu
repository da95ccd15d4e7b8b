// Publish and consume between CTAs through the copy engine, and the ways out of a wait: deadline, abort, and that a
// kernel which gave up ends by itself and leaves the context usable.
#include "device_buffer.cuh"
#include "gpu_program.cuh"

#include "device/sync/pipeline.cuh"
#include "device/sync/wait.cuh"

#include <chrono>
#include <cstdio>

namespace tilewire {
namespace {

constexpr int kThreads = 128;
constexpr int kMessageWords = 4096;
constexpr int kPairs = 32;
constexpr int kRounds = 400;
constexpr int kRole = 3;
constexpr uint64_t kPatienceNs = 2'000'000'000;
constexpr Epoch kEpoch = (Epoch{1} << 32) + 5;  // of waits without an exchange

struct Mail {
  uint32_t* messages;  // [pairs][kMessageWords]
  uint64_t* sent;      // [pairs]
  uint64_t* read;      // [pairs]
  Epoch first;         // epoch of the first round
};

TILEWIRE_DEVICE uint32_t letter(Epoch epoch, uint32_t pair, uint32_t i) {
  return static_cast<uint32_t>(epoch) * 2654435761u + pair * 40503u + i;
}

TILEWIRE_DEVICE void send_all(const Mail& mail, const WaitLimits& limits, uint32_t pair, uint32_t* memory) {
  Waiter waiter(limits, kRole, mail.first);
  for (Epoch epoch = mail.first; epoch < mail.first + kRounds; ++epoch) {
    for (uint32_t i = threadIdx.x; i < kMessageWords; i += kThreads) memory[i] = letter(epoch, pair, i);
    ptx::fence_async_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
      consume(waiter, mail.read + pair, pair, epoch - 1);  // the message before this one has been read
      ptx::bulk_store(mail.messages + pair * kMessageWords, ptx::shared_address(memory), kMessageWords * 4);
      ptx::bulk_commit();
      publish(mail.sent + pair, epoch);
    }
    __syncthreads();
  }
}

TILEWIRE_DEVICE uint32_t read_all(const Mail& mail, const WaitLimits& limits, uint32_t pair, uint32_t* memory,
                                  PipelineBarriers<1> barriers) {
  Waiter waiter(limits, kRole, mail.first);
  PipelineProducer<1> producer(barriers);
  PipelineConsumer<1> consumer(barriers);
  uint32_t wrong = 0;
  for (Epoch epoch = mail.first; epoch < mail.first + kRounds; ++epoch) {
    if (threadIdx.x == 0) {
      consume(waiter, mail.sent + pair, pair, epoch);
      const auto slot = producer.acquire(kMessageWords * 4);
      ptx::bulk_load(ptx::shared_address(memory), mail.messages + pair * kMessageWords, kMessageWords * 4, slot.full);
      producer.commit();
    }
    __syncwarp();
    consumer.wait();
    for (uint32_t i = threadIdx.x; i < kMessageWords; i += kThreads) wrong += memory[i] != letter(epoch, pair, i);
    __syncwarp();
    consumer.release();
    __syncthreads();
    if (threadIdx.x == 0) publish(mail.read + pair, epoch);
  }
  return wrong;
}

__global__ void exchange(Mail mail, const __grid_constant__ WaitLimits limits, uint32_t* wrong) {
  __shared__ alignas(128) uint32_t memory[kMessageWords];
  __shared__ alignas(8) uint64_t words[2];
  const PipelineBarriers<1> barriers{ptx::shared_address(words)};
  if (threadIdx.x == 0) barriers.init(kThreads / 32);
  __syncthreads();
  const uint32_t pair = blockIdx.x / 2;
  if (blockIdx.x % 2 == 0) {
    send_all(mail, limits, pair, memory);
  } else {
    atomicAdd(wrong, read_all(mail, limits, pair, memory, barriers));
  }
}

// Every CTA waits for its own flag, twice; the second wait of one who gave up must not wait again.
__global__ void wait_for_flags(const uint64_t* flags, const __grid_constant__ WaitLimits limits, Epoch epoch,
                               uint32_t* given_up) {
  Waiter waiter(limits, kRole, epoch);
  const bool is_first_here = consume(waiter, flags + blockIdx.x, 100 + blockIdx.x, epoch);
  const bool is_second_here = consume(waiter, flags + blockIdx.x, 100 + blockIdx.x, epoch);
  if (!is_first_here && !is_second_here && waiter.has_given_up()) atomicAdd(given_up, 1);
}

// Pinned record, abort word and counters of a case.
struct Watch {
  FaultRecord* fault = nullptr;
  DeviceBuffer<uint64_t> abort_word{1};
  DeviceBuffer<uint32_t> count{1};

  Watch() {
    check_cuda(cudaMallocHost(&fault, sizeof(FaultRecord)), "allocating pinned memory");
    *fault = FaultRecord{};
    abort_word.fill_bytes(0);
    count.fill_bytes(0);
  }
  ~Watch() { cudaFreeHost(fault); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  WaitLimits limits(uint64_t timeout_ns) const { return {abort_word.data(), fault, timeout_ns, 7, 5}; }
};

void test_exchange(Epoch first) {
  Watch watch;
  DeviceBuffer<uint32_t> messages(kPairs * kMessageWords);
  DeviceBuffer<uint64_t> sent(kPairs), read(kPairs);
  const std::vector<uint64_t> before(kPairs, first - 1);
  for (auto* flags : {&sent, &read}) {
    check_cuda(cudaMemcpy(flags->data(), before.data(), kPairs * 8, cudaMemcpyHostToDevice), "setting flags");
  }
  exchange<<<2 * kPairs, kThreads>>>({messages.data(), sent.data(), read.data(), first}, watch.limits(kPatienceNs),
                                     watch.count.data());
  check_cuda(cudaDeviceSynchronize(), "exchanging messages");
  expect(watch.fault->state == FaultRecord::kNone, "no wait of an exchange expires");
  expect(watch.count.to_host()[0] == 0, "every message is read as it was sent");
}

// Milliseconds that the kernel took. Flags [0, arrived) are there.
double run_waits(int ctas, int arrived, const WaitLimits& limits, const Watch& watch) {
  DeviceBuffer<uint64_t> flags(ctas);
  std::vector<uint64_t> words(static_cast<size_t>(ctas), kEpoch - 1);
  for (int i = 0; i < arrived; ++i) words[static_cast<size_t>(i)] = kEpoch + 1;
  check_cuda(cudaMemcpy(flags.data(), words.data(), words.size() * 8, cudaMemcpyHostToDevice), "setting flags");
  const auto begin = std::chrono::steady_clock::now();
  wait_for_flags<<<ctas, 1>>>(flags.data(), limits, kEpoch, watch.count.data());
  check_cuda(cudaDeviceSynchronize(), "waiting for flags");
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

void test_deadline() {
  Watch watch;
  const double ms = run_waits(64, 63, watch.limits(20'000'000), watch);
  const FaultRecord& f = *watch.fault;
  expect(ms >= 20 && ms < 2000, "a flag that never comes ends the wait at its deadline");
  expect(watch.count.to_host()[0] == 1, "only the CTA without its flag gives up, once and for all");
  expect(f.state == FaultRecord::kComplete && f.op == 7 && f.rank == 5 && f.role == kRole && f.cta == 63 &&
             f.word == 163 && f.expected == kEpoch && f.seen == kEpoch - 1 && f.epoch == kEpoch,
         "the record says who waited for what and what was there");
  expect(watch.abort_word.to_host()[0] == 1, "an expired deadline sets the abort word");
}

void test_abort() {
  Watch watch;
  const uint64_t is_set = 1;
  check_cuda(cudaMemcpy(watch.abort_word.data(), &is_set, 8, cudaMemcpyHostToDevice), "setting the abort word");
  const double ms = run_waits(64, 0, watch.limits(kPatienceNs), watch);
  expect(ms < 1000, "a set abort word ends waits long before their deadline");
  expect(watch.count.to_host()[0] == 64, "every CTA gives up after an abort");
  expect(watch.fault->state == FaultRecord::kNone, "an abort is no fault of this rank");
}

void test_one_record() {
  Watch watch;
  run_waits(100, 0, watch.limits(5'000'000), watch);
  const FaultRecord& f = *watch.fault;
  expect(watch.count.to_host()[0] == 100, "all give up");
  expect(f.state == FaultRecord::kComplete && f.word == 100 + static_cast<uint64_t>(f.cta),
         "one record is kept, of one CTA");
}

int run() {
  test_exchange(1);
  test_exchange((Epoch{1} << 32) - 3);
  test_deadline();
  test_abort();
  test_one_record();
  test_exchange(1);  // the context works after faults
  return verdict_of_claims();
}

}  // namespace
}  // namespace tilewire

int main() { return tilewire::run_gpu_program(tilewire::run); }
