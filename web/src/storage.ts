/** A choice that this browser keeps, where storage is allowed. */

export interface Stored<T> {
  value: T;
  keep(value: T): void;
}

export function stored<T extends string>(key: string, of: readonly T[], otherwise: T): Stored<T> {
  let value = otherwise;
  try {
    value = of.find((each) => each === localStorage.getItem(key)) ?? otherwise;
  } catch {
    // Storage is forbidden here: the choice holds until the page is closed.
  }
  const keep = (chosen: T) => {
    try {
      localStorage.setItem(key, chosen);
    } catch {
      // As above.
    }
  };
  return { value, keep };
}
