// The error that every part of Tilewire raises: it says what failed, where, with which values, what the limit is and
// what to change.
#pragma once

#include <tilewire/export.h>

#include <stdexcept>
#include <string>

namespace tilewire {

enum class ErrorKind {
  invalid_argument,  // the caller passed something this call cannot take
  mismatch,          // ranks disagree about a call
  deadline,          // a wait ran past its limit
  peer_lost,         // another rank died or left
  aborted,           // another rank reported the error that is quoted
  refused,           // another rank's local checks refused this call
  resource,          // memory, file descriptors, queue entries or a device limit
  unavailable,       // a back end, library or device is not here
  closed,            // the communicator was closed or is dead
  internal,          // a rule of Tilewire itself was broken
};

TILEWIRE_API const char* to_string(ErrorKind kind);

// The parts of an error message. Empty parts are left out of the text.
struct ErrorParts {
  std::string what{};    // what failed: "a has the wrong number of columns"
  std::string where{};   // "rank 3, all_gather_matmul, call 17"
  std::string values{};  // "k = 1028, b.rows = 1024"
  std::string limit{};   // "must be equal"
  std::string advice{};  // "pass b as [K, N] or [N, K]"
};

class TILEWIRE_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, ErrorParts parts);

  ErrorKind kind() const { return kind_; }
  const ErrorParts& parts() const { return parts_; }

 private:
  ErrorKind kind_;
  ErrorParts parts_;
};

}  // namespace tilewire
