"""The errors of this package.

SparklagError
├── ContractError             what a message says is not what was agreed
│   ├── MalformedMessage
│   └── UnsupportedVersion
└── SettingsError             a setting has a wrong value, or an unknown name
"""

from __future__ import annotations


class SparklagError(Exception):
    """Base of every error sparklag raises. Its text is one line, meant for a person."""


class ContractError(SparklagError):
    """A message does not keep the contract."""


class MalformedMessage(ContractError):
    """Not the JSON document the contract describes; the text says what is wrong, and where."""


class UnsupportedVersion(ContractError):
    """Written by a newer major version than this one reads."""


class SettingsError(SparklagError):
    """Names the setting, what it got and what it takes. Never shows a secret."""
