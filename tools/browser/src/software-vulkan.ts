import { existsSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';

/** Where Chromium's packages put SwiftShader, a Vulkan driver in software, and a Vulkan loader. */
const DIRECTORIES = ['/usr/lib/chromium', '/usr/lib64/chromium-browser', '/opt/google/chrome'];

/**
 * Makes Vulkan in this process use the software driver that Chromium brings, so that WebGPU works without a GPU. Must come
 * before anything that loads Vulkan. The directory can be named in MXATTN_SWIFTSHADER.
 *
 * @returns whether there is one.
 */
export function useSoftwareVulkan(): boolean {
  const named = process.env.MXATTN_SWIFTSHADER;
  for (const directory of named ? [named] : DIRECTORIES) {
    const driver = join(directory, 'vk_swiftshader_icd.json');
    const loader = join(directory, 'libvulkan.so.1');
    if (!existsSync(driver) || !existsSync(loader)) continue;
    useDriver(driver);
    try {
      // No addon, so that this throws; but what is loaded stays (RTLD_NODELETE of Linux), and is found by its name.
      process.dlopen({ exports: {} }, loader, constants.dlopen.RTLD_NOW | 0x1000);
    } catch {}
    return true;
  }
  return false;
}

/** Names the one driver that Vulkan's loader shall load, by its manifest. */
export function useDriver(manifest: string): void {
  process.env.VK_DRIVER_FILES = manifest;
  process.env.VK_ICD_FILENAMES = manifest;
  // Mesa's layer that sorts devices looks for a screen and complains.
  process.env.NODEVICE_SELECT = '1';
}
