// The link test: bandwidth and latency of every NIC between every two ranks, and whether messages are whole when they are
// announced. It is how a user finds out what a network does before a job runs over it, and what a report of trouble
// begins with.
#pragma once

#include <tilewire/options.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace tilewire {

struct LinkTest {
  double seconds = 1;           // of each measure of bandwidth, about; at most half of Options::deadline_s
  uint64_t messages = 1000000;  // checked from each rank to each other, at most 2^40
  std::string report{};         // file that rank 0 writes the report to; "": none
};

struct LinkReport {
  int32_t rank = 0;             // this process
  std::string json{};           // the same on all ranks
  uint64_t wrong_messages = 0;  // of all; results over a network that has any would be wrong
  std::string unwritten{};      // why the file could not be written after all; "": it was
};

// Collective: called by every rank of a job, as Communicator::init() is and with the same options; each rank counts as a
// node, wherever it runs. Throws as Communicator::init() does, Error(invalid_argument) for a wrong LinkTest, a job of one
// rank or a file that cannot be written, before anything is measured; Error(mismatch) on all ranks where they measure
// differently, and Error(peer_lost, aborted, deadline) when a rank or a path fails. Of GPU ranks (Options::device) it is the
// memory of GPUs: kernels send, and read what arrives.
LinkReport run_link_test(Options options, const LinkTest& test, const std::atomic<bool>* is_cancelled = nullptr);

}  // namespace tilewire
