// Marks what users of a shared libtilewire may call; all else is hidden.
#pragma once

#define TILEWIRE_API __attribute__((visibility("default")))
