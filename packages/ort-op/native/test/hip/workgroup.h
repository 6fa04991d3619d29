// The workgroup at work on this thread, as its lanes see it.
#pragma once

#include <cstdint>
#include <string>

namespace mxattn::hip::emulated {

constexpr int kMostLanes = 64;

// A step that the lanes of a wave take together.
struct Wave {
  const void* in[kMostLanes];
  void* out[kMostLanes];
  int lanes;
  int arrived;
};

int threadIndex();
int laneIndex();
int groupIndex(int axis);
void barrier();

Wave& wave();
// Whether this is the last lane to come; the others wait until it calls release().
bool arrive();
void release();

// Every lane gives an In and gets an Out; compute(in, out, lanes) has pointers to those of all.
template <typename Out, typename In, typename Compute>
Out together(const In& in, const Compute& compute) {
  Out out;
  Wave& step = wave();
  step.in[laneIndex()] = &in;
  step.out[laneIndex()] = &out;
  if (arrive()) {
    compute(reinterpret_cast<const In* const*>(step.in), reinterpret_cast<Out* const*>(step.out), step.lanes);
    release();
  }
  return out;
}

using Kernel = void (*)(const void* arguments);

struct Registration {
  Registration(const char* architecture, const char* name, int waveSize, size_t argumentBytes, Kernel kernel);
};

}  // namespace mxattn::hip::emulated
