#include <tilewire/link_test.h>

#include "api/communicator_parts.h"
#include "base/log.h"
#include "executor/link/link_test.h"

namespace tilewire {

LinkReport run_link_test(Options options, const LinkTest& test, const std::atomic<bool>* is_cancelled) {
  set_log_level(parse_log_level(options.log_level));
  const SessionSetup setup{
      .options = with_launcher(std::move(options), false), .threads = {}, .is_cancelled = is_cancelled};
  set_log_rank(Rank{static_cast<int32_t>(setup.options.rank)});
  return {.rank = static_cast<int32_t>(setup.options.rank),
          .json = run_link_test(setup, {.seconds = test.seconds, .messages = test.messages})};
}

}  // namespace tilewire
