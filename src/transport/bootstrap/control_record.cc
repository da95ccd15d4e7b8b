#include "transport/bootstrap/control_record.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewire {
namespace {

void write_call_text(ByteWriter& out, const CallText& text) {
  out.text(text.op).text(text.advice).u32(static_cast<uint32_t>(text.parts.size()));
  for (const CallPart& part : text.parts) out.text(part.text).text(part.advice);
}

CallText read_call_text(ByteReader& reader) {
  CallText text;
  text.op = reader.text();
  text.advice = reader.text();
  const uint32_t parts = reader.u32();
  for (uint32_t i = 0; i < parts; ++i) {
    CallPart& part = text.parts.emplace_back();
    part.text = reader.text();
    part.advice = reader.text();
  }
  return text;
}

}  // namespace

Bytes ControlRecord::pack() const {
  ByteWriter out;
  if (type == ControlType::heartbeat) return out.take();
  out.i32(rank.value).u8(static_cast<uint8_t>(kind));
  out.u64(call).u64(hash).u64(sequence).u64(last_tried).u64(last_ended);
  out.text(name).text(text);
  write_call_text(out, call_text);
  out.u32(static_cast<uint32_t>(parts.size()));
  for (const Bytes& part : parts) out.bytes(part);
  return out.take();
}

ControlRecord ControlRecord::unpack(uint16_t type, std::span<const std::byte> in) {
  if (type < static_cast<uint16_t>(ControlType::heartbeat) || type > static_cast<uint16_t>(ControlType::abort)) {
    throw Error(ErrorKind::internal,
                {.what = "a control message of unknown type", .values = fmt::format("type {}", type)});
  }
  ControlRecord out{.type = static_cast<ControlType>(type)};
  ByteReader reader(in, "control");
  if (out.type != ControlType::heartbeat) {
    out.rank = Rank(reader.i32());
    out.kind = static_cast<ErrorKind>(std::min<uint8_t>(reader.u8(), static_cast<uint8_t>(ErrorKind::internal)));
    out.call = reader.u64();
    out.hash = reader.u64();
    out.sequence = reader.u64();
    out.last_tried = reader.u64();
    out.last_ended = reader.u64();
    out.name = reader.text();
    out.text = reader.text();
    out.call_text = read_call_text(reader);
    const uint32_t count = reader.u32();
    for (uint32_t i = 0; i < count; ++i) out.parts.push_back(reader.bytes());
  }
  reader.finish();
  return out;
}

}  // namespace tilewire
