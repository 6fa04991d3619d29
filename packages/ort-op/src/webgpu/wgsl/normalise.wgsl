// What is left to do when a row has seen all its keys.

/** What accumulated outputs are multiplied by: zero for a row without a visible key, NaN for one with a NaN score. */
fn normaliserOf(reference: f32, sum: f32) -> f32 {
  if (isNaN(reference)) { return reference; }
  return select(1f / sum, 0f, reference == MASKED);
}

/** A rounded value may lie a step above the largest float; its attention output is still finite. */
fn normalised(accumulated: f32, normaliser: f32) -> f32 {
  if (isNaN(normaliser)) { return normaliser; }
  let x = accumulated * normaliser;
  return select(clamp(x, -3.4028234e38f, 3.4028234e38f), x, isNaN(x));
}
