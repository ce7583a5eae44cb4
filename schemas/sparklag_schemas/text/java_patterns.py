"""Java's regular expressions of topic names, as Python's. Pure.

A topic's name has few characters, so that each set in a pattern is the list of those that it has.
"""

from __future__ import annotations

import re
from string import ascii_letters, digits
from typing import Final

_NAMES: Final = f"{ascii_letters}{digits}._-"
_PROPERTIES: Final = {
    name: members
    for names, members in {
        "alpha alphabetic l letter latin javaletter": "A-Za-z",
        "lower lowercase ll javalowercase": "a-z",
        "upper uppercase lu javauppercase": "A-Z",
        "digit nd n javadigit": "0-9",
        "alnum javaletterordigit": "A-Za-z0-9",
        "xdigit hex_digit": "A-Fa-f0-9",
        "punct p punctuation": "._-",
        "graph print ascii": _NAMES,
        "blank cntrl space s z white_space": " ",  # in no topic's name
    }.items()
    for name in names.split()
}
_LITERAL: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\x\{(?P<hex>[0-9A-Fa-f]{1,5})\}"
    r"|\\0(?P<octal>[0-3][0-7]{2}|[0-7]{1,2})|\\(?P<p>[pP])(?:\{(?P<name>\w+)\}|(?P<letter>\w))"
    r"|\\.",
    re.DOTALL,
)
_SET: Final = re.compile(r"\\.|\[(?P<not>\^?)(?P<members>\]?(?:\\.|[^\[\]\\])*)\]", re.DOTALL)
_FIRST_SET: Final = 0xF0000
"""Evaluated sets are characters for private use from here on."""
_FLAG_I: Final = re.compile(r"\(\?[a-zA-Z-]*i[a-zA-Z]*[:)]")
_TOKEN: Final = re.compile(
    r"\\k<(?P<reference>\w+)>|\\z|\\.|\(\?<(?=\w)"
    r"|\(\?(?P<on>[a-zA-Z]*)(?:-(?P<off>[a-zA-Z]+))?(?P<end>[:)])|[()|]",
    re.DOTALL,
)


def python_pattern(pattern: str) -> str:
    """What Python's `re.search` finds in the topic names in which Java finds `pattern`.

    Raises ValueError for what is not translated. Python may refuse the result too.
    """
    text = _LITERAL.sub(_literal, pattern)
    leading = re.match(r"\(\?[a-zA-Z]*i[a-zA-Z]*\)", text)
    if _FLAG_I.search(text, leading.end() if leading else 0) and re.search(r"\[\^|&&", text):
        raise ValueError("a set is negated, and a part of the pattern ignores case")
    if "#" in text and re.search(r"\(\?[a-zA-Z]*x", text):
        raise ValueError("it has comments")
    sets: list[str] = []

    def evaluate(match: re.Match[str]) -> str:
        if match["members"] is None:
            return match[0]
        members = "".join(
            sets[ord(c) - _FIRST_SET] if ord(c) >= _FIRST_SET else c for c in match["members"]
        )
        operands = [
            re.compile(f"[{operand.replace('^', chr(92) + '^')}]", re.IGNORECASE if leading else 0)
            for operand in members.split("&&")
            if operand
        ]
        names = (c for c in _NAMES if all(o.match(c) for o in operands) != bool(match["not"]))
        sets.append("".join(names).replace("-", r"\-") or " ")
        return chr(_FIRST_SET + len(sets) - 1)

    before = ""
    while text != before:  # from the innermost set
        before, text = text, _SET.sub(evaluate, text)
    result = _with_flags(text)
    return re.sub("[\U000f0000-\U000fffff]", lambda m: f"[{sets[ord(m[0]) - _FIRST_SET]}]", result)


def _literal(match: re.Match[str]) -> str:
    if match["quoted"] is not None:
        return re.escape(match["quoted"])
    if number := match["hex"] or match["octal"]:
        return re.escape(chr(int(number, 16 if match["hex"] else 8)))
    if match["p"] is None:
        return match[0]
    name = match["name"] or match["letter"]
    members = _PROPERTIES.get(name.removeprefix("Is").lower())
    if members is None:
        raise ValueError(f"{match[0]} is not translated")
    return f"[{'^' if match['p'] == 'P' else ''}{members}]"


def _with_flags(text: str) -> str:
    """Java's flags hold to the end of their group, Python's within parentheses of their own."""
    opened = [""]

    def translate(match: re.Match[str]) -> str:
        token = match[0]
        if match["end"] is not None and token != "(?:":
            on, off = ({*(match[name] or "")} & {*"ix"} for name in ("on", "off"))
            flags = f"(?{''.join(sorted(on - off))}{'-' if off else ''}{''.join(sorted(off))}:"
            if match["end"] == ":":
                opened.append("")
            else:
                opened[-1] += flags
            return flags
        if token[0] == "(":
            opened.append("")
        elif token == ")" and len(opened) > 1:
            return ")" * opened.pop().count("(") + ")"
        elif token == "|":
            return ")" * opened[-1].count("(") + "|" + opened[-1]
        return {r"\z": r"\Z", "(?<": "(?P<"}.get(token) or (
            f"(?P={match['reference']})" if match["reference"] else token
        )

    return _TOKEN.sub(translate, text) + ")" * opened[0].count("(")
