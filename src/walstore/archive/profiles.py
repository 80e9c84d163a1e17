"""Named profiles of credentials, as settings have them.

    {"here": {"type": "ambient"},
     "there": {"type": "assume_role", "role_arn": "arn:aws:iam::1:role/archive", "base": "here"}}

- `ambient` is what the machine has: environment, files, or the role that it runs in.
- `assume_role` is a role that is assumed by another profile, its `base`, or by what is ambient.
- What cannot be understood is refused, never passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from walstore.canon import Json
from walstore.errors import UsageError

SESSION_NAME = "walstore"

_AMBIENT_NAMES = frozenset({"type", "region"})
_ROLE_NAMES = frozenset({"type", "region", "role_arn", "external_id", "session_name", "base"})


class ProfileError(UsageError):
    """A profile of credentials is unknown, or cannot be used.

    Attributes:
        profile: Its name.
        reason: What is wrong with it.
    """

    def __init__(self, profile: str, reason: str) -> None:
        super().__init__(f"credentials {profile!r}: {reason}")
        self.profile = profile
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Ambient:
    """What the machine has.

    Attributes:
        region: Where its services are called, if not where the machine says.
    """

    region: str | None = None


@dataclass(frozen=True, slots=True)
class AssumeRole:
    """A role that is assumed.

    Attributes:
        role_arn: The role.
        external_id: What the owner of the role wants to hear, if anything.
        session_name: What the role's log calls the caller.
        region: Where its services are called, if not where the machine says.
        base: The profile that assumes it; None for what is ambient.
    """

    role_arn: str
    external_id: str | None = None
    session_name: str = SESSION_NAME
    region: str | None = None
    base: str | None = None


Profile = Ambient | AssumeRole


def read_profiles(found: Mapping[str, Json]) -> dict[str, Profile]:
    """The profiles that settings have.

    Raises:
        ProfileError: One is of an unknown type, lacks something, or has what is not known.
    """
    profiles = {name: _profile(name, members) for name, members in found.items()}
    check_bases(profiles)
    return profiles


def check_bases(profiles: Mapping[str, Profile]) -> None:
    """Check that every base is there, and that none goes round in a circle.

    Raises:
        ProfileError: One is not, or does.
    """
    for name in profiles:
        seen = [name]
        while (base := _base(profiles, seen[-1])) is not None:
            if base not in profiles:
                raise ProfileError(seen[-1], f"its base {base!r} is unknown")
            if base in seen:
                raise ProfileError(name, f"its bases go round: {' → '.join([*seen, base])}")
            seen.append(base)


def _base(profiles: Mapping[str, Profile], name: str) -> str | None:
    profile = profiles[name]
    return profile.base if isinstance(profile, AssumeRole) else None


def _profile(name: str, found: Json) -> Profile:
    if not isinstance(found, dict):
        raise ProfileError(name, "it is no table of settings")
    kind = found.get("type")
    if kind == "ambient":
        return Ambient(**_texts(name, found, _AMBIENT_NAMES))
    if kind != "assume_role":
        raise ProfileError(name, f"its type is {kind!r}; there are 'ambient' and 'assume_role'")
    members = _texts(name, found, _ROLE_NAMES)
    if "role_arn" not in members:
        raise ProfileError(name, "it has no role_arn")
    return AssumeRole(**members)


def _texts(name: str, found: dict[str, Json], known: frozenset[str]) -> dict[str, str]:
    """The settings of a profile but for its type; all of them are texts."""
    for member, value in found.items():
        if member not in known:
            raise ProfileError(name, f"{member!r} is not known")
        if not isinstance(value, str) or not value:
            raise ProfileError(name, f"{member!r} is no text")
    return {member: value for member, value in found.items() if member != "type"}  # type: ignore[misc]
