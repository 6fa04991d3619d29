// The largest scale of each channel of the quantised values over all its blocks, divided so that the spare bits of the
// matrix type lie below the element's last place. Heads whose scales are too far apart for that are marked.
//
// Invocations: 32 channels x 8; each looks at every eighth block. Workgroup memory: 2 KiB.

@group(0) @binding(0) var<uniform> problem: Problem;
@group(0) @binding(1) var<storage, read> scales: array<u32>;
@group(0) @binding(2) var<storage, read_write> units: array<f32>;
@group(0) @binding(3) var<storage, read_write> unsuited: array<u32>;

const NONE = 0xffffffffu;

var<workgroup> largest: array<u32, 256>;
var<workgroup> smallest: array<u32, 256>;

@compute @workgroup_size(32, 8)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) id: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let channel = min(group.x * 32u + id.x, VALUE_CHANNELS - 1u);
  var top = 0u;
  var bottom = NONE;
  for (var block = id.y; block < problem.valueBlocks; block += 8u) {
    let scale = scales[(group.y * problem.valueBlocks + block) * VALUE_CHANNELS + channel];
    top = max(top, scale);
    // Zeros fit any scale.
    bottom = min(bottom, select(scale, NONE, scale == 0u));
  }
  largest[index] = top;
  smallest[index] = bottom;
  for (var step = 4u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (id.y < step) {
      largest[index] = max(largest[index], largest[index + step * 32u]);
      smallest[index] = min(smallest[index], smallest[index + step * 32u]);
    }
  }
  if (id.y > 0u) { return; }
  top = largest[index];
  units[group.y * VALUE_CHANNELS + channel] = bitcast<f32>(top) / f32(1u << SPARE_BITS);
  // LOST places may be lost: the error is then still below that of the elements of the largest blocks.
  if (top >= 0x7f800000u || (top >> 23u) > min(smallest[index], top) / 0x800000u + SPARE_BITS + LOST) {
    unsuited[group.y] = 1u;
  }
}
