"""The errors of this package.

SparklagError
├── ContractError             what a message says is not what was agreed
│   ├── MalformedMessage
│   ├── UnsupportedVersion
│   ├── OutOfBounds
│   │   └── FutureTime
│   ├── OverLimit
│   ├── WrongSignature
│   └── WrongPlace
├── SettingsError             a setting has a wrong value, or an unknown name
├── MissingPackage            an extra of sparklag is needed that is not installed
└── RegistryError             nothing can be written or read in Avro now
    ├── RegistryUnavailable
    └── RegistryRefused
        └── IncompatibleSchema
"""

from __future__ import annotations

from typing import ClassVar


class SparklagError(Exception):
    """Base of every error sparklag raises. Its text is one line, meant for a person."""


class ContractError(SparklagError):
    """A message does not keep the contract."""

    kind: ClassVar[str] = "malformed"
    """What refused messages are counted by."""


class MalformedMessage(ContractError):
    """Not the document the contract describes; the text says what is wrong, and where."""


class UnsupportedVersion(ContractError):
    """Written by a newer major version than this one reads."""

    kind = "version"


class OutOfBounds(ContractError):
    """Larger, or of more parts, than the settings take."""

    kind = "bounds"


class FutureTime(OutOfBounds):
    """It gives a time at which it was not written yet."""

    kind = "future"


class OverLimit(ContractError):
    """There is no room for it beside what was taken before."""

    kind = "limit"


class WrongSignature(ContractError):
    """Nobody who has the key has written it."""

    kind = "signature"


class WrongPlace(ContractError):
    """Its key is another query's, or it is in another partition than its key belongs in."""

    kind = "place"


class SettingsError(SparklagError):
    """Names the setting, what it got and what it takes. Never shows a secret."""


class MissingPackage(SparklagError):
    """Names the package and the extra that brings it."""


class RegistryError(SparklagError):
    """The schema registry did not help; the text names its address and the cause."""


class RegistryUnavailable(RegistryError):
    """None answers at that address."""


class RegistryRefused(RegistryError):
    """It answers, and does not take what it is asked: rights, settings, its own rules."""


class IncompatibleSchema(RegistryRefused):
    """What is registered under the subject could not be read with our schema."""
