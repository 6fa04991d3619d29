/// <reference types="@webgpu/types" />
import { MxattnError } from '@mxattn/core';
import type { MxattnSession } from '../session/types.js';

/**
 * The session, whose runs say so when its device is lost: ONNX Runtime reports a failed copy then, or nothing at all where
 * outputs stay on the device.
 */
export function tellingLoss<T extends MxattnSession>(session: T, device: GPUDevice): T {
  let lost: GPUDeviceLostInfo | undefined;
  void device.lost.then((info) => {
    lost = info;
  });
  const check = (cause?: unknown) => {
    if (!lost) return;
    const details = [lost.reason, lost.message].filter((each) => each && each !== 'unknown').join(': ');
    throw new MxattnError(
      `the WebGPU device of this session was lost${details ? ` (${details})` : ''}; create the session again, on a new device`,
      { cause },
    );
  };
  const run = session.run.bind(session) as (...args: unknown[]) => ReturnType<MxattnSession['run']>;
  const checked = async (...args: unknown[]) => {
    check();
    try {
      const outputs = await run(...args);
      check();
      return outputs;
    } catch (error) {
      // The loss may be told a little later than what it makes fail.
      await Promise.race([device.lost, new Promise((resolve) => setTimeout(resolve))]);
      check(error);
      throw error;
    }
  };
  return Object.assign(session, { run: checked });
}
