"""The profile: what the library reads (format, fingerprint, plan, reductions), and what it was made from
(docs/tuning.md)."""

import os
from dataclasses import dataclass
from pathlib import Path

from cryptmpi_tools.model import command, parameters
from cryptmpi_tools.tune import pipeline, plans
from cryptmpi_tools.tune.reductions import ReductionCosts
from cryptmpi_tools.tune.error import TuneError

FORMAT = "cryptmpi-profile-1"


def default_path(environment=os.environ):
    """profile.json in the settings' folder, as src/config finds it."""
    xdg = environment.get("XDG_CONFIG_HOME", "")
    folder = Path(xdg) if xdg.startswith("/") else Path(environment.get("HOME") or Path.home()) / ".config"
    return folder / "cryptmpi" / "profile.json"


def candidate(fingerprint, tried):
    """The content of a profile that only says how to send."""
    return {"format": FORMAT, "fingerprint": fingerprint, "plan": tried.as_json()}


def write(path, content):
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        command.write(path, command.as_json(content))
    except (OSError, command.ModelError) as error:
        raise TuneError(f"cannot write the profile {path}: {error}; name another file with -o") from error


@dataclass(frozen=True)
class Profile:
    content: dict
    plans: plans.Plans
    system: pipeline.System
    costs: pipeline.Costs
    reductions: ReductionCosts

    def time(self, size):
        """Seconds that a message is predicted to take."""
        return self.system.time(size, self.plans.of(size), self.costs)

    def measured(self):
        """{bytes: s} of sealed messages under these plans."""
        return {row["size"]: row["us"] * 1e-6 for row in self.content["measurements"]["sealed"]}


def read(path):
    try:
        content = command.read_json(path)
    except command.ModelError as error:
        raise TuneError(f"{error}; make one with: cryptmpi tune") from error
    if content.get("format") != FORMAT:
        raise TuneError(f"{path} is no profile of version {FORMAT}; make one with: cryptmpi tune")
    try:
        return of(content)
    except (KeyError, TypeError, AttributeError, ValueError, StopIteration) as error:
        raise TuneError(f"{path} is not whole ({error!r}); make it again with: cryptmpi tune") from error


def of(content):
    """Profile from its content. Raises what read turns into one line."""
    known = parameters.of(content["model"])
    return Profile(content, plans.plans_of(content["plan"]), system_of(known), pipeline.Costs(**content["costs"]),
                   ReductionCosts(**content.get("reductions", {})))


def system_of(known):
    """The one network and the one cipher of model.parameters.Parameters."""
    (network,), (cipher,) = known.networks.values(), known.ciphers.values()
    return pipeline.System(network, cipher.levels)
