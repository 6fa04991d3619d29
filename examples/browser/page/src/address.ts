/** The path of a file that is served beside the page. */
export function address(file: string): string {
  return new URL(`${import.meta.env.BASE_URL}${file}`, location.href).pathname;
}
