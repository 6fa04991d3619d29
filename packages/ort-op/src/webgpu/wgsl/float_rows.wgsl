// What the kernels have in common whose invocations have a query row each and multiply float32: `accumulated` outputs of
// VECTORS times four channels, `scores` that have become weights, and TOKENS of values `staged` in workgroup memory.

// Adds the values of one `part` of the tile, the first TOKENS of it or the second.
#block addStaged
#unroll token TOKENS
      {
        let weight = select(scores[token + TOKENS], scores[token], part == 0u);
        // A key without weight contributes nothing, whatever its value is.
        if (weight != 0f) {
#unroll i VECTORS
          accumulated[i] = fma(vec4(weight), staged[token * VECTORS + i], accumulated[i]);
#end
        }
      }
#end
#endblock

// Normalises and writes the row; the end of a kernel.
#block writeRow
  if (firstRow + thread >= rows) { return; }
#if SINKS
  sum += exp2(elementOf(sinks[wordOf(row.head)], row.head) * LOG2E - reference);
#endif
  let at = row.batch * problem.outputStrides.x + row.head * problem.outputStrides.y + row.query * problem.outputStrides.z;
  let normaliser = normaliserOf(reference, sum);
#unroll i VECTORS
  {
    let x = vec4(
      normalised(accumulated[i].x, normaliser),
      normalised(accumulated[i].y, normaliser),
      normalised(accumulated[i].z, normaliser),
      normalised(accumulated[i].w, normaliser),
    );
    writeFour(at, firstChannel + 4u * i, x);
  }
#end
#endblock
