// The launcher's store, as the rendezvous asks for it.
#pragma once

#include <tilewire/communicator.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "transport/bootstrap/key_value_store.h"

namespace tilewire {

class LauncherStore final : public KeyValueStore {
 public:
  // `functions` must live as long.
  explicit LauncherStore(const StoreFunctions& functions) : functions_(functions) {}
  void set(const std::string& key, const Bytes& value) override { functions_.set(key, to_text(value)); }
  Bytes get(const std::string& key, SteadyTime deadline) override {
    const double left = std::chrono::duration<double>(deadline - steady_now()).count();
    return to_bytes(functions_.get(key, std::max(0.001, left)));
  }

 private:
  const StoreFunctions& functions_;
};

}  // namespace tilewire
