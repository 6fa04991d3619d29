#include "test/hip/workgroup.h"

#include <sys/mman.h>

#include <map>
#include <stdexcept>
#include <vector>

#include "test/hip/emulated.h"
#include "test/hip/fiber.h"

#if defined(__x86_64__)
asm(R"(
.text
.globl mxattn_switch_stack
.type mxattn_switch_stack, @function
mxattn_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size mxattn_switch_stack, .-mxattn_switch_stack
)");
#endif

namespace mxattn::hip::emulated {

namespace {

enum class State { kReady, kWaitsForWave, kWaitsForGroup, kDone };

struct Entry {
  int waveSize;
  size_t argumentBytes;
  Kernel kernel;
};

std::map<std::string, Entry>& kernels() {
  static std::map<std::string, Entry> all;
  return all;
}

// Stacks are kept for the next workgroup of this thread.
class Stacks {
 public:
  uint8_t* at(size_t index) {
    while (memory_.size() <= index) {
      void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (stack == MAP_FAILED) throw std::runtime_error("no memory for the stacks of emulated lanes");
      memory_.push_back(static_cast<uint8_t*>(stack));
    }
    return memory_[index];
  }
  ~Stacks() {
    for (uint8_t* stack : memory_) munmap(stack, kStackBytes);
  }

 private:
  std::vector<uint8_t*> memory_;
};

struct Workgroup {
  uint32_t index[3];
  std::vector<Fiber> lanes;
  std::vector<State> states;
  std::vector<Wave> waves;
  Fiber scheduler;
  int waveSize;
  int current;
  int atBarrier;
  int alive;
  const Entry* entry;
  const void* arguments;
};

thread_local Workgroup* group = nullptr;
thread_local Stacks stacks;

void wait(State state) {
  group->states[group->current] = state;
  Fiber::switchTo(group->lanes[group->current], group->scheduler);
}

void openBarrier() {
  group->atBarrier = 0;
  for (State& state : group->states) {
    if (state == State::kWaitsForGroup) state = State::kReady;
  }
}

void lane() {
  group->entry->kernel(group->arguments);
  group->alive--;
  if (group->alive > 0 && group->atBarrier == group->alive) openBarrier();
  wait(State::kDone);
}

void runGroup(Workgroup& work, uint32_t threads) {
  for (uint32_t i = 0; i < threads; i++) {
    work.lanes[i].start(stacks.at(i), lane);
    work.states[i] = State::kReady;
  }
  for (size_t w = 0; w < work.waves.size(); w++) {
    work.waves[w].lanes = std::min<int>(work.waveSize, threads - w * work.waveSize);
    work.waves[w].arrived = 0;
  }
  work.atBarrier = 0;
  work.alive = static_cast<int>(threads);
  while (work.alive > 0) {
    bool moved = false;
    for (uint32_t first = 0; first < threads; first += work.waveSize) {
      // A wave goes on as far as it can.
      for (bool again = true; again;) {
        again = false;
        for (uint32_t i = first; i < std::min<uint32_t>(first + work.waveSize, threads); i++) {
          if (work.states[i] != State::kReady) continue;
          work.current = static_cast<int>(i);
          Fiber::switchTo(work.scheduler, work.lanes[i]);
          again = moved = true;
        }
      }
    }
    if (!moved) throw std::runtime_error("lanes of an emulated workgroup wait for each other at different places");
  }
}

}  // namespace

int threadIndex() { return group->current; }
int laneIndex() { return group->current % group->waveSize; }
int groupIndex(int axis) { return static_cast<int>(group->index[axis]); }

void barrier() {
  if (++group->atBarrier == group->alive) {
    openBarrier();
  } else {
    wait(State::kWaitsForGroup);
  }
}

Wave& wave() { return group->waves[group->current / group->waveSize]; }

bool arrive() {
  Wave& step = wave();
  if (++step.arrived == step.lanes) return true;
  wait(State::kWaitsForWave);
  return false;
}

void release() {
  wave().arrived = 0;
  int first = group->current / group->waveSize * group->waveSize;
  for (int i = first; i < first + wave().lanes; i++) {
    if (group->states[i] == State::kWaitsForWave) group->states[i] = State::kReady;
  }
}

Registration::Registration(const char* architecture, const char* name, int waveSize, size_t argumentBytes,
                           Kernel kernel) {
  kernels()[std::string(architecture) + " " + name] = Entry{waveSize, argumentBytes, kernel};
}

bool run(const std::string& architecture, const std::string& kernel, const uint32_t groups[3], uint32_t threads,
         uint32_t, const void* arguments, size_t argumentBytes) {
  auto found = kernels().find(architecture + " " + kernel);
  if (found == kernels().end()) return false;
  if (found->second.argumentBytes != argumentBytes) {
    throw std::runtime_error("arguments of another size than those of the kernel " + kernel);
  }
  Workgroup work{};
  work.lanes.resize(threads);
  work.states.resize(threads);
  work.waveSize = found->second.waveSize;
  work.waves.resize((threads + work.waveSize - 1) / work.waveSize);
  work.entry = &found->second;
  work.arguments = arguments;
  group = &work;
  for (work.index[2] = 0; work.index[2] < groups[2]; work.index[2]++) {
    for (work.index[1] = 0; work.index[1] < groups[1]; work.index[1]++) {
      for (work.index[0] = 0; work.index[0] < groups[0]; work.index[0]++) runGroup(work, threads);
    }
  }
  group = nullptr;
  return true;
}

}  // namespace mxattn::hip::emulated
