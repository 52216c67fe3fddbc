// What plans call: functions on one pointer, to data of their own, that return 0 for success.
#pragma once

#include <cstdint>

#define EQSAT_CALL extern "C" __attribute__((visibility("default")))

struct EqsatCall {
  int (*function)(void* data);
  void* data;
};

// All of them in order; 1 more than the number of the first that fails, 0 if none does.
EQSAT_CALL int64_t eqsat_call_all(const EqsatCall* calls, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    if (calls[i].function(calls[i].data)) return i + 1;
  }
  return 0;
}
