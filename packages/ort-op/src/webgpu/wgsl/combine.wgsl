// Second pass of decode.wgsl: adds what the workgroups found. An invocation has a channel of SERVED heads and every eighth
// chunk; a workgroup 32 channels. Workgroup memory: 8 KiB.

@group(0) @binding(0) var<uniform> cache: Cache;
@group(0) @binding(1) var<storage, read> partial: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> output: array<Written>;
#if SINKS
@group(0) @binding(3) var<storage, read> sinks: array<Word>;
#endif

const LANES = 8u;
const MASKED = -3.4e38f;

var<workgroup> maxima: array<vec4<f32>, 256>;
var<workgroup> parts: array<vec4<f32>, 256>;

@compute @workgroup_size(32, LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let groups = servedGroups(cache);
  let served = group.y * groups + group.z;
  let at = served * cache.chunks;
  let maximaAt = cache.batch * cache.kvHeads * groups * cache.chunks * HEAD_SIZE + 2u * at;
  let channel = group.x * 32u + id.x;
  var top = vec4(MASKED);
  for (var i = index; i < cache.chunks; i += 256u) { top = max(top, partial[maximaAt + 2u * i]); }
  maxima[index] = top;
  for (var step = 128u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (index < step) { maxima[index] = max(maxima[index], maxima[index + step]); }
  }
  workgroupBarrier();
  let largest = maxima[0];
  workgroupBarrier();
  var sum = vec4<f32>();
  var total = vec4<f32>();
  for (var i = id.y; i < cache.chunks; i += LANES) {
    let factor = exp2(partial[maximaAt + 2u * i] - largest);
    sum = fma(partial[(at + i) * HEAD_SIZE + channel], factor, sum);
    total = fma(partial[maximaAt + 2u * i + 1u], factor, total);
  }
  parts[index] = sum;
  maxima[index] = total;
  workgroupBarrier();
  let sharers = cache.heads / cache.kvHeads;
  let first = group.y * sharers + group.z * SERVED;
  if (id.y == 0u) {
    for (var i = 1u; i < LANES; i++) {
      sum += parts[index + 32u * i];
      total += maxima[index + 32u * i];
    }
#if SINKS
    for (var h = 0u; h < SERVED; h++) {
      let head = (first + h) % cache.heads;
      total[h] += exp2(elementOf(sinks[wordOf(head)], head) * 1.4426950408889634f - largest[h]);
    }
#endif
    parts[index] = select(sum / total, vec4<f32>(), largest == vec4(MASKED));
  }
  workgroupBarrier();
  // An invocation writes 4 channels of a head.
  let h = id.y;
  if (h >= min(SERVED, sharers - group.z * SERVED) || id.x >= 8u) { return; }
  let four = 4u * id.x;
  writeFour(
    (first + h) * HEAD_SIZE,
    group.x * 32u + four,
    vec4(parts[four][h], parts[four + 1u][h], parts[four + 2u][h], parts[four + 3u][h]),
  );
}
