/** A table whose columns are figures: it scrolls by itself, and on a phone each row is a card. */

import type { ComponentChildren } from "preact";
import type { Figure } from "../definitions.ts";
import { Term } from "./text.tsx";

interface Props {
  name: string;
  figures: readonly Figure[];
  /** Other names of columns. */
  names?: Partial<Record<Figure, string>>;
  /** The rows. */
  children: ComponentChildren;
}

export function FigureTable({ name, figures, names = {}, children }: Props) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={name}>
      <table class="readers">
        <thead>
          <tr>
            {figures.map((figure) => (
              <th key={figure} scope="col" class={figure}>
                {names[figure] ?? <Term of={figure} />}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
