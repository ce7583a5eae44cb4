/** A choice of one of several values. */

interface Props {
  name: string;
  /** The name is for screen readers alone. */
  isNameHidden?: boolean;
  class?: string;
  value: string;
  of: readonly string[];
  label?: (value: string) => string;
  /** The word for no choice; without it one must be chosen. */
  none?: string;
  onChange(value: string): void;
}

export function Select({ name, isNameHidden = false, class: its = "", value, of, label = String, none, onChange }: Props) {
  const options = value === "" || of.includes(value) ? of : [value, ...of];
  return (
    <label class={`choice ${its}`}>
      <span class={isNameHidden ? "hidden" : ""}>{name} </span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {none !== undefined && <option value="">{none}</option>}
        {options.map((each) => (
          <option key={each} value={each}>
            {label(each)}
          </option>
        ))}
      </select>
    </label>
  );
}
