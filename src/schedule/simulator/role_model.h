// The interface between an op and the simulator. For each role an op has a small model that starts the very iterator
// which the kernel and the host executor run, and says what a piece of its work touches. A model computes no schedule.
//
//   struct PushModel {                                        trivially copyable
//     using Role = PushRole;                                  see schedule/role.h; trivially copyable, its Work too
//     Role start() const;
//     void touch(const Role::Work&, Touch&) const;            optional: reads, writes, copies, tile
//     const Command* command(const Role::Work&) const;        optional: the command that the piece of work gives to the
//                                                             proxy instead of its publishes, or null
//   };
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include "schedule/role.h"
#include "schedule/simulator/touch.h"
#include "schedule/wire.h"

namespace tilewire {

// A model with its type erased. A cursor is an iterator and the piece of work it stands at.
struct RoleTable {
  int32_t cursor_bytes = 0;
  void (*start)(const std::byte* model, std::byte* cursor) = nullptr;
  bool (*next)(std::byte* cursor) = nullptr;
  WorkBase (*counts)(const std::byte* cursor) = nullptr;
  Need (*need)(const std::byte* cursor, int32_t i) = nullptr;
  Publish (*publish)(const std::byte* cursor, int32_t i) = nullptr;
  const Command* (*command)(const std::byte* model, const std::byte* cursor) = nullptr;    // may be null
  void (*touch)(const std::byte* model, const std::byte* cursor, Touch& touch) = nullptr;  // may be null
};

inline constexpr size_t kCursorAlign = 16;

namespace role_model_detail {

template <class Model>
struct Cursor {
  typename Model::Role role;
  typename Model::Role::Work work;
};

template <class Model>
const Cursor<Model>& cursor_of(const std::byte* bytes) {
  return *std::launder(reinterpret_cast<const Cursor<Model>*>(bytes));
}
template <class Model>
const Model& model_of(const std::byte* bytes) {
  return *std::launder(reinterpret_cast<const Model*>(bytes));
}

template <class Model>
constexpr RoleTable make_table() {
  using C = Cursor<Model>;
  static_assert(std::is_trivially_copyable_v<Model> && std::is_trivially_copyable_v<C>, "roles and models are PODs");
  static_assert(alignof(C) <= kCursorAlign && alignof(Model) <= kCursorAlign);
  RoleTable t;
  t.cursor_bytes = static_cast<int32_t>((sizeof(C) + kCursorAlign - 1) / kCursorAlign * kCursorAlign);
  t.start = [](const std::byte* m, std::byte* c) { new (c) C{model_of<Model>(m).start(), {}}; };
  t.next = [](std::byte* c) {
    C& cursor = *std::launder(reinterpret_cast<C*>(c));
    return cursor.role.next(cursor.work);
  };
  t.counts = [](const std::byte* c) -> WorkBase { return cursor_of<Model>(c).work; };
  t.need = [](const std::byte* c, int32_t i) { return cursor_of<Model>(c).role.need(cursor_of<Model>(c).work, i); };
  t.publish = [](const std::byte* c, int32_t i) {
    return cursor_of<Model>(c).role.publish(cursor_of<Model>(c).work, i);
  };
  if constexpr (requires(const Model& m, const typename Model::Role::Work& w) { m.command(w); }) {
    t.command = [](const std::byte* m, const std::byte* c) {
      return model_of<Model>(m).command(cursor_of<Model>(c).work);
    };
  }
  if constexpr (requires(const Model& m, const typename Model::Role::Work& w, Touch& touch) { m.touch(w, touch); }) {
    t.touch = [](const std::byte* m, const std::byte* c, Touch& touch) {
      model_of<Model>(m).touch(cursor_of<Model>(c).work, touch);
    };
  }
  return t;
}

}  // namespace role_model_detail

template <class Model>
inline constexpr RoleTable kRoleTable = role_model_detail::make_table<Model>();

}  // namespace tilewire
