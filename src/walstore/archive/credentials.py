"""Credentials for Amazon's services, by the names of their profiles.

- A session is made once for each profile and region. Roles are assumed when they are first needed,
  and again before they expire.
- Sinks take clients of a session; object stores ask it for credentials, again and again.
- Everything here may block, and may be called from any thread.
- boto3 comes with the extra `aws`, and is imported when credentials are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Any

from walstore.archive.extras import needed
from walstore.archive.profiles import Ambient, AssumeRole, Profile, ProfileError, check_bases

# How long a call may take to connect and to answer; whether to try again is for others to say.
CONNECT_SECONDS_MAX = 5.0
READ_SECONDS_MAX = 10.0

# How long an object store goes on with what it was given. botocore renews what expires within ten
# minutes, so that this never outlasts it.
_GIVEN = timedelta(minutes=5)

# What a profile is called that nobody has named.
_UNNAMED = "ambient"


class Credentials:
    """Sessions with Amazon's services, by profile and region."""

    def __init__(self, profiles: Mapping[str, Profile] | None = None) -> None:
        """Know these profiles; nothing is called yet.

        Raises:
            ExtraMissingError: boto3 is not installed.
            ProfileError: The base of one is unknown, or goes round in a circle.
        """
        self._profiles = dict(profiles or {})
        check_bases(self._profiles)
        what = "Amazon's credentials"
        self._boto3 = needed("boto3", what=what, extra="aws")
        self._botocore = needed("botocore.session", what=what, extra="aws")
        self._found = needed("botocore.credentials", what=what, extra="aws")
        self._errors = needed("botocore.exceptions", what=what, extra="aws")
        self._config = needed("botocore.config", what=what, extra="aws").Config(
            connect_timeout=CONNECT_SECONDS_MAX,
            read_timeout=READ_SECONDS_MAX,
            retries={"total_max_attempts": 1, "mode": "standard"},
        )
        self._sessions: dict[tuple[str | None, str | None], Any] = {}
        self._lock = Lock()

    def session(self, profile: str | None = None, region: str | None = None) -> Any:
        """The `boto3.Session` of a profile in a region.

        Args:
            profile: Its name; None for what is ambient.
            region: The region; None for that of the profile, or else of the machine.

        Raises:
            ProfileError: There is no such profile, or a role is to be assumed in no region.
        """
        known = self._profile(profile)
        with self._lock:
            return self._session(profile, region or known.region)

    def client(self, service: str, profile: str | None = None, region: str | None = None) -> Any:
        """A client of a service, such as `sns`.

        Raises:
            ProfileError: There is no such profile, or the service is called in no region.
        """
        session = self.session(profile, region)
        try:
            return session.client(service, config=self._config)
        except self._errors.NoRegionError as error:
            raise ProfileError(profile or _UNNAMED, f"{service} needs a region") from error

    def provider(self, profile: str | None = None, region: str | None = None) -> Any:
        """What an S3 store of obstore takes as its `credential_provider`.

        Raises:
            ExtraMissingError: obstore is not installed.
            ProfileError: There is no such profile, or the machine has no credentials.
        """
        session = self.session(profile, region)
        module = needed("obstore.auth.boto3", what="an object store", extra="archive")
        try:
            return module.Boto3CredentialProvider(session, ttl=_GIVEN)
        except (self._errors.NoCredentialsError, ValueError) as error:
            raise ProfileError(profile or _UNNAMED, "there are no credentials") from error

    def _profile(self, name: str | None) -> Profile:
        if name is None:
            return Ambient()
        if name not in self._profiles:
            known = ", ".join(sorted(self._profiles)) or "none"
            raise ProfileError(name, f"it is unknown; there are: {known}")
        return self._profiles[name]

    def _session(self, name: str | None, region: str | None) -> Any:
        if (name, region) not in self._sessions:
            profile, under = self._profile(name), self._botocore.get_session()
            if name is not None and isinstance(profile, AssumeRole):
                role = _Role(partial(self._assumed, name, profile, region))
                resolver = self._found.CredentialResolver([role])
                under.register_component("credential_provider", resolver)
            self._sessions[name, region] = self._boto3.Session(
                botocore_session=under, region_name=region
            )
        return self._sessions[name, region]

    def _assumed(self, name: str, profile: AssumeRole, region: str | None) -> Any:
        """The credentials of a role, not yet assumed."""
        base = self.session(profile.base)
        source, region = base.get_credentials(), region or base.region_name
        if source is None:
            raise self._errors.NoCredentialsError
        if region is None:
            raise ProfileError(name, "a role is assumed in a region")
        extra = {"RoleSessionName": profile.session_name}
        if profile.external_id is not None:
            extra["ExternalId"] = profile.external_id
        fetcher = self._found.AssumeRoleCredentialFetcher(
            partial(
                self._botocore.get_session().create_client,
                region_name=region,
                config=self._config,
            ),
            source,
            profile.role_arn,
            extra_args=extra,
        )
        return self._found.DeferredRefreshableCredentials(fetcher.fetch_credentials, _Role.METHOD)


class _Role:
    """Where a session of botocore looks for credentials, and finds those of a role."""

    METHOD = "assume-role"
    CANONICAL_NAME = None

    def __init__(self, load: Callable[[], Any]) -> None:
        self.load = load
