#include <tilewire/error.h>

#include <utility>

namespace tilewire {
namespace {

std::string join(ErrorKind kind, const ErrorParts& parts) {
  std::string text = parts.what;
  if (!parts.values.empty()) text += (text.empty() ? "" : ": ") + parts.values;
  if (!parts.limit.empty()) text += (text.empty() ? "" : ", ") + parts.limit;
  if (!parts.where.empty()) text += " [" + parts.where + "]";
  if (!parts.advice.empty()) text += "; " + parts.advice;
  return text + " <" + to_string(kind) + ">";
}

}  // namespace

const char* to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument: return "invalid argument";
    case ErrorKind::mismatch: return "mismatch between ranks";
    case ErrorKind::deadline: return "deadline";
    case ErrorKind::peer_lost: return "peer lost";
    case ErrorKind::aborted: return "aborted";
    case ErrorKind::refused: return "refused";
    case ErrorKind::resource: return "resource";
    case ErrorKind::unavailable: return "unavailable";
    case ErrorKind::closed: return "closed";
    case ErrorKind::internal: return "internal";
  }
  return "unknown";
}

Error::Error(ErrorKind kind, ErrorParts parts)
    : std::runtime_error(join(kind, parts)), kind_(kind), parts_(std::move(parts)) {}

}  // namespace tilewire
