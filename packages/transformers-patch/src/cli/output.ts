import { Table } from 'console-table-printer';

/** A cell of a table; undefined where the model leaves it open. */
export type Cell = string | number | boolean | undefined;

/** Prints rows as a table, or nothing for no rows. */
export function printTable(title: string, rows: readonly Record<string, Cell>[]): void {
  if (rows.length === 0) return;
  const table = new Table({
    title,
    defaultColumnOptions: { alignment: 'left' },
    shouldDisableColors: !process.stdout.isTTY,
  });
  for (const row of rows) {
    table.addRow(Object.fromEntries(Object.entries(row).map(([key, cell]) => [key, shown(cell)])));
  }
  table.printTable();
}

function shown(cell: Cell): string {
  if (cell === undefined) return '?';
  if (typeof cell === 'boolean') return cell ? 'yes' : 'no';
  if (typeof cell === 'number' && !Number.isInteger(cell)) {
    return Math.abs(cell) < 1e-3 || Math.abs(cell) >= 1e6
      ? cell.toExponential(2)
      : String(Number(cell.toPrecision(5)));
  }
  return String(cell);
}

/** Prints a value as JSON; infinities and NaN, which JSON lacks, as strings. */
export function printJson(value: unknown): void {
  const replacer = (_: string, each: unknown) =>
    typeof each === 'number' && !Number.isFinite(each) ? String(each) : each;
  console.log(JSON.stringify(value, replacer, 2));
}
