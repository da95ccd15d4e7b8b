// Calls that block in C++ while Python's signal handlers go on working.
#pragma once

#include <functional>

namespace tilewire {

// Runs `work` with the GIL released and throws what it throws. Holds the GIL before and after.
//
// On the main thread, where Python handles signals, `work` runs on a thread of its own while this one looks for signals
// every few milliseconds. When a handler raises (Ctrl-C), `interrupt` is called once, without the GIL; it must make
// `work` return soon. Then the handler's exception is thrown and what `work` threw is dropped. On other threads `work`
// just runs.
void run_interruptible(const std::function<void()>& work, const std::function<void()>& interrupt);

}  // namespace tilewire
