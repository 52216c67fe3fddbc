// Runs CUDA kernels on a CPU: a fiber for each thread of a block, so that shared memory, barriers and
// shuffles are what they are on a GPU, and errors in their use show.
//
// Threads of one warp take turns in order; warps run in an order that a seed draws, each as far ahead
// of the others as barriers allow. Shared memory is full of NaN when a block begins. A thread that leaves, or waits elsewhere, while others wait for it
// is a fault, as is a kernel that waits although its launch says that it does not.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define __global__
#define __launch_bounds__(threads)
#define __shared__ static __attribute__((section("shared_memory")))

// Where the linker puts all shared memory; nothing where there is none.
extern "C" __attribute__((weak, visibility("hidden"))) char __start_shared_memory, __stop_shared_memory;

struct Dim { unsigned x; };
static Dim threadIdx, blockIdx;

namespace host {

constexpr unsigned kWarp = 32, kMost = 1024;
constexpr size_t kStack = 32 * 1024;
enum State { kReady, kAtBarrier, kAtShuffle, kDone };

struct Fiber {
  ucontext_t context;
  State state;
  unsigned shuffles;
};

static Fiber fibers[kMost];
static char* stacks;
static ucontext_t scheduler;
static unsigned current, seed;
static bool waits;
static void (*body)(void**);
static void** arguments;
static const char* fault;
static unsigned char slots[2][kMost][16];

static unsigned drawn() { return (seed = seed * 1664525u + 1013904223u) >> 8; }

static void enter() {
  body(arguments);
  fibers[current].state = kDone;
  swapcontext(&fibers[current].context, &scheduler);
}

static void wait(State state) {
  if (!waits) {
    std::fputs("a thread waits in a kernel whose threads do not\n", stderr);
    std::abort();
  }
  const unsigned me = current;
  fibers[me].state = state;
  swapcontext(&fibers[me].context, &scheduler);
}

static void resume(unsigned i) {
  current = i;
  threadIdx.x = i;
  fibers[i].state = kReady;
  swapcontext(&scheduler, &fibers[i].context);
}

// Runs a warp until all of its threads wait for the block or have left.
static void run_warp(unsigned begin, unsigned end) {
  for (;;) {
    unsigned shuffling = 0;
    for (unsigned i = begin; i < end; i++) {
      if (fibers[i].state == kReady) resume(i);
      shuffling += fibers[i].state == kAtShuffle;
      if (fault) return;
    }
    if (!shuffling) return;
    if (shuffling < end - begin) {
      fault = "a shuffle without all threads of its warp";
      return;
    }
    for (unsigned i = begin; i < end; i++) fibers[i].state = kReady;
  }
}

static void run_block(unsigned threads) {
  if (&__start_shared_memory)
    std::memset(&__start_shared_memory, 0xff, &__stop_shared_memory - &__start_shared_memory);
  for (unsigned i = 0; i < threads; i++) {
    Fiber& fiber = fibers[i];
    fiber.state = kReady;
    fiber.shuffles = 0;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stacks + i * kStack;
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, enter, 0);
  }
  const unsigned warps = (threads + kWarp - 1) / kWarp;
  for (;;) {
    const unsigned first = drawn();
    const bool backwards = drawn() % 2;
    for (unsigned k = 0; k < warps && !fault; k++) {
      const unsigned w = (first + (backwards ? warps - 1 - k : k)) % warps, begin = w * kWarp;
      run_warp(begin, begin + kWarp < threads ? begin + kWarp : threads);
    }
    if (fault) return;
    unsigned waiting = 0;
    for (unsigned i = 0; i < threads; i++) waiting += fibers[i].state == kAtBarrier;
    if (!waiting) return;
    if (waiting < threads) {
      fault = "a thread left before a barrier of its block";
      return;
    }
    for (unsigned i = 0; i < threads; i++) fibers[i].state = kReady;
  }
}

// Why the launch failed, or a null pointer.
static const char* launch(
    void (*kernel)(void**), void** data, unsigned blocks, unsigned threads, bool cooperative,
    unsigned drawn_from) {
  body = kernel;
  arguments = data;
  seed = drawn_from;
  waits = cooperative;
  fault = nullptr;
  if (!stacks) stacks = static_cast<char*>(std::malloc(kMost * kStack));
  for (unsigned b = 0; b < blocks && !fault; b++) {
    blockIdx.x = b;
    if (cooperative) {
      run_block(threads);
    } else {
      for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) body(arguments);
    }
  }
  return fault;
}

}  // namespace host

static inline void __syncthreads() { host::wait(host::kAtBarrier); }

// The slots of two shuffles in a row are others, so that none is overwritten before it is read.
template <class T> static T __shfl_xor_sync(unsigned, T value, int mask) {
  const unsigned me = host::current, turn = host::fibers[me].shuffles++ % 2;
  std::memcpy(host::slots[turn][me], &value, sizeof value);
  host::wait(host::kAtShuffle);
  std::memcpy(&value, host::slots[turn][me ^ static_cast<unsigned>(mask)], sizeof value);
  return value;
}
