// Sizes that the layouts of all operands share.

/** Elements under one scale. */
export const BLOCK = 32;
/** Keys per step of the softmax. */
export const TILE_KEYS = 64;
export const TILE_BLOCKS = TILE_KEYS / BLOCK;
/** Query rows per call of `attend`. */
export const BLOCK_ROWS = 64;
/** Rows that share the loads of a panel. */
export const GROUP_ROWS = 4;
/** Keys (or channels of V) side by side in a panel. */
export const PANEL_COLUMNS = 8;
export const TILE_PANELS = TILE_KEYS / PANEL_COLUMNS;

/** Blocks of a row, tile or panel have scales too different for one exponent. */
export const SEPARATE = 1;
/** Scores may be NaN. */
export const SUSPICIOUS = 2;
