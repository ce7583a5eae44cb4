"""Java's regular expressions of topic names, as Python's. Pure."""

from __future__ import annotations

import re
from string import ascii_letters, digits
from typing import Final

_NAMES: Final = f"{ascii_letters}{digits}._-"
"""The characters of topics' names: each set of a pattern is the list of those that it has."""
_PROPERTIES: Final = {
    **dict.fromkeys(("alpha", "alphabetic", "l", "letter", "latin"), "A-Za-z"),
    **dict.fromkeys(("lower", "lowercase", "ll"), "a-z"),
    **dict.fromkeys(("upper", "uppercase", "lu"), "A-Z"),
    **dict.fromkeys(("digit", "nd", "n"), "0-9"),
    **dict.fromkeys(("alnum",), "A-Za-z0-9"),
    **dict.fromkeys(("xdigit",), "A-Fa-f0-9"),
    **dict.fromkeys(("space", "blank", "s"), " "),
    **dict.fromkeys(("punct", "punctuation", "p"), "._-"),
    **dict.fromkeys(("graph", "print", "ascii"), _NAMES),
}
_LITERAL: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\x\{(?P<hex>[0-9A-Fa-f]{1,5})\}"
    r"|\\0(?P<octal>[0-3][0-7]{2}|[0-7]{1,2})|\\(?P<p>[pP])(?:\{(?P<name>\w+)\}|(?P<letter>\w))"
    r"|(?P<named>\(\?<(?=\w))|\\k<(?P<reference>\w+)>|(?P<end>\\z)|\\.",
    re.DOTALL,
)
_SET: Final = re.compile(r"\\.|\[(?P<not>\^?)(?P<members>\]?(?:\\.|[^\[\]\\])*)\]", re.DOTALL)
_FIRST: Final = 0xF0000
"""Evaluated sets are characters for private use from here on."""
_MAX_SETS: Final = 100


def python_pattern(pattern: str) -> str:
    """What Python's `re.search` finds in the topic names in which Java finds `pattern`. Raises
    ValueError for what is not translated. Python may refuse the result too."""
    text = _LITERAL.sub(_translated, pattern)
    if any(ord(c) >= _FIRST for c in text):
        raise ValueError("it has characters for private use")
    leading = re.match(r"\(\?[a-zA-Z]+\)", text)
    flags = re.findall(r"\(\?-?[a-zA-Z-]+[:)]", text[leading.end() if leading else 0 :])
    if any(flag[-1] == ")" or re.search(r"\[\^|&&", text) for flag in flags):
        raise ValueError(f"{flags[0]} is not translated: flags hold for a part of it")
    options = re.IGNORECASE if leading and "i" in leading[0] else 0
    sets: list[str] = []

    def evaluate(match: re.Match[str]) -> str:
        if match["members"] is None:
            return match[0]
        if len(sets) == _MAX_SETS:
            raise ValueError(f"it has over {_MAX_SETS} sets")
        members = re.sub(r"[\U000f0000-\U000fffff]", lambda m: sets[ord(m[0]) - _FIRST], match[2])
        # Python warns of these: they may get a meaning.
        escaped = re.sub(r"[\^|~]|(?<=[^\\]-)-", r"\\\g<0>", members)
        operands = [operand for operand in escaped.split("&&") if operand]
        has = [re.compile(f"[{operand}]", options).match for operand in operands]
        names = [c for c in _NAMES if all(each(c) for each in has) != bool(match["not"])]
        sets.append("".join(names).replace("-", r"\-") or " ")
        return chr(_FIRST + len(sets) - 1)

    before = ""
    try:
        while text != before:  # from the innermost set
            before, text = text, _SET.sub(evaluate, text)
    except re.error as error:
        raise ValueError(str(error)) from error
    return re.sub(r"[\U000f0000-\U000fffff]", lambda m: f"[{sets[ord(m[0]) - _FIRST]}]", text)


def _translated(match: re.Match[str]) -> str:
    if match["quoted"] is not None:
        return re.escape(match["quoted"])
    if number := match["hex"] or match["octal"]:
        return re.escape(chr(int(number, 16 if match["hex"] else 8)))
    if match["p"] is not None:
        name = match["name"] or match["letter"]
        members = _PROPERTIES.get(name.removeprefix("Is").lower())
        if members is None:
            raise ValueError(f"{match[0]} is not translated")
        return f"[{'^' if match['p'] == 'P' else ''}{members}]"
    if match["reference"] is not None:
        return f"(?P={match['reference']})"
    return "(?P<" if match["named"] else r"\Z" if match["end"] else match[0]
